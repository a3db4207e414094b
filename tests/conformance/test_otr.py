"""Off-transport recovery: a receiver gets what its transport lost from the source, and the rest is reported lost."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageFlag, MessageType
from ipcbus.transport.udp.udp_receiver import UdpReceiver
from ipcbus.wire import udp_packets
from tests.kit.bus import GIVE_UP_S, LBTIPC_SOURCE_PACED, LBTRM, LBTRU
from tests.kit.payload import Books, balanced, body
from tests.kit.udp_hooks import replace_receive

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ipcbus import Message, Source
    from tests.kit.bus import Bus, Kind

pytestmark = pytest.mark.parametrize("kind", [LBTIPC_SOURCE_PACED, LBTRU, LBTRM], ids=lambda kind: str(kind.name))

PER_DATAGRAM = 10


@pytest.fixture(autouse=True)
def network(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> Network:
    """What the network loses."""
    made, real = Network(), UdpReceiver.receive

    def receive(udp_receiver: UdpReceiver, packet: bytes, address: Hashable, now_ns: int) -> None:
        found = udp_packets.parse(packet)
        if not (isinstance(found, udp_packets.Data) and found.number in made.loses):
            real(udp_receiver, packet, address, now_ns)

    if kind.over_udp:
        replace_receive(monkeypatch, receive)
    return made


class Network:
    """The numbers of the datagrams that never reach a receiver over UDP, however often they are sent."""

    loses = range(0)


class Stopped:
    """A receiver with a ledger whose callback stops at a number until it is let go."""

    def __init__(self, bus: Bus, stops_at: int, **options: object) -> None:
        self.books, self.stops_at = Books(), stops_at
        self.flags: dict[int, int] = {}
        self.stopped, self.go = threading.Event(), threading.Event()
        self.context = bus.context("stopped", mode="embedded")
        nak = f"transport_{bus.kind.transport}_nak_generation_interval"
        soon = {"otr_request_initial_delay": 50, nak: 400} if bus.kind.over_udp else {}
        self.receiver = self.context.receiver("t", self._on_message, **soon, **options)

    @property
    def late_join_is_over(self) -> bool:
        """Whether the source has said what it keeps: what is missing before that is part of the late join."""
        topics = [topic for session in self.context._receiving_sessions.sessions() for topic in session.topics()]
        return bool(topics) and not any(topic.joins_late for topic in topics)

    def _on_message(self, message: Message) -> None:
        if message.type is MessageType.DATA:
            self.flags[message.sequence_number] = message.flags
        self.books.enter(message)  # last: a test that has seen the books full looks at the flags
        if message.type is MessageType.DATA and message.sequence_number == self.stops_at:
            self.stopped.set()
            self.go.wait(GIVE_UP_S)


def overtaking_source(bus: Bus, **options: object) -> Source:
    """Makes a source that keeps messages, and that waits for no receiver."""
    paced = {f"transport_{bus.kind.transport}_behavior": "source_paced"} if bus.kind.over_udp else {}
    return bus.source(late_join=1, **paced, **bus.kind.small(), **options)


def overrun(bus: Bus, network: Network, stopped: Stopped, count: int, **options: object) -> int:
    """Sends until the receiver stops, then so many messages that the ring goes round; returns how many were sent.

    Over UDP, where nothing goes round, the network loses most of them.
    """
    network.loses = range((stopped.stops_at + 100) // PER_DATAGRAM, count // PER_DATAGRAM - 20)
    source = overtaking_source(bus, **options)
    bus.joined(source)
    bus.until(lambda: stopped.late_join_is_over, "the end of the late join")
    for number in range(count):
        source.send(body(number), flush=number % PER_DATAGRAM == PER_DATAGRAM - 1)
        if number == stopped.stops_at + 10:
            assert stopped.stopped.wait(GIVE_UP_S)
    source.flush()
    stopped.go.set()
    return count


def test_what_the_transport_lost_comes_from_the_source(bus: Bus, network: Network) -> None:
    stopped = Stopped(bus, 100)
    sent = overrun(bus, network, stopped, 6000)
    bus.until(lambda: stopped.books.accounted >= sent, "all messages")
    (ledger,) = stopped.books.ledgers.values()
    balanced(ledger, sent)
    assert ledger.lost == 0
    recovered = [number for number, flags in stopped.flags.items() if flags & MessageFlag.OTR]
    assert len(recovered) > 1000
    assert recovered == sorted(recovered)


def test_what_the_source_does_not_keep_is_reported_lost(bus: Bus, network: Network) -> None:
    stopped = Stopped(bus, 100)
    sent = overrun(bus, network, stopped, 8000, retransmit_retention_size_limit=131_072)
    bus.until(lambda: stopped.books.accounted >= sent, "all messages")
    (ledger,) = stopped.books.ledgers.values()
    balanced(ledger, sent)
    assert 0 < ledger.lost < sent
    missing = [number for number in range(sent) if number not in stopped.flags]
    assert missing == list(range(missing[0], missing[0] + ledger.lost))
    assert ledger.bursts == 1  # the whole range is one event


@pytest.mark.parametrize("keeps", [True, False])
def test_without_it_nothing_changes(bus: Bus, network: Network, keeps: bool) -> None:
    stopped = Stopped(bus, 100, use_otr=0)
    sent = overrun(bus, network, stopped, 6000, **({} if keeps else {"retransmit_retention_size_limit": 65536}))
    bus.until(lambda: stopped.books.accounted >= sent, "all messages")
    (ledger,) = stopped.books.ledgers.values()
    balanced(ledger, sent)
    assert ledger.lost > 1000
    assert not [number for number, flags in stopped.flags.items() if flags & MessageFlag.OTR]


def test_a_request_that_comes_by_off_transport_recovery_can_be_answered(bus: Bus, network: Network) -> None:
    """Some of the messages that the transport loses are requests."""
    count, asks = 3000, range(1000, 1200, 10)
    stopped = Stopped(bus, 100)
    network.loses = range((stopped.stops_at + 100) // PER_DATAGRAM, count // PER_DATAGRAM - 20)
    flags: dict[int, int] = {}

    def answer(message: Message) -> None:
        if message.type is MessageType.REQUEST:
            flags[message.sequence_number] = message.flags
            message.respond(b"%d" % message.sequence_number + message.data)

    stopped.context.receiver("t", answer)
    answers: list[bytes] = []
    source = overtaking_source(bus)
    bus.joined(source)
    bus.until(lambda: stopped.late_join_is_over, "the end of the late join")
    for number in range(count):
        if number in asks:
            source.requests(b" asked", lambda response: answers.append(response.data), timeout=60)
        else:
            source.send(body(number), flush=number % PER_DATAGRAM == PER_DATAGRAM - 1)
        if number == stopped.stops_at + 10:
            assert stopped.stopped.wait(GIVE_UP_S)
    source.flush()
    stopped.go.set()
    bus.until(lambda: len(answers) == len(asks), "all answers")
    bus.until(lambda: stopped.books.delivered >= count - len(asks), "all messages")
    assert answers == [b"%d asked" % number for number in asks]
    assert sorted(flags) == list(asks)
    assert all(each & MessageFlag.OTR for each in flags.values())
    (ledger,) = stopped.books.ledgers.values()
    assert (ledger.delivered, ledger.lost) == (count - len(asks), 0)
