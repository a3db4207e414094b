"""Options that limit each other."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from ipcbus.config.options import ContextOptions, ReceiverOptions, SourceOptions, WildcardReceiverOptions
from ipcbus.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipcbus.config.option_values import Option, Value

_SCALE: Final = {"ms": 1, "s": 1000}
"""Times are compared in milliseconds, everything else as it stands."""


@dataclasses.dataclass(frozen=True, slots=True)
class Relation:
    """Two options that limit each other: `larger` is at least `factor` times `smaller`.

    A value of 0 that means something special (off, without limit) limits nothing and is not limited.
    """

    larger: Option[int]
    smaller: Option[int]
    reason: str
    factor: int = 1
    strict: bool = False
    """Equal is not enough."""

    @property
    def rule(self) -> str:
        """The relation as the reference page shows it."""
        sign = ">" if self.strict else "≥"
        times = f"{self.factor} · " if self.factor > 1 else ""
        off = [f"`{row.name}`" for row in (self.larger, self.smaller) if row.special_zero]
        unless = f" (unless {' or '.join(off)} is 0)" if off else ""
        units = ", as times" if self.larger.unit != self.smaller.unit else ""
        return f"`{self.larger.name}` {sign} {times}`{self.smaller.name}`{units}{unless}"

    @property
    def scopes(self) -> tuple[str, str]:
        """The scopes of both options."""
        return self.larger.scope, self.smaller.scope

    def complaint(self, sections: Mapping[str, Mapping[str, Value]], where: str = "") -> str:
        """What is wrong with these values, and the cure; empty when nothing is.

        Args:
            sections: checked values by scope and name; what is not given has its default.
            where: stands behind the first value, for example " (in bus.toml)".
        """
        larger, smaller = self.larger, self.smaller
        above, below = _value(larger, sections), _value(smaller, sections)
        if above is None or below is None:
            return ""
        have, need = above * _scale(larger), self.factor * below * _scale(smaller) + self.strict
        if have >= need:
            return ""
        times = f"{self.factor} times " if self.factor > 1 else ""
        than = f"not more than {times}" if self.strict else f"less than {times}"
        at_least = -(-need // _scale(larger))
        at_most = (have - self.strict) // (self.factor * _scale(smaller))
        cures = []
        if at_least <= (larger.maximum or at_least):
            cures.append(f"{larger.name} to at least {at_least}{_unit(larger)}")
        if at_most >= max(smaller.minimum or 0, 1):
            cures.append(f"{smaller.name} to at most {at_most}{_unit(smaller)}")
        if smaller.special_zero:
            cures.append(f"{smaller.name} to 0")
        return (
            f"option {larger.name} (scope {larger.scope}) = {above}{_unit(larger)}{where} is {than}"
            f"option {smaller.name} (scope {smaller.scope}) = {below}{_unit(smaller)}: {self.reason}. "
            f"Set {', or '.join(cures)}"
        )


def _value(row: Option[int], sections: Mapping[str, Mapping[str, Value]]) -> int | None:
    """Returns the value in force; None for a zero that is no quantity."""
    value = int(sections.get(row.scope, {}).get(row.name, row.default))
    return None if row.special_zero and value == 0 else value


def _scale(row: Option[int]) -> int:
    return _SCALE.get(row.unit, 1)


def _unit(row: Option[int]) -> str:
    return f" {row.unit}" if row.unit in _SCALE else ""


_EMPTY_POOL: Final = "the pool of ids would be empty"
_TWO_DATAGRAMS: Final = "the ring has to hold two datagrams of maximum size"
_DEAF: Final = "the receiver would take a session for ended that is only idle"
_BLIND: Final = "the session would have ended for the receiver before it looks for loss"
_ONCE_MORE: Final = "what is lost has to be asked for a second time before it is given up"
_UNHEARD: Final = "a receiver that asks again would be refused, and then be silent for the nak_suppress_interval"
_HURRIED: Final = "the session would have ended for the receiver before what is missing is given up"
_NO_PORT: Final = "there would be no port to take"
_DOUBLES: Final = "the time doubles from the smaller one to the larger one"
_FORGOTTEN: Final = "the other side would take one for gone of whom two signs of life were lost"

RELATIONS: Final = (
    Relation(ContextOptions.transport_lbtipc_id_high, ContextOptions.transport_lbtipc_id_low, _EMPTY_POOL),
    Relation(ContextOptions.transport_lbtsmx_id_high, ContextOptions.transport_lbtsmx_id_low, _EMPTY_POOL),
    Relation(
        SourceOptions.transport_lbtipc_transmission_window_size,
        ContextOptions.transport_lbtipc_datagram_max_size,
        _TWO_DATAGRAMS,
        factor=2,
    ),
    Relation(
        SourceOptions.transport_lbtsmx_transmission_window_size,
        SourceOptions.transport_lbtsmx_datagram_max_size,
        _TWO_DATAGRAMS,
        factor=2,
    ),
    Relation(
        ReceiverOptions.transport_lbtipc_activity_timeout,
        SourceOptions.transport_lbtipc_sm_interval,
        _DEAF,
        factor=2,
    ),
    Relation(
        ReceiverOptions.transport_lbtsmx_activity_timeout,
        SourceOptions.transport_lbtsmx_sm_interval,
        _DEAF,
        factor=2,
    ),
    Relation(
        ReceiverOptions.transport_lbtipc_activity_timeout,
        ReceiverOptions.delivery_control_loss_check_interval,
        _BLIND,
        strict=True,
    ),
    Relation(
        ReceiverOptions.transport_lbtsmx_activity_timeout,
        ReceiverOptions.delivery_control_loss_check_interval,
        _BLIND,
        strict=True,
    ),
    Relation(
        SourceOptions.transport_topic_sequence_number_info_active_threshold,
        SourceOptions.transport_topic_sequence_number_info_interval,
        "several of them have to go out before they end, or the loss of the last messages may pass unnoticed",
        factor=4,
    ),
    Relation(
        SourceOptions.transport_lbtru_sm_maximum_interval, SourceOptions.transport_lbtru_sm_minimum_interval, _DOUBLES
    ),
    Relation(
        SourceOptions.transport_lbtrm_sm_maximum_interval, SourceOptions.transport_lbtrm_sm_minimum_interval, _DOUBLES
    ),
    Relation(
        ReceiverOptions.transport_lbtru_activity_timeout,
        SourceOptions.transport_lbtru_sm_maximum_interval,
        _DEAF,
        factor=3,
    ),
    Relation(
        ReceiverOptions.transport_lbtrm_activity_timeout,
        SourceOptions.transport_lbtrm_sm_maximum_interval,
        _DEAF,
        factor=3,
    ),
    Relation(
        ReceiverOptions.transport_lbtru_activity_timeout,
        ReceiverOptions.transport_lbtru_nak_generation_interval,
        _HURRIED,
        strict=True,
    ),
    Relation(
        ReceiverOptions.transport_lbtrm_activity_timeout,
        ReceiverOptions.transport_lbtrm_nak_generation_interval,
        _HURRIED,
        strict=True,
    ),
    Relation(
        ReceiverOptions.transport_lbtru_nak_generation_interval,
        ReceiverOptions.transport_lbtru_nak_backoff_interval,
        _ONCE_MORE,
        factor=2,
    ),
    Relation(
        ReceiverOptions.transport_lbtrm_nak_generation_interval,
        ReceiverOptions.transport_lbtrm_nak_backoff_interval,
        _ONCE_MORE,
        factor=2,
    ),
    Relation(
        ReceiverOptions.transport_lbtru_nak_backoff_interval,
        SourceOptions.transport_lbtru_ignore_interval,
        _UNHEARD,
        factor=2,
    ),
    Relation(
        ReceiverOptions.transport_lbtrm_nak_backoff_interval,
        SourceOptions.transport_lbtrm_ignore_interval,
        _UNHEARD,
        factor=2,
    ),
    Relation(
        SourceOptions.transport_lbtru_client_activity_timeout,
        ReceiverOptions.transport_lbtru_acknowledgement_interval,
        _FORGOTTEN,
        factor=3,
    ),
    Relation(
        SourceOptions.transport_lbtrm_client_activity_timeout,
        ReceiverOptions.transport_lbtrm_acknowledgement_interval,
        _FORGOTTEN,
        factor=3,
    ),
    Relation(ContextOptions.transport_lbtru_port_high, ContextOptions.transport_lbtru_port_low, _NO_PORT),
    Relation(ReceiverOptions.transport_lbtru_port_high, ReceiverOptions.transport_lbtru_port_low, _NO_PORT),
    Relation(ContextOptions.transport_lbtrm_source_port_high, ContextOptions.transport_lbtrm_source_port_low, _NO_PORT),
    Relation(ContextOptions.resolver_unicast_port_high, ContextOptions.resolver_unicast_port_low, _NO_PORT),
    Relation(
        ContextOptions.resolver_unicast_activity_timeout,
        ContextOptions.resolver_unicast_keepalive_interval,
        "a resolver would count as dead whenever one of its answers is lost",
        factor=2,
    ),
    Relation(
        SourceOptions.resolver_advertisement_maximum_initial_interval,
        SourceOptions.resolver_advertisement_minimum_initial_interval,
        _DOUBLES,
    ),
    Relation(
        ReceiverOptions.resolver_query_maximum_initial_interval,
        ReceiverOptions.resolver_query_minimum_initial_interval,
        _DOUBLES,
    ),
    Relation(
        WildcardReceiverOptions.resolver_query_maximum_interval,
        WildcardReceiverOptions.resolver_query_minimum_interval,
        _DOUBLES,
    ),
)


def refuse_contradiction(given: Mapping[str, Value]) -> None:
    """Refuses what one call asks for in two ways that cannot both be.

    Only of one call: in a config the behavior of LBT-IPC may stand beside a source on LBT-SMX, which ignores it.

    Args:
        given: checked keyword arguments.

    Raises:
        ConfigError: a source on LBT-SMX is to be source-paced.
    """
    transport, behavior = SourceOptions.transport.name, SourceOptions.transport_lbtipc_behavior.name
    if given.get(transport) == "lbtsmx" and given.get(behavior) == "source_paced":
        raise ConfigError(
            f"options {transport} = 'lbtsmx' and {behavior} = 'source_paced' (scope source) were given together: "
            f"LBT-SMX is receiver-paced only. Leave {behavior} out, or give {transport} = 'lbtipc'"
        )
