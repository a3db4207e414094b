"""A fork with an open context: the child is refused, the parent goes on."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.look import objects
from tests.kit.payload import Ledger, balanced
from tests.kit.peers import Peers, settled

if TYPE_CHECKING:
    from tests.kit.peers import PeerProcess

HOWS = ["exit", "_exit", "multiprocessing"]


def busy(peers: Peers, mode: str) -> tuple[PeerProcess, PeerProcess, str, str]:
    """Two processes that send to each other: both, and the source strings of the first and the second."""
    forking, other = peers.several(2, mode)
    there = forking.do("source", topic="there")
    back = other.do("source", topic="back")
    forking.do("receiver", topic="back")
    other.do("receiver", topic="there")
    for peer, topic in ((forking, "there"), (other, "back")):
        peer.do("joined", topic=topic)
        peer.do("send", topic=topic, count=50)
    settled(other, "there", there, 50)
    settled(forking, "back", back, 50)
    return forking, other, there, back


def refused(told: dict[str, Any]) -> None:
    """Asserts that the child was refused everything but a context of its own."""
    assert told.pop("exit") == 0
    assert told.pop("a context of its own") == "fine"
    assert len(told) == 14
    assert set(told.values()) == {"WrongProcess"}, told


@pytest.mark.parametrize("how", HOWS)
def test_the_child_is_refused_and_the_parent_goes_on(domain: str, peers: Peers, mode: str, how: str) -> None:
    forking, other, there, back = busy(peers, mode)
    before = objects(domain)
    refused(forking.do("fork", how=how))
    assert objects(domain) == before
    settled(other, "there", there, forking.do("send", topic="there", count=50))
    settled(forking, "back", back, other.do("send", topic="back", count=50))
    assert Ledger(**other.do("report", topic="there")["ledgers"][there]).ended == 0


def test_a_fork_while_threads_send_and_receive_harms_nobody(peers: Peers) -> None:
    forking, other, there, back = busy(peers, "embedded")
    forking.do("stream", topic="there")
    other.do("stream", topic="back")
    for _ in range(5):
        refused(forking.do("fork", how="_exit"))
    settled(other, "there", there, forking.do("halt")["there"])
    settled(forking, "back", back, other.do("halt")["back"])


def test_a_child_that_lives_on_does_not_keep_its_dead_parent_alive(domain: str, peers: Peers) -> None:
    forking, other, there, _ = busy(peers, "embedded")
    assert other.do("told", topic="back", kind="CONNECT")
    child = forking.do("fork", how="stays")["pid"]
    try:
        forking.kill()
        ledger = Ledger(**other.do("await_end", topic="there")["ledgers"][there])
        balanced(ledger, 50)
        assert other.do("told", topic="back", kind="DISCONNECT")
        other.do("await_objects", count=4)  # registry, doorbell, ring and control block of its own
        assert len(objects(domain)) == 4
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_child_made_inside_an_acquire_block_leaves_the_reservation_to_its_parent(peers: Peers, mode: str) -> None:
    forking, other, there, _ = busy(peers, mode)
    told = forking.do("fork_in_acquire", topic="there")
    assert told == {"child": "WrongProcess", "exit": 0}
    settled(other, "there", there, 51)
