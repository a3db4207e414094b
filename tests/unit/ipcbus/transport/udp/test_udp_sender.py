"""A session over UDP whose source waits for its client: the thread that waits reads the answers."""

from __future__ import annotations

import time
from unittest.mock import Mock

from ipcbus.reliability.reliable_sender import ReliableSender
from ipcbus.reliability.send_state import SendSettings
from ipcbus.reliability.session_sender import SenderSettings
from ipcbus.transport.udp.udp_sender import UdpSender
from ipcbus.wire import udp_packets
from ringbuf.channel import OwnedChannel, Shape

SESSION = 7
COUNT = 200
CLIENT = ("127.0.0.1", 9)


def test_a_thread_that_waits_for_a_client_reads_its_answers(domain: str) -> None:
    settings = SenderSettings(SendSettings(data_rate=0))
    sender = ReliableSender(SESSION, settings, bytes(32), time.monotonic_ns(), multicast=False)
    port = Mock(direct=None, waits=False)
    names = f"{domain}-ring", f"{domain}-control"
    channel = OwnedChannel(*names, Shape(SESSION, 1 << 20, 4096, False, 1, 0, 0, ""))
    try:
        udp_sender = UdpSender(
            channel, port, sender, Mock(due_ns=1 << 62), Mock(), name="", group=None, twin=False, return_timeout_ns=0
        )
        now_ns = time.monotonic_ns()
        cookie = sender._clients.cookie(CLIENT, now_ns)
        udp_sender.receive(udp_packets.connect(SESSION, cookie, 1), CLIENT, now_ns)
        client = sender.client_at(CLIENT)
        assert client is not None

        def answer(room: int) -> None:
            (packet,) = udp_packets.acks(SESSION, client.cookie, sender.lead, (1, 1, ""), 1, [], 0, (sender.lead, room))
            udp_sender.receive(packet, CLIENT, time.monotonic_ns())

        answer(10_000)
        for _ in range(COUNT):
            assert channel.writer.write(bytes(1000))
        # Between the first look and the wait, the client makes room; the driver of the context has no processor.
        port.read_answers.side_effect = lambda _: answer(1 << 22)
        udp_sender.send_published()
        assert sender.lead == COUNT
        assert port.read_answers.call_count == 1
        assert channel.writer.write(bytes(1000))
        udp_sender.send_published()
        assert port.read_answers.call_count == 1  # there is room
    finally:
        channel.close()
