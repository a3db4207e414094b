"""The last minute of a domain: steady rates, and their course second by second."""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import TYPE_CHECKING, Final

from ipcbus.stats.rates import growth, per_second, rates

if TYPE_CHECKING:
    from ipcbus.stats.snapshot_model import Counters, DomainSnapshot, SessionStats, SourceStats

SPAN_S: Final = 60
"""Length of a trail in seconds, with one value a second."""

_ANCHOR_NS: Final = 5_000_000_000
_FEW: Final = 10
"""With fewer messages between two snapshots, their rate would jump by chance."""

Key = tuple[int, str, int]


class History:
    """The latest snapshots of a domain, added in the order of time; a program that shows them keeps one.

    A rate is computed from two consecutive snapshots. If few messages were sent between them, and few in either half of
    the last 15 to 20 s, it is computed over these seconds: a topic with a message every 10 s has a rate of 0.1 a
    second, not 1.0 once and then nine times 0.
    """

    def __init__(self) -> None:
        """Makes an empty history."""
        self._last: DomainSnapshot | None = None
        self._anchors: deque[DomainSnapshot] = deque(maxlen=4)
        self._trails: dict[Key, _Trail] = {}

    def add(self, taken: DomainSnapshot) -> DomainSnapshot:
        """Returns the snapshot with its rates."""
        found = rates(self._last, taken)
        if len(self._anchors) == self._anchors.maxlen:
            found = _steady(self._anchors[0], self._anchors[2], found)
        if not self._anchors or taken.read_ns - self._anchors[-1].read_ns >= _ANCHOR_NS:
            self._anchors.append(taken)
        self._last = found
        trails: dict[Key, _Trail] = {}
        for session in found.sessions:
            key = _key(session)
            trails[key] = trail = self._trails.get(key) or _Trail()
            trail.add(session.read_ns, session.counters.get("lbm_msgs_sent"))
        self._trails = trails
        return found

    def trail(self, session: SessionStats) -> tuple[float | None, ...]:
        """Messages a second of a session for each of the last `SPAN_S` seconds, the latest last; None where unknown."""
        trail = self._trails.get(_key(session))
        found = tuple(trail.rates) if trail else ()
        return (None,) * (SPAN_S - len(found)) + found


class _Trail:
    """The growth of a counter, second by second."""

    def __init__(self) -> None:
        self.rates: deque[float | None] = deque(maxlen=SPAN_S)
        self._since: tuple[int, int] | None = None

    def add(self, now_ns: int, count: int | None) -> None:
        """Adds a value of the counter, or None if it could not be read; several calls in a second count together."""
        if count is None or self._since is None:
            self._since = None if count is None else (now_ns, count)
            return
        then, before = self._since
        elapsed = now_ns - then
        # A little less than a second counts as a second, so that jitter does not drop every other value.
        if elapsed >= 950_000_000:
            grown = growth("session", {"lbm_msgs_sent": before}, {"lbm_msgs_sent": count}).get("lbm_msgs_sent")
            rate = None if grown is None else grown * 1e9 / elapsed
            # A screen that was paused has one value for all the seconds that it missed.
            self.rates.extend([rate] * min(SPAN_S, max(1, round(elapsed / 1e9))))
            self._since = (now_ns, count)


def _key(session: SessionStats) -> Key:
    """Returns a key that no other session has, not even one with the same source string."""
    return session.context_id, session.source, session.start_ns


def _steady(oldest: DomainSnapshot, middle: DomainSnapshot, found: DomainSnapshot) -> DomainSnapshot:
    first, second = ({_key(session): session for session in each.sessions} for each in (oldest, middle))

    def steady(session: SessionStats) -> SessionStats:
        before, between = first.get(_key(session)), second.get(_key(session))
        if before is None or between is None or not before.counters or not between.counters or not session.per_second:
            return session
        return _steady_session(before, between, session, found.seconds)

    contexts = tuple(
        dataclasses.replace(context, sessions=tuple(map(steady, context.sessions))) if context.sessions else context
        for context in found.contexts
    )
    return dataclasses.replace(found, contexts=contexts)


def _steady_session(before: SessionStats, between: SessionStats, after: SessionStats, seconds: float) -> SessionStats:
    elapsed = (after.read_ns - before.read_ns) / 1e9
    first, second = ({source.number: source for source in each.sources} for each in (before, between))

    def steady(source: SourceStats) -> SourceStats:
        was, then = first.get(source.number), second.get(source.number)
        if was is None or then is None or not _is_sparse(was.counters, then.counters, source, seconds):
            return source
        found = per_second("source", was.counters, source.counters, elapsed)
        return dataclasses.replace(source, per_second=found)

    sources = tuple(map(steady, after.sources))
    if any(new is not old for new, old in zip(sources, after.sources, strict=True)):
        after = dataclasses.replace(after, sources=sources)
    if _is_sparse(before.counters, between.counters, after, seconds):
        found = per_second("session", before.counters, after.counters, elapsed)
        after = dataclasses.replace(after, per_second=found)
    return after


def _is_sparse(before: Counters, between: Counters, after: SessionStats | SourceStats, seconds: float) -> bool:
    """Returns whether messages are so few, and so evenly spread, that their rate needs a longer time."""
    if not before or not between or not after.per_second:
        return False
    older = between["lbm_msgs_sent"] - before["lbm_msgs_sent"]
    newer = after.counters["lbm_msgs_sent"] - between["lbm_msgs_sent"]
    if older < 0 or newer < 0 or after.per_second.get("lbm_msgs_sent", 0.0) * seconds >= _FEW:
        return False
    # A burst that is over lies in one half; one or two messages may or may not be a burst.
    return 0 < older + newer <= 2 or (0 < older < 10 * _FEW and 0 < newer < 10 * _FEW)
