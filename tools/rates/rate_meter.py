"""Message rates, computed from snapshots of counters: for 0.1 messages a second as well as for 20 million."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

FEW: Final = 5
"""Fewest messages for a rate that is not chance; with fewer, the time is extended until it holds as many."""

LONGEST_S: Final = 120.0
"""Longest extended time, in seconds."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A rate of the last interval, and its spread over a window.

    Attributes:
        now: a second, over the time between the last two snapshots, or over the last few messages when few came.
        mean: a second, over the window.
        min: the lowest in the window.
        max: the highest in the window.
        std: the standard deviation in the window, weighted by time.
    """

    now: float
    mean: float
    min: float
    max: float
    std: float


@dataclass(frozen=True, slots=True)
class Flow:
    """The message rate and the byte rate of a topic.

    Attributes:
        messages: messages a second.
        bytes: bytes of payloads and message headers a second.
        message_bytes: mean size of these messages; null without any.
        window_seconds: the time that mean, min, max and std are over.
        count: messages that were sent in that time.
    """

    messages: Spread
    bytes: Spread
    message_bytes: float | None
    window_seconds: float
    count: int


@dataclass(frozen=True, slots=True)
class Growth:
    """The growth of a source's counters.

    Attributes:
        messages: published messages.
        bytes: bytes of payloads and message headers, those of the open batch included.
        numbered: messages, those of the open batch included.
    """

    messages: int = 0
    bytes: int = 0
    numbered: int = 0

    def __add__(self, other: Growth) -> Growth:
        """Returns the sum."""
        return Growth(self.messages + other.messages, self.bytes + other.bytes, self.numbered + other.numbered)


@dataclass(frozen=True, slots=True)
class _Interval:
    """A time that ended with a snapshot that showed new messages, or a silence before many messages came at once."""

    end_ns: int
    seconds: float
    growth: Growth


class RateMeter:
    """Computes rates from the growth between snapshots.

    When few messages come, its intervals end where a message was seen, not at every snapshot: one message every ten
    seconds is then 0.1 a second, neither 1.0 once and then nine times 0, nor 0.1 and 0.2 by turns.
    """

    def __init__(self, window: float, since_ns: int) -> None:
        """Begins at `since_ns` of the monotonic clock; `window` is in seconds."""
        self._window = window
        self._begin_ns = self._polled_ns = self._message_ns = since_ns
        self._seen = 0
        self._pending = Growth()
        self._intervals: deque[_Interval] = deque()

    def add(self, now_ns: int, growth: Growth) -> None:
        """Adds the growth since the previous snapshot; with a time that is not later, it counts with the next one."""
        # The bytes of an open batch are counted before its messages.
        self._pending += growth
        self._seen += growth.messages
        if now_ns <= self._polled_ns:
            return
        if self._pending.messages:
            since = self._message_ns
            if self._pending.messages >= FEW and self._polled_ns > self._message_ns:
                # The topic was silent until the previous snapshot, not a little busy all the time.
                self._append(self._polled_ns, since, Growth())
                since = self._polled_ns
            self._append(now_ns, since, self._pending)
            self._pending, self._message_ns = Growth(), now_ns
        self._polled_ns = now_ns
        oldest = now_ns - 1e9 * max(self._window, LONGEST_S)
        while self._intervals and self._intervals[0].end_ns < oldest:
            self._intervals.popleft()

    def _append(self, end_ns: int, since_ns: int, growth: Growth) -> None:
        first = self._intervals[0] if len(self._intervals) == 1 else None
        if first and first.growth.messages < FEW and first.end_ns - round(first.seconds * 1e9) == self._begin_ns:
            # The time of the last message before the first snapshot is not known.
            self._intervals.clear()
        if end_ns > since_ns:
            self._intervals.append(_Interval(end_ns, (end_ns - since_ns) / 1e9, growth))

    def flow(self) -> Flow:
        """Returns the rates of the last interval and of the window."""
        recent, chosen = self._last(0.0), self._last(self._window)
        total = sum((interval.growth for interval in chosen), start=Growth())
        mean_bytes = total.bytes / total.numbered if total.numbered else None
        seconds = sum(interval.seconds for interval in chosen)
        silence = min(self._window, (self._polled_ns - self._begin_ns) / 1e9)
        return Flow(
            messages=self._rates(recent, chosen, lambda growth: growth.messages),
            bytes=self._rates(recent, chosen, lambda growth: growth.bytes),
            message_bytes=mean_bytes,
            window_seconds=round(seconds + (self._polled_ns - self._message_ns) / 1e9 if chosen else silence, 6),
            count=total.messages,
        )

    def _last(self, window: float) -> list[_Interval]:
        """Returns the intervals of the last `window` seconds, and earlier ones until they hold a few messages."""
        found: list[_Interval] = []
        count = 0
        for interval in reversed(self._intervals):
            inside = interval.end_ns == self._polled_ns or interval.end_ns > self._polled_ns - window * 1e9
            sparse = count < FEW and interval.growth.messages < FEW
            if not inside and not (sparse and interval.end_ns > self._polled_ns - LONGEST_S * 1e9):
                break
            found.append(interval)
            count += interval.growth.messages
        return found

    def _rates(self, recent: Sequence[_Interval], chosen: Sequence[_Interval], part: Callable[[Growth], int]) -> Spread:
        now, _ = _mean(self._parts(recent, part))
        parts = self._parts(chosen, part)
        mean, seconds = _mean(parts)
        rates = [amount / length for amount, length in parts] or [0.0]
        square = sum(length * (amount / length - mean) ** 2 for amount, length in parts)
        return Spread(now, mean, min(rates), max(rates), math.sqrt(square / seconds) if seconds else 0.0)

    def _parts(self, intervals: Sequence[_Interval], part: Callable[[Growth], int]) -> list[tuple[float, float]]:
        """Returns amounts with their seconds, and the silence since the last one if it is longer than expected."""
        if intervals and self._seen < 2:
            # One message has no pace: it came once in all the time since the first snapshot.
            return [(sum(part(interval.growth) for interval in intervals), (self._polled_ns - self._begin_ns) / 1e9)]
        found: list[tuple[float, float]] = [(part(interval.growth), interval.seconds) for interval in intervals]
        silence = (self._polled_ns - self._message_ns) / 1e9
        messages = sum(interval.growth.messages for interval in intervals)
        if silence and messages:
            many = self._intervals[-1].growth.messages >= FEW
            if many or silence * messages > sum(interval.seconds for interval in intervals):
                # With few messages the next may come now; with many it should have come long ago.
                found.append((0.0 if many else sum(amount for amount, _ in found) / messages, silence))
        return found


def _mean(parts: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Returns the amount a second, and the seconds."""
    amounts, lengths = zip(*parts, strict=True) if parts else ((), ())
    seconds = sum(lengths)
    return (sum(amounts) / seconds if seconds else 0.0), seconds
