"""The last minute of a domain: rates that do not flicker, and how they went."""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import TYPE_CHECKING, Final

from ipcbus.stats import rates as two

if TYPE_CHECKING:
    from ipcbus.stats.model import ContextStats, DomainSnapshot, SessionStats, SourceStats

SPAN_S: Final = 60
"""Seconds that a trail reaches back; one value a second."""

_ANCHOR_NS: Final = 10_000_000_000
_FEW: Final = 10
"""With fewer messages than these between two snapshots, chance alone would make their rate jump."""

Key = tuple[str, int]


class History:
    """Takes snapshots in the order of time; one a program that shows them.

    A rate is reckoned from the snapshot before. Where few messages came since then, and few came in each such time over
    the last 10 to 20 s, it is reckoned over those: a topic with a message every 10 s has 0.1 a second, not 1.0 once and
    then nine times 0.
    """

    def __init__(self) -> None:
        """Empty."""
        self._last: DomainSnapshot | None = None
        self._anchors: deque[DomainSnapshot] = deque(maxlen=2)
        self._trails: dict[Key, _Trail] = {}

    def add(self, taken: DomainSnapshot) -> DomainSnapshot:
        """The snapshot with its rates."""
        found = two.rates(self._last, taken)
        if self._anchors:
            found = _steady(self._anchors[0], found)
        if not self._anchors or taken.read_ns - self._anchors[-1].read_ns >= _ANCHOR_NS:
            self._anchors.append(taken)
        self._last = taken
        trails: dict[Key, _Trail] = {}
        for session in found.sessions:
            key = (session.source, session.start_ns)
            trails[key] = trail = self._trails.get(key) or _Trail()
            trail.add(session.read_ns, session.counters.get("lbm_msgs_sent"))
        self._trails = trails
        return found

    def trail(self, session: SessionStats) -> tuple[float | None, ...]:
        """Messages a second of a session for each of the last `SPAN_S` seconds, the latest last; None where unknown."""
        trail = self._trails.get((session.source, session.start_ns))
        found = tuple(trail.rates) if trail else ()
        return (None,) * (SPAN_S - len(found)) + found


class _Trail:
    """How a counter grew, second by second."""

    def __init__(self) -> None:
        self.rates: deque[float | None] = deque(maxlen=SPAN_S)
        self._since: tuple[int, int] | None = None

    def add(self, now_ns: int, count: int | None) -> None:
        """Takes the counter's value, None where it could not be read; often calls are gathered to a second."""
        if count is None or self._since is None:
            self._since = None if count is None else (now_ns, count)
            return
        then, before = self._since
        elapsed = now_ns - then
        # A little less than a second counts as one, or each second look would be dropped for a jitter.
        if elapsed >= 950_000_000:
            grown = two.growth("session", {"lbm_msgs_sent": before}, {"lbm_msgs_sent": count}).get("lbm_msgs_sent")
            rate = None if grown is None else grown * 1e9 / elapsed
            # A screen that was paused has one value for all the seconds that it missed.
            self.rates.extend([rate] * min(SPAN_S, max(1, round(elapsed / 1e9))))
            self._since = (now_ns, count)


def _steady(anchor: DomainSnapshot, found: DomainSnapshot) -> DomainSnapshot:
    known = {session.source: session for session in anchor.sessions}
    contexts = tuple(_steady_context(context, known, found.seconds) for context in found.contexts)
    return dataclasses.replace(found, contexts=contexts)


def _steady_context(context: ContextStats, known: dict[str, SessionStats], seconds: float) -> ContextStats:
    if not context.sessions:
        return context
    sessions = tuple(_steady_session(known.get(session.source), session, seconds) for session in context.sessions)
    return dataclasses.replace(context, sessions=sessions)


def _steady_session(before: SessionStats | None, after: SessionStats, seconds: float) -> SessionStats:
    if before is None or before.start_ns != after.start_ns or not before.counters or not after.per_second:
        return after
    elapsed = (after.read_ns - before.read_ns) / 1e9
    topics = {source.number: source for source in before.sources}
    sources = tuple(_steady_source(topics.get(source.number), source, elapsed, seconds) for source in after.sources)
    if any(new is not old for new, old in zip(sources, after.sources, strict=True)):
        after = dataclasses.replace(after, sources=sources)
    if _few(before, after, seconds):
        found = two.per_second("session", before.counters, after.counters, elapsed)
        after = dataclasses.replace(after, per_second=found)
    return after


def _steady_source(before: SourceStats | None, after: SourceStats, elapsed: float, seconds: float) -> SourceStats:
    if before is None or not before.counters or not after.per_second or not _few(before, after, seconds):
        return after
    found = two.per_second("source", before.counters, after.counters, elapsed)
    return dataclasses.replace(after, per_second=found)


def _few(before: SessionStats | SourceStats, after: SessionStats | SourceStats, seconds: float) -> bool:
    """Whether messages are so few that a longer time tells their rate better."""
    grew = after.counters["lbm_msgs_sent"] - before.counters["lbm_msgs_sent"]
    # Few a second over ten seconds at least, and few since the last look.
    return 0 < grew < 10 * _FEW and after.per_second.get("lbm_msgs_sent", 0.0) * seconds < _FEW
