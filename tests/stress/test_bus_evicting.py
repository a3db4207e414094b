"""A stopped receiver in another process: its source evicts it and goes on; it comes back and knows what it missed."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest

from tests.kit.bus import RECEIVER_PACED, Kind
from tests.kit.payload import balanced

if TYPE_CHECKING:
    from tests.kit.payload import Ledger
    from tests.kit.peers import PeerProcess, Peers

pytestmark = [
    pytest.mark.stress,
    pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name)),
]


def started(
    peers: Peers, kind: Kind, mode: str, timeout: int, *, keeps: bool = False
) -> tuple[PeerProcess, PeerProcess, str]:
    """A source that evicts and a receiver that have met, and the source string."""
    sender = peers.start("embedded", transport_lbtipc_datagram_max_size=8192)
    receiver = peers.start(mode, "stopped")
    options = {"slow_receiver_behavior": "evict", "slow_receiver_timeout": timeout, "udp_fallback": "none"}
    options["late_join"] = int(keeps)
    source = sender.do("source", topic="t", transport=kind.transport, **kind.options, **kind.small(), **options)
    receiver.do("receiver", topic="t")
    sender.do("told", topic="t", kind="CONNECT")
    return sender, receiver, source


def account(receiver: PeerProcess, source: str, sent: int) -> Ledger:
    """Waits until the receiver has accounted for all that was sent; asserts that the account is right."""
    receiver.do("await_messages", topic="t", count=sent)
    ledger = receiver.ledger("t", source)
    balanced(ledger, sent, joins=ledger.begun)
    return ledger


@pytest.mark.parametrize("mode", ["embedded", "sequential"])
def test_a_stopped_receiver_is_evicted_and_comes_back_with_an_exact_account(
    peers: Peers, kind: Kind, mode: str
) -> None:
    sender, receiver, source = started(peers, kind, mode, 1000)
    sent = sender.do("send", topic="t", count=100)
    assert account(receiver, source, sent).lost == 0
    receiver.pause()
    sent = sender.do("send", topic="t", count=5 * kind.window // 80)  # more than fits, so somebody has to give way
    told = sender.do("told", topic="t", kind="DISCONNECT")
    assert [event[0] for event in told] == ["CONNECT", "RECEIVER_EVICTED", "DISCONNECT"]
    assert told[1][1:] == [receiver.pid, "stopped"]
    receiver.resume()
    ledger = account(receiver, source, sent)  # though nothing follows
    assert ledger.lost > 0
    sender.do("joined", topic="t")
    (session,) = receiver.do("await_sessions", topic="t", count=1)
    assert session["counters"]["evictions"] == 1
    missed = ledger.lost
    sent = sender.do("send", topic="t", count=10)
    ledger = account(receiver, source, sent)
    assert (ledger.begun, ledger.ended, ledger.lost) == (2, 1, missed)
    assert receiver.do("report", topic="t")["lost"] == ledger.lost


def test_a_receiver_that_is_killed_after_its_eviction_leaves_a_free_slot(peers: Peers, kind: Kind) -> None:
    sender, receiver, source = started(peers, kind, "embedded", 20)
    receiver.pause()
    sender.do("send", topic="t", count=3 * kind.window // 80)
    sender.do("told", topic="t", kind="RECEIVER_EVICTED")
    receiver.kill()
    after = peers.start("embedded", "after")
    after.do("receiver", topic="t")
    sender.do("joined", topic="t")
    first = sender.do("sent")["t"]
    sent = sender.do("send", topic="t", count=10)
    after.do("await_messages", topic="t", count=10)
    balanced(after.ledger("t", source), sent, first=first)


@pytest.mark.parametrize(
    ("mode", "keeps"),
    [
        pytest.param("embedded", True, id="embedded-keeps all"),
        pytest.param("sequential", False, id="sequential-keeps nothing"),
        pytest.param("embedded", False, id="embedded-keeps nothing", marks=pytest.mark.long),
        pytest.param("sequential", True, id="sequential-keeps all", marks=pytest.mark.long),
    ],
)
def test_a_receiver_that_stops_again_and_again_accounts_for_every_message(
    peers: Peers, kind: Kind, mode: str, keeps: bool
) -> None:
    sender, receiver, source = started(peers, kind, mode, 10, keeps=keeps)
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    done = threading.Event()

    def disturb() -> None:
        while not done.wait(rng.uniform(0.001, 0.05)):
            receiver.pause()
            done.wait(rng.uniform(0.0, 0.1))
            receiver.resume()

    thread = threading.Thread(target=disturb)
    thread.start()
    sent = 0
    try:
        while sent < 100_000:
            sent = sender.do("send", topic="t", count=5_000)
    finally:
        done.set()
        thread.join()
    account(receiver, source, sent)  # before the end: who is evicted then does not recover
    sent = sender.do("end", topic="t")
    ledger = account(receiver, source, sent)
    receiver.do("await_end", topic="t", count=ledger.begun)
    ledger = receiver.ledger("t", source)
    balanced(ledger, sent, joins=ledger.ended)
    assert ledger.lost == 0 or not keeps
    print(ledger)
