"""The plan of the UDP twin of a ring session: what receivers get that cannot map the ring."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.transport.tcp.tcp_plan import plan_tcp_twin
from ipcbus.transport.udp.udp_plan import plan_udp

if TYPE_CHECKING:
    from ipcbus.config import ContextOptions, SourceOptions
    from ipcbus.transport.tcp.tcp_plan import TcpPlan
    from ipcbus.transport.udp.udp_plan import UdpPlan


def plan_twin(context: ContextOptions, source: SourceOptions, *, receiver_paced: bool) -> UdpPlan | TcpPlan | None:
    """Returns the plan of the UDP twin of a ring, with the pacing of the ring; None where the source wants no twin."""
    kind = source.udp_fallback
    if kind == "none" or (kind == "lbtrm" and not context.resolver_multicast_interface):
        return None
    if kind == "lbttcp":
        return plan_tcp_twin(context, source, receiver_paced=receiver_paced)
    return plan_udp("lbtrm" if kind == "lbtrm" else "lbtru", context, source, twin=True, receiver_paced=receiver_paced)
