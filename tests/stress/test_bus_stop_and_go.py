"""A receiver that stops and goes on, in every start order: a send that waits costs no message."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest

from tests.kit.bus import RECEIVER_PACED, RINGS, Kind
from tests.kit.payload import balanced

if TYPE_CHECKING:
    from tests.kit.payload import Ledger
    from tests.kit.peers import PeerProcess, Peers

pytestmark = pytest.mark.stress

ORDERS = ["source first", "receiver first", "both at once"]


def started(peers: Peers, kind: Kind, order: str, small: bool) -> tuple[PeerProcess, PeerProcess, str]:
    """A source and a receiver that have met, and the source string."""
    sender = peers.start("embedded", transport_lbtipc_datagram_max_size=8192)
    receiver = peers.start("embedded")
    options = {"transport": kind.transport, **kind.options, **(kind.small() if small else {})}
    if order == "source first":
        source = sender.do("source", topic="t", **options)
        receiver.do("receiver", topic="t")
    elif order == "receiver first":
        receiver.do("receiver", topic="t")
        source = sender.do("source", topic="t", **options)
    else:
        receiver.start("receiver", topic="t")
        source = sender.do("source", topic="t", **options)
        receiver.finish()
    sender.do("joined", topic="t")
    return sender, receiver, source


def stop_and_go(peers: Peers, kind: Kind, order: str, count: int, *, small: bool) -> Ledger:
    """Sends so many messages to a receiver that is stopped again and again."""
    sender, receiver, source = started(peers, kind, order, small)
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    done = threading.Event()

    def disturb() -> None:
        while not done.wait(rng.uniform(0.001, 0.02)):
            receiver.pause()
            done.wait(rng.uniform(0.0, 0.02))
            receiver.resume()

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        sent = 0
        while sent < count:  # in parts, because each answer has to come in time
            sent = sender.do("send", topic="t", count=min(100_000, count - sent))
    finally:
        done.set()
        thread.join()
    receiver.do("await_messages", topic="t", count=count)
    ledger = receiver.ledger("t", source)
    balanced(ledger, count)
    return ledger


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))
def test_a_receiver_that_stops_and_goes_on_misses_nothing(peers: Peers, kind: Kind, order: str) -> None:
    assert stop_and_go(peers, kind, order, 40_000, small=True).lost == 0


def test_a_source_paced_receiver_that_stops_and_goes_on_knows_what_it_missed(peers: Peers) -> None:
    stop_and_go(peers, RINGS[1], "source first", 100_000, small=True)


@pytest.mark.long
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))
def test_ten_million_messages_with_a_receiver_that_stops_and_goes_on(peers: Peers, kind: Kind, order: str) -> None:
    assert stop_and_go(peers, kind, order, 10_000_000, small=False).lost == 0
