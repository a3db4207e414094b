"""A receiver of any form that is evicted gets the rest over UDP and goes back to its ring: nothing lost or doubled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus.reliability.reliable_receiver import ReliableReceiver
from ipcbus.runtime.receiving import failover
from ipcbus.transport.udp import udp_sender
from ipcbus.transport.udp.udp_receiver import UdpReceiver
from ipcbus.wire import udp_packets
from tests.kit.bus import GIVE_UP_S, RECEIVER_PACED, Bus
from tests.kit.loops import run
from tests.kit.payload import Books, balanced, body
from tests.kit.queues import dispatch_until
from tests.kit.udp_hooks import replace_receive

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ipcbus import Receiver, Source
    from ipcbus.transport.receiving_session import ReceivingSession

pytestmark = pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))

LONG = 20_000
ROUNDS = 2


class Slow:
    """Takes nothing until it is told to; one message of it fills its queue."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.context = bus.context("slow", resolution_scan_interval=20)
        self.books = Books()
        self.receiver = self.make()

    def make(self) -> Receiver:
        """The receiver."""
        return self.context.receiver("t", receive_queue_maximum=1)

    def take(self, enough: Callable[[], object]) -> None:
        """Takes until `enough` says so."""
        while not enough():
            message = self.receiver.receive(GIVE_UP_S)
            assert message is not None, "waited in vain"
            self.books.enter(message)

    def close(self) -> None:
        """Lets go of what the context does not own."""


class SlowInALoop(Slow):
    """The same with asyncio."""

    def take(self, enough: Callable[[], object]) -> None:
        async def loop() -> None:
            if enough():
                return
            async for message in self.receiver:
                self.books.enter(message)
                if enough():
                    return

        run(asyncio.wait_for(loop(), GIVE_UP_S), "asyncio")


class SlowQueue(Slow):
    """The same with an event queue."""

    def make(self) -> Receiver:
        self.queue = ipcbus.EventQueue(8)
        return self.context.receiver("t", self.books.enter, event_queue=self.queue, receive_queue_maximum=1)

    def take(self, enough: Callable[[], object]) -> None:
        dispatch_until(self.bus, self.queue, enough, "the messages")

    def close(self) -> None:
        self.queue.close()


def send_more_than_fits(bus: Bus, source: Source) -> int:
    """Sends what fits five rings, some of it in pieces; returns how many numbers the source has used."""
    window = source._session.channel.writer.capacity
    sent = turn = 0
    while sent < 5 * window:
        size = LONG if bus.kind.batches and turn % 50 == 0 else 64 if turn % 3 else 500
        source.send(body(source.sequence_number + 1, size))
        turn, sent = turn + 1, sent + size
    source.flush()
    return source.sequence_number + 1


@pytest.mark.parametrize(
    ("mode", "taking"),
    [
        ("embedded", Slow),
        ("sequential", Slow),
        ("split", SlowQueue),
        ("embedded", SlowInALoop),
        ("sequential", SlowQueue),
    ],
)
def test_it_gets_everything_again_and_again(bus: Bus, taking: type[Slow], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "_REST_NS", 0)
    sending = bus.context("sending", mode="embedded")  # which repairs while others are driven here
    source = bus.source("t", sending, **bus.kind.small(), slow_receiver_behavior="evict", slow_receiver_timeout=20)
    slow = taking(bus)
    bus.joined(source)
    for evictions in range(1, ROUNDS + 1):
        sent = send_more_than_fits(bus, source)
        slow.take(lambda: slow.books.accounted >= sent)  # noqa: B023 - called before the next round
        bus.until(lambda: slow.receiver.sessions[0].layer == "ring", "the return to the ring")
        (session,) = slow.receiver.sessions
        assert (session.state, session.reason) == ("joined", "")
        assert session.counters["evictions"] >= evictions
    source.close()
    slow.take(lambda: slow.books.ended)
    (ledger,) = slow.books.ledgers.values()
    balanced(ledger, sent)
    assert (ledger.lost, slow.receiver.lost) == (0, 0)
    slow.close()


def evicting(bus: Bus) -> Source:
    """A source of its own context, on a small session that evicts soon."""
    sending = bus.context("sending", mode="embedded")
    return bus.source("t", sending, **bus.kind.small(), slow_receiver_behavior="evict", slow_receiver_timeout=20)


def session_of(slow: Slow) -> ReceivingSession:
    """The session of its topic."""
    return next(
        each
        for each in slow.context._receiving_sessions.sessions()
        for topic in each.topics()
        if topic.origin.topic == "t"
    )


def evict(bus: Bus, source: Source, slow: Slow) -> int:
    """Has it evicted, lets it take everything, and returns how many numbers the source has used."""
    sent = send_more_than_fits(bus, source)
    slow.take(lambda: slow.books.accounted >= sent)
    return sent


@pytest.mark.parametrize(
    ("mode", "taking"), [("embedded", Slow), ("sequential", Slow), ("split", SlowQueue), ("embedded", SlowInALoop)]
)
def test_a_source_that_closes_keeps_the_rest_for_who_was_evicted(bus: Bus, taking: type[Slow]) -> None:
    source = evicting(bus)
    slow = taking(bus)
    bus.joined(source)
    sent = send_more_than_fits(bus, source)
    (session,) = slow.receiver.sessions
    assert (session.state, session.layer) == ("evicted", "ring")
    assert "evicted this context" in session.reason
    source.close()
    slow.take(lambda: slow.books.ended)
    (ledger,) = slow.books.ledgers.values()
    balanced(ledger, sent)
    assert ledger.lost == 0
    slow.close()


@pytest.mark.parametrize(
    ("mode", "taking"), [("embedded", Slow), ("sequential", Slow), ("split", SlowQueue), ("embedded", SlowInALoop)]
)
def test_what_a_source_did_not_keep_for_who_was_evicted_is_reported(
    bus: Bus, taking: type[Slow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(udp_sender, "_LINGER_NS", -1)
    source = evicting(bus)
    slow = taking(bus)
    bus.joined(source)
    sent = send_more_than_fits(bus, source)
    source.close()
    twin = source._session.udp_sender
    assert twin is not None
    bus.until(lambda: twin.session_socket.socket.fileno() < 0, "the end of the source")
    slow.take(lambda: slow.books.ended)
    (ledger,) = slow.books.ledgers.values()
    balanced(ledger, sent)
    assert slow.receiver.lost == ledger.lost > 0
    slow.close()


@pytest.mark.parametrize("mode", ["embedded"])
def test_what_was_read_before_an_eviction_is_not_sent_again(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "_REST_NS", 0)
    began: list[int | None] = []
    leave = UdpReceiver.leave

    def note(udp_receiver: UdpReceiver) -> bool:
        assert isinstance(udp_receiver.reliable_receiver, ReliableReceiver)
        began.append(udp_receiver.reliable_receiver.joined_at)
        return leave(udp_receiver)

    monkeypatch.setattr(UdpReceiver, "leave", note)
    source = evicting(bus)
    slow = Slow(bus)
    bus.joined(source)
    udp_sender = source._session.udp_sender
    assert udp_sender is not None
    expected = []
    for _ in range(3):
        expected.append(udp_sender.reliable_sender.lead)
        evict(bus, source, slow)
        bus.until(lambda: slow.receiver.sessions[0].layer == "ring", "the return to the ring")
        bus.until(lambda: not udp_sender.active, "the end of sending over UDP to nobody")
    assert (began, slow.receiver.lost) == (expected, 0)


@pytest.mark.parametrize("mode", ["embedded"])
def test_a_receiver_evicted_on_its_way_back_stays_on_udp(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "_REST_NS", 0)
    may_return: list[bool] = []
    mark = UdpReceiver.mark

    def hold(udp_receiver: UdpReceiver) -> Callable[[], bool]:
        is_through = mark(udp_receiver)
        return lambda: bool(may_return) and is_through()

    monkeypatch.setattr(UdpReceiver, "mark", hold)
    source = evicting(bus)
    slow = Slow(bus)
    bus.joined(source)
    evict(bus, source, slow)
    bus.until(lambda: slow.context._receiving_sessions._failover._returning, "the way back")
    sent = evict(bus, source, slow)
    bus.until(lambda: slow.receiver.sessions[0].counters["evictions"] >= 2, "the second eviction")
    assert slow.receiver.sessions[0].layer == "LBT-RU"
    may_return.append(True)
    bus.until(lambda: slow.receiver.sessions[0].layer == "ring", "the return to the ring")
    source.close()
    slow.take(lambda: slow.books.ended)
    (ledger,) = slow.books.ledgers.values()
    balanced(ledger, sent)
    assert ledger.lost == 0


@pytest.mark.parametrize("mode", ["embedded"])
def test_what_is_missing_after_the_move_has_time_to_be_repaired(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "_REST_NS", 1 << 62)
    missing: list[int] = []
    receive = UdpReceiver.receive

    def lose(udp_receiver: UdpReceiver, packet: bytes, address: Hashable, now_ns: int) -> None:
        found = udp_packets.parse(packet)
        if not isinstance(found, udp_packets.Data) or found.number not in missing:
            receive(udp_receiver, packet, address, now_ns)

    replace_receive(monkeypatch, lose)
    source, other = evicting(bus), bus.source("other")
    slow = Slow(bus)
    bus.joined(source)
    evict(bus, source, slow)
    session, udp_sender = session_of(slow), source._session.udp_sender
    assert isinstance(session.datagram_source, UdpReceiver)
    assert udp_sender is not None
    udp_receiver = session.datagram_source
    bus.until(lambda: not udp_receiver.reliable_receiver.catches_up, "everything from before")
    missing.append(udp_sender.reliable_sender.lead)
    for _ in range(3):
        source.send(body(source.sequence_number + 1), flush=True)
    bus.until(lambda: not session.topics()[0].fast_path, "messages behind the missing one")
    # One more topic makes the context look for losses at once.
    books = Books()
    bus.receiver("other", books.enter, slow.context)
    bus.joined(other)
    other.send(body(0), flush=True)
    bus.until(lambda: books.accounted, "the other message")
    assert slow.receiver.lost == 0
    missing.clear()
    sent = source.sequence_number + 1
    slow.take(lambda: slow.books.accounted >= sent)
    (ledger,) = slow.books.ledgers.values()
    balanced(ledger, sent)
    assert ledger.lost == 0
