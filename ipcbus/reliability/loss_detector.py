"""The datagrams that a receiver misses: for each one, when it is asked for again and when it is given up.

What happens to a missing number stands in `TABLE`; docs/explanation/reliability.md draws it.
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
    """What a missing number waits for."""

    BACKOFF = "the backoff, so that what was only overtaken need not be asked for"
    ASKED = "the datagram, or the time to ask again"
    SUPPRESSED = "the time for which the source does not want to be asked"


class Cause(Enum):
    """What may happen to it."""

    DUE = "its timer ran out"
    NCF = "the source has heard, and will not send it now"


class Step(NamedTuple):
    """What follows: the next state, and whether the number is asked for now."""

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
"""Each state with each cause. From every state a number also leaves when it comes, when it is older than the generation
interval, and when the source does not hold it any more. The timer of SUPPRESSED is the suppress interval, that of the
others a backoff that is drawn anew."""


@dataclass(frozen=True, slots=True)
class NakSettings:
    """When a receiver asks, in ns; named as the options.

    Attributes:
        initial_backoff: before it asks for the first time; 0 asks at once.
        backoff: before it asks again.
        suppress: for how long it does not ask after an NCF.
        generation: how old a loss gets before it is given up.
        entries_max: missing numbers that are remembered; when there are more, the oldest are given up.
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
    """What came after all: how long it was missing, in ns, and how often it was asked for."""

    missing_ns: int
    asked: int


class LossDetector:
    """The missing numbers of one session at one receiver."""

    def __init__(self, settings: NakSettings, random: Random) -> None:
        """Nothing is missing.

        Args:
            settings: when it asks and gives up.
            random: draws each backoff from 0.5 to 1.5 of the option, so that many receivers do not ask at once.
        """
        self._settings = settings
        self._random = random
        # By number, which is also the order of age: numbers are found missing in their order.
        self._missing: dict[int, _Missing] = {}
        self._timers: list[tuple[int, int]] = []

    def __len__(self) -> int:
        """Returns how many are missing."""
        return len(self._missing)

    @property
    def first(self) -> int | None:
        """The lowest number that is missing; None when none is."""
        return next(iter(self._missing), None)

    def __contains__(self, number: int) -> bool:
        """Returns whether a number is missing."""
        return number in self._missing

    def lack(self, first: int, end: int, now_ns: int) -> int:
        """Numbers were passed over.

        Args:
            first: the first of them, above all that were missing before.
            end: the one after the last.
            now_ns: the time.

        Returns:
            How many, the oldest first, are given up because too many would be missing.
        """
        over = max(0, len(self._missing) + end - first - self._settings.entries_max)
        dropped = min(over, len(self._missing))
        for number in list(itertools.islice(self._missing, dropped)):
            del self._missing[number]
        due = now_ns + self._draw(self._settings.initial_backoff)
        for number in range(first + over - dropped, end):
            # Found missing together, they are asked for together: in one packet.
            self._missing[number] = _Missing(State.BACKOFF, due, now_ns)
            heapq.heappush(self._timers, (due, number))
        self._sweep()
        return over

    def came(self, number: int, now_ns: int) -> Recovered | None:
        """Returns a number has come; None when it was not missing."""
        found = self._missing.pop(number, None)
        return Recovered(now_ns - found.since_ns, found.asked) if found else None

    def left_window(self, trail: int) -> list[int]:
        """Returns the source holds nothing below a number any more: those are given up, and returned."""
        gone = []
        for number in self._missing:
            if number >= trail:
                break
            gone.append(number)
        for number in gone:
            del self._missing[number]
        return gone

    def ncf(self, numbers: Iterable[int], now_ns: int) -> int:
        """Returns the source will not send these now; returns how many of them were missing."""
        known = 0
        for number in numbers:
            found = self._missing.get(number)
            if found is not None:
                known += 1
                self._step(number, found, Cause.NCF, now_ns + self._settings.suppress)
        self._sweep()
        return known

    @property
    def next_ns(self) -> int | None:
        """When `due` has something to say; None while nothing is missing."""
        self._drop_stale()
        if not self._missing:
            return None
        oldest = next(iter(self._missing.values())).since_ns + self._settings.generation
        return min(oldest, self._timers[0][0]) if self._timers else oldest

    def due(self, now_ns: int) -> tuple[list[int], list[int]]:
        """What the timers say.

        Returns:
            Numbers to ask for now, in their order, and numbers that are given up because they are too old.
        """
        given_up = []
        for number, missing in self._missing.items():
            if now_ns - missing.since_ns < self._settings.generation:
                break
            given_up.append(number)
        for number in given_up:
            del self._missing[number]
        asks = []
        again = now_ns + self._draw(self._settings.backoff)
        while self._timers and self._timers[0][0] <= now_ns:
            due, number = heapq.heappop(self._timers)
            found = self._missing.get(number)
            current = found is not None and found.due_ns == due
            if found is not None and current and self._step(number, found, Cause.DUE, again):
                asks.append(number)
        return sorted(asks), given_up

    def _step(self, number: int, found: _Missing, cause: Cause, due_ns: int) -> bool:
        """Moves a number through the table; says whether it is to be asked for."""
        found.state, asks = TABLE[found.state, cause]
        found.due_ns = due_ns
        found.asked += asks
        heapq.heappush(self._timers, (due_ns, number))
        return asks

    def _draw(self, interval: int) -> int:
        return int(interval * self._random.uniform(0.5, 1.5))

    def _sweep(self) -> None:
        """Timers of numbers that came or were put off are many when a peer wants them to be."""
        if len(self._timers) > 2 * len(self._missing) + 1024:
            self._timers = [(missing.due_ns, number) for number, missing in self._missing.items()]
            heapq.heapify(self._timers)

    def _drop_stale(self) -> None:
        while self._timers:
            due, number = self._timers[0]
            found = self._missing.get(number)
            if found is not None and found.due_ns == due:
                return
            heapq.heappop(self._timers)
