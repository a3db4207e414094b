"""Sessions over TCP with TLS: the same messages, and nobody gets any who has no valid certificate."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import stats
from tests.kit.bus import LBTTCP, Bus
from tests.kit.certificates import authority, mutual
from tests.kit.payload import Books, Ledger, balanced, body
from tests.kit.peers import Peers, joined, settled, told_of_the_end

if TYPE_CHECKING:
    from pathlib import Path

SOURCE: dict[str, object] = {"transport": "lbttcp"}


@pytest.mark.parametrize("mode", ["embedded", pytest.param("sequential", marks=pytest.mark.long)])
def test_messages_of_all_sizes_requests_and_late_joiners(domain: str, mode: str, tmp_path: Path) -> None:
    bus = Bus(domain, LBTTCP, mode)
    tls = mutual(tmp_path)
    sizes = [random.Random(number).choice((16, 100, 3000, 100_000)) for number in range(300)]
    early, late = Books(), Books()
    bus.receiver("t", early.enter, bus.context("early", **tls))
    source = bus.source("t", bus.context("sending", **tls), late_join=True)
    bus.joined(source)
    for size in sizes:
        source.send(body(source.sequence_number + 1, size))
    source.flush()
    bus.receiver("t", late.enter, bus.context("late", **tls))
    expected = source.sequence_number + 1  # a long message counts as its fragments
    for books in (early, late):
        while books.accounted < expected:
            bus.turn()
        balanced(books.ledgers[source.source], expected)
        assert books.ledgers[source.source].lost == 0
    bus.close()


def test_requests(domain: str, tmp_path: Path) -> None:
    bus = Bus(domain, LBTTCP, "embedded")
    tls = mutual(tmp_path)

    def answer(message: ipcbus.Message) -> None:
        if message.type is ipcbus.MessageType.REQUEST:
            message.respond(b"to " + message.data)

    bus.receiver("t", answer, bus.context("answering", **tls))
    source = bus.source("t", bus.context("asking", **tls))
    bus.joined(source)
    assert source.request(bytes(100_000), timeout=30).data == b"to " + bytes(100_000)
    bus.close()


def test_who_is_refused_is_counted_and_told(domain: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bus = Bus(domain, LBTTCP, "embedded")
    (tmp_path / "stranger").mkdir()
    stranger = authority("stranger").issue(tmp_path / "stranger", "stranger")
    stranger["tls_trusted_certificates"] = authority().trusted(tmp_path)
    own, others = Books(), Books()
    bus.receiver("t", own.enter, bus.context("own", **mutual(tmp_path)))
    refused = {
        "stranger": bus.receiver("t", others.enter, bus.context("stranger", **stranger)),
        "plain": bus.receiver("t", others.enter, bus.context("plain")),
    }
    source = bus.source("t", bus.context("sending", **mutual(tmp_path)))
    bus.joined(source)
    for number in range(1000):
        source.send(body(number), flush=number % 10 == 0)
    source.flush()
    bus.until(lambda: own.ledgers and own.ledgers[source.source].next == 1000, "all messages")
    balanced(own.ledgers[source.source], 1000)

    def reasons() -> dict[str, str]:
        return {name: each.sessions[0].reason for name, each in refused.items() if each.sessions}

    bus.until(lambda: len(list(filter(None, reasons().values()))) == 2, "the reasons")
    assert "compare tls_certificate" in reasons()["stranger"]
    assert "set use_tls on both sides" in reasons()["plain"]

    def failed() -> dict[str, int]:
        snapshot = stats.take_snapshot(domain)
        session = snapshot.session(source.source)
        assert session is not None
        assert session.uplink is not None
        found = {each.context_name: each.reception for each in session.receivers}
        counts = {name: each.counters["socket_tls_failed"] for name, each in found.items() if each is not None}
        return counts | {"source": session.uplink.counters["socket_tls_failed"]}

    bus.until(lambda: all(failed().get(name) for name in ("source", "stranger", "plain")), "the counts")
    assert failed()["own"] == 0
    assert source.receivers == 1
    assert others.ledgers == {}
    bus.close()
    warned = [record.getMessage() for record in caplog.records if record.getMessage().startswith("TLS with 127.0.0.1")]
    assert len(warned) == 3  # each side says it once a minute


def test_a_source_without_a_certificate_is_an_error(domain: str, tmp_path: Path) -> None:
    bus = Bus(domain, LBTTCP, "embedded")
    context = bus.context("c", use_tls=True, tls_trusted_certificates=authority().trusted(tmp_path))
    with pytest.raises(ipcbus.ConfigError, match="needs tls_certificate"):
        bus.source("t", context)
    bus.close()


def test_processes_that_are_killed(peers: Peers, tmp_path: Path) -> None:
    tls = mutual(tmp_path)
    sender = peers.start(name="sender", **tls)
    receivers = [peers.start(name=f"receiver {number}", **tls) for number in range(3)]
    source = joined(sender, receivers, SOURCE, {})
    sender.do("stream", topic="t", size=3000)
    receivers[1].do("await_messages", topic="t", count=500)
    receivers[1].kill()
    receivers[0].do("await_messages", topic="t", count=2000)
    number = sender.do("halt")["t"]
    alive = [receivers[0], receivers[2]]
    for peer in alive:
        assert settled(peer, "t", source, number).lost == 0
    sender.do("stream", topic="t", size=3000)
    for peer in alive:
        peer.do("await_messages", topic="t", count=number + 500)
    sender.kill()
    told_of_the_end(alive, source, number + 500)
    for peer in alive:
        assert Ledger(**peer.do("report", topic="t")["ledgers"][source]).wrong == []
