"""Rules between two options with numbers: one limits the other."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final, cast

from ipcbus.config.options import ContextOptions, ReceiverOptions, SourceOptions, WildcardReceiverOptions
from ipcbus.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ipcbus.config.option_values import Option, OptionValues, Value

_SCALE: Final = {"ms": 1, "s": 1000}
"""Times are compared in milliseconds, other values without conversion."""


@dataclasses.dataclass(frozen=True, slots=True)
class Relation:
    """A rule between two options: `larger` must be at least `factor` times `smaller`.

    The rule does not hold for an option whose 0 means off or without limit, while it is 0, and for a time that is
    measured (-1).
    """

    larger: Option[int]
    smaller: Option[int]
    reason: str
    factor: int = 1
    strict: bool = False
    """Whether `larger` must be above that, not equal to it."""

    @property
    def rule(self) -> str:
        """The rule as the reference page shows it."""
        sign = ">" if self.strict else "≥"
        times = f"{self.factor} · " if self.factor > 1 else ""
        rows = self.larger, self.smaller
        off = [f"`{row.name}` is 0" for row in rows if row.special_zero]
        off += [f"`{row.name}` is -1" for row in rows if row.minimum == -1]
        unless = f" (unless {' or '.join(off)})" if off else ""
        units = ", as times" if self.larger.unit != self.smaller.unit else ""
        return f"`{self.larger.name}` {sign} {times}`{self.smaller.name}`{units}{unless}"

    @property
    def scopes(self) -> tuple[str, str]:
        """The scopes of both options."""
        return self.larger.scope, self.smaller.scope

    def complaint(self, sections: Mapping[str, Mapping[str, Value]], where: str = "") -> str:
        """Returns the error text for values that break the rule, with the cure; empty when they meet it.

        Args:
            sections: checked values by scope and name; other options have their defaults.
            where: follows the first value in the text, for example " (in bus.toml)".
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
    """Returns the value in force; None for a zero that means off or without limit, and for a measured time."""
    value = int(sections.get(row.scope, {}).get(row.name, row.default))
    return None if value < 0 or (row.special_zero and value == 0) else value


def _scale(row: Option[int]) -> int:
    return _SCALE.get(row.unit, 1)


def _unit(row: Option[int]) -> str:
    return f" {row.unit}" if row.unit in _SCALE else ""


_EMPTY_POOL: Final = "the pool of ids would be empty"
_TWO_DATAGRAMS: Final = "the ring must hold two datagrams of maximum size"
_IDLE_SEEMS_ENDED: Final = "the receiver would treat an idle session as ended"
_ENDS_BEFORE_CHECK: Final = "the receiver would treat the session as ended before it looks for losses"
_SECOND_NAK: Final = "a receiver must ask a second time for a lost datagram before it gives the datagram up"
_NAK_REFUSED: Final = "the source would ignore the second request, and the receiver would stop asking for a while"
_ENDS_BEFORE_LOSS: Final = "the receiver would treat the session as ended before it gives missing datagrams up"
_NO_PORT: Final = "there would be no port to use"
_DOUBLES: Final = "the time doubles from the smaller value to the larger value"
_CLIENT_SEEMS_GONE: Final = "the source would drop a client of which two acknowledgements were lost"


def _numbers(scope: type[OptionValues], transport: str) -> Callable[[str], Option[int]]:
    """Returns a function that returns an option of a transport by its name without the prefix."""
    return lambda name: cast("Option[int]", scope.rows[f"transport_{transport}_{name}"])


def _over_ring(transport: str) -> tuple[Relation, ...]:
    context, receiver = _numbers(ContextOptions, transport), _numbers(ReceiverOptions, transport)
    activity, check = receiver("activity_timeout"), ReceiverOptions.delivery_control_loss_check_interval
    return (
        Relation(context("id_high"), context("id_low"), _EMPTY_POOL),
        Relation(activity, _numbers(SourceOptions, transport)("sm_interval"), _IDLE_SEEMS_ENDED, factor=2),
        Relation(activity, check, _ENDS_BEFORE_CHECK, strict=True),
    )


def _over_udp(transport: str) -> tuple[Relation, ...]:
    receiver, source = _numbers(ReceiverOptions, transport), _numbers(SourceOptions, transport)
    activity, sm_maximum = receiver("activity_timeout"), source("sm_maximum_interval")
    generation, backoff = receiver("nak_generation_interval"), receiver("nak_backoff_interval")
    return (
        Relation(sm_maximum, source("sm_minimum_interval"), _DOUBLES),
        Relation(activity, sm_maximum, _IDLE_SEEMS_ENDED, factor=3),
        Relation(activity, generation, _ENDS_BEFORE_LOSS, strict=True),
        Relation(generation, backoff, _SECOND_NAK, factor=2),
        Relation(backoff, source("ignore_interval"), _NAK_REFUSED, factor=2),
        Relation(source("client_activity_timeout"), receiver("acknowledgement_interval"), _CLIENT_SEEMS_GONE, factor=3),
    )


RELATIONS: Final = (
    *_over_ring("lbtipc"),
    *_over_ring("lbtsmx"),
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
        SourceOptions.transport_topic_sequence_number_info_active_threshold,
        SourceOptions.transport_topic_sequence_number_info_interval,
        "the source must send several of them, or a receiver may not notice the loss of the last messages",
        factor=4,
    ),
    *_over_udp("lbtru"),
    *_over_udp("lbtrm"),
    Relation(ContextOptions.transport_lbtru_port_high, ContextOptions.transport_lbtru_port_low, _NO_PORT),
    Relation(ReceiverOptions.transport_lbtru_port_high, ReceiverOptions.transport_lbtru_port_low, _NO_PORT),
    Relation(ContextOptions.transport_lbtrm_source_port_high, ContextOptions.transport_lbtrm_source_port_low, _NO_PORT),
    Relation(ContextOptions.resolver_unicast_port_high, ContextOptions.resolver_unicast_port_low, _NO_PORT),
    Relation(
        ContextOptions.resolver_unicast_activity_timeout,
        ContextOptions.resolver_unicast_keepalive_interval,
        "a resolver would count as dead each time that one of its answers is lost",
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
    Relation(ReceiverOptions.otr_request_maximum_interval, ReceiverOptions.otr_request_minimum_interval, _DOUBLES),
    Relation(
        WildcardReceiverOptions.resolver_query_maximum_interval,
        WildcardReceiverOptions.resolver_query_minimum_interval,
        _DOUBLES,
    ),
)


def refuse_contradiction(given: Mapping[str, Value]) -> None:
    """Refuses keyword arguments of one call that contradict each other.

    A config may have both, because a source on LBT-SMX ignores the behavior of LBT-IPC.

    Args:
        given: checked keyword arguments.

    Raises:
        ConfigError: the call asks for a source-paced source on LBT-SMX.
    """
    transport, behavior = SourceOptions.transport.name, SourceOptions.transport_lbtipc_behavior.name
    if given.get(behavior) != "source_paced":
        return
    if given.get(transport) == "lbtsmx":
        raise ConfigError(
            f"options {transport} = 'lbtsmx' and {behavior} = 'source_paced' (scope source) were given together: "
            f"LBT-SMX is receiver-paced only. Leave {behavior} out, or give {transport} = 'lbtipc'"
        )
    if longest := given.get(SourceOptions.message_max.name):
        raise ConfigError(
            f"options {SourceOptions.message_max.name} = {longest} and {behavior} = 'source_paced' (scope source) were "
            f"given together: a source with a longest message is on LBT-SMX, which is receiver-paced only. Leave one "
            "of them out"
        )
