"""A receiver that was evicted gets what it missed from the source's retention, in order, each number once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageFlag, MessageType, SourceEvent, SourceEventType
from tests.kit.bus import GIVE_UP_S, LBTSMX, RECEIVER_PACED
from tests.kit.forms import FORMS
from tests.kit.payload import Books, Ledger, balanced, body, number_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ipcbus import Message, Receiver, Source
    from tests.kit.bus import Bus
    from tests.kit.forms import Taker

pytestmark = pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))

embedded = pytest.mark.parametrize("mode", ["embedded"])
sequential = pytest.mark.parametrize("mode", ["sequential"])


class Evicting:
    """A source that keeps what it sends and evicts slow receivers, in a context that serves by itself."""

    def __init__(self, bus: Bus, **options: object) -> None:
        self.bus, self.events = bus, list[SourceEvent]()
        context = bus.context("sending", mode="embedded")
        given = {"udp_fallback": "none", "slow_receiver_timeout": 20, **options}
        self.source: Source = bus.source(
            "t",
            context,
            on_event=self.events.append,
            late_join=1,
            slow_receiver_behavior="evict",
            **bus.kind.small(),
            **given,
        )

    @property
    def evictions(self) -> int:
        """How often it has evicted a receiver."""
        return sum(event.type is SourceEventType.RECEIVER_EVICTED for event in list(self.events))

    def send(self, count: int) -> int:
        """Sends so many messages; returns how many it has sent in all."""
        for number in range(self.sent, self.sent + count):
            self.source.send(body(number))
        self.source.flush()
        return self.sent

    def evict(self, at_least: int = 0) -> int:
        """Sends until it has evicted the receiver once more; returns how many messages it has sent in all."""
        before, ring = self.evictions, self.source._session.channel.writer.capacity // 80
        self.send(max(3 * ring, at_least))
        while self.evictions == before:
            self.send(ring)  # the receiver may have read some rings before its callback stopped
            self.bus.turn()
        return self.sent

    @property
    def sent(self) -> int:
        """How many numbers it has used."""
        return self.source.sequence_number + 1


class Stopping:
    """A receiver with a ledger whose callback stops at some numbers, each time until it is let go."""

    def __init__(self, bus: Bus, stops_at: Collection[int] = (), name: str = "stopping", **options: object) -> None:
        self.bus, self.books, self.stops_at = bus, Books(), stops_at
        self.flags: dict[int, int] = {}
        self.twice: list[int] = []
        self.stopped, self.go = threading.Event(), threading.Event()
        self.context = bus.context(name, mode="embedded")
        self.receiver = self.context.receiver("t", self._on_message, **options)

    def _on_message(self, message: Message) -> None:
        self.books.enter(message)
        if message.type is not MessageType.DATA:
            return
        if message.sequence_number in self.flags:
            self.twice.append(message.sequence_number)
        self.flags[message.sequence_number] = message.flags
        if message.sequence_number in self.stops_at:
            self.stopped.set()
            assert self.go.wait(GIVE_UP_S)
            self.go.clear()

    def wait(self) -> None:
        """Waits until the callback has stopped."""
        assert self.stopped.wait(GIVE_UP_S)
        self.stopped.clear()

    @property
    def ledger(self) -> Ledger:
        """Of its only source."""
        return next(iter(self.books.ledgers.values()), Ledger())

    def account(self, sent: int) -> Ledger:
        """Waits until all that was sent came or was reported lost."""
        self.bus.until(lambda: self.books.accounted >= sent, f"{sent} messages, not {self.ledger}")
        return self.ledger

    @property
    def recovered(self) -> list[int]:
        """The numbers of the messages that came by off-transport recovery."""
        return [number for number, flags in self.flags.items() if flags & MessageFlag.OTR]


def meet(bus: Bus, evicting: Evicting, stopping: Stopping, receivers: int = 1) -> None:
    """Sends until the receiver has stopped at its first number."""
    bus.joined(evicting.source, receivers)
    evicting.send(4)
    stopping.wait()


@embedded
def test_what_an_evicted_receiver_missed_comes_from_the_source(bus: Bus) -> None:
    evicting, stopping, healthy = Evicting(bus), Stopping(bus, [3]), Stopping(bus, name="healthy")
    meet(bus, evicting, stopping, 2)
    sent = evicting.evict()
    stopping.go.set()
    stopping.account(sent)
    sent = evicting.send(10)
    ledger = stopping.account(sent)
    balanced(ledger, sent, joins=2)
    assert (ledger.lost, stopping.receiver.lost, ledger.ended) == (0, 0, 1)
    assert stopping.recovered[0] == 4
    assert stopping.recovered == list(range(4, stopping.recovered[-1] + 1))
    assert not any(flags & MessageFlag.LATE_JOIN for flags in stopping.flags.values())
    balanced(healthy.account(sent), sent)
    assert (healthy.ledger.lost, healthy.recovered) == (0, [])
    (session,) = stopping.receiver.sessions
    assert (session.state, session.counters["evictions"]) == ("joined", 1)


@embedded
def test_what_the_source_does_not_keep_is_one_range(bus: Bus) -> None:
    stopping = Stopping(bus, [3], delivery_control_maximum_burst_loss=10)
    evicting = Evicting(bus, retransmit_retention_size_limit=65536)
    meet(bus, evicting, stopping)
    sent = evicting.evict(5000)
    stopping.go.set()
    ledger = stopping.account(sent)
    balanced(ledger, sent, joins=2)
    assert 0 < ledger.lost < sent - 4
    assert ledger.bursts == 1
    missing = [number for number in range(sent) if number not in stopping.flags]
    assert missing == list(range(4, 4 + ledger.lost))
    assert stopping.recovered == list(range(missing[-1] + 1, sent))


@embedded
def test_without_recovery_the_loss_is_reported_as_ever(bus: Bus) -> None:
    evicting, stopping = Evicting(bus), Stopping(bus, [3], use_otr=0)
    meet(bus, evicting, stopping)
    sent = evicting.evict()
    stopping.go.set()
    ledger = stopping.account(sent)
    balanced(ledger, sent, joins=ledger.begun)
    assert ledger.lost > 0
    assert stopping.recovered == []


@embedded
@pytest.mark.parametrize("ordered", [-1, 0])
def test_in_order_of_arrival_each_number_comes_once(bus: Bus, ordered: int) -> None:
    if ordered == 0 and bus.kind is LBTSMX:
        pytest.skip("LBT-SMX has no fragments")
    evicting, stopping = Evicting(bus), Stopping(bus, [3, 30], ordered_delivery=ordered)
    meet(bus, evicting, stopping)
    evicting.evict()
    stopping.go.set()
    stopping.wait()
    sent = evicting.evict()
    stopping.go.set()
    bus.until(lambda: len(stopping.flags) == sent, "all messages")
    assert (stopping.twice, stopping.ledger.lost, stopping.receiver.lost) == ([], 0, 0)
    assert len(stopping.recovered) > 10


@embedded
def test_who_is_evicted_again_and_again_under_load_gets_everything(bus: Bus) -> None:
    evicting, stopping = Evicting(bus), Stopping(bus, range(3, 1_000_000, 7))
    meet(bus, evicting, stopping)
    for _ in range(10):
        evicting.evict()
        while evicting.source.receivers == 0:
            stopping.go.set()  # it stops again and again at what it recovers, before it sees its eviction
            bus.turn()
    stopping.stops_at = ()
    stopping.go.set()
    sent = evicting.send(10)
    ledger = stopping.account(sent)
    balanced(ledger, sent, joins=ledger.begun)
    assert ledger.lost == 0
    assert ledger.begun == ledger.ended + 1
    (session,) = stopping.receiver.sessions
    assert session.counters["evictions"] == evicting.evictions >= 10


@embedded
def test_a_request_among_them_is_answered(bus: Bus) -> None:
    evicting = Evicting(bus)
    stopping = Stopping(bus, [3])

    def answer(message: Message) -> None:
        if message.type is MessageType.REQUEST:
            message.respond(b"%d" % message.sequence_number)

    stopping.context.receiver("t", answer)
    answers: list[bytes] = []
    meet(bus, evicting, stopping)
    evicting.evict()
    asked = evicting.sent
    evicting.source.requests(b"?", lambda response: answers.append(response.data), timeout=60)
    sent = evicting.send(10)
    stopping.go.set()
    bus.until(lambda: answers, "the answer")
    assert answers == [b"%d" % asked]
    stopping.account(sent - 1)
    assert stopping.ledger.lost == 0


@embedded
def test_who_goes_on_over_udp_gets_what_udp_does_not_hold_any_more(bus: Bus) -> None:
    window = {"transport_lbtru_transmission_window_size": 65536}
    evicting, stopping = Evicting(bus, udp_fallback="lbtru", **window), Stopping(bus, [3])
    meet(bus, evicting, stopping)
    sent = evicting.evict(5000)
    stopping.go.set()
    stopping.account(sent)
    sent = evicting.send(10)
    ledger = stopping.account(sent)
    balanced(ledger, sent)
    assert ledger.lost == 0
    assert len(stopping.recovered) > 1000


@sequential
@pytest.mark.parametrize("form", FORMS, ids=lambda form: str(form.name))
def test_every_form_of_receiving_gets_it(bus: Bus, form: type[Taker]) -> None:
    evicting = Evicting(bus)
    taker = form(bus)
    evicting.bus.joined(evicting.source)
    evicting.send(3)
    sent = evicting.evict()
    assert [number_of(data) for data in taker.data(sent)] == list(range(sent))
    sent = evicting.send(5)
    assert [number_of(data) for data in taker.data(sent)] == list(range(sent))
    assert taker.count(MessageType.UNRECOVERABLE_LOSS) + taker.count(MessageType.UNRECOVERABLE_LOSS_BURST) == 0


@sequential
def test_what_is_missing_when_the_source_closes_is_reported_lost(bus: Bus) -> None:
    """The receiver has no room all the time, so it does not join again."""
    evicting = Evicting(bus)
    books = Books()
    receiver = bus.context("slow", mode="embedded").receiver("t", receive_queue_maximum=1)
    bus.joined(evicting.source)
    sent = evicting.evict()
    evicting.source.close()

    def read(enough: Callable[[], object]) -> None:
        while not enough():
            message = receiver.receive(GIVE_UP_S)
            assert message is not None, "waited in vain"
            books.enter(message)

    read(lambda: books.accounted >= sent)
    (ledger,) = books.ledgers.values()
    read(lambda: ledger.ended == ledger.begun)
    balanced(ledger, sent, joins=ledger.begun)


@embedded
@pytest.mark.parametrize("ordered", [1, -1])
@pytest.mark.parametrize("history", [None, 200])
def test_a_later_receiver_goes_on_with_its_own_history(bus: Bus, ordered: int, history: int | None) -> None:
    """It pulls, and has no room for its history when its context is evicted."""
    stopping, evicting = Stopping(bus, [500], ordered_delivery=ordered), Evicting(bus)
    bus.joined(evicting.source)
    evicting.send(400)
    stopping.account(400)
    later = stopping.context.receiver("t", ordered_delivery=ordered, receive_queue_maximum=5, history=history)
    evicting.send(101)
    fates: list[int] = []
    while not stopping.stopped.is_set():
        bus.turn()
        if ordered == -1:  # live messages come between those of the history, and wait for room
            _pull(later, fates, 1)
    stopping.wait()
    sent = evicting.evict()
    stopping.go.set()
    first = 0 if history is None else 200
    bus.until(lambda: _pull(later, fates) >= sent - first, "the rest")
    assert sorted(fates) == list(range(first, sent))
    balanced(stopping.account(sent), sent, joins=evicting.evictions + 1)  # the pulled one may have been too slow too
    assert (stopping.ledger.lost, later.lost) == (0, 0)


def _pull(receiver: Receiver, fates: list[int], most: int = 1000) -> int:
    """Takes what waits; returns how many messages it has taken in all."""
    for _ in range(most):
        message = receiver.receive(0)
        if message is None:
            break
        if message.type is MessageType.DATA:
            fates.append(message.sequence_number)
    return len(fates)
