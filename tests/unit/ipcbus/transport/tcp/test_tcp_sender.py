"""A session over TCP whose client takes what waited for it: the ring is read on at once."""

from __future__ import annotations

import contextlib
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
    from collections.abc import Hashable, Iterator

SESSION = 7
COUNT = 30


@contextlib.contextmanager
def opened(
    domain: str, window: int, record_max: int, buffer_max: int, unsent: dict[Hashable, int]
) -> Iterator[tuple[TcpSender, StreamSender, OwnedChannel, Mock]]:
    """A sender, its protocol, its ring and its connections, which take all but what is `unsent`."""
    settings = StreamSettings(SendSettings(), ClientSettings(), buffer_max=buffer_max)
    sender = StreamSender(SESSION, settings, bytes(32), time.monotonic_ns(), lambda address: unsent.get(address, 0))
    names = f"{domain}-ring", f"{domain}-control"
    port = Mock()
    port.socket.end_strangers.return_value = None
    port.send_records.return_value = ([], False, False)  # as where packets are sealed
    channel = OwnedChannel(*names, Shape(SESSION, window, record_max, False, 1, 0, 0, ""))
    try:
        udp_sender = TcpSender(
            channel, port, sender, Mock(due_ns=1 << 62), Mock(), name="", group=None, twin=False, return_timeout_ns=0
        )
        yield udp_sender, sender, channel, port
    finally:
        channel.close()


def register(udp_sender: TcpSender, sender: StreamSender, resume: int) -> None:
    """Registers client `a`; `resume` is one more than the number at which it goes on, 0 for the next one."""
    now_ns = time.monotonic_ns()
    udp_sender.receive(udp_packets.connect(SESSION, resume, 1), "a", now_ns)
    client = sender.client_at("a")
    assert client is not None
    udp_sender.receive(udp_packets.acks(SESSION, client.cookie, 0, (1, 1, ""), 1, [])[0], "a", now_ns)


def test_a_client_that_is_far_behind_gets_all_that_its_connection_takes(domain: str) -> None:
    # A connection that was not full does not say that it has room: what it could take would wait for the next timer.
    with opened(domain, 1 << 20, 1 << 17, 1 << 23, {}) as (udp_sender, sender, _, port):
        count = 4 * UNSENT_MAX // 60_000
        for _ in range(count):
            sender.send(bytes(60_000), 1, 0, time.monotonic_ns())
        register(udp_sender, sender, 1)
        udp_sender.turn(time.monotonic_ns())
        sent = [packet for call in port.send.call_args_list for packet, _ in call.args[0] if len(packet) > 60_000]
        assert len(sent) == count


def test_a_ring_is_read_on_when_a_client_takes_what_waited(domain: str) -> None:
    unsent: dict[Hashable, int] = {}
    with opened(domain, 65_536, 4096, 10_000, unsent) as (udp_sender, sender, channel, _):
        register(udp_sender, sender, 0)
        unsent["a"] = UNSENT_MAX
        for _ in range(COUNT):
            assert channel.writer.write(bytes(1000))
        udp_sender.send_published()
        assert 10 <= sender.lead <= 12
        # The connection has room again. It takes all that waited, so that it is not going to tell that once more.
        unsent["a"] = 0
        udp_sender.turn(time.monotonic_ns())
        assert sender.lead == COUNT
