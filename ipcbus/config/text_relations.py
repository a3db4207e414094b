"""Rules between two options with text values, for example two addresses."""

from __future__ import annotations

import dataclasses
import ipaddress
from typing import TYPE_CHECKING, Final

from ipcbus.config import addresses
from ipcbus.config.options import ContextOptions, ReceiverOptions, SourceOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ipcbus.config.option_values import Option, Value


@dataclasses.dataclass(frozen=True, slots=True)
class TextRelation:
    """A rule that the values of two options must meet together.

    Attributes:
        one: the option that the error names first.
        other: the other option.
        fits: returns whether their values meet the rule.
        rule: the rule, as the reference page shows it.
        reason: what would happen without the rule.
        cure: the values to set.
    """

    one: Option[str] | Option[int]
    other: Option[str] | Option[int]
    fits: Callable[[str, str], bool]
    rule: str
    reason: str
    cure: str

    @property
    def scopes(self) -> tuple[str, str]:
        """The scopes of both options."""
        return self.one.scope, self.other.scope

    def complaint(self, sections: Mapping[str, Mapping[str, Value]], where: str = "") -> str:
        """Returns the error text for values that break the rule, with the cure; empty when they meet it.

        Args:
            sections: checked values by scope and name; other options have their defaults.
            where: follows the first value in the text, for example " (in bus.toml)".
        """
        one, other = self.one, self.other
        this, that = _value(one, sections), _value(other, sections)
        if self.fits(this, that):
            return ""
        return (
            f"option {one.name} (scope {one.scope}) = {this!r}{where} conflicts with option {other.name} (scope "
            f"{other.scope}) = {that!r}: {self.reason}. {self.cure}"
        )


def _value(row: Option[str] | Option[int], sections: Mapping[str, Mapping[str, Value]]) -> str:
    return str(sections.get(row.scope, {}).get(row.name, row.default))


def _in_order(low: str, high: str) -> bool:
    first, last = ipaddress.ip_address(low), ipaddress.ip_address(high)
    return first.version == last.version and int(first) <= int(last)


def _may_be_multicast(transport: str, interface: str) -> bool:
    return transport != "lbtrm" or interface != ""


def _may_leave(daemon: str, interface: str) -> bool:
    """Returns whether a socket bound to the interface can reach all daemons; loopback reaches this host only."""
    hosts = [ipaddress.ip_address(host) for host, _ in addresses.daemons(daemon)] if daemon else []
    try:
        own = ipaddress.ip_interface(interface)
    except ValueError:
        return True
    return all(host.version == own.version and (host.is_loopback or not own.is_loopback) for host in hosts)


def _has_a_name(mode: str, name: str) -> bool:
    return mode in ("best_effort", "ordered") or name != ""


def _is_in_order(name: str, ordered: str) -> bool:
    return name == "" or ordered == "1"


def _is_one_of_two(share: str, name: str) -> bool:
    return share == "" or name == ""


_MULTICAST_IS_OFF: Final = "multicast is off until its interface is configured"
_SWITCH_IT_ON: Final = f"Set {ContextOptions.resolver_multicast_interface.name} (scope context) to the interface"

TEXT_RELATIONS: Final = (
    TextRelation(
        SourceOptions.delivery_mode,
        SourceOptions.gmd_name,
        _has_a_name,
        "`delivery_mode` `some` and `all` need `gmd_name`",
        "the copies of its messages are kept under the name of the source",
        f"Set {SourceOptions.gmd_name.name} to a name that stays the same after a restart",
    ),
    TextRelation(
        ReceiverOptions.gmd_name,
        ReceiverOptions.ordered_delivery,
        _is_in_order,
        "`gmd_name` needs `ordered_delivery` 1",
        "a receiver with a name gets whole messages in order",
        f"Set {ReceiverOptions.ordered_delivery.name} to 1, or leave {ReceiverOptions.gmd_name.name} out",
    ),
    TextRelation(
        ReceiverOptions.share,
        ReceiverOptions.gmd_name,
        _is_one_of_two,
        "`share` without `gmd_name`",
        "a message of a share is acknowledged for all its members, a guaranteed message by each name",
        f"Leave {ReceiverOptions.gmd_name.name} or {ReceiverOptions.share.name} out",
    ),
    TextRelation(
        ContextOptions.transport_lbtrm_multicast_address_low,
        ContextOptions.transport_lbtrm_multicast_address_high,
        _in_order,
        "`transport_lbtrm_multicast_address_low` ≤ `transport_lbtrm_multicast_address_high`",
        "the pool of groups would be empty",
        "Set the low address to at most the high address, both IPv4 or both IPv6",
    ),
    TextRelation(
        SourceOptions.transport,
        ContextOptions.resolver_multicast_interface,
        _may_be_multicast,
        "`transport` `lbtrm` needs `resolver_multicast_interface`",
        _MULTICAST_IS_OFF,
        f"{_SWITCH_IT_ON} of the sources and receivers, or use {SourceOptions.transport.name} = 'lbtru'",
    ),
    TextRelation(
        SourceOptions.udp_fallback,
        ContextOptions.resolver_multicast_interface,
        _may_be_multicast,
        "`udp_fallback` `lbtrm` needs `resolver_multicast_interface`",
        _MULTICAST_IS_OFF,
        f"{_SWITCH_IT_ON} of the sources and receivers, or use {SourceOptions.udp_fallback.name} = 'lbtru'",
    ),
    TextRelation(
        ContextOptions.resolver_unicast_daemon,
        ContextOptions.resolver_unicast_interface,
        _may_leave,
        "`resolver_unicast_daemon` must be reachable from `resolver_unicast_interface`",
        "a socket of that interface cannot reach the resolver",
        f"Set {ContextOptions.resolver_unicast_interface.name} to the interface that leads to the resolver",
    ),
)
