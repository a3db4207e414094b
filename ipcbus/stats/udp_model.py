"""The part of a snapshot about sessions over UDP, and the types of counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Counters = Mapping[str, int]
"""Values of counters by their names in `counters.COUNTERS`."""

Rates = Mapping[str, float]
"""Growth of counters a second, by name; current values have no rate."""

NO_COUNTERS: Counters = MappingProxyType({})
NO_RATES: Rates = MappingProxyType({})

RING = "ring"
"""Layer of receivers that read a session's ring."""


@dataclass(frozen=True, slots=True)
class ReceptionStats:
    """A session over UDP in a context of this host that receives it.

    Attributes:
        state: `connecting`, `proving`, `joined`, `ending`, `ended` or `silent`; empty before the context has shown it.
        address: address and port of the source.
        counters: counters of kind `reception`; at most 0.25 s old.
        per_second: growth of the counters a second.
    """

    state: str
    address: str
    counters: Counters
    per_second: Rates = field(default_factory=lambda: NO_RATES)

    @property
    def unrecovered(self) -> int:
        """Number of datagrams that were given up, for any reason."""
        return sum(count for name, count in self.counters.items() if name.startswith("unrecovered_"))


@dataclass(frozen=True, slots=True)
class UplinkStats:
    """The sending side of a session over UDP.

    Attributes:
        source: source string of the session over UDP; for a session over a ring, that of its UDP twin.
        layer: the transport, for example `LBT-RU`.
        active: whether it sends; a UDP twin sends while a context receives over UDP.
        clients_max: most contexts that may receive over UDP.
        data_rate: limit of the data rate in bits a second; 0: no limit.
        retransmit_rate: limit of the rate of retransmissions in bits a second; 0: no limit.
        limited_for_ns: how long datagrams have waited for the data rate until now; 0 if no datagram waits.
        lag: bytes that are published but not sent, because they wait for the data rate.
        counters: counters of kind `uplink`; at most 0.25 s old, and empty before a context has received over UDP.
        per_second: growth of the counters a second.
        limited: share of the time, 0 to 1, in which datagrams waited for the data rate; None without an earlier
            snapshot.
        slowest: the id of the context for whose room it waits, when it last showed that; 0 when it does not wait.
    """

    source: str
    layer: str
    active: bool
    clients_max: int
    data_rate: int
    retransmit_rate: int
    limited_for_ns: int
    lag: int
    counters: Counters
    per_second: Rates = field(default_factory=lambda: NO_RATES)
    limited: float | None = None
    slowest: int = 0
