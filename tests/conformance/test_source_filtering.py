"""Source-side filtering on real sessions: LBT-RU, and the UDP twin of a ring."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageType
from ipcbus.transport.udp.udp_receiver import UdpReceiver
from ipcbus.wire import udp_packets
from tests.kit.bus import LBTRU, LBTSMX, LBTTCP, Bus
from tests.kit.forms import CallbackTaker
from tests.kit.payload import Books, balanced, body
from tests.kit.udp_hooks import replace_receive

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ipcbus import Source

over_udp = pytest.mark.parametrize("kind", [LBTRU, LBTTCP], ids=lambda kind: str(kind.name))
FILTERS = {"transport_source_side_filtering_behavior": "inclusion"}


def send(source: Source, count: int) -> int:
    """Sends so many messages, each in a datagram of its own."""
    for number in range(source.sequence_number + 1, source.sequence_number + 1 + count):
        source.send(body(number), flush=True)
    return source.sequence_number + 1


def filtered(source: Source) -> int:
    """Datagrams that the session did not send to a client."""
    sender = source._session.udp_sender
    assert sender is not None
    return sender.reliable_sender.snapshot()["dgrams_filtered"]


@over_udp
def test_each_context_gets_only_datagrams_of_its_topics(bus: Bus) -> None:
    context = bus.context("sending")
    one, other, nobodys = (bus.source(topic, context, **bus.kind.id(100), **FILTERS) for topic in ("a", "b", "c"))
    takers = [CallbackTaker(bus, topic) for topic in ("a", "b")]
    bus.joined(one)
    bus.joined(other)
    for source in (one, other, nobodys) * 20:
        send(source, 1)
    for taker in takers:
        assert taker.data(20) == [body(number) for number in range(20)]
    assert filtered(one) == 2 * 40

    def learned() -> list[int]:
        return [taker.receiver.sessions[0].counters["dgrams_filtered"] for taker in takers]

    bus.until(lambda: learned() == [40, 40], "notices")
    for taker in takers:
        counters = taker.receiver.sessions[0].counters
        assert (counters["naks_sent"], counters["lost"], taker.receiver.lost) == (0, 0, 0)


@over_udp
def test_a_topic_that_joins_in_the_middle_gets_all_that_follows(bus: Bus) -> None:
    context, receiving = bus.context("sending"), bus.context("receiving")
    early, late = (bus.source(topic, context, **bus.kind.id(100), **FILTERS) for topic in ("early", "late"))
    one = CallbackTaker(bus, "early", receiving)
    bus.joined(early)
    for source in (early, late) * 10:
        send(source, 1)
    other = CallbackTaker(bus, "late", receiving)
    bus.joined(late)
    for source in (early, late) * 10:
        send(source, 1)
    assert one.data(20) == [body(number) for number in range(20)]
    bus.until(lambda: other.count() and other.got[-1].data == body(19), "the last message")
    assert [got.data for got in other.got if got.data][-10:] == [body(number) for number in range(10, 20)]
    assert (one.receiver.lost, other.receiver.lost) == (0, 0)
    assert filtered(early) >= 10


@over_udp
def test_what_came_before_a_topic_was_joined_is_not_its_beginning(bus: Bus) -> None:
    """A datagram with both topics waits in the ring; what follows of the second topic is left out for a while."""
    context, receiving = bus.context("sending"), bus.context("receiving")
    early, late = (bus.source(topic, context, **bus.kind.id(100), **FILTERS) for topic in ("early", "late"))
    slow = bus.receiver("early", None, receiving, receive_queue_maximum=1)
    bus.joined(early)
    early.send(body(0), flush=True)
    early.send(body(1), flush=True)
    early.send(body(2))
    late.send(body(0), flush=True)
    send(late, 50)

    def has_come() -> bool:
        return bool(slow.sessions) and slow.sessions[0].counters["dgrams_filtered"] == 50

    bus.until(has_come, "the notice of what is left out")
    other = CallbackTaker(bus, "late", receiving)
    bus.joined(late)
    send(late, 3)
    taken = 0
    while taken < 3:
        message = slow.receive(0)
        taken += message is not None and message.type is MessageType.DATA
        bus.turn()
    bus.until(lambda: other.count() and other.got[-1].data == body(53), "the last message")
    assert [got.data for got in other.got if got.data] == [body(number) for number in (51, 52, 53)]
    assert (slow.lost, other.receiver.lost) == (0, 0)


@over_udp
def test_lost_datagrams_and_notices_are_made_up_for(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    real, came = UdpReceiver.receive, 0

    def receive(udp_receiver: UdpReceiver, packet: bytes, address: Hashable, now_ns: int) -> None:
        nonlocal came
        if packet[1] in (udp_packets.DATA, udp_packets.PASSED):
            came += 1
            if came % 3 == 0:
                return
        real(udp_receiver, packet, address, now_ns)

    replace_receive(monkeypatch, receive)
    context = bus.context("sending")
    mine, others = (bus.source(topic, context, **bus.kind.id(100), **FILTERS) for topic in ("a", "b"))
    books = Books()
    bus.receiver("a", books.enter)
    bus.joined(mine)
    for _ in range(50):
        send(others, 3)
        sent = send(mine, 1)
    bus.until(lambda: books.accounted == sent, "all messages")
    (ledger,) = books.ledgers.values()
    balanced(ledger, sent)
    assert (ledger.lost, filtered(mine)) == (0, 150)


@pytest.mark.parametrize("kind", [LBTSMX], ids=lambda kind: str(kind.name))
def test_the_twin_of_a_ring_filters_too(bus: Bus) -> None:
    context = bus.context("sending")
    own = {"transport_lbtsmx_maximum_receivers_per_transport": 1, **bus.kind.id(100), **FILTERS}
    mine, others = (bus.source(topic, context, **own) for topic in ("a", "b"))
    on_ring = CallbackTaker(bus, "a", bus.context("first"))
    bus.joined(mine)
    over_udp = CallbackTaker(bus, "a", bus.context("second"))
    bus.joined(mine, 2)
    for source in (others, mine) * 20:
        send(source, 1)
    for taker in (on_ring, over_udp):
        assert taker.data(20) == [body(number) for number in range(20)]
    assert [each.layer for each in over_udp.receiver.sessions] == ["LBT-RU"]
    assert filtered(mine) == 20
