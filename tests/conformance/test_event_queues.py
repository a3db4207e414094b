"""Event queues between contexts and the threads that call back: order, room, ledgers, ends."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from ipcbus import EventQueue, MessageType
from tests.kit.bus import GIVE_UP_S, LBTIPC, RECEIVER_PACED, TURN_S
from tests.kit.look import advert, callback_errors
from tests.kit.payload import Books, balanced, body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ipcbus import Context, Message, Receiver, Source
    from tests.kit.bus import Bus

BOS, DATA, EOS = MessageType.BOS, MessageType.DATA, MessageType.EOS

receiver_paced = pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))
one_transport = pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))
embedded = pytest.mark.parametrize("mode", ["embedded"])
policies = pytest.mark.parametrize("policy", ["block", "drop_oldest"])


@pytest.fixture
def queue() -> Iterator[EventQueue]:
    with EventQueue(1000) as made:
        yield made


def dispatch_until(bus: Bus, queue: EventQueue, condition: Callable[[], object], what: str) -> None:
    """Dispatches, and processes events where the mode wants that, until the condition holds."""

    def turn() -> object:
        queue.dispatch(0 if bus.sequential else TURN_S)
        return condition()

    bus.until(turn, what)


def send_each(bus: Bus, source: Source, count: int) -> None:
    """Sends messages and lets the contexts work whenever there is no room."""
    for number in range(count):
        while True:
            try:
                source.send(body(number), block=False)
                break
            except ipcbus.WouldBlock:
                bus.turn()
    source.flush()


class Threads:
    """Threads that dispatch until the queue is closed."""

    def __init__(self, queue: EventQueue, count: int) -> None:
        self.queue = queue
        self.failed: list[BaseException] = []
        self.threads = [threading.Thread(target=self._run) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def _run(self) -> None:
        try:
            while True:
                self.queue.dispatch()
        except ipcbus.ClosedError:
            pass
        except BaseException as error:
            self.failed.append(error)

    def close(self) -> None:
        self.queue.close()
        for thread in self.threads:
            thread.join(GIVE_UP_S)
            assert not thread.is_alive()
        assert self.failed == []


class Noting:
    """A receiver that notes what is dispatched, and on which thread."""

    def __init__(self, bus: Bus, queue: EventQueue, topic: str = "t", context: Context | None = None) -> None:
        self.got: list[tuple[MessageType, bytes]] = []
        self.threads: set[int] = set()
        self.receiver: Receiver = bus.receiver(topic, self, context, event_queue=queue)

    def __call__(self, message: Message) -> None:
        assert len(message.view) == len(message)
        self.got.append((message.type, message.data))
        self.threads.add(threading.get_ident())

    @property
    def kinds(self) -> list[MessageType]:
        return [kind for kind, _ in self.got]


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
    bus.until(lambda: len(queue) == 2, "the message")
    bus.close()
    assert queue.dispatch(0) == 2
    assert (kept[1].data, bytes(kept[1].view), kept[1].topic) == (b"kept", b"kept", "t")


def test_a_full_blocking_queue_has_the_source_wait_and_loses_nothing(bus: Bus) -> None:
    if bus.kind.source_paced:
        pytest.skip("a source-paced source never waits")
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
    lost: list[int] = []
    kinds: list[MessageType] = []

    def enter(message: Message) -> None:
        kinds.append(message.type)
        if message.type is DATA:
            got.append(message.sequence_number)
        elif message.type not in (BOS, EOS):
            lost.append(message.sequence_number - message.first_sequence_number + 1)

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
    assert len(got) + sum(lost) + receiver.dropped == count
    assert kinds.count(BOS) == kinds.count(EOS) == 1
    assert receiver.lost == sum(lost)
    assert queue.dropped == receiver.dropped
    statistics = queue.statistics()
    assert statistics.total == statistics.dispatched + statistics.dropped == len(kinds) + receiver.dropped
    if policy == "block":
        assert queue.dropped == 0


def test_drop_oldest_keeps_the_newest_and_every_event(bus: Bus) -> None:
    with EventQueue(5, "drop_oldest") as queue:
        noting = Noting(bus, queue)
        source = bus.source()
        bus.joined(source)
        for number in range(100):
            source.send(body(number))
        source.close()
        bus.until(lambda: queue.statistics().total == 102, "all to come")
        assert (len(queue), queue.dropped, noting.receiver.dropped) == (5, 97, 97)
        queue.dispatch(0)
    assert noting.got == [(BOS, b""), *((DATA, body(number)) for number in (97, 98, 99)), (EOS, b"")]


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


def test_what_waits_when_its_context_is_closed_is_dispatched_still(bus: Bus, queue: EventQueue) -> None:
    context = bus.context("closing")
    noting = Noting(bus, queue, context=context)
    source = bus.source()
    bus.joined(source)
    for number in range(10):
        source.send(body(number))
    source.flush()
    bus.until(lambda: len(queue) == 11, "all to wait")
    context.close()
    assert noting.receiver.closed
    assert queue.dispatch(0) == 11
    assert noting.kinds == [BOS] + [DATA] * 10


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
    assert queue.dispatch(0) == 2
    assert got == [BOS, DATA]
    bus.until(lambda: source.receivers == 0, "the leaving")


def test_a_closed_queue_no_longer_holds_anybody_up(bus: Bus) -> None:
    if bus.kind.source_paced:
        pytest.skip("a source-paced source never waits")
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
