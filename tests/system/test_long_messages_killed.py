"""Processes that are killed or stopped while a source of long messages uses memory again soon: all arrives."""

from __future__ import annotations

import random

import pytest

from tests.kit.look import DistantRing, rings
from tests.kit.payload import Ledger, balanced
from tests.kit.peers import PeerProcess, Peers, joined, settled

LENGTH = 300_000
SOON = {"liveness_check_interval": 20}


def flowing(peers: Peers, receivers: list[PeerProcess], mode: str = "embedded") -> tuple[PeerProcess, str]:
    """Starts a stream of long messages; returns its process and its source string."""
    sender = peers.start(mode, **SOON)
    source = joined(sender, receivers, {"message_max": LENGTH}, {})
    sender.do("stream", topic="t", size=LENGTH)
    for receiver in receivers:
        receiver.do("await_messages", topic="t", count=50)
    return sender, source


def test_killed_source(domain: str, peers: Peers, mode: str) -> None:
    receivers = peers.several(2, mode)
    sender, source = flowing(peers, receivers)
    ring = DistantRing(rings(domain)[0])
    sender.kill()
    published, begun = ring.sent()
    for receiver in receivers:
        ledger = Ledger(**receiver.do("await_end", topic="t")["ledgers"][source])
        balanced(ledger, ledger.next)
        assert published <= ledger.next <= begun
        assert (ledger.ended, ledger.lost) == (1, 0)


@pytest.mark.parametrize("rounds", [6, pytest.param(60, marks=pytest.mark.long)])
def test_receivers_that_come_and_are_killed_or_stopped(peers: Peers, mode: str, rounds: int) -> None:
    healthy = peers.start(mode)
    sender, source = flowing(peers, [healthy])
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    for _ in range(rounds):
        other = peers.start(mode)
        other.do("receiver", topic="t")
        other.do("await_messages", topic="t", count=chance.randint(1, 100))
        if chance.random() < 0.5:
            other.pause()
            if chance.random() < 0.5:
                other.resume()
                other.do("await_messages", topic="t", count=200)
        other.kill()
        healthy.do("await_messages", topic="t", count=healthy.ledger("t", source).delivered + 20)
    sender.do("halt")
    ledger = settled(healthy, "t", source, sender.do("used", topic="t"))
    assert (ledger.lost, ledger.wrong) == (0, []), f"seed {seed}"
