"""What a snapshot says of sessions over UDP, and how counters stand in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Counters = Mapping[str, int]
"""Values of counters by their names in `counters.COUNTERS`."""

Rates = Mapping[str, float]
"""How much counters grew a second, by the same names; values of the moment have no rate."""

NO_COUNTERS: Counters = MappingProxyType({})
NO_RATES: Rates = MappingProxyType({})

RING = "ring"
"""Layer of receivers that read a session's ring."""


@dataclass(frozen=True, slots=True)
class ReceptionStats:
    """A session over UDP at a context of this host that receives it.

    Attributes:
        state: `connecting`, `proving`, `joined`, `ending`, `ended` or `silent`; empty before it is shown first.
        address: address and port of the source.
        counters: those of kind `reception`; at most 0.1 s old.
        per_second: how they grew.
    """

    state: str
    address: str
    counters: Counters
    per_second: Rates = field(default_factory=lambda: NO_RATES)

    @property
    def unrecovered(self) -> int:
        """Datagrams that were given up, for whatever reason."""
        return sum(count for name, count in self.counters.items() if name.startswith("unrecovered_"))


@dataclass(frozen=True, slots=True)
class UplinkStats:
    """A session's way over UDP, at its source.

    Attributes:
        source: source string of the session over UDP; of a session that has a ring, that of its twin.
        layer: the transport over which it goes, for example `LBT-RU`.
        active: whether it sends; the twin of a ring does while somebody receives over UDP.
        clients_max: how many contexts may receive over UDP.
        data_rate: limit of the data rate in bits a second; 0 is none.
        retransmit_rate: the same of retransmissions.
        limited_for_ns: how long datagrams have waited for the data rate until now; 0 when none waits.
        lag: bytes that are published and that it has not taken, since the data rate does not allow it.
        counters: those of kind `uplink`; at most 0.1 s old, and empty before somebody has received over UDP.
        per_second: how they grew.
        limited: the share of the time, 0 to 1, in which datagrams waited for the data rate; None without an earlier
            snapshot.
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
