"""LBT-SMX: every message at once, receiver-paced only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.transport.kinds import RingTransport, SessionPlan, evict_after_ms
from ipcbus.wire.layout import TRANSPORT_LBTSMX

if TYPE_CHECKING:
    from ipcbus.config import ContextOptions, SourceOptions


def _plan(context: ContextOptions, source: SourceOptions) -> SessionPlan:
    del context  # all its options are the source's
    return SessionPlan(
        transport=TRANSPORT_LBTSMX,
        window=source.transport_lbtsmx_transmission_window_size,
        source_paced=False,
        datagram_max=source.transport_lbtsmx_datagram_max_size,
        receivers_max=source.transport_lbtsmx_maximum_receivers_per_transport,
        topics_max=source.transport_lbtsmx_maximum_topics_per_transport,
        sm_interval_ms=source.transport_lbtsmx_sm_interval,
        batch_minimum=0,
        batch_interval_ms=0,
        evict_after_ms=evict_after_ms(source),
    )


LBTSMX = RingTransport(
    code=TRANSPORT_LBTSMX,
    name="LBT-SMX",
    option="lbtsmx",
    plan=_plan,
    pool=lambda context: range(context.transport_lbtsmx_id_low, context.transport_lbtsmx_id_high + 1),
    explicit_id=lambda source: source.transport_lbtsmx_id,
)
