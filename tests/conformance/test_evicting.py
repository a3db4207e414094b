"""A receiver that keeps its source waiting is evicted: both sides are told, its loss is counted, and it comes back."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import MessageType, SourceEvent, SourceEventType
from ringbuf import layout
from tests.kit.bus import GIVE_UP_S, RECEIVER_PACED
from tests.kit.forms import CallbackTaker
from tests.kit.look import ring_header
from tests.kit.payload import Books, Ledger, balanced, body

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Message, Source
    from tests.kit.bus import Bus

pytestmark = pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))

CONNECT, DISCONNECT = SourceEventType.CONNECT, SourceEventType.DISCONNECT
EVICTED = SourceEventType.RECEIVER_EVICTED


def evicting(bus: Bus, timeout: int = 20, *, number: int = 0) -> dict[str, object]:
    """Source options of a small session that evicts."""
    return {
        **bus.kind.small(),
        **(bus.kind.id(number) if number else {}),
        "slow_receiver_behavior": "evict",
        "udp_fallback": "none",  # with it nothing is lost, and nobody is cut off: tests/system/test_fallback*.py
        "slow_receiver_timeout": timeout,
    }


class Reader:
    """A receiver that takes nothing until it is told to; one message of it fills its queue."""

    def __init__(self, bus: Bus) -> None:
        self.context = bus.context("slow")
        self.receiver = self.context.receiver("t", receive_queue_maximum=1)
        self.books = Books()

    @property
    def ledger(self) -> Ledger:
        return next(iter(self.books.ledgers.values()), Ledger())

    def read(self, enough: Callable[[], object]) -> None:
        """Takes until `enough` says so."""
        while not enough():
            message = self.receiver.receive(GIVE_UP_S)
            assert message is not None, "waited in vain"
            self.books.enter(message)

    def account(self, sent: int) -> None:
        """Takes until so many messages came or were reported lost."""
        self.read(lambda: self.books.accounted >= sent)

    def finish(self, sent: int) -> None:
        """Takes until the end, which has to come with an account of all that was sent."""
        self.account(sent)
        self.read(lambda: self.ledger.ended == self.ledger.begun)
        balanced(self.ledger, sent, joins=self.ledger.begun)


def send_some(source: Source, rings: int = 3) -> int:
    """Sends what fits so many rings; returns how many messages the source has sent in all."""
    window = source._session.channel.writer.capacity
    for number in range(source.sequence_number + 1, source.sequence_number + 1 + rings * window // 80):
        source.send(body(number))
    source.flush()
    return source.sequence_number + 1


def kinds_of(events: list[SourceEvent]) -> list[SourceEventType]:
    return [event.type for event in events]


def test_a_waiting_send_goes_on_without_the_receiver_which_comes_back(bus: Bus) -> None:
    events: list[SourceEvent] = []
    source = bus.source(on_event=events.append, **evicting(bus))
    slow = Reader(bus)
    bus.until(lambda: events, "the connect")  # who is evicted before the source was told of it is not connected for it
    sent = send_some(source)
    assert source.receivers == 0
    assert int(ring_header(source)["receivers_evicted"]) == 1
    bus.until(lambda: DISCONNECT in kinds_of(events), "the events")
    assert kinds_of(events)[:3] == [CONNECT, EVICTED, DISCONNECT]
    assert events[1] == SourceEvent(EVICTED, events[0].pid, "slow")

    slow.account(sent)  # though nothing more is sent
    assert slow.ledger.lost > 0
    bus.until(lambda: kinds_of(events)[3:] == [CONNECT], "the receiver to come back")
    source.send(body(sent), flush=True)
    slow.read(lambda: slow.ledger.delivered + slow.ledger.lost > sent)
    balanced(slow.ledger, sent + 1, joins=2)
    assert slow.ledger.ended == 1
    assert slow.receiver.lost == slow.ledger.lost
    (session,) = slow.receiver.sessions
    assert (session.state, session.counters["evictions"]) == ("joined", 1)


def test_a_source_that_never_waits_itself_is_freed_too(bus: Bus) -> None:
    events: list[SourceEvent] = []
    source = bus.source(on_event=events.append, **evicting(bus))
    slow = Reader(bus)
    bus.joined(source)
    with pytest.raises(ipcbus.WouldBlock, match="'slow'"):
        while True:
            source.send(body(source.sequence_number + 1), flush=True, block=False)
    bus.until(lambda: EVICTED in kinds_of(events), "the eviction")  # and not one send more
    sent = source.sequence_number + 1
    source.send(body(sent), flush=True, block=False)
    slow.account(sent + 1)
    balanced(slow.ledger, sent + 1, joins=slow.ledger.begun)
    bus.until(lambda: SourceEventType.WAKEUP in kinds_of(events), "the wakeup")


def test_what_is_sent_while_nobody_reads_is_lost_to_the_last_message(bus: Bus) -> None:
    """The receiver is full all the time, so it does not join; the source closes before it could."""
    source = bus.source(**evicting(bus))
    slow = Reader(bus)
    bus.joined(source)
    sent = send_some(source, 5)
    source.close()
    slow.finish(sent)
    assert slow.ledger.lost > 0


def test_a_receiver_that_nobody_pulls_holds_few_events_however_much_it_loses(bus: Bus) -> None:
    source = bus.source(**evicting(bus))
    slow = Reader(bus)
    bus.joined(source)
    for _ in range(10):
        lost = slow.receiver.lost
        sent = send_some(source)
        bus.until(lambda: slow.receiver.lost > lost, "more losses")  # noqa: B023 - runs here only
    assert len(slow.receiver._sink.queue) <= 3  # a beginning, perhaps a message, and what it has lost
    source.close()
    slow.finish(sent)
    assert slow.receiver.lost == slow.ledger.lost > 0


def test_a_topic_that_ends_while_its_receiver_is_evicted_is_accounted_for(bus: Bus) -> None:
    context = bus.context("sending")
    source = bus.source("t", context, **evicting(bus, number=700))
    other = bus.source("other", context, **evicting(bus, number=700))
    slow = Reader(bus)
    bus.joined(source)
    sent = send_some(source)
    source.close()
    other.send(b"goes on", flush=True)
    slow.finish(sent)
    assert slow.ledger.lost > 0


def test_every_source_of_the_session_is_told(bus: Bus) -> None:
    told: list[list[SourceEvent]] = [[], []]
    context = bus.context("sending")
    source = bus.source("t", context, on_event=told[0].append, **evicting(bus, number=700))
    bus.source("other", context, on_event=told[1].append, **evicting(bus, number=700))
    slow = Reader(bus)
    bus.joined(source)
    send_some(source)
    for events in told:
        bus.until(lambda events=events: EVICTED in kinds_of(events), "the event")  # type: ignore[misc]
        assert [event.context_name for event in events if event.type is EVICTED] == ["slow"]
    late: list[SourceEvent] = []
    bus.source("late", context, on_event=late.append, **evicting(bus, number=700))
    slow.read(lambda: slow.books.ended)
    bus.joined(source)
    assert EVICTED not in kinds_of(late)  # that was before its time


def test_a_session_is_shared_only_by_sources_that_agree(bus: Bus) -> None:
    context = bus.context("sending")
    bus.source("one", context, **evicting(bus, 20, number=700))
    bus.source("same", context, **evicting(bus, 20, number=700))
    with pytest.raises(ipcbus.ConfigError, match="slow_receiver_timeout = 20, not 30"):
        bus.source("longer", context, **evicting(bus, 30, number=700))
    with pytest.raises(ipcbus.ConfigError, match="slow_receiver_behavior = 'evict', not 'block'"):
        bus.source("never", context, **bus.kind.small(), **bus.kind.id(700))


def test_other_receivers_miss_nothing(bus: Bus) -> None:
    source = bus.source(**evicting(bus, 1000))
    slow = Reader(bus)
    context = bus.context("good", mode="embedded")  # reads while this thread is blocked
    books = Books()
    good = bus.receiver("t", books.enter, context)
    bus.joined(source, 2)
    sent = send_some(source)
    bus.until(lambda: books.accounted >= sent, "the messages")
    (ledger,) = books.ledgers.values()
    balanced(ledger, sent)
    assert (ledger.lost, good.lost) == (0, 0)
    slow.account(sent)
    balanced(slow.ledger, sent, joins=slow.ledger.begun)


def test_a_callback_that_takes_too_long_loses_what_was_sent_meanwhile(bus: Bus) -> None:
    books, inside, go_on = Books(), threading.Event(), threading.Event()

    def on_message(message: Message) -> None:
        books.enter(message)
        if message.type is MessageType.DATA and message.sequence_number == 3:
            inside.set()
            assert go_on.wait(GIVE_UP_S)
            view = message.view  # not in the ring, which has long been overwritten
            assert bytes(view) == body(3)

    source = bus.source("t", bus.context("sending", mode="embedded"), **evicting(bus))
    receiver = bus.receiver("t", on_message, bus.context("stuck", mode="embedded"))
    bus.joined(source)
    for number in range(4):
        source.send(body(number), flush=True)
    assert inside.wait(GIVE_UP_S)
    sent = send_some(source)
    go_on.set()
    bus.until(lambda: books.accounted >= sent, "the messages and losses")
    bus.joined(source)
    source.send(body(sent), flush=True)
    bus.until(lambda: books.accounted > sent, "one more")
    (ledger,) = books.ledgers.values()
    balanced(ledger, sent + 1, joins=2)
    assert receiver.lost == ledger.lost > 0


class Answering(logging.Handler):
    """A log that answers a warning on the bus, from the context that it is about."""

    def __init__(self, context: ipcbus.Context) -> None:
        super().__init__()
        self.context = context
        self.answered = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Makes a source for it, as long as the others live."""
        if "has evicted the receiving context" in record.getMessage():
            self.context.source("log").close()
            self.answered += 1


def test_the_log_of_an_eviction_may_use_the_context(bus: Bus) -> None:
    context = bus.context("sending")
    source = bus.source("t", context, **evicting(bus, number=77))
    slow = Reader(bus)
    bus.joined(source)
    handler = Answering(context)
    logger = logging.getLogger("ipcbus")
    logger.addHandler(handler)
    try:
        sent = send_some(source)
    finally:
        logger.removeHandler(handler)
    assert handler.answered == 1
    slow.account(sent)


def test_receivers_are_never_evicted_unless_asked_for(bus: Bus) -> None:
    assert int(ring_header(bus.source(**bus.kind.small()))["pacing"]) == layout.RECEIVER_PACED
    assert int(ring_header(bus.source(**evicting(bus)))["pacing"]) == layout.RECEIVER_PACED_EVICTS


def test_an_idle_source_evicts_nobody(bus: Bus) -> None:
    """A receiver that reads nothing holds up nobody as long as there is room."""
    events: list[SourceEvent] = []
    source = bus.source(on_event=events.append, **evicting(bus, 10))
    slow = Reader(bus)
    bus.until(lambda: events, "the connect")
    for number in range(5):
        source.send(body(number), flush=True)
    taker = CallbackTaker(bus, "tick")
    ticking = bus.source("tick")
    bus.joined(ticking)
    for number in range(50):  # some time passes, in which every context does its duties
        ticking.send(body(number), flush=True)
        taker.data(number + 1)
        bus.turn()
    assert kinds_of(events) == [CONNECT]
    slow.account(5)
    balanced(slow.ledger, 5)
    assert slow.receiver.lost == 0
