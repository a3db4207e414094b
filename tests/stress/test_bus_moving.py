"""A receiver that is evicted while its source sends on: it gets the rest over UDP, comes back, and misses nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.bus import LBTIPC, LBTSMX, MODES, RECEIVER_PACED, Kind
from tests.kit.peers import settled

if TYPE_CHECKING:
    from tests.kit.peers import PeerProcess, Peers

pytestmark = pytest.mark.stress

LONG = 20_000
CASES = [(LBTIPC, "embedded", 2), (LBTSMX, "sequential", 2)]
LONG_CASES = [pytest.param(kind, mode, 20, marks=pytest.mark.long) for kind in RECEIVER_PACED for mode in MODES]


def options(kind: Kind) -> dict[str, Any]:
    """Of sources on one small session that evicts soon, but not whom a busy machine lets wait for its turn."""
    one = {f"transport_{kind.transport}_id": kind.first_id}
    evicts = {"slow_receiver_behavior": "evict", "slow_receiver_timeout": 2000}
    # A receiver over UDP loses what leaves the window before the receiver gets it. This window holds a minute.
    window = {"transport_lbtru_transmission_window_size": 1 << 27}
    return {"transport": kind.transport, **kind.small(), **one, **evicts, **window}


def evict(sender: PeerProcess, receiver: PeerProcess) -> None:
    """Stops the receiver until it is evicted from what streams, and lets it go on."""
    # A slow machine may have held the source up, and had the receiver evicted, once more than the test.
    told = sender.do("told", topic="t", kind="RECEIVER_EVICTED", count=0)
    before = sum(kind == "RECEIVER_EVICTED" for kind, *_ in told)
    receiver.pause()
    sender.do("told", topic="t", kind="RECEIVER_EVICTED", count=before + 1)
    receiver.resume()


@pytest.mark.parametrize(("kind", "mode", "rounds"), [*CASES, *LONG_CASES])
def test_nothing_is_lost_or_doubled_on_the_way_to_udp_and_back(
    peers: Peers, kind: Kind, mode: str, rounds: int
) -> None:
    sender = peers.start("embedded", transport_lbtipc_datagram_max_size=8192)
    receiver = peers.start(mode)
    source = sender.do("source", topic="t", **options(kind))
    assert sender.do("source", topic="long", **options(kind)) == source
    for topic in ("t", "long"):
        receiver.do("receiver", topic=topic)
        sender.do("joined", topic=topic)
    sender.do("stream", topic="t", pause=0.1)
    sender.do("stream", topic="long", pause=0.5, size=LONG if kind.batches else 900)
    for times in range(1, rounds + 1):
        evict(sender, receiver)
        (session,) = receiver.do("await_layer", topic="t", layer="LBT-RU", reason="evicted")
        (session,) = receiver.do("await_layer", topic="t", layer="ring")
        assert session["counters"]["evictions"] >= times
        assert session["counters"]["unrecovered_txw"] == 0, "the machine is too slow for this window"
    sent = sender.do("halt")
    for topic in ("t", "long"):
        ledger = settled(receiver, topic, source, sent[topic])
        assert (ledger.lost, ledger.begun, ledger.ended) == (0, 1, 0)
        sender.do("end", topic=topic)
        receiver.do("await_end", topic=topic)
        settled(receiver, topic, source, sent[topic])
