"""What comes over a connection: packets out of any pieces, and datagrams straight into a ring."""

from __future__ import annotations

import socket
import struct
from random import Random
from typing import TYPE_CHECKING

import pytest

from ipcbus.transport.tcp.inflow import Inflow
from ipcbus.transport.udp.datagram_relay import CAME, HAS_MORE, NOTHING_CAME
from ipcbus.wire import udp_packets
from ringbuf.channel import OwnedChannel, Shape
from ringbuf.relay import take
from ringbuf.ring import RingReader
from ringbuf.slots import Identity

if TYPE_CHECKING:
    from collections.abc import Iterator

SESSION = 7
FRAME_MAX = 70_000
LONGEST = 20_000


class Way:
    """A connection, what has come over it, and a ring."""

    def __init__(self, domain: str) -> None:
        self.near, self.far = socket.socketpair()
        self.inflow = Inflow(FRAME_MAX)
        self.channel = OwnedChannel(
            f"{domain}-ring", f"{domain}-control", Shape(SESSION, 65_536, LONGEST + 100, False, 1, 0, 0, "")
        )
        slot = self.channel.slots.claim(Identity(1, 1, 1, "reader"), 0)
        self.reader = RingReader(self.channel.ring, self.channel.control, slot)
        self.channel.slots.join(slot, self.reader)

    def bring(self, data: bytes) -> None:
        """Brings bytes over the connection."""
        self.near.sendall(data)
        assert self.inflow.read(self.far.fileno()) == len(data)

    def taken(self) -> list[tuple[bytes, int, int]]:
        """What is in the ring."""
        return list(iter(lambda: take(self.reader), None))


@pytest.fixture
def way(domain: str) -> Iterator[Way]:
    """A connection and a ring."""
    made = Way(domain)
    yield made
    made.near.close()
    made.far.close()
    made.channel.close()


def framed(packet: bytes) -> bytes:
    """A packet behind its length."""
    return struct.pack("!I", len(packet)) + packet


def data(number: int, body: bytes = b"body") -> bytes:
    """A datagram as a source sends it."""
    return framed(udp_packets.data(SESSION, number, number, 3, 1_000_000 + number, body, 0))


def test_packets_come_whole_out_of_pieces(way: Way) -> None:
    chance = Random(3)
    sent = [bytes([size % 251]) * size for size in (1, 2, 1000, FRAME_MAX, 3, 65_536, 7)]
    stream = b"".join(map(framed, sent))
    got = []
    while stream:
        size = chance.choice([1, 3, 5, 100, 60_000])
        way.bring(stream[:size])
        stream = stream[size:]
        got += list(iter(way.inflow.packet, None))
    assert got == sent
    assert way.inflow.read(way.far.fileno()) == -1
    way.near.close()
    assert way.inflow.read(way.far.fileno()) == 0


def test_datagrams_go_straight_into_the_ring_until_something_else_comes(way: Way) -> None:
    other = udp_packets.session_message(SESSION, 5, 0)
    way.bring(data(4, b"four") + data(5, b"five") + framed(other) + data(6))
    assert way.inflow.relay(way.channel.writer, SESSION, 4) == (2, 8)
    assert [(body, messages) for body, messages, _ in way.taken()] == [(b"four", 1), (b"five", 1)]
    assert way.inflow.relay(way.channel.writer, SESSION, 6) == (0, 0)
    assert way.inflow.packet() == other
    assert way.inflow.relay(way.channel.writer, SESSION, 6) == (1, 4)
    assert way.inflow.packet() is None


@pytest.mark.parametrize(
    "packet",
    [
        data(5),
        framed(udp_packets.data(SESSION + 1, 4, 4, 1, 5, b"body", 0)),
        framed(udp_packets.data(SESSION, 4, 4, 1, 5, b"body", 1 << udp_packets.PASSED_SHIFT)),
        framed(bytes([udp_packets.VERSION + 1]) + data(4)[5:]),
        framed(data(4)[4 : 4 + udp_packets.DATA_HEADER]),
        framed(b"x"),
        data(4)[:-1],
    ],
)
def test_what_is_not_the_next_datagram_is_left_for_the_protocol(way: Way, packet: bytes) -> None:
    way.bring(packet)
    assert way.inflow.relay(way.channel.writer, SESSION, 4) == (0, 0)
    assert way.taken() == []


def test_what_finds_no_room_in_the_ring_stays(way: Way) -> None:
    bodies = [bytes([number]) * LONGEST for number in range(5)]
    way.bring(b"".join(data(number, body) for number, body in enumerate(bodies)))
    count, size = way.inflow.relay(way.channel.writer, SESSION, 0)
    assert 0 < count < 5
    assert size == count * LONGEST
    got = [body for body, _, _ in way.taken()]
    way.reader.show()
    assert way.inflow.relay(way.channel.writer, SESSION, count)[0] == 5 - count
    assert got + [body for body, _, _ in way.taken()] == bodies


@pytest.mark.parametrize("length", [0, FRAME_MAX + 1, 2**32 - 1])
def test_nothing_is_read_behind_a_length_that_no_packet_has(way: Way, length: int) -> None:
    way.bring(framed(b"x") + struct.pack("!I", length) + data(0))
    assert way.inflow.packet() == b"x"
    assert way.inflow.relay(way.channel.writer, SESSION, 0) == (0, 0)
    assert way.inflow.packet() is None
    assert way.inflow.broken


def test_fetched_datagrams_are_the_same_wherever_the_stream_is_cut(way: Way) -> None:
    bodies = [b"first", b"x", b"the third"]
    other = framed(udp_packets.session_message(SESSION, 5, 0))
    start = 0
    for cut in range(1, sum(len(data(0, body)) for body in bodies)):
        stream = b"".join(data(start + number, body) for number, body in enumerate(bodies))
        came = expected = 0
        for piece in (stream[:cut], stream[cut:]):
            way.near.sendall(piece)
            way.inflow.direct(way.far.fileno(), way.channel.writer, SESSION, start + expected, 1000)
            way.inflow.fetch()
            count, _, size = way.inflow.settle()
            came += size
            expected += count
            assert not way.inflow.has_packet
        assert (expected, came) == (3, len(stream))
        assert [body for body, _, _ in way.taken()] == bodies
        way.reader.show()
        start += 3
    way.near.sendall(other)
    way.inflow.direct(way.far.fileno(), way.channel.writer, SESSION, start, 1000)
    assert way.inflow.fetch() == HAS_MORE
    assert way.inflow.has_packet
    assert way.inflow.settle() == (0, 0, len(other))


def test_a_packet_that_comes_in_parts_is_fetched_in_as_many_calls(way: Way) -> None:
    body = bytes(range(250)) * 36
    stream = data(7, body)
    way.inflow.direct(way.far.fileno(), way.channel.writer, SESSION, 7, 1000)
    for start in range(0, len(stream), 1000):
        assert way.taken() == []
        way.near.sendall(stream[start : start + 1000])
        assert way.inflow.fetch() == CAME
    assert [body for body, _, _ in way.taken()] == [body]
    assert way.inflow.settle() == (1, len(body), len(stream))


def test_fetch_reads_nothing_without_room_or_after_stop(way: Way) -> None:
    way.near.sendall(data(0))
    assert way.inflow.fetch() == HAS_MORE
    way.inflow.direct(way.far.fileno(), way.channel.writer, SESSION, 0, 65_537)
    assert way.inflow.fetch() == HAS_MORE
    way.inflow.direct(way.far.fileno(), way.channel.writer, SESSION, 0, 1000)
    way.inflow.stop()
    assert way.inflow.fetch() == HAS_MORE
    assert way.inflow.settle() == (0, 0, 0)
    way.inflow.direct(way.far.fileno(), way.channel.writer, SESSION, 0, 1000)
    assert way.inflow.fetch() == CAME
    assert way.inflow.fetch() == NOTHING_CAME
    assert way.inflow.settle() == (1, 4, len(data(0)))
    way.near.close()
    way.inflow.direct(way.far.fileno(), way.channel.writer, SESSION, 1, 1000)
    assert way.inflow.fetch() == HAS_MORE  # the end of the connection is for the state machine


@pytest.mark.parametrize("length", [0, FRAME_MAX + 1, 2**32 - 1])
def test_fetch_tells_of_a_length_that_no_packet_has(way: Way, length: int) -> None:
    way.near.sendall(data(0) + struct.pack("!I", length) + data(1))
    way.inflow.direct(way.far.fileno(), way.channel.writer, SESSION, 0, 1000)
    way.inflow.fetch()
    assert way.inflow.has_packet
    assert way.inflow.broken
    assert way.inflow.packet() is None
    assert len(way.taken()) == 1
