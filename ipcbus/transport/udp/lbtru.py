"""LBT-RU: reliable UDP to each receiver, with batching; source-paced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.transport.transport_kinds import SessionPlan, Transport
from ipcbus.transport.udp.udp_plan import plan_udp
from ipcbus.transport.udp.udp_session_plan import udp_session_plan
from ipcbus.wire.wire_layout import TRANSPORT_LBTRU

if TYPE_CHECKING:
    from ipcbus.config import ContextOptions, SourceOptions


def _plan(context: ContextOptions, source: SourceOptions) -> SessionPlan:
    return udp_session_plan(
        TRANSPORT_LBTRU,
        plan_udp("lbtru", context, source, twin=False),
        source,
        datagram_max=context.transport_lbtru_datagram_max_size,
        topics_max=source.transport_lbtru_maximum_topics_per_transport,
    )


LBTRU = Transport(
    code=TRANSPORT_LBTRU,
    name="LBT-RU",
    option="lbtru",
    plan=_plan,
    # Numbers above all ports: the port of a session is known only when its socket is made.
    pool=lambda context: range(1 << 16, (1 << 16) + context.transport_lbtru_maximum_ports),
    explicit_id=lambda source: source.transport_lbtru_port,
    id_option="port",
)
