"""What a context's own thread does between its wake-up and the first line of Python."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import select
import threading
import time
import weakref
from typing import TYPE_CHECKING

import pytest

from ipcbus.delivery.linger import Linger
from ipcbus.delivery.pump import CLOSED, DESCRIPTOR, GUESTS, HURRIED, TASKS, Pump
from ipcbus.reliability.retransmit_window import RetransmitWindow
from ipcbus.runtime.loop.own_rest import OwnRest, stand_by
from ipcbus.transport.tcp.outflow import RecordStream
from ipcbus.transport.udp.datagram_relay import CAME, HAS_MORE, LEFT, NOTHING_CAME, RecordSender
from ringbuf import liveness, segment
from ringbuf.answer_wait import AnswerWait
from ringbuf.held_locks import HeldLocks
from ringbuf.slot_doorbells import SlotDoorbells
from tests.kit.sessions import received
from tests.kit.waiting import repeated
from tests.rings.channels import joined, owned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringbuf.channel import OwnedChannel
    from ringbuf.ring import RingReader

LONG_S = 60.0


class Woken:
    """A pump with a message in its ring, and an epoll that is ready at once."""

    def __init__(self, domain: str) -> None:
        self.pump = Pump()
        self.pair, _, self.source = received(domain, self.pump)
        self.source.send(b"", flush=True)
        self.epoll = select.epoll()
        self.bell = os.eventfd(1)
        self.epoll.register(self.bell, select.EPOLLIN)

    def rest(self) -> OwnRest:
        return OwnRest(weakref.ref(self.pump), self.epoll, LONG_S)()

    def close(self) -> None:
        self.epoll.close()
        os.close(self.bell)
        self.pair.close()


@pytest.fixture
def woken(domain: str) -> Iterator[Woken]:
    made = Woken(domain)
    yield made
    made.close()


@pytest.fixture
def held(domain: str) -> Iterator[tuple[int, HeldLocks]]:
    """The descriptor that holds a lock, and the lock as another process sees it."""
    name = f"ipcbus.{domain}.l"
    fd = segment.create(name, 4096)
    other = segment.open_fd(name, write=False)
    assert liveness.take(fd, 0)
    yield fd, HeldLocks([(other, 0)])
    os.close(other)
    os.close(fd)
    segment.remove(name)


def test_a_rest_delivers_what_has_woken_it(woken: Woken) -> None:
    assert woken.pump.take()
    rest = woken.rest()
    assert (rest.take(), rest.woken) == (1, [woken.bell])
    assert woken.rest().take() == 0


def test_a_thread_that_does_not_drive_delivers_nothing(woken: Woken) -> None:
    assert woken.rest().take() == 0
    assert woken.pump.run(0, 0, True) == 1


def test_a_context_that_is_closed_delivers_nothing(woken: Woken) -> None:
    assert woken.pump.take()
    woken.pump.want(CLOSED)
    assert woken.rest().take() == 0


def test_a_rest_that_time_ends_delivers_nothing(woken: Woken) -> None:
    assert woken.pump.take()
    os.eventfd_read(woken.bell)
    rest = OwnRest(weakref.ref(woken.pump), woken.epoll, 0.001)()
    assert (rest.take(), rest.woken) == (0, [])


def test_a_rest_looks_for_a_moment_where_sleeps_are_short(woken: Woken) -> None:
    linger = Linger(1 << 40, 0)
    linger.slept(1)
    rest = OwnRest(weakref.ref(woken.pump), woken.epoll, LONG_S, linger)()
    assert rest.woken == [woken.bell]
    assert linger.allowed(1 << 62) == 1 << 40  # after a spin that has found something, no sleep has to come first
    assert linger.allowed(0) == 0


def test_a_rest_that_does_not_look_counts_its_sleep(woken: Woken) -> None:
    linger = Linger(1 << 40, 0)
    for _ in range(2):
        assert OwnRest(weakref.ref(woken.pump), woken.epoll, LONG_S, linger)().woken == [woken.bell]
    assert linger.allowed(1 << 62) == 1 << 40


def test_a_look_in_vain_ends_in_a_sleep(woken: Woken) -> None:
    os.eventfd_read(woken.bell)
    linger = Linger(1, 0)
    linger.slept(1)
    assert OwnRest(weakref.ref(woken.pump), woken.epoll, 0.001, linger)().woken == []


def looking(woken: Woken, locks: HeldLocks, seconds: float) -> OwnRest:
    rest = OwnRest(weakref.ref(woken.pump), woken.epoll, seconds)
    rest.look_at(locks, 0.001, 0.001)
    return rest


def test_a_rest_with_locks_goes_on_while_they_are_held(woken: Woken, held: tuple[int, HeldLocks]) -> None:
    fd, locks = held
    os.eventfd_read(woken.bell)
    looking(woken, locks, 0.01)()
    releasing = threading.Timer(0.02, liveness.release, (fd, 0))
    releasing.start()
    rest = looking(woken, locks, LONG_S)()
    assert (locks.all_held(), rest.woken) == (False, [])
    releasing.join()


def test_a_rest_with_locks_ends_when_a_descriptor_is_readable(woken: Woken, held: tuple[int, HeldLocks]) -> None:
    _, locks = held
    rest = looking(woken, locks, LONG_S)()
    assert rest.woken == [woken.bell]


class Fetching:
    """What stands in for a session over the network: its fetch publishes a message as long as there are any."""

    def __init__(self, woken: Woken, comes: list[int], *, readable: bool = True) -> None:
        self.woken, self.comes = woken, comes
        assert woken.pump.take()
        linger = Linger(1 << 40, 1 << 40)
        linger.slept(1)
        fd = woken.bell if readable else woken.bell + 1
        self.rest = OwnRest(weakref.ref(woken.pump), woken.epoll, LONG_S, linger)
        self.rest.fetch_first(fd, self)

    def __call__(self) -> int:
        self.woken.source.send(b"", flush=True)
        return self.comes.pop(0)


def test_a_rest_fetches_and_delivers_until_something_else_comes(woken: Woken) -> None:
    fetching = Fetching(woken, [CAME, CAME, HAS_MORE])
    handled = 0
    while fetching.comes:  # on a busy machine the 10 ms of a rest may end before
        rest = fetching.rest()
        handled += rest.take()
    assert handled == 4  # with the message that was there before
    assert (rest.woken, rest.fetched) == ([woken.bell], False)


@pytest.mark.parametrize("reason", [GUESTS, TASKS, DESCRIPTOR])
def test_a_rest_ends_after_a_delivery_that_somebody_awaits(woken: Woken, reason: int) -> None:
    fetching = Fetching(woken, [CAME])
    woken.pump.want(reason)
    rest = fetching.rest()
    assert rest.take() == 2
    assert rest.fetched


def test_a_rest_ends_where_python_has_work(woken: Woken) -> None:
    fetching = Fetching(woken, [CAME])
    woken.pump.want(HURRIED)
    assert fetching.rest().take() == 2


def test_a_rest_goes_on_after_what_only_a_source_takes_note_of(woken: Woken) -> None:
    assert woken.pump.take()
    assert woken.pump.run(0, 0, True) == 1
    notes: list[int] = []
    again = False

    def note() -> int:
        nonlocal again
        again = not again
        if not again:
            return NOTHING_CAME
        notes.append(os.eventfd_read(woken.bell))
        if len(notes) < 4:
            os.eventfd_write(woken.bell, 1)
        if len(notes) == 3:
            again = False
        return CAME if len(notes) != 3 else HAS_MORE

    rest = OwnRest(weakref.ref(woken.pump), woken.epoll, LONG_S)
    rest.fetch_first(woken.bell, note)
    rest()
    assert (rest.take(), rest.woken, rest.fetched, len(notes)) == (0, [woken.bell], False, 3)  # something else has come
    rest = OwnRest(weakref.ref(woken.pump), woken.epoll, 0.001)
    rest.fetch_first(woken.bell, note)
    rest()
    assert (rest.take(), rest.woken, len(notes)) == (0, [], 4)  # the time has ended it
    os.eventfd_write(woken.bell, 1)
    woken.pump.want(HURRIED)
    rest = OwnRest(weakref.ref(woken.pump), woken.epoll, LONG_S)
    rest.fetch_first(woken.bell, note)
    rest()
    assert (rest.take(), rest.woken, len(notes)) == (0, [woken.bell], 5)  # Python has work


def test_a_rest_goes_on_after_a_delivery_that_only_its_callback_awaits(domain: str) -> None:
    found = set()
    for _ in range(5):  # a rest also ends early where another process has had the processor for a slice
        with contextlib.closing(Woken(domain)) as woken:
            assert woken.pump.take()
            calls: list[bool] = []

            def fetch(woken: Woken = woken, calls: list[bool] = calls) -> int:
                calls.append(True)
                if len(calls) < 4:
                    woken.source.send(b"", flush=True)
                return CAME if len(calls) < 4 else HAS_MORE

            rest = OwnRest(weakref.ref(woken.pump), woken.epoll, LONG_S)
            rest.fetch_first(woken.bell, fetch)
            os.eventfd_write(woken.bell, 1)
            found.add((rest().take(), rest.fetched, len(calls)))
    assert (4, False, 4) in found
    assert found <= {(4, False, 4), *((calls + 1, True, calls) for calls in (1, 2, 3))}


@pytest.mark.parametrize(("early_s", "sleeps"), [(0.0, 1), (LONG_S, 2)])
def test_a_rest_ends_after_a_delivery_where_timers_may_run_early(domain: str, early_s: float, sleeps: int) -> None:
    found = set()
    for _ in range(5):  # a rest also ends early where another process has had the processor for a slice
        with contextlib.closing(Woken(domain)) as woken:
            assert woken.pump.take()
            came = iter((CAME, NOTHING_CAME, CAME, HAS_MORE))
            woken.source.send(b"", flush=True)
            rest = OwnRest(weakref.ref(woken.pump), woken.epoll, LONG_S, None, early_s)
            rest.fetch_first(woken.bell, functools.partial(next, came))
            rest()
            found.add((rest.take(), len(list(came))))
    assert (2, 4 - 2 * sleeps) in found
    assert found <= {(2, left) for left in range(4 - 2 * sleeps, 4)}


@pytest.mark.parametrize("lingers", [False, True])
def test_a_rest_ends_though_messages_come_without_end(woken: Woken, lingers: bool) -> None:
    assert woken.pump.take()

    def fetch() -> int:
        woken.source.send(b"", flush=True)
        return CAME

    linger = Linger(1 << 40, 1 << 40) if lingers else None
    rest = OwnRest(weakref.ref(woken.pump), woken.epoll, LONG_S, linger)
    rest.fetch_first(woken.bell, fetch)  # it stays readable, as another socket behind it may be the one
    assert rest().take() > 0


def test_a_rest_leaves_to_python_a_readable_socket_that_its_fetch_does_not_read(woken: Woken) -> None:
    assert woken.pump.take()
    assert woken.pump.run(0, 0, True) == 1
    rest = OwnRest(weakref.ref(woken.pump), woken.epoll, LONG_S)
    rest.fetch_first(woken.bell, lambda: NOTHING_CAME)
    rest()
    assert (rest.take(), rest.woken, rest.fetched) == (0, [woken.bell], False)


def test_a_rest_does_not_look_at_the_network_while_another_thread_takes_what_comes(woken: Woken) -> None:
    assert woken.pump.take()
    assert woken.pump.run(0, 0, True) == 1
    looks: list[int] = []

    def fetch() -> int:
        looks.append(time.monotonic_ns())
        if len(looks) == 3:
            os.eventfd_read(woken.bell)  # the other thread has stopped, and this one takes it
            return CAME
        return LEFT if len(looks) < 3 else NOTHING_CAME

    other = os.eventfd(0, os.EFD_NONBLOCK)
    try:
        rest = OwnRest(weakref.ref(woken.pump), woken.epoll, 0.05)
        rest.fetch_first(woken.bell, fetch, (other,))
        rest()
        assert (rest.take(), len(looks)) == (0, 4)
        assert looks[2] - looks[0] >= 1_000_000  # twice 500 us
    finally:
        os.close(other)


def test_a_rest_fetches_only_from_the_network(woken: Woken) -> None:
    rest = Fetching(woken, [], readable=False).rest()
    assert (rest.take(), rest.fetched) == (1, False)


def test_an_error_waits_until_the_messages_are_taken(woken: Woken) -> None:
    rest = OwnRest(lambda: 5, woken.epoll, LONG_S)  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError):
        rest().take()


def test_a_rest_does_not_keep_the_pump(woken: Woken) -> None:
    rest = OwnRest(weakref.ref(Pump()), woken.epoll, LONG_S)
    gc.collect()
    assert rest().take() == 0


# ---- while a thread of the application drives

STAND_BACK_NS = 2_000_000
LONG_NS = 60_000_000_000


def test_the_thread_stands_by_no_longer_than_threads_drive() -> None:
    pump, kick = Pump(), os.eventfd(0)
    assert stand_by(pump, kick, STAND_BACK_NS, LONG_NS)
    pump.note_guest()
    assert stand_by(pump, kick, STAND_BACK_NS, LONG_NS)
    assert pump.ns_since_guest() >= STAND_BACK_NS
    assert pump.take()  # and sleeps, as it has not noted anything for longer
    assert stand_by(pump, kick, STAND_BACK_NS, STAND_BACK_NS)
    os.close(kick)


def test_the_thread_stands_by_while_one_drives_again_and_again() -> None:
    pump, kick = Pump(), os.eventfd(0)
    rounds: list[int] = []
    done = threading.Event()

    def drive() -> None:
        while len(rounds) < 300:
            assert pump.take()
            pump.note_guest()
            pump.give_back()
            rounds.append(pump.ns_since_guest())
        pump.forget_guest()
        done.set()

    pump.note_guest()
    thread = threading.Thread(target=drive)
    thread.start()
    while not done.is_set():
        assert stand_by(pump, kick, LONG_NS // 60_000, LONG_NS)
    thread.join()
    assert stand_by(pump, kick, STAND_BACK_NS, LONG_NS)
    os.close(kick)


def test_a_kick_ends_the_stand_by() -> None:
    pump, kick = Pump(), os.eventfd(0)
    pump.note_guest()
    timer = threading.Timer(0.01, os.eventfd_write, (kick, 1))
    timer.start()
    assert not stand_by(pump, kick, LONG_NS, LONG_NS)
    timer.join()
    os.close(kick)


class Asking:
    """The rest of a thread whose context wakes another one."""

    def __init__(self, woken: Woken, channel: OwnedChannel, reader: RingReader, longest: int) -> None:
        self.woken, self.reader = woken, reader
        self.kick = os.eventfd(0, os.EFD_NONBLOCK)
        woken.epoll.register(self.kick, select.EPOLLIN)
        self.answers = AnswerWait(self.kick)
        self.doorbells = SlotDoorbells(channel.writer, lambda slot: slot == 0, self.answers)
        self.linger = Linger(longest, longest)

    def ring(self) -> None:
        self.reader.arm(True)
        assert self.doorbells.ring(1) == 1

    def rest(self) -> OwnRest:
        rest = OwnRest(weakref.ref(self.woken.pump), self.woken.epoll, LONG_S)
        rest.await_answers(self.answers, self.linger)
        return rest()

    def get_answer(self) -> None:
        """Makes the experience that an answer comes soon; the next rest finds no descriptor readable."""
        self.ring()
        assert (self.rest().take(), self.kicks()) == (1, 0)
        os.eventfd_read(self.woken.bell)

    def kicks(self) -> int:
        try:
            return os.eventfd_read(self.kick)
        except BlockingIOError:
            return 0


@pytest.fixture
def asking(woken: Woken, domain: str, request: pytest.FixtureRequest) -> Iterator[Asking]:
    with owned(domain) as channel, joined(domain) as reader:
        made = Asking(woken, channel, reader.reader, getattr(request, "param", 1 << 40))
        assert woken.pump.take()
        yield made
        os.close(made.kick)


def test_a_rest_spins_for_an_answer_where_the_last_one_came_soon(asking: Asking) -> None:
    asking.get_answer()
    asking.ring()
    asking.woken.source.send(b"", flush=True)
    rest = asking.rest()
    assert (rest.take(), rest.woken) == (1, [])


@pytest.mark.parametrize("asking", [1_000_000], indirect=True)
def test_a_doorbell_that_the_context_rings_ends_the_sleep(asking: Asking) -> None:
    asking.get_answer()
    with repeated(asking.ring, 0.005):
        rest = asking.rest()
    assert rest.take() == 0
    assert rest.woken in ([], [asking.kick])  # before the sleep, or in it


def test_without_an_answer_before_a_rest_does_not_spin(asking: Asking) -> None:
    asking.ring()
    rest = asking.rest()
    assert (rest.woken, asking.kicks()) == ([asking.woken.bell], 0)


def test_each_answer_takes_one_ring(asking: Asking) -> None:
    asking.get_answer()
    asking.woken.source.send(b"", flush=True)
    os.eventfd_write(asking.woken.bell, 1)
    assert asking.rest().woken == [asking.woken.bell]


@pytest.mark.parametrize("asking", [1_000_000], indirect=True)
@pytest.mark.parametrize("kind", [RecordSender, RecordStream])
def test_a_datagram_that_the_context_sends_ends_the_sleep(
    asking: Asking, kind: type[RecordSender | RecordStream]
) -> None:
    sent: list[int] = []
    lock = threading.RLock()
    records: RecordSender | RecordStream
    if kind is RecordSender:
        records = RecordSender(asking.reader, RetransmitWindow(1 << 20, 1 << 10), 1)
        records.allow(1, lock, sent.append, lambda pairs: None, lambda: None, asking.answers)
    else:
        records = RecordStream(asking.reader, 1)
        records.allow(1, lock, sent.append, lambda: None, asking.answers)
    asking.get_answer()
    with repeated(lambda: records(1), 0.005):
        rest = asking.rest()
    assert (rest.take(), set(sent)) == (0, {1})
    assert rest.woken in ([], [asking.kick])  # before the sleep, or in it


class AskingOverNetwork(Asking):
    """The same where the answer comes over a socket, which fetches a message into the ring."""

    def __init__(self, woken: Woken, channel: OwnedChannel, reader: RingReader, longest: int) -> None:
        super().__init__(woken, channel, reader, longest)
        assert woken.pump.run(0, 0, True) == 1
        os.eventfd_read(woken.bell)
        self.socket, self.network = os.eventfd(0, os.EFD_NONBLOCK), select.epoll()
        self.network.register(self.socket, select.EPOLLIN)
        woken.epoll.register(self.network.fileno(), select.EPOLLIN)
        self.comes = 0

    def answer(self) -> None:
        """Makes one message come, after which Python has work, so that the rest ends."""
        self.comes = 1
        os.eventfd_write(self.socket, 1)

    def fetch(self) -> int:
        if not self.comes:
            return NOTHING_CAME
        os.eventfd_read(self.socket)
        self.comes = 0
        self.woken.source.send(b"", flush=True)
        self.woken.pump.want(HURRIED)
        return CAME

    def rest(self) -> OwnRest:
        self.woken.pump.unwant(HURRIED)
        rest = OwnRest(weakref.ref(self.woken.pump), self.woken.epoll, LONG_S)
        rest.fetch_first(self.network.fileno(), self.fetch)
        rest.await_answers(self.answers, self.linger)
        return rest()

    def get_answer(self) -> None:
        self.ring()
        self.answer()
        assert (self.rest().take(), self.kicks()) == (1, 0)

    def ask(self, *, kicks: bool = False) -> OwnRest:
        """Returns the rest in which the context asks, another thread kicks it as well, and the answer comes."""

        def ask() -> None:
            self.ring()
            if kicks:
                os.eventfd_write(self.kick, 1)
            self.answer()

        asking = threading.Timer(0.02, ask)
        asking.start()
        rest = self.rest()
        asking.join()
        return rest


@pytest.fixture
def over_network(woken: Woken, domain: str, request: pytest.FixtureRequest) -> Iterator[AskingOverNetwork]:
    with owned(domain) as channel, joined(domain) as reader:
        assert woken.pump.take()
        made = AskingOverNetwork(woken, channel, reader.reader, getattr(request, "param", 1 << 40))
        yield made
        made.network.close()
        os.close(made.socket)
        os.close(made.kick)


def test_a_rest_spins_for_an_answer_over_the_network(over_network: AskingOverNetwork) -> None:
    over_network.get_answer()
    for _ in range(3):
        rest = over_network.ask()
        assert (rest.take(), rest.woken, over_network.kicks()) == (1, [over_network.network.fileno()], 0)


def test_a_kick_of_another_thread_beside_an_answer_is_not_lost(over_network: AskingOverNetwork) -> None:
    over_network.get_answer()
    rest = over_network.ask(kicks=True)
    assert over_network.kick in rest.woken or over_network.kicks() == 1


@pytest.mark.parametrize("over_network", [1_000_000], indirect=True)
def test_a_spin_in_vain_for_the_network_ends_the_rest(over_network: AskingOverNetwork) -> None:
    over_network.get_answer()
    with repeated(over_network.ring, 0.005):
        rest = over_network.rest()
    assert (rest.take(), rest.woken) in ((0, []), (0, [over_network.kick]))  # the next ring may have kicked, too
    over_network.kicks()
    vain: tuple[int, list[int]] = (0, [])
    found = vain
    for _ in range(5):  # a late ring of the thread may have been one more in vain
        if found == vain:
            rest = over_network.ask()  # the next one sleeps, and does not spin
            found = rest.take(), list(rest.woken)
    assert found == (1, [over_network.network.fileno()])


def test_an_answer_to_which_the_callback_sends_something_is_learned_from(over_network: AskingOverNetwork) -> None:
    class Forwarded(list[str]):
        def append(self, text: str) -> None:
            over_network.ring()
            super().append(text)

    over_network.woken.pair.got = Forwarded()
    over_network.get_answer()
    assert over_network.linger.allowed(1 << 62) == 1 << 40


def test_what_another_kind_of_rest_has_learned_wakes_none_over_the_network(
    over_network: AskingOverNetwork,
) -> None:
    Asking.ring(over_network)
    over_network.woken.source.send(b"", flush=True)
    os.eventfd_write(over_network.woken.bell, 1)
    assert Asking.rest(over_network).take() == 1  # answers of rings come soon
    os.eventfd_read(over_network.woken.bell)
    over_network.linger = Linger(1 << 40, 1 << 40)  # those over the network do not, as far as known
    sending = threading.Timer(0.02, over_network.ring)
    ending = threading.Timer(0.05, over_network.answer)
    sending.start()
    ending.start()
    rest = over_network.rest()
    assert (rest.take(), rest.woken, over_network.kicks()) == (1, [over_network.network.fileno()], 0)
    sending.join()
    ending.join()
