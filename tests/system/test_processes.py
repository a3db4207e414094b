"""Sources and receivers in processes of their own: everything arrives, or is reported lost with its number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus import Context
from ringbuf import layout
from tests.kit.bus import GIVE_UP_S, LBTIPC_SOURCE_PACED, LBTSMX, RINGS, Bus, Kind
from tests.kit.forms import CallbackTaker
from tests.kit.look import slots
from tests.kit.payload import body
from tests.kit.peers import Peers, settled

if TYPE_CHECKING:
    from typing import Any

every_kind = pytest.mark.parametrize("kind", RINGS, ids=lambda kind: str(kind.name))
COUNT = 3000


def options(kind: Kind) -> dict[str, Any]:
    """Source options of a kind."""
    return {"transport": kind.transport, **kind.options}


@every_kind
def test_three_receiving_processes_get_everything(peers: Peers, kind: Kind, mode: str) -> None:
    sender, *receivers = peers.several(4, mode)
    source = sender.do("source", topic="t", **options(kind))
    for receiver in receivers:
        receiver.do("receiver", topic="t")
    sender.do("joined", topic="t", receivers=3)
    sent = sender.do("send", topic="t", count=COUNT)
    for receiver in receivers:
        receiver.start("await_messages", topic="t", count=sent)
    for receiver in receivers:
        receiver.finish()
        settled(receiver, "t", source, sent)
    sender.do("end", topic="t")
    for receiver in receivers:
        ledger = receiver.do("await_end", topic="t")["ledgers"][source]
        assert (ledger["begun"], ledger["ended"]) == (1, 1)


@every_kind
def test_receivers_that_start_first_meet_a_source_that_starts_later(peers: Peers, kind: Kind, mode: str) -> None:
    receiver = peers.start(mode)
    receiver.do("receiver", topic="t")
    sender = peers.start(mode)
    source = sender.do("source", topic="t", **options(kind))
    sender.do("joined", topic="t")
    settled(receiver, "t", source, sender.do("send", topic="t", count=100))


def test_nothing_sent_after_waiting_is_missed_in_many_tries(peers: Peers) -> None:
    sender, *receivers = peers.several(3)
    for attempt in range(25):
        kind = RINGS[attempt % 3]
        topic = f"try {attempt}"
        # All three at once, in changing order.
        for peer in [*receivers, sender][attempt % 3 :] + [*receivers, sender][: attempt % 3]:
            if peer is sender:
                sender.start("source", topic=topic, **options(kind))
            else:
                peer.start("receiver", topic=topic)
        source = sender.start("joined", topic=topic, receivers=2).finish()
        sender.finish()
        for receiver in receivers:
            receiver.finish()
        sent = sender.do("send", topic=topic, count=20)
        for receiver in receivers:
            settled(receiver, topic, source, sent)
            receiver.do("leave", topic=topic)
        sender.do("end", topic=topic)


@every_kind
def test_a_process_that_comes_late_gets_a_suffix_without_loss(peers: Peers, kind: Kind) -> None:
    sender, early, late = peers.several(3)
    source = sender.do("source", topic="t", **options(kind))
    early.do("receiver", topic="t")
    sender.do("joined", topic="t")
    sender.do("send", topic="t", count=500)
    late.do("receiver", topic="t")
    sender.do("joined", topic="t", receivers=2)
    before = sender.do("send", topic="t", count=0)
    sent = sender.do("send", topic="t", count=500)
    settled(early, "t", source, sent)
    sender.do("end", topic="t")
    late.do("await_end", topic="t")
    ledger = late.ledger("t", source)
    assert ledger.wrong == []
    assert (ledger.lost, ledger.next) == (0, sent)
    assert 0 <= ledger.first <= before


def test_sources_learn_who_joined_and_left(peers: Peers, mode: str) -> None:
    sender, receiver = peers.start(mode), peers.start("embedded", "the other side")
    sender.do("source", topic="t")
    receiver.do("receiver", topic="t")
    assert sender.do("told", topic="t", kind="CONNECT") == [["CONNECT", receiver.pid, "the other side"]]
    receiver.do("leave", topic="t")
    told = sender.do("told", topic="t", kind="DISCONNECT")
    assert told[1:] == [["DISCONNECT", receiver.pid, "the other side"]]
    receiver.do("receiver", topic="t")
    assert len(sender.do("told", topic="t", kind="CONNECT", count=2)) == 3


def test_a_source_learns_that_a_receiving_process_died(peers: Peers) -> None:
    sender, receiver = peers.start(), peers.start("embedded", "short-lived")
    sender.do("source", topic="t")
    receiver.do("receiver", topic="t")
    sender.do("joined", topic="t")
    sender.do("told", topic="t", kind="CONNECT")
    receiver.kill()
    assert sender.do("told", topic="t", kind="DISCONNECT")[-1] == ["DISCONNECT", receiver.pid, "short-lived"]


# Source-paced: whatever is not delivered is reported, in the events, by the receiver and in shared memory.


@pytest.mark.parametrize("burst", [2**31 - 1, 2], ids=["singly", "bursts"])
def test_a_slow_receiver_is_told_what_it_lost(domain: str, peers: Peers, burst: int) -> None:
    bus = Bus(domain, LBTIPC_SOURCE_PACED, "embedded")
    source = bus.source(**LBTIPC_SOURCE_PACED.small())
    slow = peers.start(transport_lbtipc_datagram_max_size=8192)
    slow.do("receiver", topic="t", every=50, pause=0.002, delivery_control_maximum_burst_loss=burst)
    source.wait_for_receivers(1, GIVE_UP_S)
    count = 30_000
    for number in range(count):
        source.send(body(number))
    source.flush()
    ledger = settled(slow, "t", source.source, count)
    report = slow.do("report", topic="t")
    assert (report["lost"], report["delivered"]) == (ledger.lost, ledger.delivered)
    assert ledger.lost > 0
    assert (ledger.bursts > 0) == (burst == 2)
    (session,) = slow.do("await_sessions", topic="t", count=1)
    assert session["counters"]["lost"] == ledger.lost
    (mask,) = [slot for slot in slots(source) if slot["state"] == layout.SLOT_ACTIVE]
    assert mask["lost"] == ledger.lost
    assert mask["overruns"] > 0
    assert mask["lbm_msgs_rcved"] == ledger.delivered
    bus.close()


def test_what_is_lost_at_the_end_is_told_without_another_message(domain: str, peers: Peers) -> None:
    bus = Bus(domain, LBTIPC_SOURCE_PACED, "embedded")
    source = bus.source(**LBTIPC_SOURCE_PACED.small())
    receiver = peers.start(transport_lbtipc_datagram_max_size=8192)
    receiver.do("receiver", topic="t")
    source.wait_for_receivers(1, GIVE_UP_S)
    for number in range(10):
        source.send(body(number), flush=True)
    settled(receiver, "t", source.source, 10)
    receiver.pause()
    for number in range(10, 5000):
        source.send(body(number))
    source.flush()
    receiver.resume()
    ledger = settled(receiver, "t", source.source, 5000)  # nothing follows, and yet
    assert ledger.lost > 0
    assert (receiver.do("report", topic="t")["lost"]) == ledger.lost
    bus.close()


def test_receivers_of_different_speed_have_ledgers_of_their_own(domain: str, peers: Peers) -> None:
    bus = Bus(domain, LBTIPC_SOURCE_PACED, "embedded")
    source = bus.source(**LBTIPC_SOURCE_PACED.small())
    slow, slower = peers.several(2)
    slow.do("receiver", topic="t", every=100, pause=0.001)
    slower.do("receiver", topic="t", every=100, pause=0.005)
    source.wait_for_receivers(2, GIVE_UP_S)
    for number in range(20_000):
        source.send(body(number))
    source.flush()
    for receiver in (slow, slower):
        settled(receiver, "t", source.source, 20_000)
    bus.close()


def test_a_slow_receiver_of_a_receiver_paced_source_loses_nothing(peers: Peers) -> None:
    sender, slow, fast = peers.several(3)
    source = sender.do("source", topic="t", transport="lbtsmx", **LBTSMX.small())
    slow.do("receiver", topic="t", every=100, pause=0.002)
    fast.do("receiver", topic="t")
    sender.do("joined", topic="t", receivers=2)
    sent = sender.do("send", topic="t", count=COUNT)
    for receiver in (slow, fast):
        assert settled(receiver, "t", source, sent).lost == 0


def test_an_ended_process_leaves_its_last_messages_readable(domain: str, peers: Peers) -> None:
    bus = Bus(domain, LBTSMX, "embedded")
    taker = CallbackTaker(bus)
    sender = peers.start()
    sender.do("source", topic="t", transport="lbtsmx")
    sender.do("joined", topic="t")
    sender.do("send", topic="t", count=200)
    sender.end()  # it closes nothing itself; leaving the interpreter does
    assert taker.data(200) == [body(number) for number in range(200)]
    bus.until(lambda: taker.kinds[-1].name == "EOS", "the end")
    bus.close()


def test_contexts_of_two_processes_may_have_the_same_name(peers: Peers) -> None:
    one, two = peers.start(name="twin"), peers.start(name="twin")
    one.do("source", topic="t")
    two.do("receiver", topic="t")
    assert one.do("told", topic="t", kind="CONNECT") == [["CONNECT", two.pid, "twin"]]


def test_a_context_is_closed_when_its_process_ends_normally(domain: str, peers: Peers) -> None:
    peer = peers.start()
    peer.do("source", topic="t")
    peer.end()
    with Context(domain=domain) as context:
        assert context.receiver("t").sessions == []
