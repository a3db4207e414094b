"""Connections with packets in them, over real sockets of loopback."""

from __future__ import annotations

import os
import resource
import select
import socket
import struct
import time
from typing import TYPE_CHECKING

import pytest

from ipcbus.errors import TransportError
from ipcbus.transport.tcp import stream_socket
from ipcbus.transport.tcp.stream_socket import StreamOptions, StreamSocket, listening
from ipcbus.transport.udp.network_interface import Interface
from ipcbus.transport.udp.ports import Ports, bind_first
from tests.kit.bus import GIVE_UP_S
from tests.kit.cases import each_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ipcbus.transport.udp.mmsg import Address

LOOPBACK = Interface("127.0.0.1", 1)
ANY = Ports(0, 0, ephemeral=True, cure="nothing")
OPTIONS = StreamOptions(frame_max=70_000, connections_max=100)


class End:
    """A socket, and what came there."""

    def __init__(self, made: StreamSocket) -> None:
        self.socket = made
        self.got: list[tuple[bytes, Address]] = []

    def read(self) -> None:
        """Takes what has come."""
        select.select([self.socket], [], [], 0.05)
        self.got += self.socket.receive()[0]


class Sender(End):
    """A source that sends and does not read."""

    def __init__(self, end: End, client: Address) -> None:
        super().__init__(end.socket)
        self.client = client

    def read(self) -> None:
        """Sends once more."""
        self.socket.send_pairs([(b"x", self.client)])


def until(condition: Callable[[], object], *ends: End) -> None:
    """Reads until the condition holds."""
    deadline = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < deadline
        for end in ends:
            end.read()


@pytest.fixture
def source() -> Iterator[End]:
    """A socket that listens."""
    end = End(listening(LOOPBACK, ANY, OPTIONS))
    yield end
    end.socket.close()


@pytest.fixture
def receiver() -> Iterator[End]:
    """A socket that connects."""
    end = End(StreamSocket(None, LOOPBACK, OPTIONS))
    yield end
    end.socket.close()


def test_packets_of_all_sizes_go_both_ways(source: End, receiver: End) -> None:
    sent = [bytes([size % 251]) * size for size in (1, 2, 1000, 70_000, 3, 65_536, 7)]
    to = source.socket.address
    receiver.socket.send_pairs([(packet, to) for packet in sent])
    until(lambda: len(source.got) == len(sent), source, receiver)
    assert [packet for packet, _ in source.got] == sent
    client = source.got[0][1]
    source.socket.send_pairs([(packet, client) for packet in sent])
    until(lambda: len(receiver.got) == len(sent), source, receiver)
    assert receiver.got == [(packet, to) for packet in sent]
    assert source.socket.unsent(client) == 0


def test_what_finds_no_room_is_kept_and_nothing_is_read_while_the_socket_is_paused(source: End, receiver: End) -> None:
    receiver.socket.send_pairs([(b"here", source.socket.address)])
    until(lambda: source.got, source, receiver)
    client = source.got[0][1]
    receiver.socket.pause(True)
    packet = bytes(60_000)
    count = 0
    while not source.socket.unsent(client):
        source.socket.send_pairs([(packet, client)])
        count += 1
    receiver.read()
    assert receiver.got == []
    receiver.socket.pause(False)
    until(lambda: len(receiver.got) == count, source, receiver)
    assert source.socket.unsent(client) == 0


def test_a_send_does_not_hide_that_there_is_room_again(source: End, receiver: End) -> None:
    receiver.socket.send_pairs([(b"here", source.socket.address)])
    until(lambda: source.got, source, receiver)
    client = source.got[0][1]
    while not source.socket.unsent(client):
        source.socket.send_pairs([(bytes(60_000), client)])
    until(lambda: select.select([source.socket], [], [], 0)[0], receiver)
    source.socket.send_pairs([(b"one more", client)])
    assert source.socket.receive()[1]


def test_an_empty_packet_ends_a_connection_behind_what_was_sent(source: End, receiver: End) -> None:
    to = source.socket.address
    receiver.socket.send_pairs([(b"last", to), (b"", to)])
    until(lambda: len(source.got) == 2, source, receiver)
    assert [packet for packet, _ in source.got] == [b"last", b""]


@pytest.mark.parametrize("local", [LOOPBACK, Interface("192.0.2.1", 1)])  # no route leads from the second one
def test_a_connection_that_is_refused_has_ended_and_counts_once(local: Interface) -> None:
    free = listening(LOOPBACK, ANY, OPTIONS)
    to = free.address
    free.close()
    receiver = End(StreamSocket(None, local, OPTIONS))
    receiver.socket.send_pairs([(b"x", to)])
    until(lambda: receiver.got, receiver)
    assert receiver.got == [(b"", to)]
    assert receiver.socket.counts.send_refused == 1
    receiver.socket.close()


def test_packets_to_a_receiver_that_has_gone_are_no_refusals(source: End, receiver: End) -> None:
    receiver.socket.send_pairs([(b"here", source.socket.address)])
    until(lambda: source.got, source, receiver)
    client = source.got[0][1]
    receiver.socket.close()
    until(lambda: source.socket._connections[client].broken, Sender(source, client))
    for _ in range(3):
        source.socket.send_pairs([(b"x", client)])
    assert source.socket.counts.send_refused == 0
    assert source.socket.unsent(client) == 0


def test_many_receivers_that_connect_at_once_need_not_wait(source: End) -> None:
    crew = [socket.socket() for _ in range(100)]
    for each in crew:
        each.setblocking(False)
        each.connect_ex(source.socket.address)
    for each in crew:
        assert select.select([], [each], [], GIVE_UP_S)[1]
        each.send(struct.pack("!I", 4) + b"here")
    until(lambda: len(source.got) >= len(crew), source)
    assert [packet for packet, _ in source.got] == [b"here"] * len(crew)
    for each in crew:
        each.close()


@pytest.mark.parametrize("length", [0, 70_001, 2**32 - 1])
def test_a_length_that_no_packet_has_ends_the_connection_before_anything_is_kept(source: End, length: int) -> None:
    with socket.create_connection(source.socket.address) as stranger:
        stranger.sendall(struct.pack("!I", 1) + b"x" + struct.pack("!I", length) + b"rest")
        until(lambda: len(source.got) == 2, source)
        assert [packet for packet, _ in source.got] == [b"x", b""]
        assert source.socket.counts.dgrams_truncated == 1


def test_strangers_that_say_nothing_make_room_for_others(source: End, receiver: End) -> None:
    strangers = []
    for _ in range(80):
        strangers.append(socket.create_connection(source.socket.address))
        source.read()
    receiver.socket.send_pairs([(b"known", source.socket.address)])
    until(lambda: any(packet == b"known" for packet, _ in source.got), source, receiver)
    assert len(source.socket._connections) <= 65
    for stranger in strangers:
        stranger.close()


def test_there_are_no_more_connections_than_the_options_say() -> None:
    few = End(listening(LOOPBACK, ANY, StreamOptions(frame_max=100, connections_max=2)))
    made = [socket.create_connection(few.socket.address) for _ in range(3)]
    until(lambda: few.socket.counts.send_refused, few)
    assert len(few.socket._connections) == 2
    for each in made:
        each.close()
    few.socket.close()


def test_another_process_that_takes_the_port_in_the_same_moment_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """SO_REUSEADDR lets both bind the port; only one can listen on it."""
    other = socket.socket()
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    other.bind(("127.0.0.1", 0))
    port = other.getsockname()[1]

    def bind_while_other_listens(sock: socket.socket, interface: Interface, ports: Ports) -> None:
        bind_first(sock, interface, ports)
        other.listen()

    monkeypatch.setattr(stream_socket, "bind_first", bind_while_other_listens)
    made = listening(LOOPBACK, Ports(port, port, ephemeral=True, cure="nothing"), OPTIONS)
    assert made.address[1] not in (0, port)
    made.close()
    other.close()


def test_a_port_that_is_taken_is_an_error_with_the_cure(source: End) -> None:
    port = source.socket.address[1]
    with pytest.raises(TransportError, match=f"TCP port {port} is in use .* change transport_tcp_port"):
        listening(LOOPBACK, Ports(port, port, ephemeral=False, cure="transport_tcp_port (scope source)"), OPTIONS)


def test_a_connection_for_which_no_descriptor_is_left_is_ended_and_counted(source: End) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    with socket.create_connection(source.socket.address) as peer:
        assert select.select([source.socket], [], [], GIVE_UP_S)[0]
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                while True:
                    taken.append(os.dup(peer.fileno()))
            source.socket.receive()
            assert source.socket._spare is not None
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for number in taken:
                os.close(number)
        assert source.socket.counts.send_refused == 1
        assert not select.select([source.socket], [], [], 0)[0]
        assert peer.recv(1) == b""


def test_connections_within_one_host_have_a_congestion_control_without_timers(source: End, receiver: End) -> None:
    receiver.socket.send_pairs([(b"here", source.socket.address)])
    until(lambda: source.got, source, receiver)
    for end in (source, receiver):
        (connection,) = end.socket._connections.values()
        chosen = connection.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert chosen.rstrip(b"\0") == b"reno"


@each_of(
    ("peer", "own", "local"),
    [
        ("127.0.0.1", "127.0.0.2", True),
        ("::1", "::1", True),
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("fe80::1%lo", "fe80::2", False),
    ],
)
def test_which_connections_do_not_leave_the_host(peer: str, own: str, *, local: bool) -> None:
    assert stream_socket._is_local(peer, own) == local
