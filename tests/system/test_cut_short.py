"""Shared memory that another program cuts short while both sides use it: nobody dies, and both sides are told."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from ringbuf import layout, segment
from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTIPC_SOURCE_PACED, LBTSMX, Kind
from tests.kit.look import rings
from tests.kit.payload import Ledger, balanced
from tests.kit.peers import PeerError, Peers, settled

if TYPE_CHECKING:
    from tests.kit.peers import PeerProcess

SOON = {"liveness_check_interval": 20}
CUTS = {"ring": ("ring", 0), "records": ("ring", layout.PAGE), "control": ("control", 0)}
"""Which object is cut, and what is left of it."""


def cut(domain: str, what: str) -> None:
    """Does it."""
    which, left = CUTS[what]
    ring = rings(domain)[0]
    before, dot, last = ring.rpartition(".")
    name = ring if which == "ring" else f"{before}{dot}c{last[1:]}"
    os.truncate(segment.ROOT / name, left)


def refused(sender: PeerProcess) -> str:
    """Sends until that is refused; returns the error."""
    deadline = time.monotonic() + GIVE_UP_S
    while time.monotonic() < deadline:
        try:
            sender.do("send", topic="t", count=10)
        except PeerError as error:
            return str(error)
    raise AssertionError("nothing was refused")


@pytest.mark.parametrize(
    ("kind", "what"),
    [(LBTIPC, "ring"), (LBTIPC, "records"), (LBTIPC, "control"), (LBTIPC_SOURCE_PACED, "ring"), (LBTSMX, "ring")],
    ids=lambda value: str(getattr(value, "name", value)),
)
def test_both_sides_are_told_and_live_on(domain: str, peers: Peers, kind: Kind, mode: str, what: str) -> None:
    receivers = [peers.start(mode, **SOON) for _ in range(2)]
    sender = peers.start(**SOON)
    options: dict[str, Any] = {"transport": kind.transport, **kind.options}
    source = sender.do("source", topic="t", **options)
    for receiver in receivers:
        receiver.do("receiver", topic="t")
    sender.do("joined", topic="t", receivers=2)
    sender.do("send", topic="t", count=100)
    for receiver in receivers:
        receiver.do("await_messages", topic="t", count=100)
    cut(domain, what)
    assert "SegmentDamaged" in (error := refused(sender))
    assert "cut short" in error
    sent = sender.do("used", topic="t")
    sender.do("end", topic="t")
    accounts = []
    for receiver in receivers:
        ledger = Ledger(**receiver.do("await_end", topic="t")["ledgers"][source])
        balanced(ledger, sent)  # each message that was sent came, or was reported lost
        assert ledger.ended == 1
        accounts.append(ledger.next)
    # The processes go on: a new source is joined.
    again = sender.do("source", topic="t", **options)
    sender.do("joined", topic="t", receivers=2)
    sender.do("send", topic="t", count=10)
    for receiver, account in zip(receivers, accounts, strict=True):
        receiver.do("await_messages", topic="t", count=account + 10)
        settled(receiver, "t", again, 10)
