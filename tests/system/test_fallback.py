"""Receivers that cannot map the ring of a session, or lose it: they get the same messages over UDP, and say why."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import ipcbus
from ipcbus import stats
from ipcbus.transport.udp.datagram_socket import DatagramSocket
from ipcbus.transport.udp.udp_sender import UdpSender
from ipcbus_tools.cli import cli
from ringbuf.channel import JoinedChannel
from ringbuf.slots import Identity
from tests.kit.bus import GIVE_UP_S, MODES, RINGS, Bus, Kind
from tests.kit.look import ROOT, objects, rings
from tests.kit.payload import Books, balanced, body
from tests.kit.peers import settled
from tests.kit.waiting import until

if TYPE_CHECKING:
    from typing import Any

    from tests.kit.peers import PeerProcess, Peers

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
NOBODY = 65534
LONG = 20_000
"""Bytes of a message that takes several datagrams."""

each_in_a_mode = pytest.mark.parametrize(("kind", "mode"), list(zip(RINGS, MODES, strict=True)), ids=MODES)
every_kind = pytest.mark.parametrize("kind", RINGS, ids=lambda kind: str(kind.name))


def small(peers: Peers, mode: str = "embedded", name: str = "", **options: object) -> PeerProcess:
    """A process whose sessions may have the smallest rings."""
    return peers.start(mode, name, transport_lbtipc_datagram_max_size=8192, **options)


def options(kind: Kind) -> dict[str, Any]:
    """Of a source on the smallest ring."""
    return {"transport": kind.transport, **kind.options, **kind.small()}


def long_as_it_may_be(kind: Kind) -> int:
    """Length of a message that takes several datagrams where the transport has such."""
    return LONG if kind.batches else 1000


def listed(domain: str) -> dict[str, Any]:
    """What `ipcbus list` shows."""
    shown = CliRunner().invoke(cli, ["list", "--json", "--domain", domain])
    assert shown.exit_code == 0, shown.output
    found: dict[str, Any] = json.loads(shown.output)
    return found


@as_root
@each_in_a_mode
def test_another_user_gets_everything_over_udp(peers: Peers, mode: str, kind: Kind) -> None:
    sender = small(peers, mode, "sending")
    source = sender.do("source", topic="t", **options(kind))
    stranger = peers.start("")
    stranger.do("become", uid=NOBODY, gid=NOBODY)
    stranger.do("open", domain=peers.domain, mode=mode, name="stranger")
    stranger.do("receiver", topic="t")
    sender.do("joined", topic="t")
    (session,) = stranger.do("await_layer", topic="t", layer="LBT-RU", reason=f"uid {NOBODY}")
    assert (session["source"], session["pid"]) == (source, sender.pid)
    assert "owner uid 0" in session["reason"]
    sender.do("send", topic="t", count=2000)
    sent = sender.do("send", topic="t", count=50, size=long_as_it_may_be(kind))
    assert settled(stranger, "t", source, sent).lost == 0
    assert f"this process uid {NOBODY}" in json.dumps(listed(peers.domain))
    sent = sender.do("end", topic="t")
    balanced(stranger.ledger("t", source), sent)
    stranger.do("await_end", topic="t")


@each_in_a_mode
def test_who_finds_no_slot_comes_over_udp_until_there_is_one(peers: Peers, mode: str, kind: Kind) -> None:
    sender = small(peers, mode)
    own = f"transport_{kind.transport}_maximum_receivers_per_transport"
    source = sender.do("source", topic="t", **options(kind), **{own: 1})
    first, second = peers.start(mode, "first"), peers.start(mode, "second")
    first.do("receiver", topic="t")
    first.do("await_layer", topic="t", layer="ring")
    second.do("receiver", topic="t")
    second.do("await_layer", topic="t", layer="LBT-RU", reason="slot")
    sender.do("joined", topic="t", receivers=2)
    sent = sender.do("send", topic="t", count=500)
    for each in (first, second):
        settled(each, "t", source, sent)
    if kind.source_paced:
        # A stream could go round the small ring before the receiver is scheduled: it is asked after each burst.
        first.do("close")
        while second.do("await_sessions", topic="t", count=1)[0]["layer"] != "ring":
            sent = sender.do("send", topic="t", count=50)
            assert settled(second, "t", source, sent).lost == 0
    else:
        sender.do("stream", topic="t", pause=0.001)
        first.do("close")
        second.do("await_layer", topic="t", layer="ring")
        sent = sender.do("halt")["t"]
    assert settled(second, "t", source, sent).lost == 0
    sender.do("await_receivers", topic="t", count=1)


def test_who_finds_no_ring_in_shared_memory_comes_over_udp(peers: Peers, mode: str) -> None:
    sender = small(peers, mode)
    source = sender.do("source", topic="t")
    first = peers.start(mode)
    first.do("receiver", topic="t")
    sender.do("joined", topic="t")
    for name in objects(peers.domain):
        if name.rpartition(".")[2][0] in "rc" and f".{first.pid}." not in name:
            os.unlink(f"{ROOT}/{name}")
    late = peers.start(mode)
    late.do("receiver", topic="t")
    late.do("await_layer", topic="t", layer="LBT-RU")
    sender.do("joined", topic="t", receivers=2)
    sent = sender.do("send", topic="t", count=1000)
    for each in (first, late):
        settled(each, "t", source, sent)


@pytest.mark.long
def test_who_is_behind_over_udp_goes_back_to_a_ring_that_waits_for_him(peers: Peers) -> None:
    sender = small(peers)
    own = "transport_lbtipc_maximum_receivers_per_transport"
    source = sender.do("source", topic="t", transport_lbtipc_transmission_window_size=65536, **{own: 1})
    first, second = peers.start(name="first"), peers.start(name="second")
    first.do("receiver", topic="t")
    first.do("await_layer", topic="t", layer="ring")
    second.do("receiver", topic="t")
    second.do("await_layer", topic="t", layer="LBT-RU")
    sender.do("joined", topic="t", receivers=2)
    sender.do("stream", topic="t")  # faster than anybody receives
    first.do("close")
    second.do("await_layer", topic="t", layer="ring")
    lost = second.ledger("t", source).lost
    sent = sender.do("halt")["t"]
    ledger = settled(second, "t", source, sent)
    (session,) = second.do("await_layer", topic="t", layer="ring")
    assert ledger.lost == session["counters"]["lost"] == lost
    assert session["counters"]["lbm_msgs_rcved"] == ledger.delivered


def test_sixty_four_slots_leave_one_for_the_way_over_udp(domain: str, peers: Peers) -> None:
    sender = small(peers)
    source = sender.do("source", topic="t", transport_lbtipc_maximum_receivers_per_transport=64)
    (ring,) = rings(domain)
    with contextlib.ExitStack() as others:
        for number in range(63):
            who = Identity(os.getpid(), os.geteuid(), number + 1, "other")
            others.callback(JoinedChannel(ring, ring.replace(".r", ".c"), who, owner_uid=os.geteuid()).leave)
        last = peers.start()
        last.do("receiver", topic="t")
        last.do("await_layer", topic="t", layer="LBT-RU", reason="slots")
        sender.do("joined", topic="t")
        sent = sender.do("send", topic="t", count=20)
        settled(last, "t", source, sent)
    last.do("await_layer", topic="t", layer="ring")


@pytest.mark.parametrize("mode", ["embedded", "sequential"])
def test_receivers_over_udp_learn_soon_of_the_death_of_their_source(peers: Peers, mode: str) -> None:
    sender = small(peers)
    source = sender.do("source", topic="t", transport_lbtipc_maximum_receivers_per_transport=1)
    crew = peers.several(3, mode)
    for each in crew:
        each.do("receiver", topic="t")
    sender.do("joined", topic="t", receivers=3)
    sent = sender.do("send", topic="t", count=1000)
    for each in crew:
        settled(each, "t", source, sent)
    sender.kill()
    for each in crew:
        each.do("await_end", topic="t")  # long before the activity timeout of LBT-RU, which is a minute
        balanced(each.ledger("t", source), sent)
        assert each.do("await_sessions", topic="t", count=0) == []


def _uplink(domain: str, source: str) -> stats.UplinkStats:
    (session,) = [s for c in stats.take_snapshot(domain).contexts for s in c.sessions if s.source == source]
    assert session.uplink is not None
    return session.uplink


def test_a_receiver_over_udp_that_dies_is_missed_and_costs_nothing_more(peers: Peers) -> None:
    sender = small(peers)
    own = {"transport_lbtru_client_activity_timeout": 1500}
    source = sender.do("source", topic="t", transport_lbtipc_maximum_receivers_per_transport=1, **own)
    first, second, third = peers.several(3)
    for each in (first, second):
        each.do("receiver", topic="t")
        each.do("await_sessions", topic="t", count=1)
    sender.do("joined", topic="t", receivers=2)
    second.kill()
    sender.do("await_receivers", topic="t", count=1)
    sender.do("told", topic="t", kind="DISCONNECT")
    deadline = time.monotonic() + GIVE_UP_S
    while _uplink(peers.domain, source).active:  # the board of the session is written a few times a second
        assert time.monotonic() < deadline, "the session is still sent over UDP"
        time.sleep(0.01)
    third.do("receiver", topic="t")
    third.do("await_layer", topic="t", layer="LBT-RU")
    sender.do("await_receivers", topic="t", count=2)
    sent = sender.do("send", topic="t", count=500)
    for each in (first, third):
        settled(each, "t", source, sent)


@pytest.mark.parametrize("who", ["source", "receiver"])
def test_who_wants_no_udp_is_refused_with_the_reason(peers: Peers, mode: str, who: str) -> None:
    sender = small(peers, mode)
    own = {"transport_lbtipc_maximum_receivers_per_transport": 1}
    sender.do("source", topic="t", **own, **({"udp_fallback": "none"} if who == "source" else {}))
    first, second = peers.several(2, mode)
    first.do("receiver", topic="t")
    first.do("await_layer", topic="t", layer="ring")
    second.do("receiver", topic="t", **({"use_udp_fallback": False} if who == "receiver" else {}))
    (session,) = second.do("await_sessions", topic="t", count=1, state="refused")
    assert "receiver slots of the session are taken" in session["reason"]
    first.do("close")
    second.do("await_layer", topic="t", layer="ring")


@every_kind
def test_nothing_is_sent_while_nobody_receives_over_udp(
    domain: str, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What costs nothing in system calls is in test_syscalls.py."""
    sent: list[int] = []
    monkeypatch.setattr(DatagramSocket, "send", lambda self, packets: sent.append(len(list(packets))))
    monkeypatch.setattr(UdpSender, "send_published", lambda self: sent.append(0))
    bus, books = Bus(domain, kind, "embedded"), Books()
    source = bus.source()
    bus.receiver("t", books.enter)
    bus.joined(source)
    for number in range(2000):
        source.send(body(number), flush=True)
    bus.until(lambda: books.accounted == 2000, "the messages")
    way = source._session.udp_sender
    assert way is not None
    assert (way.active, way.reliable_sender.lead, way.reliable_sender.counts.sms_sent, sent) == (False, 0, 0, [])
    bus.close()
    assert sent == []


@pytest.mark.parametrize("way", ["lbtru", "lbttcp"])
def test_a_message_longer_than_the_window_does_not_hold_up_the_way_back(domain: str, way: str) -> None:
    """The source waits in the middle of the message for the slot that is being joined."""
    ring = {"transport_lbtipc_maximum_receivers_per_transport": 1, "transport_lbtipc_transmission_window_size": 262_144}
    books = [Books(), Books()]
    with contextlib.ExitStack() as stack:
        sending, *receiving = (stack.enter_context(ipcbus.Context(domain=domain)) for _ in range(3))
        crew = [context.receiver("t", each.enter) for context, each in zip(receiving, books, strict=True)]
        source = sending.source("t", transport="lbtipc", udp_fallback=way, **ring)
        source.wait_for_receivers(2, GIVE_UP_S)
        for each in crew:
            each.wait_for_sources(1, GIVE_UP_S)
        goes_on, sent = True, 0

        def send() -> None:
            nonlocal sent
            while goes_on:
                source.send(body(source.sequence_number + 1, 300_000), flush=True)
                sent += 1

        sender = threading.Thread(target=send, name="sender")
        sender.start()
        first = next(place for place, each in enumerate(crew) if each.sessions[0].layer == "ring")
        other = crew[1 - first]
        receiving[first].close()
        until(lambda: other.sessions[0].layer == "ring" and sent >= 200, "the way back, and messages after it")
        goes_on = False
        sender.join(GIVE_UP_S)
        assert not sender.is_alive()
        last = source.sequence_number
        source.close()
        (ledger,) = waited_for(books[1 - first], last + 1).ledgers.values()
        balanced(ledger, last + 1)
        assert ledger.lost == 0


def waited_for(books: Books, count: int) -> Books:
    """The books when so many messages are in them, as delivered or lost."""
    until(lambda: books.accounted >= count, f"{count} messages")
    return books


@pytest.mark.parametrize("way", ["lbtru", "lbttcp"])
def test_a_silence_of_the_source_does_not_end_what_comes_over_the_fallback(domain: str, peers: Peers, way: str) -> None:
    sender = peers.start()
    one = {"transport_lbtipc_maximum_receivers_per_transport": 1, "transport_lbtipc_sm_interval": 100}
    sender.do("source", topic="t", udp_fallback=way, **one)
    books = [Books(), Books()]
    impatient = {
        "source": {"transport_lbtipc_sm_interval": 100},
        "receiver": {"transport_lbtipc_activity_timeout": 1000},
    }
    with contextlib.ExitStack() as stack:
        for number, each in enumerate(books, 1):
            context = stack.enter_context(ipcbus.Context(impatient, domain=domain))
            context.receiver("t", each.enter)
            sender.do("joined", topic="t", receivers=number)
        waited = sender.do("send", topic="t", count=100)
        for each in books:
            waited_for(each, waited)
        sender.pause()
        until(lambda: books[0].ended, "the end for the receiver on the ring, which finds the source silent")
        threading.Event().wait(1)  # what is under test is that time, in which the other one looks, too
        sender.resume()
        sender.do("joined", topic="t", receivers=2)
        sent = sender.do("send", topic="t", count=100)
        (ledger,) = waited_for(books[1], sent).ledgers.values()
        balanced(ledger, sent)
        assert (ledger.lost, ledger.ended) == (0, 0)
