"""Who drives, when a turn gives way to Python, and how far a pass goes; tests/conformance says that it delivers all."""

from __future__ import annotations

import math
import os
import select
import tempfile
import threading
from typing import TYPE_CHECKING

import pytest

from ipcbus.delivery import pump as pumps
from ipcbus.delivery.pump import DESCRIPTOR, GUESTS, HURRIED, NETWORK, OWN_THREAD, TASKS, URGENT, Pump
from ringbuf.layout import control_view
from ringbuf.memory import Mapping
from ringbuf.shared_words import SharedWords
from tests.kit.bus import GIVE_UP_S
from tests.kit.sessions import Pair, received

if TYPE_CHECKING:
    from collections.abc import Iterator


MESSAGES = 600


def test_messages_that_no_receiver_wants_leave_the_ring_as_fast_as_others(domain: str) -> None:
    """Passes grow with what they take; else a source waits for a receiver that skips its messages."""
    pair = Pair(domain)
    session = pair.join()
    source, _ = pair.topic("not received")
    for _ in range(MESSAGES):
        source.send(b"", flush=True)
    pump = Pump()
    pump.watch([session.demux])
    passes = 0
    while session.demux.no_topic < MESSAGES:
        assert pump.run(0, 0, True) == 0
        passes += 1
    assert passes < MESSAGES // 30  # 16 messages a pass would take twice as many
    pair.close()


@pytest.fixture
def watching() -> tuple[Pump, SharedWords]:
    """A pump without rings that may drive, and the memory of the one word that it watches."""
    with tempfile.TemporaryFile() as file:
        file.truncate(4096)
        words = SharedWords(Mapping(file.fileno(), 4096, True))
    pump = Pump()
    pump.set_timer(60_000_000_000)
    pump.watch([], [words.watched(0)])
    return pump, words


def test_a_watched_word_that_changes_is_handled_in_a_turn(watching: tuple[Pump, SharedWords]) -> None:
    pump, words = watching
    drivers = []

    def look() -> int:
        drivers.append(pump.owner)
        words.store64(0, 0)
        return 3

    pump.look = look
    assert pump.turn(0) == 0
    words.store64(0, 1)
    assert [pump.turn(0), pump.turn(0)] == [3, 0]
    assert (drivers, pump.owner) == ([threading.get_ident()], 0)


def test_an_error_while_a_word_is_handled_leaves_the_pump_free(watching: tuple[Pump, SharedWords]) -> None:
    pump, words = watching

    def fail() -> int:
        raise KeyboardInterrupt

    pump.look = fail
    words.store64(0, 1)
    with pytest.raises(KeyboardInterrupt):
        pump.turn(0)
    assert pump.owner == 0
    pump.look = None
    assert type(pump.turn(0)) is float


FOREVER_NS = 1 << 62
REASONS = [
    pumps.CLOSED,
    pumps.HURRIED,
    pumps.URGENT,
    pumps.EVENTS,
    pumps.SPLIT_DESCRIPTOR,
]


@pytest.fixture
def pump() -> Pump:
    made = Pump()
    made.set_timer(FOREVER_NS)
    return made


def test_a_turn_with_nothing_to_do_looks_and_returns(pump: Pump) -> None:
    assert [pump.turn(timeout) for timeout in (0, 0.0, -1.5, -7)] == [0] * 4
    assert type(pump.turn(0)) is int
    assert pump.owner == 0


@pytest.mark.parametrize("reason", REASONS)
def test_each_reason_sends_a_turn_to_python_until_it_is_taken_back(pump: Pump, reason: int) -> None:
    pump.want(reason)
    assert pump.wants(reason)
    found = pump.turn(0)
    assert (type(found), found) == (float, 0)
    assert pump.turn(2.5) == 2.5
    assert pump.turn(None) == math.inf
    pump.unwant(reason)
    assert type(pump.turn(0)) is int


@pytest.mark.parametrize("reason", [OWN_THREAD, TASKS, GUESTS])
def test_the_own_thread_tasks_and_guests_that_wait_keep_no_turn_from_running(pump: Pump, reason: int) -> None:
    pump.want(reason)
    assert type(pump.turn(0)) is int


def test_in_a_split_context_a_guest_that_waits_may_want_to_call_back_itself() -> None:
    pump = Pump(split=True)
    pump.set_timer(FOREVER_NS)
    pump.want(GUESTS)
    assert type(pump.turn(0)) is float


def test_a_timer_attention_and_an_error_send_a_turn_to_python(pump: Pump) -> None:
    pump.set_timer(0)
    assert type(pump.turn(0)) is float
    pump.set_timer(FOREVER_NS)
    pump.attention = True
    assert type(pump.turn(0)) is float
    pump.attention = False
    pump.pending_error = KeyboardInterrupt()
    assert type(pump.turn(0)) is float


@pytest.mark.parametrize("timeout", [math.nan, "1", True, object(), 1 << 2000])
def test_python_checks_odd_timeouts(pump: Pump, timeout: object) -> None:
    found = pump.turn(timeout)
    assert found != found


def test_a_wait_that_spins_ends_with_its_time_and_one_that_sleeps_goes_on_in_python(pump: Pump) -> None:
    left = pump.turn(100.0)
    assert type(left) is float
    assert 0 < left < 100
    assert pump.turn(None) == math.inf
    spinning = Pump(None, 1 << 62, True)
    spinning.set_timer(FOREVER_NS)
    assert spinning.turn(0.001) == 0
    assert type(spinning.turn(0.001)) is int
    spinning.set_timer(1_000_000)
    left = spinning.turn(100.0)
    assert type(left) is float
    assert 0 < left < 100


def test_a_waiting_turn_gives_way_to_a_reason() -> None:
    spinning = Pump(None, 1 << 62, True)
    spinning.set_timer(FOREVER_NS)
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.append(spinning.turn(None)))
    thread.start()
    while not spinning.owner:
        pass
    assert spinning.owner == thread.ident
    assert not spinning.take()
    assert spinning.turn(3.0) == 3.0  # this thread cannot drive meanwhile
    spinning.want(URGENT)
    spinning.poller.poke()
    thread.join(GIVE_UP_S)
    assert found == [math.inf]
    assert spinning.owner == 0


def test_one_thread_at_a_time_drives_and_wakes_those_that_wait() -> None:
    calls: list[int] = []
    woken: list[Pump] = []
    pump = Pump(lambda: calls.append(woken[0].owner))
    woken.append(pump)
    assert pump.take()
    assert pump.owner == threading.get_ident()
    assert not pump.take()
    pump.give_back()
    assert not calls
    pump.set_timer(FOREVER_NS)
    pump.want(OWN_THREAD)
    assert pump.turn(0) == 0
    assert calls == [0]
    assert pump.take()
    pump.give_back()
    assert calls == [0, 0]


def test_the_lock_is_free_after_an_error_of_a_waker() -> None:
    def refuse() -> None:
        raise ZeroDivisionError

    pump = Pump(refuse)
    pump.set_timer(FOREVER_NS)
    pump.want(OWN_THREAD)
    with pytest.raises(ZeroDivisionError):
        pump.turn(0)
    assert pump.owner == 0


def test_the_child_of_a_fork_frees_a_pump_that_another_thread_drove(pump: Pump) -> None:
    thread = threading.Thread(target=pump.take)
    thread.start()
    thread.join(GIVE_UP_S)
    assert pump.owner
    pump.reset()
    assert pump.take()
    pump.reset()  # the forking thread drives on, inside its callback
    assert pump.owner == threading.get_ident()


def test_a_guest_is_noted() -> None:
    pump = Pump()
    assert pump.ns_since_guest() > 1_000_000_000
    pump.note_guest()
    first = pump.ns_since_guest()
    pump.set_timer(FOREVER_NS)
    pump.turn(0)
    assert first < 1_000_000_000
    assert pump.ns_since_guest() < 1_000_000_000


class Sleeper:
    """A pump that sleeps on a doorbell, a kick and another descriptor."""

    def __init__(self) -> None:
        self.pump = Pump()
        self.pump.set_timer(FOREVER_NS)
        self.epoll = select.epoll()
        self.bell, self.ringer = os.pipe()
        self.kick = os.eventfd(0, os.EFD_NONBLOCK)
        self.other = os.eventfd(0, os.EFD_NONBLOCK)
        for fd in (self.bell, self.kick, self.other):
            self.epoll.register(fd, select.EPOLLIN)
        self.heard: list[tuple[bytes, bool]] = []
        self.armed: list[bool] = []
        self.pump.sleep_on(self.epoll.fileno(), self.bell, self.kick, self.arm, self.answer)

    def arm(self, sleeps: bool) -> bool:
        self.armed.append(sleeps)
        return True

    def answer(self, rung: bytes, readable: bool) -> None:
        self.heard.append((rung, readable))
        if readable:
            os.eventfd_read(self.other)
        self.pump.want(HURRIED)

    def close(self) -> None:
        self.epoll.close()
        for fd in (self.bell, self.ringer, self.kick, self.other):
            os.close(fd)


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    made = Sleeper()
    yield made
    made.close()


def test_a_sleep_ends_with_the_time_of_the_call_or_of_a_timer(sleeper: Sleeper) -> None:
    pump = sleeper.pump
    assert not pump.needs_python()
    assert pump.turn(0.002) == 0
    pump.set_timer(2_000_000)
    found = pump.turn(None)
    assert (type(found), found) == (float, math.inf)
    assert (pump.owner, pump.asleep, sleeper.heard) == (0, False, [])


def test_a_sleep_is_not_ended_by_the_time_to_look_at_descriptors(sleeper: Sleeper) -> None:
    sleeper.pump.set_timer(FOREVER_NS, 1_000_000)
    assert type(sleeper.pump.turn(0.005)) is int


def test_records_and_kicks_alone_are_not_answered_in_python(sleeper: Sleeper) -> None:
    os.write(sleeper.ringer, b"dd")
    os.eventfd_write(sleeper.kick, 1)
    assert sleeper.pump.turn(0.002) == 0
    assert not sleeper.heard
    assert not sleeper.epoll.poll(0)


def test_a_turn_looks_at_the_sockets_of_sessions_over_the_network(sleeper: Sleeper) -> None:
    os.eventfd_write(sleeper.other, 1)
    assert type(sleeper.pump.turn(0)) is int
    assert not sleeper.heard
    sleeper.pump.want(NETWORK)
    while not sleeper.heard:
        sleeper.pump.turn(0)
    assert sleeper.heard == [(b"", True)]
    sleeper.pump.unwant(HURRIED)
    for _ in range(1000):
        assert type(sleeper.pump.turn(0)) is int
    assert len(sleeper.heard) == 1


def test_what_sockets_bring_into_a_ring_is_delivered_by_the_turn_that_reads_them(domain: str, sleeper: Sleeper) -> None:
    pump = sleeper.pump
    pair, _, source = received(domain, pump)

    def read(rung: bytes, readable: bool) -> None:
        os.eventfd_read(sleeper.other)
        source.send(b"", flush=True)

    pump.sleep_on(sleeper.epoll.fileno(), sleeper.bell, sleeper.kick, sleeper.arm, read)
    pump.want(NETWORK)
    for _ in range(3):
        os.eventfd_write(sleeper.other, 1)
        while sleeper.epoll.poll(0):
            delivered = pump.turn(0)
        assert delivered > 0
    pair.close()


def test_sockets_that_wait_for_room_are_read_after_messages_though_they_are_not_readable(
    domain: str, sleeper: Sleeper
) -> None:
    pump = sleeper.pump
    pair, _, source = received(domain, pump)
    heard: list[bool] = []
    pump.sleep_on(
        sleeper.epoll.fileno(), sleeper.bell, sleeper.kick, sleeper.arm, lambda _, readable: heard.append(readable)
    )
    pump.want(NETWORK)
    source.send(b"", flush=True)
    for _ in range(1000):
        pump.turn(0)
    assert heard == []  # nothing waits for room
    pump.room_awaited = True
    while not heard:
        pump.turn(0)
    for _ in range(1000):
        pump.turn(0)
    assert heard == [True]
    pair.close()


def test_what_else_a_sleep_hears_goes_to_python(sleeper: Sleeper) -> None:
    os.write(sleeper.ringer, b"dnd")
    assert sleeper.pump.turn(None) == math.inf
    sleeper.pump.unwant(HURRIED)
    os.eventfd_write(sleeper.other, 1)
    sleeper.pump.set_timer(FOREVER_NS)  # held up for 10 ms since the last turn, it would ask for Python's turn first
    assert sleeper.pump.turn(None) == math.inf
    assert sleeper.heard == [(b"dnd", False), (b"", True)]
    assert not sleeper.epoll.poll(0)


def test_a_thread_that_sleeps_is_woken_by_a_kick(sleeper: Sleeper) -> None:
    pump = sleeper.pump
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.append(pump.turn(None)))
    thread.start()
    while not pump.asleep:
        pass
    pump.want(URGENT)
    os.eventfd_write(sleeper.kick, 1)
    thread.join(GIVE_UP_S)
    assert (found, pump.owner, pump.asleep) == ([math.inf], 0, False)


def test_a_message_does_not_wait_for_what_the_doorbell_says(domain: str, sleeper: Sleeper) -> None:
    pump = sleeper.pump
    pair, _, source = received(domain, pump)
    pump.turn(0)
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.append(pump.turn(None)))
    thread.start()
    while not pump.asleep:
        pass
    source.send(b"", flush=True)
    os.write(sleeper.ringer, b"nd")
    thread.join(GIVE_UP_S)
    assert (found, sleeper.heard) == ([1], [])
    assert pump.turn(None) == math.inf
    assert sleeper.heard == [(b"nd", False)]
    assert not sleeper.epoll.poll(0)
    pair.close()


def test_a_wait_spins_instead_of_a_sleep_after_a_short_one(
    sleeper: Sleeper, watching: tuple[Pump, SharedWords]
) -> None:
    _, words = watching

    def look() -> int:
        words.store64(0, 0)
        return 1

    def wake() -> None:
        words.store64(0, 1)
        os.write(sleeper.ringer, b"d")

    def turn(pump: Pump) -> None:
        waking = threading.Timer(0.001, wake)
        waking.start()
        while pump.turn(None) != 1:  # else Python has a turn first, as once a slice after a sleep
            pump.set_timer(FOREVER_NS)
        waking.join()

    spun = 0
    for _ in range(20):  # on a busy machine the word may change before the first turn sleeps, or too late
        pump = sleeper.pump = Pump(linger_ns=int(GIVE_UP_S * 1e9))
        pump.set_timer(FOREVER_NS)
        pump.sleep_on(sleeper.epoll.fileno(), sleeper.bell, sleeper.kick, sleeper.arm, sleeper.answer)
        pump.watch([], [words.watched(0)])
        pump.look = look
        sleeper.armed.clear()
        while select.select([sleeper.bell], [], [], 0)[0]:
            os.read(sleeper.bell, 64)
        turn(pump)
        slept = list(sleeper.armed)
        turn(pump)
        spun += (slept, sleeper.armed) == ([True], [True, False])
    assert spun > 5  # 0 or 1 without a spin, 17 to 20 with it


def test_control_channels_are_armed_for_each_sleep(sleeper: Sleeper, watching: tuple[Pump, SharedWords]) -> None:
    _, words = watching
    sleeper.pump.watch([], [words.watched(0)])
    assert sleeper.pump.turn(0.001) == 0
    assert set(sleeper.armed) == {True}  # what ends the sleep does not wait for the channels
    sleeps = len(sleeper.armed)
    for _ in range(3):
        assert sleeper.pump.turn(0) == 0
    assert sleeper.armed[sleeps:] == [False]  # once, in the first turn without a sleep


def test_an_error_while_it_arms_leaves_the_pump_awake_and_free(
    sleeper: Sleeper, watching: tuple[Pump, SharedWords]
) -> None:
    def fail(sleeps: bool) -> bool:
        if sleeps:
            raise KeyboardInterrupt
        return True

    _, words = watching
    sleeper.pump.sleep_on(sleeper.epoll.fileno(), sleeper.bell, sleeper.kick, fail, sleeper.answer)
    sleeper.pump.watch([], [words.watched(0)])
    with pytest.raises(KeyboardInterrupt):
        sleeper.pump.turn(None)
    assert (sleeper.pump.owner, sleeper.pump.asleep) == (0, False)


@pytest.fixture
def watched(sleeper: Sleeper) -> Sleeper:
    """Its descriptor is watched, and there is nothing to do."""
    sleeper.pump.want(DESCRIPTOR)
    assert sleeper.pump.turn(0) == 0
    assert not readable(sleeper)
    return sleeper


def readable(sleeper: Sleeper) -> bool:
    """Whether the descriptor asks for a turn."""
    return bool(sleeper.epoll.poll(0))


def answer_all(sleeper: Sleeper) -> None:
    """Makes turns until the descriptor asks for none; a turn does not look at it each time."""
    while readable(sleeper):
        sleeper.pump.unwant(HURRIED)
        sleeper.pump.turn(0)


def test_a_kick_and_a_ring_for_records_are_forgotten_without_python(watched: Sleeper) -> None:
    os.eventfd_write(watched.kick, 1)
    os.write(watched.ringer, b"dd")
    assert readable(watched)
    answer_all(watched)
    assert watched.heard == []


def test_what_only_python_answers_keeps_the_descriptor_readable_until_python_has_run(watched: Sleeper) -> None:
    os.write(watched.ringer, b"dn")
    while not watched.heard:
        assert readable(watched)
        watched.pump.turn(0)
    assert watched.heard == [(b"dn", False)]  # which hurries
    assert readable(watched)
    assert type(watched.pump.turn(0)) is float
    watched.pump.unwant(HURRIED)
    watched.pump.arm_descriptor()
    answer_all(watched)


def test_a_descriptor_is_readable_while_a_session_has_messages(domain: str, sleeper: Sleeper) -> None:
    pump = sleeper.pump
    pair, _, source = received(domain, pump)
    pump.want(DESCRIPTOR)
    answer_all(sleeper)
    pump.turn(0)
    sleeps = [pump.armed]
    for _ in range(MESSAGES):
        source.send(b"", flush=True)
    assert 0 < pump.turn(0) < MESSAGES
    assert readable(sleeper)
    sleeps.append(pump.armed)  # the source need not ring
    answer_all(sleeper)
    assert len(pair.got) == MESSAGES + 1  # the beginning too
    sleeps.append(pump.armed)
    pump.unwant(DESCRIPTOR)
    pump.turn(0)
    sleeps.append(pump.armed)
    assert sleeps == [True, False, True, False]
    pair.close()


def test_a_source_that_has_rung_finds_the_context_armed_again(domain: str, sleeper: Sleeper) -> None:
    pump = sleeper.pump
    pair, session, source = received(domain, pump)
    header = control_view(pair.sending.channel.control.view())[0]
    pump.want(DESCRIPTOR)
    answer_all(sleeper)
    pump.turn(0)
    shown = [int(header["parked"])]
    for _ in range(2):
        source.send(b"", flush=True)
        shown.append(int(header["parked"]))
        os.write(sleeper.ringer, b"d")  # as the session does
        answer_all(sleeper)
        shown.append(int(header["parked"]))
    armed = 1 << session.datagram_source.index
    assert shown == [armed, 0, armed, 0, armed]
    pair.close()


@pytest.mark.parametrize("waiting", [TASKS, GUESTS])
def test_tasks_and_guests_hear_of_what_a_turn_delivers(domain: str, pump: Pump, waiting: int) -> None:
    pair, _, source = received(domain, pump)
    heard: list[bool] = []
    pump.delivered = lambda: heard.append(True)
    pump.want(waiting)
    pump.turn(0)
    assert heard == []
    source.send(b"", flush=True)
    assert pump.turn(0) == len(heard) == 1
    pair.close()
