"""Processes that are killed or stopped while they recover messages: nobody else waits, and the ledger stays exact."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.kit.bus import KINDS, LBTIPC_SOURCE_PACED, RINGS, Kind
from tests.kit.payload import Ledger, balanced

if TYPE_CHECKING:
    from typing import Any

    from tests.kit.peers import PeerProcess, Peers

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.name))
SENT = 100_000


@pytest.fixture
def mode() -> str:
    """Recoveries run in the processes' own threads."""
    return "embedded"


def keeping(sender: PeerProcess, kind: Kind, **options: Any) -> str:  # noqa: ANN401 - source options
    """Makes a source that keeps what it has sent; returns its source string."""
    source: str = sender.do("source", topic="t", transport=kind.transport, late_join=1, **kind.options, **options)
    return source


def ledger_of(report: dict[str, Any], source: str) -> Ledger:
    return Ledger(**report["ledgers"][source])


@every_kind
@pytest.mark.parametrize("seed", range(5))
def test_a_source_that_is_killed_in_the_middle_leaves_an_exact_account(peers: Peers, kind: Kind, seed: int) -> None:
    sender, late = peers.start(), peers.start(liveness_check_interval=20)
    source = keeping(sender, kind)
    sender.do("send", topic="t", count=SENT)
    late.do("receiver", topic="t")
    late.do("await_messages", topic="t", count=random.Random(seed).randrange(1, SENT // 2))
    sender.kill()
    ledger = ledger_of(late.do("await_end", topic="t"), source)
    assert ledger.wrong == []
    assert (ledger.first, ledger.delivered + ledger.lost) == (0, SENT)


@every_kind
def test_a_receiver_that_is_killed_in_the_middle_keeps_nobody_waiting(peers: Peers, kind: Kind) -> None:
    sender, other, late = peers.start(liveness_check_interval=20), peers.start(), peers.start()
    source = keeping(sender, kind)
    sender.do("send", topic="t", count=SENT)
    other.do("receiver", topic="t")
    late.do("receiver", topic="t", every=100, pause=0.001)
    late.do("await_messages", topic="t", count=200)
    late.kill()
    balanced(ledger_of(other.do("await_messages", topic="t", count=SENT), source), SENT)
    sent = sender.do("send", topic="t", count=100)
    balanced(ledger_of(other.do("await_messages", topic="t", count=sent), source), sent)
    sender.do("await_receivers", topic="t", count=1)


@pytest.mark.parametrize("covered", [True, False])
def test_a_receiver_that_is_stopped_gets_what_the_source_still_keeps(peers: Peers, covered: bool) -> None:
    """Source-paced: the ring goes round many times while the receiver's process is stopped."""
    sender, stopped = peers.start(), peers.start()
    limits = {} if covered else {"retransmit_retention_size_limit": 1 << 20}
    source = keeping(sender, LBTIPC_SOURCE_PACED, transport_lbtipc_transmission_window_size=262144, **limits)
    stopped.do("receiver", topic="t")
    sender.do("joined", topic="t")
    sender.do("send", topic="t", count=100)
    stopped.do("await_messages", topic="t", count=100)
    stopped.pause()
    sent = sender.do("send", topic="t", count=SENT)
    stopped.resume()
    ledger = ledger_of(stopped.do("await_messages", topic="t", count=sent), source)
    balanced(ledger, sent)
    assert (ledger.lost == 0) is covered
    assert ledger.delivered > 5000


def test_a_receiver_that_is_stopped_while_it_recovers_keeps_nobody_waiting(peers: Peers) -> None:
    sender, other, late = peers.start(), peers.start(), peers.start()
    source = keeping(sender, RINGS[2])
    sender.do("send", topic="t", count=SENT)
    late.do("receiver", topic="t", every=100, pause=0.001)
    late.do("await_messages", topic="t", count=200)
    late.pause()
    other.do("receiver", topic="t")
    balanced(ledger_of(other.do("await_messages", topic="t", count=SENT), source), SENT)
    late.resume()
    late.do("hurry", topic="t")
    balanced(ledger_of(late.do("await_messages", topic="t", count=SENT), source), SENT)
