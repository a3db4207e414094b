"""The last minute of the sessions: throughput, latency and lag, one value a second each."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipcbus import stats
from ipcbus_tools.top.panes import lag, latency

if TYPE_CHECKING:
    from ipcbus.stats import DomainSnapshot, History, SessionStats

_SECOND_NS = 950_000_000
"""Least time that counts as a second; it allows for the jitter of snapshots."""

Values = tuple[float | None, ...]
SessionKey = tuple[int, str]
"""Context and source string."""


@dataclass(frozen=True, slots=True)
class SessionTrend:
    """The last minute of a session, the latest value last; None for an unknown value.

    Attributes:
        rate: messages a second.
        p99: the longest p99 of a receiver within each second, in ns.
        lag: the most bytes that a receiver was behind within each second.
    """

    rate: Values = ()
    p99: Values = ()
    lag: Values = ()


class SessionHistory:
    """Collects latency and lag from snapshots; `History` does so for throughput."""

    def __init__(self) -> None:
        """Begins without values."""
        self._seen: dict[tuple[int, str, int], _SessionValues] = {}

    def add(self, found: DomainSnapshot, history: History) -> dict[SessionKey, SessionTrend]:
        """Adds a snapshot with rates, later than those before; returns the last minute of each session."""
        seen: dict[tuple[int, str, int], _SessionValues] = {}
        trends: dict[SessionKey, SessionTrend] = {}
        for session in found.sessions:
            key = (session.context_id, session.source, session.start_ns)
            seen[key] = one = self._seen.get(key) or _SessionValues(session.read_ns)
            one.add(session)
            trends[key[:2]] = SessionTrend(history.trail(session), one.values(0), one.values(1))
        self._seen = seen
        return trends


class _SessionValues:
    """The highest values of the current second, and those of the seconds before."""

    def __init__(self, now_ns: int) -> None:
        self._since = now_ns
        self._now: tuple[float | None, float | None] = (None, None)
        self._values: deque[tuple[float | None, float | None]] = deque(maxlen=stats.SPAN_S)

    def add(self, session: SessionStats) -> None:
        """Adds the values of a snapshot."""
        late, behind = self._now
        self._now = (_higher(late, latency(session, "p99")), _higher(behind, lag(session)))
        elapsed = session.read_ns - self._since
        if elapsed >= _SECOND_NS:
            # After a pause of the snapshots, one value stands for all seconds of the pause.
            self._values.extend([self._now] * min(stats.SPAN_S, max(1, round(elapsed / 1e9))))
            self._since, self._now = session.read_ns, (None, None)

    def values(self, which: int) -> Values:
        """Returns the values of latency (0) or lag (1)."""
        found = tuple(each[which] for each in self._values)
        return (None,) * (stats.SPAN_S - len(found)) + found


def _higher(one: float | None, other: float | None) -> float | None:
    return max((each for each in (one, other) if each is not None), default=None)
