"""LBT-IPC: a ring with batching and either pacing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.transport.transport_kinds import SessionPlan, Transport, evict_after_ms
from ipcbus.transport.twin_plan import plan_twin
from ipcbus.transport.udp.udp_plan import DATAGRAM_MAX
from ipcbus.wire.wire_layout import TRANSPORT_LBTIPC

if TYPE_CHECKING:
    from ipcbus.config import ContextOptions, SourceOptions


def _plan(context: ContextOptions, source: SourceOptions) -> SessionPlan:
    source_paced = source.transport_lbtipc_behavior == "source_paced"
    udp = plan_twin(context, source, receiver_paced=not source_paced)
    return SessionPlan(
        transport=TRANSPORT_LBTIPC,
        window=source.transport_lbtipc_transmission_window_size,
        source_paced=source_paced,
        datagram_max=context.transport_lbtipc_datagram_max_size
        if udp is None
        else min(context.transport_lbtipc_datagram_max_size, DATAGRAM_MAX),
        receivers_max=source.transport_lbtipc_maximum_receivers_per_transport,
        topics_max=source.transport_lbtipc_maximum_topics_per_transport,
        sm_interval_ms=source.transport_lbtipc_sm_interval,
        batch_minimum=source.implicit_batching_minimum_length,
        batch_interval_ms=source.implicit_batching_interval,
        explicit_batch_ms=source.explicit_batching_interval,
        evict_after_ms=0 if source_paced else evict_after_ms(source),
        checksums=source.transport_lbtipc_record_checksum,
        udp=udp,
    )


LBTIPC = Transport(
    code=TRANSPORT_LBTIPC,
    name="LBT-IPC",
    option="lbtipc",
    plan=_plan,
    pool=lambda context: range(context.transport_lbtipc_id_low, context.transport_lbtipc_id_high + 1),
    explicit_id=lambda source: source.transport_lbtipc_id,
)
