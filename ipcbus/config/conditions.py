"""Options of text that limit each other: addresses, and what has to be switched on for something else."""

from __future__ import annotations

import dataclasses
import ipaddress
from typing import TYPE_CHECKING, Final

from ipcbus.config import addresses
from ipcbus.config.options import ContextOptions, SourceOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ipcbus.config.option_values import Option, Value


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """Two options that have to fit each other.

    Attributes:
        one: the option that is complained about.
        other: the one that it does not fit.
        fits: whether their values do.
        rule: what is asked, as the reference page shows it.
        reason: what would happen else.
        cure: what to set.
    """

    one: Option[str]
    other: Option[str]
    fits: Callable[[str, str], bool]
    rule: str
    reason: str
    cure: str

    @property
    def scopes(self) -> tuple[str, str]:
        """The scopes of both options."""
        return self.one.scope, self.other.scope

    def complaint(self, sections: Mapping[str, Mapping[str, Value]], where: str = "") -> str:
        """What is wrong with these values, and the cure; empty when nothing is.

        Args:
            sections: checked values by scope and name; what is not given has its default.
            where: stands behind the first value, for example " (in bus.toml)".
        """
        one, other = self.one, self.other
        this, that = _value(one, sections), _value(other, sections)
        if self.fits(this, that):
            return ""
        return (
            f"option {one.name} (scope {one.scope}) = {this!r}{where} does not go with option {other.name} (scope "
            f"{other.scope}) = {that!r}: {self.reason}. {self.cure}"
        )


def _value(row: Option[str], sections: Mapping[str, Mapping[str, Value]]) -> str:
    return str(sections.get(row.scope, {}).get(row.name, row.default))


def _in_order(low: str, high: str) -> bool:
    first, last = ipaddress.ip_address(low), ipaddress.ip_address(high)
    return first.version == last.version and int(first) <= int(last)


def _may_be_multicast(transport: str, interface: str) -> bool:
    return transport != "lbtrm" or interface != ""


def _may_leave(daemon: str, interface: str) -> bool:
    """Returns whether a socket bound to the interface reaches all of the daemons: from loopback nothing gets out."""
    hosts = [ipaddress.ip_address(host) for host, _ in addresses.daemons(daemon)] if daemon else []
    try:
        own = ipaddress.ip_interface(interface)
    except ValueError:
        return True
    return all(host.version == own.version and (host.is_loopback or not own.is_loopback) for host in hosts)


_MULTICAST_IS_OFF: Final = "nothing is sent to multicast groups until an interface for it is configured"
_SWITCH_IT_ON: Final = f"Set {ContextOptions.resolver_multicast_interface.name} (scope context) to the interface"

CONDITIONS: Final = (
    Condition(
        ContextOptions.transport_lbtrm_multicast_address_low,
        ContextOptions.transport_lbtrm_multicast_address_high,
        _in_order,
        "`transport_lbtrm_multicast_address_low` ≤ `transport_lbtrm_multicast_address_high`",
        "the pool of groups would be empty",
        "Set the lower one not above the higher one, both IPv4 or both IPv6",
    ),
    Condition(
        SourceOptions.transport,
        ContextOptions.resolver_multicast_interface,
        _may_be_multicast,
        "`transport` `lbtrm` needs `resolver_multicast_interface`",
        _MULTICAST_IS_OFF,
        f"{_SWITCH_IT_ON} of the sources and receivers, or take {SourceOptions.transport.name} = 'lbtru'",
    ),
    Condition(
        SourceOptions.udp_fallback,
        ContextOptions.resolver_multicast_interface,
        _may_be_multicast,
        "`udp_fallback` `lbtrm` needs `resolver_multicast_interface`",
        _MULTICAST_IS_OFF,
        f"{_SWITCH_IT_ON} of the sources and receivers, or take {SourceOptions.udp_fallback.name} = 'lbtru'",
    ),
    Condition(
        ContextOptions.resolver_unicast_daemon,
        ContextOptions.resolver_unicast_interface,
        _may_leave,
        "`resolver_unicast_daemon` is reached from `resolver_unicast_interface`",
        "a socket of that interface reaches no such address",
        f"Set {ContextOptions.resolver_unicast_interface.name} to the interface that leads there",
    ),
)
