"""LBT-RM: reliable multicast, with batching; source-paced."""

from __future__ import annotations

import dataclasses
import ipaddress
from typing import TYPE_CHECKING

from ipcbus.transport.transport_kinds import SessionPlan, Transport
from ipcbus.transport.udp.udp_plan import UdpPlan, plan_udp
from ipcbus.transport.udp.udp_session_plan import udp_session_plan
from ipcbus.wire.wire_layout import TRANSPORT_LBTRM

if TYPE_CHECKING:
    from ipcbus.config import ContextOptions, SourceOptions


def _plan(context: ContextOptions, source: SourceOptions) -> SessionPlan:
    return udp_session_plan(
        TRANSPORT_LBTRM,
        plan_udp("lbtrm", context, source, twin=False),
        source,
        datagram_max=context.transport_lbtrm_datagram_max_size,
        topics_max=source.transport_lbtrm_maximum_topics_per_transport,
    )


def _pool(context: ContextOptions) -> range:
    low, high = context.transport_lbtrm_multicast_address_low, context.transport_lbtrm_multicast_address_high
    return range(int(ipaddress.ip_address(low)), int(ipaddress.ip_address(high)) + 1)


def _explicit(source: SourceOptions) -> int:
    group = ipaddress.ip_address(source.transport_lbtrm_multicast_address)
    return int(group) if group.is_multicast else 0


def _placed(plan: SessionPlan, number: int) -> SessionPlan:
    if not isinstance(plan.udp, UdpPlan):
        return plan
    return dataclasses.replace(plan, udp=dataclasses.replace(plan.udp, group=str(ipaddress.ip_address(number))))


LBTRM = Transport(
    code=TRANSPORT_LBTRM,
    name="LBT-RM",
    option="lbtrm",
    plan=_plan,
    pool=_pool,
    explicit_id=_explicit,
    placed=_placed,
    id_option="multicast_address",
    # A receiver reads what comes to a group, also of sessions that it has not joined and of its own context.
    shares_pool=True,
)
