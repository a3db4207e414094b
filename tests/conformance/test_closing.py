"""What still happens once a context is being closed: no callback starts, unless it is to be drained."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import EventQueue, MessageType
from ipcbus.context_closing import close_all
from ipcbus.errors import GmdError
from tests.kit.bus import GIVE_UP_S, LBTIPC, RECEIVER_PACED, Bus, Kind
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Context, Message, Receiver, Source

BOS, DATA = MessageType.BOS, MessageType.DATA

one_transport = pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))
rings = pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))


class Slow:
    """A callback that keeps its thread from the first call on, until it is let go."""

    def __init__(self) -> None:
        self.kinds: list[MessageType] = []
        self.called, self.go = threading.Event(), threading.Event()

    def __call__(self, message: Message) -> None:
        self.kinds.append(message.type)
        self.called.set()
        assert self.go.wait(GIVE_UP_S)


class Driving:
    """A thread that drives a context where the context has none for that."""

    def __init__(self, context: Context, work: Callable[[], object] | None = None) -> None:
        self._context, self._work = context, work
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._context._closed:
            try:
                if self._work is not None:
                    self._work()
                elif self._context._processes:
                    self._context.process_events(0.01)
                else:
                    return
            except ipcbus.ClosedError:
                return

    def join(self) -> None:
        self._thread.join(GIVE_UP_S)
        assert not self._thread.is_alive()


def close_during(context: Context, receiver: Receiver, slow: Slow, driving: Driving) -> None:
    """Closes the context from another thread while the callback runs, which ends when the close has begun."""
    assert slow.called.wait(GIVE_UP_S)
    closing = threading.Thread(target=context.close)
    closing.start()
    noticed = threading.Event()
    for _ in range(int(GIVE_UP_S / 0.01)):
        if receiver.closed or noticed.wait(0.01):
            break
    began = receiver.closed
    slow.go.set()
    closing.join(GIVE_UP_S)
    driving.join()
    assert began, "the receiver was open still while its context was being closed"


@pytest.mark.parametrize("wildcard", [False, True], ids=["topic", "pattern"])
def test_no_callback_starts_once_the_context_is_being_closed(bus: Bus, wildcard: bool) -> None:
    slow = Slow()
    context = bus.context("closing")
    receiver = (context.wildcard_receiver if wildcard else context.receiver)("t", slow)
    source = bus.source()
    bus.joined(source)
    for number in range(20):
        source.send(body(number))
    source.flush()
    close_during(context, receiver, slow, Driving(context))
    assert slow.kinds == [BOS]


@rings
def test_nothing_is_dispatched_once_the_context_is_being_closed(bus: Bus) -> None:
    slow, queue = Slow(), EventQueue(100)
    context = bus.context("closing")
    receiver = context.receiver("t", slow, event_queue=queue)
    source = bus.source()
    bus.joined(source)
    for number in range(20):
        source.send(body(number))
    source.flush()
    bus.until(lambda: len(queue) == 21, "all to wait")
    close_during(context, receiver, slow, Driving(context, lambda: queue.dispatch(0.01)))
    assert slow.kinds == [BOS]
    while len(queue):
        assert queue.dispatch(0) == 0
    assert receiver.dropped == queue.dropped == 20


@one_transport
def test_no_source_event_is_told_once_the_context_is_being_closed(bus: Bus) -> None:
    called, go = threading.Event(), threading.Event()
    told: list[object] = []

    def tell(event: object) -> None:
        told.append(event)
        called.set()
        assert go.wait(GIVE_UP_S)

    context = bus.context("closing")
    for _ in range(2):
        bus.receiver("t", None, bus.context(mode="embedded"))
    pause = threading.Event()
    with context._event_loop.driver_lock():  # so that both are told of in one turn
        source = bus.source("t", context, on_event=tell)
        while source.receivers < 2:
            pause.wait(0.001)
    driving = Driving(context)
    assert called.wait(GIVE_UP_S)
    closing = threading.Thread(target=context.close)
    closing.start()
    while not context._closed:
        closing.join(0.001)
    go.set()
    closing.join(GIVE_UP_S)
    driving.join()
    assert len(told) == 1


@pytest.mark.parametrize("queued", [False, True], ids=["called", "queued"])
def test_draining_delivers_what_is_there_first(bus: Bus, queued: bool) -> None:
    queue = EventQueue(100) if queued else None
    context = bus.context("draining")
    got: list[MessageType] = []
    receiver = context.receiver("t", lambda message: got.append(message.type), event_queue=queue)
    source = bus.source("t", context)
    bus.joined(source)
    for number in range(30):
        source.send(body(number))
    context.close(drain=True)
    assert receiver.closed
    if queue is not None:
        assert queue.dispatch(0) == len(queue) + 31
    assert got == [BOS] + [DATA] * 30


@rings
def test_draining_ends_although_more_is_sent_meanwhile(bus: Bus) -> None:
    context = bus.context("feeding itself")
    source = bus.source("t", context)
    got: list[int] = []

    def feed(message: Message) -> None:
        got.append(message.sequence_number)
        source.send(b"more", flush=True, block=False)

    context.receiver("t", feed)
    bus.joined(source)
    source.send(b"first", flush=True)
    context.close(drain=True)
    assert got[:2] == [-1, 0]


@one_transport
def test_draining_inside_a_callback_is_refused_and_closing_is_not(bus: Bus) -> None:
    context = bus.context("closing itself")
    raised: list[Exception] = []

    def close(message: Message) -> None:
        try:
            context.close(drain=True)
        except ipcbus.WrongThread as error:
            raised.append(error)
            context.close()

    context.receiver("t", close)
    source = bus.source()
    bus.joined(source)
    source.send(b"x", flush=True)
    bus.until(lambda: context._ended, "the end")
    assert len(raised) == 1


@rings
def test_draining_does_not_wait_for_a_receiver_without_room(bus: Bus) -> None:
    context = bus.context("draining")
    receiver = context.receiver("t", receive_queue_maximum=3)
    source = bus.source()
    bus.joined(source)
    for number in range(10):
        source.send(body(number))
    source.flush()
    context.close(drain=True)
    assert [message.type for message in receiver.receive_many(10, 0)] == [BOS, DATA, DATA]


def test_contexts_that_close_at_exit_are_silent_at_once(domain: str, kind: Kind) -> None:
    """The first is closed while a second one has callbacks in hand: those do not go on until it is its turn."""
    bus = Bus(domain, kind, "embedded")
    slow, other = Slow(), Slow()
    contexts = [bus.context("first"), bus.context("second")]
    receivers = [context.receiver("t", callback) for context, callback in zip(contexts, (slow, other), strict=True)]
    source = bus.source()
    bus.joined(source, 2)
    for number in range(20):
        source.send(body(number))
    source.flush()
    assert slow.called.wait(GIVE_UP_S)
    assert other.called.wait(GIVE_UP_S)
    closing = threading.Thread(target=close_all, args=(contexts,))
    closing.start()
    while not all(receiver.closed for receiver in receivers):
        closing.join(0.001)
        assert closing.is_alive()
    other.go.set()
    slow.go.set()
    closing.join(GIVE_UP_S)
    assert (slow.kinds, other.kinds) == ([BOS], [BOS])
    bus.close()


def test_the_rest_is_closed_when_an_area_cannot_be_closed(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    context = bus.context("sending")
    sources = [bus.source(topic, context) for topic in "ab"]
    tried: list[Source] = []

    def fail(source: Source) -> None:
        tried.append(source)
        raise GmdError("the disk is gone")

    monkeypatch.setattr(context._sending_sessions.guaranteed, "close", fail)
    with pytest.raises(GmdError, match="the disk is gone"):
        context.close()
    assert sorted(source.topic for source in tried) == [source.topic for source in sources]
    assert context._ended
    context.close()
