"""Flow control over UDP in virtual time: a source at full load, and receivers whose process is stopped for a while."""

from __future__ import annotations

from random import Random

import pytest

from ipcbus.reliability.receiver_settings import ReceiverSettings
from ipcbus.reliability.reliable_receiver import ReliableReceiver
from ipcbus.reliability.reliable_sender import ALL, ReliableSender
from ipcbus.reliability.send_state import SendSettings
from ipcbus.reliability.session_sender import SenderSettings
from ipcbus.wire.udp_packets import CHARGE

AT = ("10.0.0.1", 14380)
MS, SECOND = 1_000_000, 1_000_000_000
DATAGRAMS, SIZE = 100_000, 100
BUFFER, RING = 200 * (SIZE + 60 + CHARGE), 400 * (SIZE + CHARGE)


class Host:
    """A receiver with a socket that drops what finds no room, and a ring that its application reads."""

    def __init__(self, place: int, random: Random, *, multicast: bool, rate: int) -> None:
        self.address, self.rate = ("10.0.0.2", place), rate
        self.end = ReliableReceiver(7, AT, ReceiverSettings(), random, 0, (place, 2, "here"), multicast)
        self.socket: list[bytes] = []
        self.held = self.overrun = self.unread = 0
        self.got: list[int] = []

    def come(self, packet: bytes) -> None:
        """A packet comes to the socket."""
        if self.held + len(packet) + CHARGE > BUFFER:
            self.overrun += 1
            return
        self.socket.append(packet)
        self.held += len(packet) + CHARGE

    def run(self, now_ns: int) -> None:
        """Reads the socket, and has the application read a part of the ring."""
        packets, self.socket, self.held = self.socket, [], 0
        for packet in packets:
            found = self.end.receive(packet, AT, now_ns) + self.end.ready(now_ns)
            self.got += [int.from_bytes(datagram[:8], "big") for datagram, _ in found]
            self.unread += len(found)
        assert self.unread * (SIZE + CHARGE) <= RING, "the ring has no room for what was granted"
        self.unread = max(0, self.unread - self.rate)
        room, window = RING - self.unread * (SIZE + CHARGE), min(BUFFER, RING)
        self.end.turn(now_ns)
        self.end.take_room(min(room, window), window, now_ns)


@pytest.mark.parametrize("multicast", [False, pytest.param(True, marks=pytest.mark.long)])
def test_receivers_that_are_stopped_at_full_load_lose_nothing(multicast: bool) -> None:
    random, now_ns = Random(multicast), 0
    sending = SendSettings(data_rate=0, retransmit_rate=0, window_size=1000 * SIZE)
    source = ReliableSender(7, SenderSettings(sending), bytes(16), 0, multicast)
    hosts = [Host(place, random, multicast=multicast, rate=150 + 100 * place) for place in range(2)]
    for host in hosts:
        host.end.topics([1], 0)
    pauses = {0: [(SECOND // 4, SECOND // 10), (SECOND // 2, 5 * SECOND)], 1: [(SECOND, SECOND)]}
    sent = 0
    while sent < DATAGRAMS or min(len(host.got) for host in hosts) < DATAGRAMS:
        now_ns += MS
        assert now_ns < 60 * SECOND, "it does not come to its end"
        joined = len(source.clients) == len(hosts)
        while joined and sent < DATAGRAMS and not source.blocked:
            source.send(sent.to_bytes(8, "big").ljust(SIZE), 1, 5, now_ns)
            sent += 1
        source.turn(now_ns)
        for packet, to in source.take():
            for host in hosts:
                if to in (ALL, host.address):
                    host.come(packet)
        for place, host in enumerate(hosts):
            if not any(begin <= now_ns < begin + length for begin, length in pauses[place]):
                host.run(now_ns)
                for packet in host.end.take():
                    source.receive(packet, host.address, now_ns)
    assert [host.overrun for host in hosts] == [0, 0]
    assert all(host.got == list(range(DATAGRAMS)) for host in hosts)
    assert source.counts.rxs_sent == 0
