"""Event queues between contexts and the threads that call back: order, room, ledgers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from ipcbus import EventQueue, MessageType
from tests.kit.bus import RECEIVER_PACED
from tests.kit.payload import Books, balanced, body
from tests.kit.queues import Noting, Threads, dispatch_until, send_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus import Message
    from tests.kit.bus import Bus

BOS, DATA, EOS = MessageType.BOS, MessageType.DATA, MessageType.EOS

receiver_paced = pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))
policies = pytest.mark.parametrize("policy", ["block", "drop_oldest"])


@pytest.fixture
def queue() -> Iterator[EventQueue]:
    with EventQueue(1000) as made:
        yield made


def test_messages_and_events_are_dispatched_in_order_by_who_calls(bus: Bus, queue: EventQueue) -> None:
    noting = Noting(bus, queue)
    source = bus.source()
    bus.joined(source)
    for number in range(50):
        source.send(body(number))
    source.close()
    bus.until(lambda: len(queue) == 52, "what is sent to wait in the queue")
    assert noting.got == []
    assert queue.dispatch(0) == 52
    assert noting.got == [(BOS, b""), *((DATA, body(number)) for number in range(50)), (EOS, b"")]
    assert noting.threads == {threading.get_ident()}
    assert (noting.receiver.delivered, noting.receiver.dropped) == (50, 0)


def test_what_waits_has_its_own_bytes(bus: Bus, queue: EventQueue) -> None:
    kept: list[Any] = []
    bus.receiver("t", kept.append, event_queue=queue)
    source = bus.source()
    bus.joined(source)
    source.send(b"kept", flush=True)
    source.close()
    bus.until(lambda: len(queue) == 3, "the message and the end")
    assert queue.dispatch(0) == 3
    assert (kept[1].data, bytes(kept[1].view), kept[1].topic) == (b"kept", b"kept", "t")


@receiver_paced
def test_a_full_blocking_queue_has_the_source_wait_and_loses_nothing(bus: Bus) -> None:
    books = Books()
    with EventQueue(8) as queue:
        receiver = bus.receiver("t", books.enter, event_queue=queue, receive_queue_maximum=1)
        source = bus.source(**bus.kind.small())
        bus.joined(source)
        sent = 0
        while sent < 3000:
            try:
                source.send(body(sent), block=False)
                sent += 1
            except ipcbus.WouldBlock:
                queue.dispatch(0)
                bus.turn()
            assert len(queue) <= 8 + 2
        source.close()
        dispatch_until(bus, queue, lambda: books.ended, "the end")
    (ledger,) = books.ledgers.values()
    balanced(ledger, 3000)
    assert (ledger.lost, receiver.dropped, queue.dropped) == (0, 0, 0)


@policies
def test_the_ledger_is_exact_while_a_slow_thread_dispatches(bus: Bus, policy: Any) -> None:  # noqa: ANN401
    count = 4000
    got: list[int] = []
    lost: list[tuple[int, int]] = []
    kinds: list[MessageType] = []

    def enter(message: Message) -> None:
        kinds.append(message.type)
        if message.type is DATA:
            got.append(message.sequence_number)
        elif message.type not in (BOS, EOS):
            lost.append((message.first_sequence_number, message.sequence_number))

    queue = EventQueue(64, policy)
    receiver = bus.receiver("t", enter, event_queue=queue)
    source = bus.source(**bus.kind.small())
    bus.joined(source)
    threads = Threads(queue, 1)
    try:
        send_each(bus, source, count)
        source.close()
        bus.until(lambda: kinds and kinds[-1] is EOS, "the end")
    finally:
        threads.close()
    assert got == sorted(set(got))
    assert len(got) + receiver.lost + receiver.dropped == count
    assert lost == sorted(lost)
    told = {number for first, last in lost for number in range(first, last + 1)}
    assert told.isdisjoint(got)
    assert kinds.count(BOS) == kinds.count(EOS) == 1
    assert queue.dropped == receiver.dropped
    statistics = queue.statistics()
    assert statistics.total == statistics.dispatched + statistics.dropped == len(kinds) + receiver.dropped
    if policy == "block":
        assert queue.dropped == 0
        assert receiver.lost == len(told)
    else:
        assert receiver.lost <= len(told)  # losses between which everything was dropped are told as one


def test_drop_oldest_keeps_the_newest_and_every_event(bus: Bus) -> None:
    with EventQueue(5, "drop_oldest") as queue:
        noting = Noting(bus, queue)
        source = bus.source()
        bus.joined(source)
        for number in range(100):
            source.send(body(number))
        source.close()
        bus.until(lambda: queue.statistics().total == 102, "all to come")
        assert (len(queue), queue.dropped, noting.receiver.dropped) == (7, 95, 95)
        queue.dispatch(0)
    assert noting.got == [(BOS, b""), *((DATA, body(number)) for number in range(95, 100)), (EOS, b"")]


def test_one_queue_serves_receivers_of_several_contexts(bus: Bus, queue: EventQueue) -> None:
    contexts = [bus.context(f"receiving {number}") for number in range(3)]
    noting = [Noting(bus, queue, topic, context) for context in contexts for topic in ("a", "b")]
    sources = {topic: bus.source(topic) for topic in ("a", "b")}
    for source in sources.values():
        bus.joined(source, 3)
    for number in range(100):
        for source in sources.values():
            source.send(body(number))
    for source in sources.values():
        source.close()
    dispatch_until(bus, queue, lambda: all(each.got and each.got[-1][0] is EOS for each in noting), "all ends")
    for each in noting:
        assert each.got == [(BOS, b""), *((DATA, body(number)) for number in range(100)), (EOS, b"")]
    assert queue.statistics().dispatched == 6 * 102


def test_contexts_that_share_a_full_queue_all_go_on(bus: Bus) -> None:
    books = [Books() for _ in range(3)]
    with EventQueue(2) as queue:
        for each in books:
            bus.receiver("t", each.enter, bus.context(), event_queue=queue)
        source = bus.source()
        bus.joined(source, 3)
        for number in range(300):
            source.send(body(number))
        source.close()
        dispatch_until(bus, queue, lambda: all(each.ended for each in books), "all ends")
    for each in books:
        (ledger,) = each.ledgers.values()
        balanced(ledger, 300)
        assert ledger.lost == 0


def test_several_threads_dispatch_everything_once(bus: Bus, queue: EventQueue) -> None:
    got: list[bytes] = []
    kinds: list[MessageType] = []

    def enter(message: Message) -> None:
        if message.type is DATA:
            got.append(message.data)
        kinds.append(message.type)

    bus.receiver("t", enter, event_queue=queue)
    source = bus.source()
    bus.joined(source)
    threads = Threads(queue, 4)
    try:
        for number in range(2000):
            source.send(body(number))
            if not number % 100:
                bus.turn()
        source.close()
        bus.until(lambda: len(kinds) == 2002, "everything")
    finally:
        threads.close()
    assert sorted(got) == sorted(body(number) for number in range(2000))


@receiver_paced
def test_a_callback_on_the_dispatching_thread_may_wait_for_room(bus: Bus, queue: EventQueue) -> None:
    books = Books()
    near = bus.context("near")
    back = bus.source("back", near, **bus.kind.small())
    ahead: list[int] = []

    def fill(message: Message) -> None:
        if message.type is DATA:
            for number in range(2000):  # much more than the ring holds
                back.send(body(number), flush=True)
            ahead.append(2000)

    bus.receiver("t", fill, near, event_queue=queue)
    far = ipcbus.Context(domain=bus.domain)
    bus.contexts.append(far)
    far.receiver("back", books.enter)
    source = bus.source()
    bus.joined(source)
    bus.joined(back)
    source.send(b"go", flush=True)
    dispatch_until(bus, queue, lambda: ahead, "the callback")
    bus.until(lambda: books.delivered == 2000, "the answers")
    (ledger,) = books.ledgers.values()
    balanced(ledger, 2000)
