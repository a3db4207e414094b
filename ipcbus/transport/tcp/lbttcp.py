"""LBT-TCP: a connection to each receiver, with batching; by default it waits for the slowest receiver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.transport.tcp.tcp_plan import plan_tcp
from ipcbus.transport.transport_kinds import SessionPlan, Transport
from ipcbus.transport.udp.udp_session_plan import udp_session_plan
from ipcbus.wire.wire_layout import TRANSPORT_LBTTCP

if TYPE_CHECKING:
    from ipcbus.config import ContextOptions, SourceOptions


def _plan(context: ContextOptions, source: SourceOptions) -> SessionPlan:
    return udp_session_plan(
        TRANSPORT_LBTTCP,
        plan_tcp(context, source),
        source,
        datagram_max=context.transport_tcp_datagram_max_size,
        topics_max=source.transport_tcp_maximum_topics_per_transport,
    )


LBTTCP = Transport(
    code=TRANSPORT_LBTTCP,
    name="LBT-TCP",
    option="lbttcp",
    plan=_plan,
    # Numbers above all ports: the port of a session is known only when its socket is made.
    pool=lambda context: range(1 << 16, (1 << 16) + context.transport_tcp_maximum_ports),
    explicit_id=lambda source: source.transport_tcp_port,
    id_option="port",
)
