"""Sessions over TCP whose processes are killed or stopped: every account is right, and a source waits where it must."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

import psutil
import pytest

import ipcbus
from ipcbus import stats
from ipcbus.transport.udp import udp_receiver
from ipcbus.transport.udp.udp_receiver import BACKLOG_BYTES
from tests.kit.bus import GIVE_UP_S, LBTTCP, Bus
from tests.kit.network_keys import key_file
from tests.kit.payload import Books, Ledger, balanced, body
from tests.kit.peers import Peers, joined, settled, told_of_the_end
from tests.kit.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus.transport.tcp.stream_socket import StreamSocket
    from tests.kit.peers import PeerProcess

COUNT = 1000
SOURCE = {"transport": "lbttcp", "transport_tcp_sender_socket_buffer": 65536}


def meet(peers: Peers, receivers: int, **options: object) -> tuple[PeerProcess, list[PeerProcess], str]:
    """A source and its receivers in processes of their own, joined; and the source string."""
    sender = peers.start(name="sender")
    small = {"transport_tcp_receiver_socket_buffer": 65536}
    crew = [peers.start(name=f"receiver {number}", **small) for number in range(receivers)]
    return sender, crew, joined(sender, crew, SOURCE | options, {})


def stream_past_a_pause(sender: PeerProcess, paused: PeerProcess, other: PeerProcess) -> int:
    """Sends while one receiver is stopped, until the other one has much more; returns the number of messages."""
    sender.do("stream", topic="t", size=1000)
    paused.do("await_messages", topic="t", count=COUNT)
    paused.pause()
    other.do("await_messages", topic="t", count=5 * COUNT)
    paused.resume()
    return int(sender.do("halt")["t"])


def buffered(domain: str) -> int:
    """The bytes that wait in the source for its receivers."""
    return sum(
        session.uplink.counters.get("bytes_buffered", 0)
        for session in stats.take_snapshot(domain).sessions
        if session.uplink is not None
    )


def test_a_source_waits_for_a_receiver_that_is_stopped_and_nothing_is_lost(peers: Peers, domain: str) -> None:
    sender, receivers, source = meet(peers, 2)
    sender.do("stream", topic="t", size=1000)
    for peer in receivers:
        peer.do("await_messages", topic="t", count=COUNT)
    receivers[0].pause()
    until(lambda: buffered(domain) > 65536, "a full buffer")
    receivers[0].resume()
    receivers[0].do("await_messages", topic="t", count=3 * COUNT)
    sent = sender.do("halt")["t"]
    for peer in receivers:
        assert settled(peer, "t", source, sent).lost == 0


def test_a_source_paced_source_does_not_wait_and_tells_what_is_lost(peers: Peers) -> None:
    sender, receivers, source = meet(peers, 2, transport_tcp_multiple_receiver_behavior="source_paced")
    sent = stream_past_a_pause(sender, *receivers)
    for peer in receivers:
        settled(peer, "t", source, sent)


def test_a_source_goes_on_without_a_receiver_that_keeps_it_waiting_and_tells_what_it_lost(peers: Peers) -> None:
    # The other receiver gets a processor within that time, on a busy machine too.
    evicts = {"slow_receiver_behavior": "evict", "slow_receiver_timeout": 1000}
    sender, receivers, source = meet(peers, 2, **evicts, transport_tcp_transmission_window_size=65536)
    sent = stream_past_a_pause(sender, *receivers)
    assert settled(receivers[0], "t", source, sent).lost > 0
    assert settled(receivers[1], "t", source, sent).lost == 0


def test_a_receiver_that_missed_more_than_it_can_hold_back_goes_on_at_once(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(udp_receiver, "_START_TIMEOUT_NS", 3600 * 10**9)
    goes_on, got = threading.Event(), Books()

    def on_message(message: ipcbus.Message) -> None:
        got.enter(message)
        if message.type is ipcbus.MessageType.DATA and message.sequence_number == 0:
            goes_on.wait(GIVE_UP_S)

    with ipcbus.Context(domain=domain) as sending, ipcbus.Context(domain=domain) as receiving:
        source = sending.source("t", transport="lbttcp", transport_tcp_client_activity_timeout=200)
        receiving.receiver("t", on_message).wait_for_sources(1, GIVE_UP_S)
        source.wait_for_receivers(1, GIVE_UP_S)
        source.send(body(0, 100), flush=True)
        for number in range(1, 3 * BACKLOG_BYTES // 50_000):
            source.send(body(number, 50_000))
        source.flush()
        until(lambda: not source.receivers, "the end of the client that reads nothing")
        sent = source.sequence_number + 1
        goes_on.set()
        until(lambda: got.accounted >= sent, "all that the receiver missed")
        (ledger,) = got.ledgers.values()
        balanced(ledger, sent, joins=2)
        assert ledger.lost == 0  # the window of the source holds it


def test_a_receiver_that_is_killed_disturbs_nobody(peers: Peers) -> None:
    sender, receivers, source = meet(peers, 3)
    sender.do("stream", topic="t", size=500)
    receivers[1].do("await_messages", topic="t", count=COUNT)
    receivers[1].kill()
    receivers[0].do("await_messages", topic="t", count=3 * COUNT)
    sent = sender.do("halt")["t"]
    for peer in (receivers[0], receivers[2]):
        assert settled(peer, "t", source, sent).lost == 0
    assert sender.do("end", topic="t") == sent
    for peer in (receivers[0], receivers[2]):
        balanced(Ledger(**peer.do("await_end", topic="t")["ledgers"][source]), sent)


def test_the_end_of_a_source_that_is_killed_is_told(peers: Peers) -> None:
    sender, receivers, source = meet(peers, 2)
    sender.do("stream", topic="t", size=500)
    for peer in receivers:
        peer.do("await_messages", topic="t", count=COUNT)
    sender.kill()
    told_of_the_end(receivers, source, COUNT)


def test_the_end_of_a_killed_source_is_told_though_its_connection_stays_open(peers: Peers) -> None:
    sender, receivers, source = meet(peers, 1)
    sender.do("stream", topic="t", size=500)
    receivers[0].do("await_messages", topic="t", count=COUNT)
    holder = psutil.Process(sender.do("lend_connections"))
    try:
        sender.kill()
        told_of_the_end(receivers, source, COUNT)
        assert holder.is_running()
        assert holder.net_connections("tcp")
    finally:
        holder.kill()
        until(lambda: not holder.is_running() or holder.status() == psutil.STATUS_ZOMBIE, "the end of the holder")


def test_what_a_killed_source_had_sent_is_delivered_however_slowly(peers: Peers, domain: str) -> None:
    """The receiver is slower than the source: most waits in its socket when the death is noticed."""
    sender = peers.start(name="sender")
    receiver = peers.start(name="receiver", transport_tcp_receiver_socket_buffer=4_000_000)
    source = joined(sender, [receiver], {"transport": "lbttcp"}, {"every": 1, "pause": 0.01})
    receiver.pause()
    sender.do("stream", topic="t", size=50_000)
    until(lambda: buffered(domain) > 65536, "a full connection")
    sender.kill()
    receiver.resume()
    ledger = Ledger(**receiver.do("await_end", topic="t")["ledgers"][source])
    assert ledger.delivered + ledger.lost == ledger.next
    assert ledger.lost * 50_000 < 5 << 20  # what its ring held, and what waited beside the connection


def cut(bus: Bus, source: ipcbus.Source) -> None:
    """Breaks all connections of a source, as a network does, and waits until it knows."""
    sender = source._session.udp_sender
    assert sender is not None
    stream = cast("StreamSocket", sender.session_socket.socket)
    with sender._lock, stream._lock:
        for connection in list(stream._connections.values()):
            stream._break(connection)
            stream._watch(connection)
    bus.until(lambda: not sender.reliable_sender.clients, "the end of the connections")


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("window", [1 << 24, 65536])
def test_a_receiver_whose_connection_breaks_comes_back_with_its_numbers(domain: str, window: int, busy: bool) -> None:
    bus = Bus(domain, LBTTCP, "embedded")
    books = Books()
    go_on = threading.Event()

    def enter(message: ipcbus.Message) -> None:
        books.enter(message)
        if busy and message.sequence_number == 99:
            assert go_on.wait(GIVE_UP_S)  # what the source sends meanwhile is published before the end is noticed

    bus.receiver("t", enter)
    source = bus.source("t", transport_tcp_transmission_window_size=window)
    bus.joined(source)
    for number in range(100):
        source.send(body(number, 4000), flush=True)
    bus.until(lambda: books.ledgers and books.ledgers[source.source].next == 100, "what was sent before")
    cut(bus, source)
    for number in range(100, 300):
        source.send(body(number, 4000), flush=True)
    go_on.set()
    bus.joined(source)
    source.send(body(300, 4000), flush=True)
    bus.until(lambda: books.ledgers[source.source].next == 301, "what was sent after")
    ledger = books.ledgers[source.source]
    balanced(ledger, 301, joins=2)
    assert (ledger.lost > 0) is (window == 65536)
    bus.close()


@pytest.mark.parametrize("other", [{}, {1: b"2"}, {2: b"1"}])
def test_a_network_key_is_needed_to_take_part(domain: str, tmp_path: Path, other: dict[int, bytes]) -> None:
    def key(name: str, keys: dict[int, bytes]) -> dict[str, object]:
        return {"network_key_file": key_file(tmp_path / name, keys)}

    right = key("right", {1: b"1"})
    bus = Bus(domain, LBTTCP, "embedded")
    own, strangers = Books(), Books()
    bus.receiver("t", own.enter, bus.context("own", **right))
    bus.receiver("t", strangers.enter, bus.context("stranger", **(key("wrong", other) if other else {})))
    source = bus.source("t", bus.context("sending", **right))
    bus.joined(source)
    for number in range(1000):
        source.send(body(number), flush=number % 10 == 0)
    source.flush()
    bus.until(lambda: own.ledgers and own.ledgers[source.source].next == 1000, "all messages")
    balanced(own.ledgers[source.source], 1000)
    sender = source._session.udp_sender
    assert sender is not None
    bus.until(lambda: sender.session_socket.sealed_dropped, "a stranger")
    assert source.receivers == 1
    assert strangers.ledgers == {}
    bus.close()
