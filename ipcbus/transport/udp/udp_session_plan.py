"""The plan of a session over UDP alone, with the small ring that its UDP sender reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.transport.transport_kinds import SessionPlan
from ipcbus.transport.udp.udp_plan import DATAGRAM_MAX

if TYPE_CHECKING:
    from ipcbus.config import SourceOptions
    from ipcbus.transport.udp.udp_plan import UdpPlan

_RING = 65536


def udp_session_plan(
    transport: int, udp: UdpPlan, source: SourceOptions, *, datagram_max: int, topics_max: int
) -> SessionPlan:
    """Returns the plan of a session over UDP.

    Args:
        transport: the number of the transport.
        udp: the part of the plan for UDP.
        source: the options of its first source.
        datagram_max: the longest datagram, in bytes.
        topics_max: the largest number of topics.
    """
    return SessionPlan(
        transport=transport,
        # Its datagrams wait for the data rate only, as the one datagram of Ultra Messaging does.
        window=_RING,
        source_paced=False,
        datagram_max=min(datagram_max, DATAGRAM_MAX),
        receivers_max=0,
        topics_max=topics_max,
        sm_interval_ms=10_000,
        batch_minimum=source.implicit_batching_minimum_length,
        batch_interval_ms=source.implicit_batching_interval,
        explicit_batch_ms=source.explicit_batching_interval,
        udp=udp,
    )
