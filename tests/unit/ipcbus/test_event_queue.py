"""Event queues: what they refuse, how they wait, what they report."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from ipcbus import EventQueue
from ipcbus.delivery.received_message import Origin, whole_message
from ipcbus.delivery.sink import Sink
from tests.kit.bus import GIVE_UP_S, LBTIPC, Bus
from tests.kit.cases import each_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ipcbus import Message

ORIGIN = Origin("t", "LBT-IPC:1:1")


@pytest.fixture
def bus(domain: str) -> Iterator[Bus]:
    made = Bus(domain, LBTIPC, "sequential")
    yield made
    made.close()


class Hand:
    """Puts messages by hand and notes what is dispatched."""

    def __init__(self, queue: EventQueue, act: Callable[[Message], object] = bool) -> None:
        self.queue, self.act = queue, act
        self.got: list[int] = []
        self.sink = Sink(self.note, 1, queue._event_buffer)

    def note(self, message: Message) -> None:
        self.got.append(message.sequence_number)
        self.act(message)

    def put(self, *numbers: int) -> None:
        for number in numbers:
            self.queue._event_buffer.put(self.sink, whole_message(ORIGIN, b"x", number, number, 0, 0, None))


def asleep(queue: EventQueue, threads: int = 1) -> None:
    """Waits until so many threads sleep in dispatch."""
    deadline = time.monotonic() + GIVE_UP_S
    while queue._event_buffer.sleepers < threads:
        assert time.monotonic() < deadline
        os.sched_yield()


@contextlib.contextmanager
def signalled_after(wait: Callable[[], object], act: Callable[[], object]) -> Iterator[None]:
    """Interrupts this thread with a signal after a wait; its handler acts once."""
    acted = threading.Event()

    def handle(*_: object) -> None:
        if not acted.is_set():
            acted.set()
            act()

    def interrupt() -> None:
        wait()
        while not acted.wait(0.001):  # a signal just before a system call does not end it
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        yield
    finally:
        acted.set()
        thread.join(GIVE_UP_S)
        signal.signal(signal.SIGUSR1, before)


class Dispatching(threading.Thread):
    """A thread that dispatches once."""

    def __init__(self, queue: EventQueue, timeout: float | None = GIVE_UP_S) -> None:
        super().__init__()
        self.queue, self.timeout = queue, timeout
        self.result: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self.queue.dispatch(self.timeout)
        except BaseException as error:
            self.result = error

    def end(self) -> Any:  # noqa: ANN401
        self.join(GIVE_UP_S)
        assert not self.is_alive()
        return self.result


@each_of("maximum", [0, -1, 2**31, True, 1.5, "10", None])
def test_a_maximum_is_a_number(maximum: Any) -> None:  # noqa: ANN401
    with pytest.raises(ipcbus.ConfigError, match="maximum"):
        EventQueue(maximum)


def test_a_queue_without_arguments_has_a_bound() -> None:
    with EventQueue() as queue:
        assert (queue.maximum, queue.policy) == (10_000, "block")


def test_a_policy_is_one_of_two() -> None:
    with pytest.raises(ipcbus.ConfigError, match="block, drop_oldest"):
        EventQueue(1, "drop_newest")  # type: ignore[arg-type]


def test_options_come_from_keywords_and_config() -> None:
    config = {"event_queue": {"event_queue_name": "orders", "queue_age_enabled": False}}
    queue = EventQueue(3, config=config)
    assert (queue.name, queue.maximum, queue.policy) == ("orders", 3, "block")
    assert "'orders'" in repr(queue)
    assert EventQueue(3, config=config, event_queue_name="trades").name == "trades"
    with pytest.raises(ipcbus.ConfigError, match="event_queue"):
        EventQueue(3, queue_age_enable=True)  # type: ignore[call-arg]


def test_a_queue_is_true_and_has_a_length() -> None:
    queue = EventQueue(3)
    assert queue
    assert len(queue) == 0
    Hand(queue).put(0, 1)
    assert len(queue) == 2
    assert "2 of 3" in repr(queue)


@each_of("timeout", [0, 0.0, -1, 0.01])
def test_an_idle_queue_keeps_the_time(timeout: float) -> None:
    queue = EventQueue(3)
    began = time.monotonic()
    assert queue.dispatch(timeout) == 0
    assert time.monotonic() - began >= timeout
    assert not queue._event_buffer.sleepers


def test_one_call_dispatches_what_is_there() -> None:
    queue = EventQueue(10)
    hand = Hand(queue)
    for timeout in (None, 0, GIVE_UP_S, -1):
        hand.put(0, 1, 2)
        assert queue.dispatch(timeout) == 3
    assert queue.dispatch(0) == 0


def test_a_busy_queue_does_not_keep_the_caller() -> None:
    queue = EventQueue(10)
    hand = Hand(queue, lambda message: hand.put(message.sequence_number + 1))
    hand.put(0)
    assert [queue.dispatch(None) for _ in range(3)] == [1, 1, 1]
    assert hand.got == [0, 1, 2]


def test_no_callback_begins_when_the_time_is_over() -> None:
    queue = EventQueue(10)
    over = threading.Event()
    hand = Hand(queue, lambda message: over.wait(0.02))
    hand.put(0, 1, 2)
    assert queue.dispatch(0.001) == 1
    assert queue.dispatch(GIVE_UP_S) == 2


@pytest.mark.parametrize("timeout", [None, GIVE_UP_S])
def test_a_message_wakes_who_waits(timeout: float | None) -> None:
    queue = EventQueue(10)
    hand = Hand(queue)
    waiting = Dispatching(queue, timeout)
    asleep(queue)
    hand.put(7)
    assert waiting.end() == 1
    assert hand.got == [7]


def test_each_message_wakes_another_thread() -> None:
    queue = EventQueue(10)
    meeting = threading.Barrier(3)
    hand = Hand(queue, lambda message: meeting.wait(GIVE_UP_S))
    waiting = [Dispatching(queue) for _ in range(3)]
    asleep(queue, 3)
    hand.put(0, 1, 2)  # each callback waits for the other two
    assert [thread.end() for thread in waiting] == [1, 1, 1]


def test_who_leaves_with_an_exception_wakes_another_thread_for_the_rest() -> None:
    queue = EventQueue(10)
    hand = Hand(queue)

    def interrupt() -> None:
        hand.put(0)  # wakes the thread that has slept longest: this one
        raise KeyboardInterrupt

    def follow() -> None:
        asleep(queue)
        behind.append(Dispatching(queue))
        asleep(queue, 2)

    behind: list[Dispatching] = []
    with signalled_after(follow, interrupt), pytest.raises(KeyboardInterrupt):
        queue.dispatch(GIVE_UP_S)
    assert behind[0].end() == 1
    assert hand.got == [0]


def test_a_signal_without_an_exception_does_not_end_the_sleep() -> None:
    queue = EventQueue(10)
    hand = Hand(queue)

    def put_later() -> None:
        asleep(queue)
        hand.put(5)

    with signalled_after(lambda: asleep(queue), lambda: later.start()):
        later = threading.Thread(target=put_later)
        assert queue.dispatch(GIVE_UP_S) == 1
    later.join(GIVE_UP_S)
    assert hand.got == [5]


def test_dispatch_inside_its_own_callback_is_refused() -> None:
    queue, other = EventQueue(10), EventQueue(10)
    raised: list[str] = []

    def nested(message: Message) -> None:
        with pytest.raises(ipcbus.IpcBusError) as caught:
            queue.dispatch(0)
        raised.append(str(caught.value))
        Hand(other).put(0)
        assert other.dispatch(0) == 1

    Hand(queue, nested).put(0)
    assert queue.dispatch(0) == 1
    assert "inside" in raised[0]


def test_close_ends_the_waiting() -> None:
    queue = EventQueue(10)
    waiting = [Dispatching(queue, None) for _ in range(3)]
    asleep(queue, 3)
    queue.close()
    queue.close()
    assert [type(thread.end()) for thread in waiting] == [ipcbus.ClosedError] * 3
    assert queue.closed
    assert "closed" in repr(queue)
    with pytest.raises(ipcbus.ClosedError):
        queue.dispatch(0)


def test_what_a_closed_queue_gets_is_dropped_and_counted() -> None:
    with EventQueue(10) as queue:
        hand = Hand(queue)
        hand.put(0, 1)
        assert queue.dropped == 0
    hand.put(2)
    assert (queue.dropped, hand.sink.dropped, hand.got) == (3, 3, [])
    assert queue.statistics().queued == 0


def test_a_callback_may_close_the_queue() -> None:
    queue = EventQueue(10)
    Hand(queue, lambda message: queue.close()).put(0, 1)
    assert queue.dispatch(None) == 1
    assert queue.dropped == 1


def test_statistics() -> None:
    queue = EventQueue(2, "drop_oldest")
    hand = Hand(queue)
    before = queue.statistics()
    assert (before.total, before.queued, before.age_min, before.service_time_max) == (0, 0, None, None)
    hand.put(0, 1, 2)
    now = queue.statistics()
    assert (now.queued, now.total, now.dispatched, now.dropped) == (2, 3, 0, 1)
    assert now.queued_by_kind == {ipcbus.MessageType.DATA: 2}
    queue.dispatch(0)
    after = queue.statistics()
    assert (after.queued, after.total, after.dispatched, after.dropped) == (0, 3, 2, 1)
    assert after.age_min is not None
    assert after.age_mean is not None
    assert after.age_max is not None
    assert 0 < after.age_min <= after.age_mean <= after.age_max < GIVE_UP_S
    assert after.service_time_min is not None
    assert after.service_time_max is not None
    assert 0 < after.service_time_min <= after.service_time_max < GIVE_UP_S


def test_warnings_name_the_queue_and_come_once(caplog: pytest.LogCaptureFixture) -> None:
    queue = EventQueue(10, event_queue_name="slow", queue_size_warning=2, queue_delay_warning=1)
    hand = Hand(queue, lambda message: threading.Event().wait(0.001))
    with caplog.at_level(logging.WARNING, "ipcbus"):
        hand.put(0, 1, 2, 3)
        queue.dispatch(0)
    size, delay = [record.getMessage() for record in caplog.records]
    assert "'slow'" in size
    assert "queue_size_warning = 2" in size
    assert "'slow'" in delay
    assert "queue_delay_warning = 1 us" in delay


def test_a_child_is_refused() -> None:
    queue = EventQueue(10)
    Hand(queue).put(0)
    child = os.fork()
    if not child:
        told = 1
        try:
            queue.dispatch(0)
        except ipcbus.WrongProcess:
            queue.close()
            told = 0 if len(queue) == 1 else 2
        finally:
            os._exit(told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert queue.dispatch(0) == 1


def test_a_receiver_with_a_queue_is_not_pulled_from(bus: Bus) -> None:
    queue = EventQueue(10)
    receiver = bus.receiver("t", print, event_queue=queue)
    calls: list[Callable[[], object]] = [
        lambda: receiver.receive(0),
        lambda: receiver.receive_many(1, 0),
        lambda: receiver.receive_into(bytearray(8), 0),
        lambda: next(iter(receiver)),
    ]
    for call in calls:
        with pytest.raises(ipcbus.IpcBusError, match="callback"):
            call()


def test_a_queue_needs_a_callback(bus: Bus) -> None:
    with pytest.raises(ipcbus.ConfigError, match="no callback"):
        bus.receiver("t", None, event_queue=EventQueue(10))


def test_what_is_no_open_queue_is_refused(bus: Bus) -> None:
    with pytest.raises(ipcbus.ConfigError, match=r"not an ipcbus\.EventQueue"):
        bus.receiver("t", print, event_queue=[])
    queue = EventQueue(10)
    queue.close()
    with pytest.raises(ipcbus.ClosedError):
        bus.receiver("t", print, event_queue=queue)


def test_a_queue_does_not_keep_closed_contexts(bus: Bus) -> None:
    queue = EventQueue(10)
    for _ in range(3):
        context = bus.context()
        for topic in "ab":
            bus.receiver(topic, print, context, event_queue=queue)
    assert len(queue._keeper.drivers()) == 3
    bus.close()
    queue.close()  # tells closed contexts of room


def test_kept_messages_stay_as_they_were(bus: Bus) -> None:
    queue = EventQueue(10)
    kept: list[tuple[Message, memoryview]] = []
    views: list[memoryview] = []

    def note(message: Message) -> None:
        if message.type is not ipcbus.MessageType.DATA:
            return
        views.append(message.view)
        if message.sequence_number % 3 == 0:
            kept.append((message, message.view))

    receiver = bus.receiver("t", note, event_queue=queue)
    source = bus.source("t")
    receiver.wait_for_sources(1, GIVE_UP_S)
    for number in range(30):
        source.send(b"%d" % number * (1 + number % 4))
        bus.until(lambda: queue.dispatch(0), "the message")
    numbers = [int(bytes(view)[: 1 + (number > 9)]) for number, view in enumerate(views)]
    assert numbers == list(range(30))
    for number, (message, view) in zip(range(0, 30, 3), kept, strict=True):
        expected = b"%d" % number * (1 + number % 4)
        assert (message.data, bytes(view), message.sequence_number) == (expected, expected, number)
        assert (message.topic, message.type) == ("t", ipcbus.MessageType.DATA)


def test_messages_share_no_time_of_arrival_across_turns_and_callbacks(bus: Bus) -> None:
    queue, ends = EventQueue(), [0.0]
    clock = time.perf_counter

    def spin(_message: object) -> None:
        ends.append(clock() + 0.03)
        while clock() < ends[-1]:
            pass

    def ages() -> float:
        statistics = queue.statistics()
        return (statistics.age_mean or 0) * statistics.dispatched

    context = bus.context("receiving")
    receiver = bus.receiver("t", bool, context, event_queue=queue)
    source = bus.source("t")
    receiver.wait_for_sources(1, GIVE_UP_S)
    for events in (1, 0):
        sent, before = clock(), ages()
        source.send(b"x", flush=True)
        bus.until(lambda events=events: len(queue) == 1 + events, "the message")  # type: ignore[misc]
        assert queue.dispatch(0) == 1 + events
        assert ages() - before <= (1 + events) * (clock() - sent) + 0.002
        spin(None)
    bus.receiver("t", spin, context).wait_for_sources(1, GIVE_UP_S)
    sent, before = clock(), ages()
    ends.clear()
    source.send_many([b"x", b"y"], flush=True)
    bus.until(lambda: len(queue) == 2, "both messages")
    assert queue.dispatch(0) == 2
    # The second message arrives after the callback for the first one.
    assert ages() - before <= (clock() - sent) + (clock() - ends[0]) + 0.002


def test_a_queue_does_not_keep_closed_receivers(domain: str) -> None:
    queue = EventQueue(10)
    with ipcbus.Context(domain=domain, operational_mode="sequential") as context:
        receiver, source = context.receiver("t", bool, event_queue=queue), context.source("t")
        receiver.wait_for_sources(1, GIVE_UP_S)
        source.send(b"x")
        source.flush()
        while queue.statistics().dispatched < 2:  # its beginning, and the message
            context.process_events(GIVE_UP_S)
            queue.dispatch(0)
    gone = weakref.ref(receiver), weakref.ref(context)
    del receiver, source, context
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
