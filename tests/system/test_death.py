"""Processes that are killed or stopped at any moment: nobody hangs, nothing published is lost, nothing is left."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from ipcbus import Context, MessageType
from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTSMX, RECEIVER_PACED, RINGS, Bus, Kind
from tests.kit.forms import CallbackTaker
from tests.kit.look import DistantRing, objects, rings, slots
from tests.kit.payload import Ledger, balanced, body
from tests.kit.peers import PeerProcess, Peers, settled

if TYPE_CHECKING:
    from collections.abc import Iterator

every_kind = pytest.mark.parametrize("kind", RINGS, ids=lambda kind: str(kind.name))
receiver_paced = pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))
SOON = {"liveness_check_interval": 20}


def options(kind: Kind) -> dict[str, Any]:
    """Source options of a kind."""
    return {"transport": kind.transport, **kind.options}


@pytest.fixture
def swept(domain: str) -> Iterator[None]:
    """For tests after which nobody of the domain is left: the next context clears up."""
    yield
    with Context(domain=domain):
        pass
    assert objects(domain) == []


def flowing(sender: PeerProcess, receivers: list[PeerProcess], kind: Kind) -> str:
    """Starts a stream from a process to others; returns its source string."""
    source: str = sender.do("source", topic="t", **options(kind))
    for receiver in receivers:
        receiver.do("receiver", topic="t")
    sender.do("joined", topic="t", receivers=len(receivers))
    sender.do("stream", topic="t")
    for receiver in receivers:
        receiver.do("await_messages", topic="t", count=500)
    return source


# The source dies.


@every_kind
def test_what_a_killed_source_had_published_arrives_and_then_the_end(
    domain: str, peers: Peers, kind: Kind, mode: str
) -> None:
    receivers = peers.several(2, mode)
    sender = peers.start()
    source = flowing(sender, receivers, kind)
    ring = DistantRing(rings(domain)[0])
    sender.kill()
    published, begun = ring.sent()
    for receiver in receivers:
        ledger = Ledger(**receiver.do("await_end", topic="t")["ledgers"][source])
        balanced(ledger, ledger.next)
        assert published <= ledger.next <= begun
        assert ledger.ended == 1
        assert kind.source_paced or ledger.lost == 0


def test_an_unpublished_batch_dies_with_its_source(peers: Peers, mode: str) -> None:
    receiver, sender = peers.start(mode), peers.start()
    source = sender.do("source", topic="t", implicit_batching_interval=10**6)
    receiver.do("receiver", topic="t")
    sender.do("joined", topic="t")
    sender.do("send", topic="t", count=10)
    sender.do("put", topic="t", count=5)
    settled(receiver, "t", source, 10)
    sender.kill()
    ledger = Ledger(**receiver.do("await_end", topic="t")["ledgers"][source])
    balanced(ledger, 10)


@receiver_paced
def test_a_source_that_starts_again_is_joined_again(peers: Peers, kind: Kind, mode: str) -> None:
    receiver = peers.start(mode)
    receiver.do("receiver", topic="t")
    for life in range(1, 4):
        sender = peers.start()
        source = sender.do("source", topic="t", **options(kind))
        sender.do("joined", topic="t")
        sent = sender.do("send", topic="t", count=50)
        ledger = Ledger(**receiver.do("await_messages", topic="t", count=50 * life)["ledgers"][source])
        balanced(ledger, sent)
        sender.kill()
        receiver.do("await_end", topic="t", count=life)


def test_others_go_on_when_one_source_dies(peers: Peers) -> None:
    receiver, doomed, other = peers.several(3)
    receiver.do("receiver", topic="t")
    dying = doomed.do("source", topic="t")
    living = other.do("source", topic="t")
    for sender in (doomed, other):
        sender.do("joined", topic="t")
        sender.do("send", topic="t", count=100)
    receiver.do("await_messages", topic="t", count=200)
    doomed.kill()
    receiver.do("await_end", topic="t")
    sent = other.do("send", topic="t", count=100)
    receiver.do("await_messages", topic="t", count=300)
    balanced(receiver.ledger("t", dying), 100)
    balanced(receiver.ledger("t", living), sent)


# A receiver dies.


@receiver_paced
def test_a_waiting_send_goes_on_when_the_receiver_it_waits_for_dies(peers: Peers, kind: Kind, mode: str) -> None:
    sender = peers.start(mode, transport_lbtipc_datagram_max_size=8192, **SOON)
    doomed, healthy = peers.several(2)
    source = sender.do("source", topic="t", **kind.small(), **options(kind))
    for receiver in (doomed, healthy):
        receiver.do("receiver", topic="t")
    sender.do("joined", topic="t", receivers=2)
    doomed.pause()
    count = 3 * kind.window // 80
    sender.start("send", topic="t", count=count)  # cannot end as long as the stopped one holds it up
    healthy.do("await_messages", topic="t", count=kind.window // 80 // 3)
    doomed.kill()
    assert sender.finish() == count
    settled(healthy, "t", source, count)


@receiver_paced
def test_a_source_goes_on_when_its_only_receiver_dies(peers: Peers, kind: Kind) -> None:
    sender = peers.start("embedded", transport_lbtipc_datagram_max_size=8192, **SOON)
    sender.do("source", topic="t", **kind.small(), **options(kind))
    for life in range(1, 4):
        doomed = peers.start()
        doomed.do("receiver", topic="t")
        sender.do("joined", topic="t")
        sender.do("told", topic="t", kind="CONNECT", count=life)
        doomed.pause()
        sender.start("send", topic="t", count=3 * kind.window // 80)
        doomed.kill()
        assert sender.finish() == life * (3 * kind.window // 80)
        sender.do("told", topic="t", kind="DISCONNECT", count=life)


def test_receivers_that_die_at_any_moment_free_their_places(domain: str, peers: Peers) -> None:
    bus = Bus(domain, LBTSMX, "embedded")
    context = bus.context("sending", **SOON)
    source = bus.source("t", context, transport_lbtsmx_maximum_receivers_per_transport=3)
    taker = CallbackTaker(bus)
    source.wait_for_receivers(1, GIVE_UP_S)
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    for _ in range(12):
        doomed = peers.start("")
        doomed.start("open", domain=domain)
        doomed.start("receiver", topic="t")
        for _ in range(rng.randrange(400)):
            source.send(body(source.sequence_number + 1))
        doomed.kill()
    bus.until(lambda: int((slots(source)["state"][:-1] != 0).sum()) == 1, f"free places (seed {seed})")
    last = peers.start()
    last.do("receiver", topic="t")
    source.wait_for_receivers(2, GIVE_UP_S)
    first = source.sequence_number + 1
    for number in range(first, first + 100):
        source.send(body(number))
    assert taker.data(first + 100) == [body(number) for number in range(first + 100)]
    last.do("await_messages", topic="t", count=100)
    balanced(last.ledger("t", source.source), first + 100, first=last.ledger("t", source.source).first)
    bus.close()


# A stopped process lives.


@receiver_paced
def test_a_stopped_receiver_is_waited_for(domain: str, peers: Peers, kind: Kind) -> None:
    bus = Bus(domain, kind, "embedded")
    source = bus.source("t", bus.context("sending", liveness_check_interval=10), **kind.small())
    stopped = peers.start()
    stopped.do("receiver", topic="t")
    source.wait_for_receivers(1, GIVE_UP_S)
    stopped.pause()
    with pytest.raises(ipcbus.WouldBlock, match=str(stopped.pid)):
        while True:
            source.send(body(source.sequence_number + 1), block=False)
    for _ in range(1000):
        assert source._session.channel.slots.reclaim() == []
    assert source.receivers == 1
    stopped.resume()
    source.send(body(source.sequence_number + 1), flush=True)
    settled(stopped, "t", source.source, source.sequence_number + 1)
    bus.close()


def test_a_stopped_source_is_not_taken_for_dead(domain: str, peers: Peers) -> None:
    bus = Bus(domain, LBTIPC, "embedded")
    sender = peers.start()
    sender.do("source", topic="t")
    taker = CallbackTaker(bus, context=bus.context("receiving", liveness_check_interval=10))
    sender.do("joined", topic="t")
    sender.do("send", topic="t", count=10)
    taker.data(10)
    before = objects(domain)
    sender.pause()
    with Context(domain=domain):  # sweeps when it opens and when it closes
        pass
    assert objects(domain) == before
    assert taker.receiver.sessions[0].state == "joined"
    sender.resume()
    sender.do("send", topic="t", count=10)
    assert taker.data(20) == [body(number) for number in range(20)]
    assert MessageType.EOS not in taker.kinds
    bus.close()


# Everybody dies.


@pytest.mark.usefixtures("swept")
@every_kind
def test_what_all_killed_processes_leave_is_swept_by_the_next_context(domain: str, peers: Peers, kind: Kind) -> None:
    sender, *receivers = peers.several(3)
    flowing(sender, receivers, kind)
    for process in (receivers[0], sender, receivers[1]):
        process.kill()
    assert objects(domain)


def test_a_context_that_lives_on_sweeps_what_others_left(domain: str, peers: Peers) -> None:
    witness, sender, receiver = peers.several(3)
    flowing(sender, [receiver], LBTIPC)
    before = len(objects(domain))
    sender.kill()
    receiver.kill()
    witness.do("await_objects", count=2)
    assert len(objects(domain)) == 2 < before


def test_a_new_bus_works_beside_what_the_dead_left(peers: Peers) -> None:
    for _ in range(3):
        sender, receiver = peers.several(2)
        source = flowing(sender, [receiver], LBTSMX)
        sent = sender.do("halt")["t"]
        settled(receiver, "t", source, sent)
        receiver.kill()
        sender.kill()
    sender, receiver = peers.several(2)
    flowing(sender, [receiver], LBTSMX)
    sender.do("halt")
