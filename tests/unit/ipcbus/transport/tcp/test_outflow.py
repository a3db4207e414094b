"""The packets that a source over TCP makes from the records of its ring."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from typing import Any

import pytest

from ipcbus.transport.tcp.outflow import RecordStream, send_records, take_packet
from ipcbus.wire import udp_packets
from ringbuf.channel import OwnedChannel, Shape
from ringbuf.relay import put
from ringbuf.ring import RingReader
from ringbuf.slots import Identity
from tests.rings.channels import fill_with_damaged, joined, owned


def test_a_packet_is_that_of_the_protocol(domain: str) -> None:
    channel = OwnedChannel(f"{domain}-ring", f"{domain}-control", Shape(7, 65_536, 4096, False, 1, 0, 0, ""))
    try:
        sent_ns = time.time_ns()
        slot = channel.slots.claim(Identity(1, 1, 1, "reader"), 0)
        reader = RingReader(channel.ring, channel.control, slot)
        channel.slots.join(slot, reader)
        assert take_packet(reader, 7, 0) is None
        put(channel.writer, b"some text", 5, 3, sent_ns)
        put(channel.writer, bytes(3000), 0, 1, sent_ns)
        packet = take_packet(reader, 0xFEDCBA98, 1 << 60)
        assert packet is not None
        found = udp_packets.parse(packet)
        assert isinstance(found, udp_packets.Data)
        expected = udp_packets.data(0xFEDCBA98, 1 << 60, 1 << 60, 3, found.send_time_ns, b"text", 0)
        assert packet == expected
        assert abs(found.send_time_ns - sent_ns) < 1_000_000  # the ring keeps ticks
        second = take_packet(reader, 7, 1)
        assert second is not None
        assert second[udp_packets.DATA_HEADER :] == bytes(3000)
        assert take_packet(reader, 7, 2) is None
    finally:
        channel.close()


@pytest.mark.parametrize("source_paced", [False, True])
def test_connections_get_all_packets_and_what_one_does_not_take_is_told(domain: str, *, source_paced: bool) -> None:
    shape = Shape(7, 1 << 20, 65_536, source_paced, 1, 0, 0, "")
    channel = OwnedChannel(f"{domain}-ring", f"{domain}-control", shape)
    pairs = [socket.socketpair() for _ in range(3)]
    try:
        slot = channel.slots.claim(Identity(1, 1, 1, "reader"), 0)
        reader = RingReader(channel.ring, channel.control, slot)
        channel.slots.join(slot, reader)
        bodies = [random.Random(length).randbytes(length) for length in (1, 3000, 200, 40_000)]
        for body in bodies:
            put(channel.writer, body, 0, 1, time.time_ns())
        numbers = [near.fileno() for near, _ in pairs[:2]]
        packets, _, drained, taken, left = send_records(reader, numbers, 7, 5)
        # The copies that are kept are made after the system has taken the bytes from the ring.
        assert [each[udp_packets.DATA_HEADER :] for each in packets] == bodies
        assert drained
        assert not taken
        assert not left
        stream = b"".join(len(each).to_bytes(4, "big") + each for each in packets)
        assert [far.recv(100_000) for _, far in pairs[:2]] == [stream, stream]
        assert send_records(reader, numbers, 7, 8) == ([], False, True, [], [])
        # One that is full, one that has room, one that has ended.
        pairs[2][1].close()
        for near, _ in pairs:
            near.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                pairs[0][0].send(b"x")
        put(channel.writer, b"0123456789", 0, 1, time.time_ns())
        packets, _, drained, taken, left = send_records(reader, [near.fileno() for near, _ in pairs], 7, 8)
        assert (len(packets), drained, taken) == (1, False, [0, 4 + len(packets[0]), -1])
        assert left == packets
        assert packets[0].endswith(b"0123456789")
    finally:
        channel.close()
        for pair in pairs:
            for each in pair:
                each.close()


class Owner:
    """What a stream of records belongs to."""

    def __init__(self, domain: str) -> None:
        self.channel = OwnedChannel(f"{domain}-ring", f"{domain}-control", Shape(7, 65_536, 4096, False, 1, 0, 0, ""))
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        slot = self.channel.slots.claim(Identity(1, 1, 1, "reader"), 0)
        reader = RingReader(self.channel.ring, self.channel.control, slot)
        self.channel.slots.join(slot, reader)
        self.mask = 1 << slot
        self.socket_lock = threading.Lock()
        self.published: list[int] = []
        self.kept: list[tuple[Any, ...]] = []
        self.stream = RecordStream(reader, 7)
        self.stream.allow(self.mask, threading.RLock(), self.published.append, lambda: None)
        self.aim()

    def aim(self) -> None:
        """As after a look at the connections."""
        with self.socket_lock:
            self.stream.aim(self.socket_lock, lambda *kept: self.kept.append(kept), ("near",), [self.near.fileno()])

    def publish(self, length: int) -> None:
        """Writes a record, and says so."""
        put(self.channel.writer, bytes(length), 0, 1, time.time_ns())
        self.stream(self.mask)

    def close(self) -> None:
        """Gives everything back."""
        self.channel.close()
        self.near.close()
        self.far.close()


def test_records_are_sent_without_the_state_machine_until_it_looks(domain: str) -> None:
    owner = Owner(domain)
    stream = owner.stream
    try:
        owner.publish(1)
        assert owner.published == [owner.mask]  # not started
        assert [len(each) for each in stream.send(5)[0]] == [udp_packets.DATA_HEADER + 1]
        stream.start(6)
        owner.publish(100)
        stream(owner.mask | 1 << 40)
        assert owner.published == [owner.mask, owner.mask | 1 << 40]  # another reader has to be woken
        owner.publish(200)
        unsettled = [stream.unsettled]
        packets, connections, sent_ns = stream.settle()
        assert ([len(each) - udp_packets.DATA_HEADER for each in packets], connections) == ([100, 200], 1)
        assert [found.number for each in packets if isinstance(found := udp_packets.parse(each), udp_packets.Data)] == [
            6,
            7,
        ]
        assert time.monotonic_ns() - sent_ns < 60_000_000_000
        assert [*unsettled, stream.unsettled] == [True, False]
        owner.publish(1)
        assert len(owner.published) == 3
        assert not owner.kept
    finally:
        owner.close()


def test_a_stream_ends_with_a_change_of_its_connections(domain: str) -> None:
    owner = Owner(domain)
    stream = owner.stream
    try:
        stream.start(0)
        stream.stop()
        owner.publish(1)
        assert len(owner.published) == 1
        stream.start(0)  # by a thread that has looked at the connections before
        owner.publish(1)
        assert len(owner.published) == 2
        owner.aim()
        stream.start(0)
        with owner.socket_lock:
            owner.publish(1)  # a connection may be changing
        assert len(owner.published) == 3
        owner.publish(1)
        assert len(owner.published) == 3
        assert len(stream.settle()[0]) == 4
    finally:
        owner.close()


def test_a_full_connection_keeps_the_rest(domain: str) -> None:
    owner = Owner(domain)
    try:
        with contextlib.suppress(BlockingIOError):
            while True:
                owner.near.send(bytes(1000))
        owner.stream.start(3)
        owner.publish(10)
        ((connections, last, taken),) = owner.kept
        assert (connections, [len(each) for each in last], taken) == (("near",), [udp_packets.DATA_HEADER + 10], [0])
        assert owner.published == [owner.mask]  # the state machine has to wait for room
        assert owner.stream.settle()[0] == last
    finally:
        owner.close()


def test_packets_that_were_sent_are_noted_in_time(domain: str) -> None:
    owner = Owner(domain)
    try:
        owner.stream.start(0)
        total = 0
        owner.publish(4000)
        while not owner.published:
            total += len(owner.far.recv(100_000))
            owner.publish(4000)
        assert 1 << 20 <= total < (1 << 20) + 10_000
    finally:
        owner.close()


def test_a_source_that_waits_hears_of_the_room_that_damaged_records_leave(domain: str) -> None:
    near, far = socket.socketpair()
    with near, far, owned(domain, checksums=True) as channel, joined(domain) as joining:
        assert fill_with_damaged(channel) > 20
        assert channel.writer.want_event(100)
        assert send_records(joining.reader, [near.fileno()], 7, 5) == ([], True, True, [], [])
        assert send_records(joining.reader, [near.fileno()], 7, 5) == ([], False, True, [], [])
        assert channel.writer.write(bytes(100))
