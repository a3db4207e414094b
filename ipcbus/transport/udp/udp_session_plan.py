"""The plan of a session over UDP alone, with the small ring that its UDP sender reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.transport.transport_kinds import SessionPlan
from ipcbus.transport.udp.udp_plan import DATAGRAM_MAX, UdpPlan

if TYPE_CHECKING:
    from ipcbus.config import SourceOptions
    from ipcbus.transport.tcp.tcp_plan import TcpPlan

_RING_TCP = 65536
_RING_UDP = 1 << 18
"""Room for the fragments that are sent in one go (topic.batch)."""
_FILLED_FROM = 2048
"""The lowest `implicit_batching_minimum_length`, its default, with which datagrams of a burst are filled."""


def udp_session_plan(
    transport: int, udp: UdpPlan | TcpPlan, source: SourceOptions, *, datagram_max: int, topics_max: int
) -> SessionPlan:
    """Returns the plan of a session over UDP or TCP.

    Args:
        transport: the number of the transport.
        udp: the part of the plan for UDP or TCP.
        source: the options of its first source.
        datagram_max: the longest datagram, in bytes.
        topics_max: the largest number of topics.
    """
    return SessionPlan(
        transport=transport,
        # Its datagrams wait for the data rate only, as the one datagram of Ultra Messaging does.
        window=_RING_UDP if isinstance(udp, UdpPlan) else _RING_TCP,
        source_paced=False,
        datagram_max=min(datagram_max, DATAGRAM_MAX),
        receivers_max=0,
        topics_max=topics_max,
        sm_interval_ms=10_000,
        batch_minimum=source.implicit_batching_minimum_length,
        batch_interval_ms=source.implicit_batching_interval,
        explicit_batch_ms=source.explicit_batching_interval,
        udp=udp,
        # On loopback and over TCP a datagram costs much the same whatever its length; elsewhere, networks split what is
        # longer than a frame.
        fills_datagrams=(not isinstance(udp, UdpPlan) or udp.on_loopback)
        and source.implicit_batching_minimum_length >= _FILLED_FROM,
    )
