"""Loss detection: which datagrams a receiver misses, when it asks for each one, and when it gives one up.

`TABLE` holds the rules for a missing number; docs/explanation/reliability.md draws it. The oldest are asked for
first, and no more than `asks_max` at a time: so what is sent again leaves room for new datagrams.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ipcbus.reliability.round_trip import RoundTrip
from ipcbus.wire.udp_packets import NCF_IGNORED, NCF_RX_DELAY

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
    SENT = "the source had sent the datagram again just before the NAK came (NCF IGNORED)"


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
    (State.BACKOFF, Cause.SENT): Step(State.ASKED, False),
    (State.ASKED, Cause.SENT): Step(State.ASKED, False),
    (State.SUPPRESSED, Cause.SENT): Step(State.ASKED, False),
}
"""What follows from each cause in each state. In every state a number also leaves when its datagram comes, when it is
older than the generation interval, and when the source does not hold it any more. The timer of SUPPRESSED is the
suppress interval; the timer of the other states is a backoff that is drawn each time."""


@dataclass(frozen=True, slots=True)
class NakSettings:
    """The times of NAKs, in ns; named as the options.

    Attributes:
        initial_backoff: time from the detection of a loss to the first NAK; 0 sends the NAK at once, -1 after a time
            that is measured.
        backoff: time between two NAKs for a number; 0 or -1 is a time that is measured.
        suppress: time after an NCF in which the receiver sends no NAK for the number.
        generation: age at which a missing number is given up. The time for which its first NAK had to wait for its
            turn, or for a receiver that paused, does not count.
        entries_max: largest number of missing numbers that are remembered; above it the oldest are given up.
    """

    initial_backoff: int = 50_000_000
    backoff: int = -1
    suppress: int = 1_000_000_000
    generation: int = 10_000_000_000
    entries_max: int = 1 << 16


ASKS_MAX: Final = 256
"""Most datagrams that are asked for and have not come, while there is time for them to come."""
_REPEAT_MAX_NS: Final = 200_000_000
"""Time between two NAKs for a number that was asked for often in vain: Ultra Messaging's default."""
_QUICK_ASKS: Final = 3
"""NAKs after which the measured time between two of them doubles each time."""
_WAITS: Final = -1
"""Due time of a number whose turn it is, and that waits until fewer are asked for."""


@dataclass(slots=True)
class _Missing:
    state: State
    due_ns: int
    since_ns: int
    first_ns: int
    deadline_ns: int
    asked: int = 0
    asked_ns: int = 0
    first_asked_ns: int = 0


class Recovered(NamedTuple):
    """A number whose datagram has come.

    Attributes:
        missing_ns: how long it was missing.
        asked: the number of NAKs that were sent for it.
        answered_ns: the time from its only NAK, if the source sent it at once; 0 where that is not known.
        first_asked_ns: the time from its first NAK; 0 without.
    """

    missing_ns: int
    asked: int
    answered_ns: int = 0
    first_asked_ns: int = 0


class LossDetector:
    """The missing numbers of one session at one receiver."""

    def __init__(self, settings: NakSettings, random: Random, round_trip: RoundTrip | None = None) -> None:
        """Starts without missing numbers.

        Args:
            settings: the times of NAKs, and the limits.
            random: draws each backoff from 0.5 to 1.5 times the option, so that receivers do not ask all at once.
            round_trip: the measured times of the session.
        """
        self._settings = settings
        self._random = random
        self._round_trip = round_trip or RoundTrip()
        self.asks_max = ASKS_MAX
        """Most numbers to ask for at a time; lower when the ring has little room, or datagrams are large."""
        # Numbers whose turn it is, and those that were asked for, with the time until which their datagrams may come.
        self._ready: list[int] = []
        self._open: dict[int, int] = {}
        self._open_ends: list[tuple[int, int]] = []
        self._deadlines: list[tuple[int, int]] = []
        self._turned_ns = 0
        # By number, which is also the order of age: losses are detected in the order of numbers. A dict would look for
        # the first one in the places of all that were deleted before it: 60 us after each of 60,000 repairs.
        self._missing: OrderedDict[int, _Missing] = OrderedDict()
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

    def add_missing(self, first: int, end: int, now_ns: int) -> tuple[list[int], range]:
        """Adds numbers that were passed over.

        Args:
            first: the first of them; higher than all that are missing already.
            end: the number after the last of them.
            now_ns: the time.

        Returns:
            The numbers that are given up because too many would be missing: those that were missing, and of these.
        """
        excess = max(0, len(self._missing) + end - first - self._settings.entries_max)
        dropped = list(itertools.islice(self._missing, excess))
        self._drop(dropped)
        passed_over = range(first, first + excess - len(dropped))
        initial = self._settings.initial_backoff
        due = now_ns + (self._draw_backoff(initial) if initial >= 0 else self._round_trip.first_backoff_ns)
        deadline = now_ns + self._settings.generation
        for number in range(passed_over.stop, end):
            # All of them get one due time, so that one packet asks for all.
            self._missing[number] = _Missing(State.BACKOFF, due, now_ns, due, deadline)
            heapq.heappush(self._timers, (due, number))
            heapq.heappush(self._deadlines, (deadline, number))
        self._compact_timers()
        return dropped, passed_over

    def recover(self, number: int, now_ns: int) -> Recovered | None:
        """Removes a number whose datagram has come; returns None when it was not missing."""
        found = self._missing.pop(number, None)
        self._open.pop(number, None)
        if found is None:
            return None
        at_once = found.asked == 1 and found.asked_ns and found.state is State.ASKED
        since_first = now_ns - found.first_asked_ns if found.asked else 0
        return Recovered(now_ns - found.since_ns, found.asked, now_ns - found.asked_ns if at_once else 0, since_first)

    def drop_below(self, trail: int) -> list[int]:
        """Gives up and returns the missing numbers below `trail`, the lowest number that the source still holds."""
        dropped = []
        for number in self._missing:
            if number >= trail:
                break
            dropped.append(number)
        self._drop(dropped)
        return dropped

    def drop_range(self, first: int, end: int) -> int:
        """Removes the missing numbers from `first` to below `end`, as they do not come; returns how many there were."""
        listed = range(first, end)
        few = listed if end - first < len(self._missing) else self._missing
        dropped = [number for number in few if number in self._missing and number in listed]
        self._drop(dropped)
        return len(dropped)

    def ncf(self, numbers: Iterable[int], reason: int, now_ns: int) -> int:
        """Puts off NAKs for numbers that an NCF names; returns how many of them were missing."""
        known = 0
        sent = reason == NCF_IGNORED
        backoffs = self._draw_backoffs()
        for number in numbers:
            found = self._missing.get(number)
            if found is None:
                continue
            known += 1
            found.asked_ns = 0
            self._excuse_wait(number, found, now_ns)
            again = now_ns + (self._backoff(backoffs, found) if sent else self._settings.suppress)
            self._step(number, found, Cause.SENT if sent else Cause.NCF, again)
            if reason == NCF_RX_DELAY:
                self._open_until(number, again)  # it comes when the source may send it
            else:
                self._open.pop(number, None)
        self._compact_timers()
        return known

    @property
    def next_ns(self) -> int | None:
        """The time at which to call `due`; None while no number is missing."""
        self._drop_stale_timers()
        times = [each[0][0] for each in (self._timers, self._deadlines) if each]
        if self._ready:
            if len(self._open) < self.asks_max:
                times.append(self._turned_ns)
            elif self._open_ends:
                times.append(self._open_ends[0][0])
        return min(times, default=None)

    def due(self, now_ns: int) -> tuple[list[int], list[int]]:
        """Runs the timers that have expired.

        Returns:
            The numbers to ask for now, in order, and the numbers that are given up because they are too old.
        """
        self._turned_ns = now_ns
        given_up = self._take_too_old(now_ns)
        while self._open_ends and self._open_ends[0][0] <= now_ns:
            end, number = heapq.heappop(self._open_ends)
            if self._open.get(number) == end:
                del self._open[number]
        backoffs = self._draw_backoffs()
        while self._timers and self._timers[0][0] <= now_ns:
            due, number = heapq.heappop(self._timers)
            found = self._missing.get(number)
            if found is None or found.due_ns != due:
                continue
            if TABLE[found.state, Cause.DUE].asks:
                found.due_ns = _WAITS
                heapq.heappush(self._ready, number)
            else:
                self._excuse_wait(number, found, now_ns)
                self._step(number, found, Cause.DUE, now_ns + self._backoff(backoffs, found))
        return self._ask(now_ns, backoffs), given_up

    def _ask(self, now_ns: int, backoffs: list[int]) -> list[int]:
        """Returns the numbers whose turn it is, the oldest first, as many as may be asked for."""
        asks = []
        answer = now_ns + self._round_trip.answer_ns
        while self._ready and len(self._open) < self.asks_max:
            number = heapq.heappop(self._ready)
            found = self._missing.get(number)
            if found is None or found.due_ns != _WAITS:
                continue
            self._excuse_wait(number, found, now_ns)
            found.asked_ns = now_ns
            if not found.asked:
                found.first_asked_ns = now_ns
            found.asked += 1
            self._step(number, found, Cause.DUE, now_ns + self._backoff(backoffs, found))
            self._open_until(number, answer)
            asks.append(number)
        return asks

    def _excuse_wait(self, number: int, found: _Missing, now_ns: int) -> None:
        """Gives a number more time if its first NAK was due, and waited for its turn or for a receiver that paused."""
        if not found.asked and now_ns > found.first_ns:
            found.deadline_ns += now_ns - found.first_ns
            heapq.heappush(self._deadlines, (found.deadline_ns, number))

    def _take_too_old(self, now_ns: int) -> list[int]:
        """Gives up and returns the numbers that are too old; one whose first NAK waits gets a deadline later."""
        given_up = []
        while self._deadlines and self._deadlines[0][0] <= now_ns:
            deadline, number = heapq.heappop(self._deadlines)
            found = self._missing.get(number)
            if found is None or found.deadline_ns != deadline:
                continue
            # An NCF may put the first NAK off beyond the deadline; only other waits are excused.
            if found.asked or found.first_ns >= deadline:
                given_up.append(number)
        self._drop(given_up)
        return sorted(given_up)

    def _open_until(self, number: int, end_ns: int) -> None:
        self._open[number] = end_ns
        heapq.heappush(self._open_ends, (end_ns, number))

    def _drop(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            del self._missing[number]
            self._open.pop(number, None)

    def _step(self, number: int, found: _Missing, cause: Cause, due_ns: int) -> None:
        """Moves a number to its next state, in which it stays until `due_ns`."""
        found.state = TABLE[found.state, cause].state
        found.due_ns = due_ns
        if not found.asked:
            found.first_ns = due_ns
        heapq.heappush(self._timers, (due_ns, number))

    def _draw_backoffs(self) -> list[int]:
        """Draws the times until the next NAK, by how often a number was asked for; one packet asks for all again.

        The measured time is spread as that before the first NAK, so that members of a group do not ask all at once.
        """
        if self._settings.backoff > 0:
            return [self._draw_backoff(self._settings.backoff)]
        spread = self._draw_backoff(max(0, self._settings.initial_backoff))
        drawn = [max(int(self._round_trip.repeat_ns * self._random.uniform(1, 1.25)), spread)]
        drawn *= _QUICK_ASKS + 1
        while drawn[-1] < _REPEAT_MAX_NS:
            drawn.append(min(2 * drawn[-1], _REPEAT_MAX_NS))
        return drawn

    @staticmethod
    def _backoff(backoffs: list[int], found: _Missing) -> int:
        return backoffs[min(found.asked, len(backoffs) - 1)]

    def _draw_backoff(self, interval: int) -> int:
        return int(interval * self._random.uniform(0.5, 1.5))

    def _compact_timers(self) -> None:
        """Drops stale entries when they are many: a peer could make them pile up without limit."""
        most = 2 * len(self._missing) + 1024
        if len(self._timers) > most:
            self._timers = [(each.due_ns, number) for number, each in self._missing.items() if each.due_ns != _WAITS]
            heapq.heapify(self._timers)
        if len(self._deadlines) > most:
            self._deadlines = [(each.deadline_ns, number) for number, each in self._missing.items()]
            heapq.heapify(self._deadlines)
        if len(self._open_ends) > most:
            self._open_ends = [(end, number) for number, end in self._open.items()]
            heapq.heapify(self._open_ends)
        if len(self._ready) > most:
            self._ready = [number for number, each in self._missing.items() if each.due_ns == _WAITS]

    def _drop_stale_timers(self) -> None:
        missing = self._missing
        while self._timers and (
            (found := missing.get(self._timers[0][1])) is None or found.due_ns != self._timers[0][0]
        ):
            heapq.heappop(self._timers)
        while self._deadlines and (
            (found := missing.get(self._deadlines[0][1])) is None or found.deadline_ns != self._deadlines[0][0]
        ):
            heapq.heappop(self._deadlines)
        while self._ready and ((found := missing.get(self._ready[0])) is None or found.due_ns != _WAITS):
            heapq.heappop(self._ready)
        while self._open_ends and self._open.get(self._open_ends[0][1]) != self._open_ends[0][0]:
            heapq.heappop(self._open_ends)
