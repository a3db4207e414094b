"""The fallback of a ring over TCP: nothing is lost or doubled, whatever happens; and over both, its pacing holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus import stats
from ipcbus.runtime.receiving import failover
from tests.kit.bus import LBTIPC, Bus
from tests.kit.certificates import mutual
from tests.kit.payload import Books, balanced, body
from tests.kit.peers import Peers, joined, settled
from tests.kit.waiting import until
from tests.system.test_tcp_faults import cut

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus import Source

NO_SLOT: dict[str, object] = {"transport_lbtipc_maximum_receivers_per_transport": 1}
OVER_TCP: dict[str, object] = {"udp_fallback": "lbttcp"}


@pytest.mark.parametrize("fallback", ["lbtru", "lbttcp"])
def test_a_receiver_that_pauses_paces_a_receiver_paced_ring(peers: Peers, domain: str, fallback: str) -> None:
    options: dict[str, object] = {"transport_lbtipc_transmission_window_size": 1 << 18, "udp_fallback": fallback}
    sender = peers.start(name="sender", transport_lbtipc_datagram_max_size=8192)
    first, second = peers.several(2)
    source = joined(sender, [first, second], NO_SLOT | options, {})
    paced = next(each for each in (first, second) if layer(each) != "ring")
    assert layer(paced) == {"lbtru": "LBT-RU", "lbttcp": "LBT-TCP"}[fallback]
    sender.do("stream", topic="t", size=1024)
    paced.do("await_messages", topic="t", count=1000)
    paced.pause()
    until(lambda: waits(domain, source), "a source that waits")
    paced.resume()
    reached = int(paced.do("report", topic="t")["ledgers"][source]["next"])
    paced.do("await_messages", topic="t", count=reached + 10_000)
    sent = sender.do("halt")["t"]
    for each in (first, second):
        assert settled(each, "t", source, sent).lost == 0


def layer(peer: object) -> str:
    """The way of a receiver's only session."""
    (session,) = peer.do("await_sessions", topic="t", count=1)  # type: ignore[attr-defined]
    return str(session["layer"])


def waits(domain: str, source: str) -> bool:
    """Whether a source waits for room in its ring."""
    session = stats.take_snapshot(domain).session(source)
    return session is not None and session.wait == "blocked"


def test_the_end_of_a_source_that_is_killed_is_told_once(peers: Peers) -> None:
    sender = peers.start(name="sender")
    crew = peers.several(3)
    source = joined(sender, crew, NO_SLOT | OVER_TCP, {})
    sent = sender.do("send", topic="t", count=1000)
    assert sorted(layer(each) for each in crew) == ["LBT-TCP", "LBT-TCP", "ring"]
    sender.kill()
    for each in crew:
        each.do("await_end", topic="t")
        balanced(each.ledger("t", source), sent)
        assert each.do("await_sessions", topic="t", count=0) == []


@pytest.fixture
def bus(domain: str) -> Bus:
    """Contexts that deliver by themselves."""
    return Bus(domain, LBTIPC, "embedded")


def test_who_is_evicted_gets_the_rest_over_tcp_and_goes_back(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "_REST_NS", 0)
    books = Books()
    evicts = {"slow_receiver_behavior": "evict", "slow_receiver_timeout": 20}
    source = bus.source("t", **bus.kind.small(), **evicts, **OVER_TCP)
    slow = bus.receiver("t", None, bus.context("slow", resolution_scan_interval=20), receive_queue_maximum=1)
    bus.joined(source)
    for _ in range(2):
        send(source, 400)  # five rings
        while books.accounted <= source.sequence_number:
            message = slow.receive(30)
            assert message is not None
            books.enter(message)
        bus.until(lambda: slow.sessions[0].layer == "ring", "the return to the ring")
    balanced(books.ledgers[source.source], source.sequence_number + 1)
    assert slow.lost == 0
    assert slow.sessions[0].counters["evictions"]
    bus.close()


def send(source: Source, count: int = 1) -> None:
    for _ in range(count):
        source.send(body(source.sequence_number + 1, 1000), flush=True)


def test_a_connection_that_breaks_costs_nothing_with_tls_too(bus: Bus, tmp_path: Path) -> None:
    tls = mutual(tmp_path)
    source = bus.source("t", bus.context("sending", **tls), **NO_SLOT, **OVER_TCP)
    books = [Books(), Books()]
    receivers = [bus.receiver("t", each.enter, bus.context("receiving", **tls)) for each in books]
    bus.joined(source, 2)
    send(source, 100)
    cut(bus, source)
    send(source, 100)
    bus.until(lambda: all(each.accounted == 200 for each in books), "all messages")
    for each in books:
        (ledger,) = each.ledgers.values()
        assert (ledger.wrong, ledger.lost, ledger.delivered) == ([], 0, 200)
    assert sorted(each.sessions[0].layer for each in receivers) == ["LBT-TCP", "ring"]
    bus.close()
