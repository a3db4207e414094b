"""Loss detection: which datagrams a receiver misses, when it asks for each one, and when it gives one up.

`TABLE` holds the rules for a missing number; docs/explanation/reliability.md draws it.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random


class State(Enum):
    """The state of a missing number: what it waits for."""

    BACKOFF = "the end of the backoff: a datagram that was only overtaken comes without a NAK"
    ASKED = "the datagram, or the time of the next NAK"
    SUPPRESSED = "the end of the suppress interval, after an NCF"


class Cause(Enum):
    """What may happen to a missing number."""

    DUE = "its timer has expired"
    NCF = "the source has got the NAK and does not send the datagram now"


class Step(NamedTuple):
    """The next state, and whether the receiver asks for the number now."""

    state: State
    asks: bool


TABLE: Final = {
    (State.BACKOFF, Cause.DUE): Step(State.ASKED, True),
    (State.ASKED, Cause.DUE): Step(State.ASKED, True),
    (State.SUPPRESSED, Cause.DUE): Step(State.BACKOFF, False),
    (State.BACKOFF, Cause.NCF): Step(State.SUPPRESSED, False),
    (State.ASKED, Cause.NCF): Step(State.SUPPRESSED, False),
    (State.SUPPRESSED, Cause.NCF): Step(State.SUPPRESSED, False),
}
"""What follows from each cause in each state. In every state a number also leaves when its datagram comes, when it is
older than the generation interval, and when the source does not hold it any more. The timer of SUPPRESSED is the
suppress interval; the timer of the other states is a backoff that is drawn each time."""


@dataclass(frozen=True, slots=True)
class NakSettings:
    """The times of NAKs, in ns; named as the options.

    Attributes:
        initial_backoff: time from the detection of a loss to the first NAK; 0 sends the NAK at once.
        backoff: time between two NAKs for a number.
        suppress: time after an NCF in which the receiver sends no NAK for the number.
        generation: age at which a missing number is given up.
        entries_max: largest number of missing numbers that are remembered; above it the oldest are given up.
    """

    initial_backoff: int = 50_000_000
    backoff: int = 200_000_000
    suppress: int = 1_000_000_000
    generation: int = 10_000_000_000
    entries_max: int = 1 << 16


@dataclass(slots=True)
class _Missing:
    state: State
    due_ns: int
    since_ns: int
    asked: int = 0


class Recovered(NamedTuple):
    """A number whose datagram has come: how long it was missing, in ns, and how many NAKs were sent for it."""

    missing_ns: int
    asked: int


class LossDetector:
    """The missing numbers of one session at one receiver."""

    def __init__(self, settings: NakSettings, random: Random) -> None:
        """Starts without missing numbers.

        Args:
            settings: the times of NAKs, and the limits.
            random: draws each backoff from 0.5 to 1.5 times the option, so that receivers do not ask all at once.
        """
        self._settings = settings
        self._random = random
        # By number, which is also the order of age: losses are detected in the order of numbers.
        self._missing: dict[int, _Missing] = {}
        self._timers: list[tuple[int, int]] = []

    def __len__(self) -> int:
        """Returns how many numbers are missing."""
        return len(self._missing)

    @property
    def first(self) -> int | None:
        """The lowest missing number; None when no number is missing."""
        return next(iter(self._missing), None)

    def __contains__(self, number: int) -> bool:
        """Returns whether a number is missing."""
        return number in self._missing

    def add_missing(self, first: int, end: int, now_ns: int) -> int:
        """Adds numbers that were passed over.

        Args:
            first: the first of them; higher than all that are missing already.
            end: the number after the last of them.
            now_ns: the time.

        Returns:
            How many numbers, from the lowest on, are given up because too many would be missing.
        """
        excess = max(0, len(self._missing) + end - first - self._settings.entries_max)
        dropped = min(excess, len(self._missing))
        for number in list(itertools.islice(self._missing, dropped)):
            del self._missing[number]
        due = now_ns + self._draw_backoff(self._settings.initial_backoff)
        for number in range(first + excess - dropped, end):
            # All of them get one due time, so that one packet asks for all.
            self._missing[number] = _Missing(State.BACKOFF, due, now_ns)
            heapq.heappush(self._timers, (due, number))
        self._compact_timers()
        return excess

    def recover(self, number: int, now_ns: int) -> Recovered | None:
        """Removes a number whose datagram has come; returns None when it was not missing."""
        found = self._missing.pop(number, None)
        return Recovered(now_ns - found.since_ns, found.asked) if found else None

    def drop_below(self, trail: int) -> list[int]:
        """Gives up and returns the missing numbers below `trail`, the lowest number that the source still holds."""
        dropped = []
        for number in self._missing:
            if number >= trail:
                break
            dropped.append(number)
        for number in dropped:
            del self._missing[number]
        return dropped

    def drop_range(self, first: int, end: int) -> int:
        """Removes the missing numbers from `first` to below `end`, as they do not come; returns how many there were."""
        dropped = [number for number in self._missing if first <= number < end]
        for number in dropped:
            del self._missing[number]
        return len(dropped)

    def ncf(self, numbers: Iterable[int], now_ns: int) -> int:
        """Suppresses NAKs for numbers that an NCF names; returns how many of them were missing."""
        known = 0
        for number in numbers:
            found = self._missing.get(number)
            if found is not None:
                known += 1
                self._step(number, found, Cause.NCF, now_ns + self._settings.suppress)
        self._compact_timers()
        return known

    @property
    def next_ns(self) -> int | None:
        """The time at which to call `due`; None while no number is missing."""
        self._drop_stale_timers()
        if not self._missing:
            return None
        oldest = next(iter(self._missing.values())).since_ns + self._settings.generation
        return min(oldest, self._timers[0][0]) if self._timers else oldest

    def due(self, now_ns: int) -> tuple[list[int], list[int]]:
        """Runs the timers that have expired.

        Returns:
            The numbers to ask for now, in order, and the numbers that are given up because they are too old.
        """
        given_up = []
        for number, missing in self._missing.items():
            if now_ns - missing.since_ns < self._settings.generation:
                break
            given_up.append(number)
        for number in given_up:
            del self._missing[number]
        asks = []
        again = now_ns + self._draw_backoff(self._settings.backoff)
        while self._timers and self._timers[0][0] <= now_ns:
            due, number = heapq.heappop(self._timers)
            found = self._missing.get(number)
            current = found is not None and found.due_ns == due
            if found is not None and current and self._step(number, found, Cause.DUE, again):
                asks.append(number)
        return sorted(asks), given_up

    def _step(self, number: int, found: _Missing, cause: Cause, due_ns: int) -> bool:
        """Moves a number to its next state; returns whether to ask for it now."""
        found.state, asks = TABLE[found.state, cause]
        found.due_ns = due_ns
        found.asked += asks
        heapq.heappush(self._timers, (due_ns, number))
        return asks

    def _draw_backoff(self, interval: int) -> int:
        return int(interval * self._random.uniform(0.5, 1.5))

    def _compact_timers(self) -> None:
        """Drops stale timers when they are many: a peer could make them pile up without limit."""
        if len(self._timers) > 2 * len(self._missing) + 1024:
            self._timers = [(missing.due_ns, number) for number, missing in self._missing.items()]
            heapq.heapify(self._timers)

    def _drop_stale_timers(self) -> None:
        while self._timers:
            due, number = self._timers[0]
            found = self._missing.get(number)
            if found is not None and found.due_ns == due:
                return
            heapq.heappop(self._timers)
