"""A session over TCP whose client takes what waited for it: the ring is read on at once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from unittest.mock import Mock

from ipcbus.reliability.clients import ClientSettings
from ipcbus.reliability.send_state import SendSettings
from ipcbus.reliability.stream_sender import UNSENT_MAX, StreamSender, StreamSettings
from ipcbus.transport.tcp.tcp_sender import TcpSender
from ipcbus.wire import udp_packets
from ringbuf.channel import OwnedChannel, Shape

if TYPE_CHECKING:
    from collections.abc import Hashable

SESSION = 7
COUNT = 30


def test_a_client_that_is_far_behind_gets_all_that_its_connection_takes(domain: str) -> None:
    # A connection that was not full does not say that it has room: what it could take would wait for the next timer.
    settings = StreamSettings(SendSettings(), ClientSettings(), buffer_max=1 << 23)
    sender = StreamSender(SESSION, settings, bytes(32), time.monotonic_ns(), lambda _: 0)
    port = Mock()
    port.socket.end_strangers.return_value = None
    port.send_records.return_value = ([], False, False)
    channel = OwnedChannel(f"{domain}-ring", f"{domain}-control", Shape(SESSION, 1 << 20, 1 << 17, False, 1, 0, 0, ""))
    try:
        udp_sender = TcpSender(
            channel, port, sender, Mock(due_ns=1 << 62), Mock(), name="", group=None, twin=False, return_timeout_ns=0
        )
        now_ns = time.monotonic_ns()
        count = 4 * UNSENT_MAX // 60_000
        for _ in range(count):
            sender.send(bytes(60_000), 1, 0, now_ns)
        udp_sender.receive(udp_packets.connect(SESSION, 1, 1), "a", now_ns)
        client = sender.client_at("a")
        assert client is not None
        port.send.reset_mock()
        udp_sender.receive(udp_packets.acks(SESSION, client.cookie, 0, (1, 1, ""), 1, [])[0], "a", now_ns)
        udp_sender.turn(now_ns)
        sent = [packet for call in port.send.call_args_list for packet, _ in call.args[0] if len(packet) > 60_000]
        assert len(sent) == count
    finally:
        channel.close()


def test_a_ring_is_read_on_when_a_client_takes_what_waited(domain: str) -> None:
    unsent: dict[Hashable, int] = {}
    settings = StreamSettings(SendSettings(), ClientSettings(), buffer_max=10_000)
    sender = StreamSender(SESSION, settings, bytes(32), time.monotonic_ns(), lambda address: unsent.get(address, 0))
    names = f"{domain}-ring", f"{domain}-control"
    port = Mock()
    port.socket.end_strangers.return_value = None
    port.send_records.return_value = ([], False, False)  # as where packets are sealed
    channel = OwnedChannel(*names, Shape(SESSION, 65_536, 4096, False, 1, 0, 0, ""))
    try:
        udp_sender = TcpSender(
            channel, port, sender, Mock(due_ns=1 << 62), Mock(), name="", group=None, twin=False, return_timeout_ns=0
        )
        now_ns = time.monotonic_ns()
        udp_sender.receive(udp_packets.connect(SESSION, 0, 1), "a", now_ns)
        client = sender.client_at("a")
        assert client is not None
        udp_sender.receive(udp_packets.acks(SESSION, client.cookie, 0, (1, 1, ""), 1, [])[0], "a", now_ns)
        unsent["a"] = UNSENT_MAX
        for _ in range(COUNT):
            assert channel.writer.write(bytes(1000))
        udp_sender.send_published()
        assert 10 <= sender.lead <= 12
        # The connection has room again. It takes all that waited, so that it is not going to tell that once more.
        unsent["a"] = 0
        udp_sender.turn(time.monotonic_ns())
        assert sender.lead == COUNT
    finally:
        channel.close()
