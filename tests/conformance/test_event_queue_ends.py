"""Event queues when something fails or ends: callbacks, receivers, contexts, queues."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import EventQueue, MessageType
from tests.kit.bus import GIVE_UP_S, LBTIPC, RECEIVER_PACED
from tests.kit.look import advert, callback_errors
from tests.kit.payload import body
from tests.kit.queues import Noting, Threads, dispatch_until, send_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus import Message
    from tests.kit.bus import Bus

BOS, DATA, EOS = MessageType.BOS, MessageType.DATA, MessageType.EOS

one_transport = pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))
embedded = pytest.mark.parametrize("mode", ["embedded"])


@pytest.fixture
def queue() -> Iterator[EventQueue]:
    with EventQueue(1000) as made:
        yield made


def test_exceptions_are_counted_logged_once_and_dispatching_goes_on(
    bus: Bus, queue: EventQueue, caplog: pytest.LogCaptureFixture
) -> None:
    got = []

    def fail(message: Message) -> None:
        got.append(message.type)
        if message.type is DATA:
            raise KeyError(message.sequence_number)

    receiver = bus.receiver("failing", fail, event_queue=queue)
    source = bus.source("failing")
    bus.joined(source)
    with caplog.at_level(logging.WARNING, "ipcbus"):
        for number in range(20):
            source.send(body(number))
        source.close()
        dispatch_until(bus, queue, lambda: got and got[-1] is EOS, "the end")
    assert got == [BOS] + [DATA] * 20 + [EOS]
    assert callback_errors(receiver) == 20
    (row,) = advert(bus.contexts[0]).receivers
    assert row.callback_errors == 20
    (record,) = caplog.records
    assert "failing" in record.getMessage()


def test_a_closed_receiver_gets_nothing_of_what_waits(bus: Bus, queue: EventQueue) -> None:
    context = bus.context("both")
    closing, other = Noting(bus, queue, context=context), Noting(bus, queue, context=context)
    source = bus.source()
    bus.joined(source)
    for number in range(10):
        source.send(body(number))
    source.flush()
    bus.until(lambda: len(queue) == 22, "all to wait")
    closing.receiver.close()
    assert queue.dispatch(0) == 11
    assert (closing.got, closing.receiver.dropped, queue.dropped) == ([], 11, 11)
    assert len(other.got) == 11


def test_a_callback_may_close_its_receiver(bus: Bus, queue: EventQueue) -> None:
    got: list[MessageType] = []

    def once(message: Message) -> None:
        got.append(message.type)
        receiver.close()

    receiver = bus.receiver("t", once, event_queue=queue)
    source = bus.source()
    bus.joined(source)
    source.send(b"x", flush=True)
    bus.until(lambda: len(queue) == 2, "the message")
    assert queue.dispatch(0) == 1
    assert got == [BOS]
    bus.until(lambda: source.receivers == 0, "the leaving")


@pytest.mark.parametrize("drain", [True, False], ids=["drained", "closed"])
def test_what_waits_when_its_context_is_closed_is_dispatched_if_it_is_drained(
    bus: Bus, queue: EventQueue, drain: bool
) -> None:
    context = bus.context("closing")
    noting = Noting(bus, queue, context=context)
    source = bus.source()
    bus.joined(source)
    for number in range(10):
        source.send(body(number))
    source.flush()
    bus.until(lambda: len(queue) == 11, "all to wait")
    context.close(drain=drain)
    assert noting.receiver.closed
    assert queue.dispatch(0) == (11 if drain else 0)
    assert noting.kinds == ([BOS] + [DATA] * 10 if drain else [])
    assert queue.dropped == noting.receiver.dropped == (0 if drain else 11)


def test_a_callback_may_close_its_context(bus: Bus, queue: EventQueue) -> None:
    context = bus.context("closing itself")
    got: list[MessageType] = []

    def close(message: Message) -> None:
        got.append(message.type)
        context.close()

    bus.receiver("t", close, context, event_queue=queue)
    source = bus.source()
    bus.joined(source)
    source.send(b"x", flush=True)
    bus.until(lambda: len(queue) == 2, "the message")
    assert queue.dispatch(0) == 1
    assert got == [BOS]
    bus.until(lambda: source.receivers == 0, "the leaving")


@pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))
def test_a_closed_queue_no_longer_holds_anybody_up(bus: Bus) -> None:
    queue = EventQueue(2)
    receiver = bus.receiver("t", print, event_queue=queue)
    source = bus.source(**bus.kind.small())
    bus.joined(source)
    with pytest.raises(ipcbus.WouldBlock):
        for number in range(100_000):
            source.send(body(number), block=False)
            if not number % 16:
                bus.turn()
    queue.close()
    sent = source.sequence_number + 1
    bus.until(lambda: receiver.delivered == sent, "the rest to be read")
    assert receiver.dropped == queue.dropped == sent + 1
    send_each(bus, source, 500)
    bus.until(lambda: receiver.delivered == sent + 500, "what is sent afterwards")


@one_transport
def test_dispatch_inside_a_callback_of_a_context_it_serves_is_refused(bus: Bus, queue: EventQueue) -> None:
    context = bus.context("both")
    Noting(bus, queue, "other", context)
    raised: list[BaseException] = []

    def dispatch(message: Message) -> None:
        with pytest.raises(ipcbus.IpcBusError, match="inside") as caught:
            queue.dispatch(1)
        raised.append(caught.value)

    bus.receiver("t", dispatch, context)
    source = bus.source()
    bus.joined(source)
    source.send(b"x", flush=True)
    bus.until(lambda: len(raised) == 2, "the callback")


@embedded
def test_a_sleeping_thread_is_woken_by_each_message(bus: Bus, queue: EventQueue) -> None:
    came = threading.Semaphore(0)
    bus.receiver("t", lambda message: came.release(), event_queue=queue)
    source = bus.source()
    bus.joined(source)
    threads = Threads(queue, 1)
    try:
        for number in range(200):
            source.send(body(number), flush=True)
            if number == 0:
                assert came.acquire(timeout=GIVE_UP_S)  # BOS
            assert came.acquire(timeout=GIVE_UP_S)
    finally:
        threads.close()


@embedded
def test_closing_races_leave_nothing(bus: Bus) -> None:
    source = bus.source()
    stop = threading.Event()

    def send() -> None:
        while not stop.is_set():
            source.send(b"x" * 64, flush=True)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for turn in range(12):
            queue = EventQueue(16, "block" if turn % 2 else "drop_oldest")
            context = bus.context()
            threads = Threads(queue, 2)
            receiver = context.receiver("t", bool, event_queue=queue)
            bus.until(lambda receiver=receiver: receiver.delivered > 50, "messages")  # type: ignore[misc]
            closers = [receiver.close, context.close, queue.close]
            for close in closers[turn % 3 :] + closers[: turn % 3]:
                close()
            threads.close()
            statistics = queue.statistics()
            assert (statistics.queued, statistics.total) == (0, statistics.dispatched + statistics.dropped)
    finally:
        stop.set()
        sender.join(GIVE_UP_S)
