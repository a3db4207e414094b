"""LBT-SMX: a ring that publishes each message at once; receiver-paced only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.transport.transport_kinds import SessionPlan, Transport, evict_after_ms
from ipcbus.transport.twin_plan import plan_twin
from ipcbus.transport.udp.udp_plan import DATAGRAM_MAX
from ipcbus.wire.wire_layout import TRANSPORT_LBTSMX

if TYPE_CHECKING:
    from ipcbus.config import ContextOptions, SourceOptions


def _plan(context: ContextOptions, source: SourceOptions) -> SessionPlan:
    datagram_max = source.transport_lbtsmx_datagram_max_size
    return SessionPlan(
        transport=TRANSPORT_LBTSMX,
        window=source.transport_lbtsmx_transmission_window_size,
        source_paced=False,
        datagram_max=datagram_max,
        receivers_max=source.transport_lbtsmx_maximum_receivers_per_transport,
        topics_max=source.transport_lbtsmx_maximum_topics_per_transport,
        sm_interval_ms=source.transport_lbtsmx_sm_interval,
        batch_minimum=0,
        batch_interval_ms=0,
        evict_after_ms=evict_after_ms(source),
        checksums=source.transport_lbtsmx_record_checksum,
        # LBT-SMX does not fragment: a message longer than a UDP packet could not be sent.
        udp=plan_twin(context, source, receiver_paced=True) if datagram_max <= DATAGRAM_MAX else None,
    )


LBTSMX = Transport(
    code=TRANSPORT_LBTSMX,
    name="LBT-SMX",
    option="lbtsmx",
    plan=_plan,
    pool=lambda context: range(context.transport_lbtsmx_id_low, context.transport_lbtsmx_id_high + 1),
    explicit_id=lambda source: source.transport_lbtsmx_id,
)
