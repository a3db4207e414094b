"""The packets that a source over TCP makes from the records of its ring."""

from __future__ import annotations

import contextlib
import socket
import time

from ipcbus.transport.tcp.outflow import send_records, take_packet
from ipcbus.wire import udp_packets
from ringbuf.channel import OwnedChannel, Shape
from ringbuf.relay import put
from ringbuf.ring import RingReader
from ringbuf.slots import Identity


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


def test_connections_get_all_packets_and_what_one_does_not_take_is_told(domain: str) -> None:
    channel = OwnedChannel(f"{domain}-ring", f"{domain}-control", Shape(7, 1 << 20, 65_536, False, 1, 0, 0, ""))
    pairs = [socket.socketpair() for _ in range(3)]
    try:
        slot = channel.slots.claim(Identity(1, 1, 1, "reader"), 0)
        reader = RingReader(channel.ring, channel.control, slot)
        channel.slots.join(slot, reader)
        for length in (1, 3000, 200):
            put(channel.writer, bytes(length), 0, 1, time.time_ns())
        numbers = [near.fileno() for near, _ in pairs[:2]]
        packets, _, drained, taken, left = send_records(reader, numbers, 7, 5)
        assert [udp_packets.DATA_HEADER + length for length in (1, 3000, 200)] == [len(each) for each in packets]
        assert drained
        assert not taken
        assert not left
        stream = b"".join(len(each).to_bytes(4, "big") + each for each in packets)
        assert [far.recv(10_000) for _, far in pairs[:2]] == [stream, stream]
        assert send_records(reader, numbers, 7, 8) == ([], False, True, [], [])
        # One that is full, one that has room, one that has ended.
        pairs[2][1].close()
        for near, _ in pairs:
            near.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                pairs[0][0].send(b"x")
        put(channel.writer, bytes(10), 0, 1, time.time_ns())
        packets, _, drained, taken, left = send_records(reader, [near.fileno() for near, _ in pairs], 7, 8)
        assert (len(packets), drained, taken) == (1, False, [0, 4 + len(packets[0]), -1])
        assert left == packets
    finally:
        channel.close()
        for pair in pairs:
            for each in pair:
                each.close()
