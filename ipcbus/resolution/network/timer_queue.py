"""A queue of timers, the earliest first."""

from __future__ import annotations

import heapq
import itertools
from typing import Generic, Protocol, TypeVar

_SPARE = 64

NEVER = -1
"""Due time of a timer that is not waited for."""


class Due(Protocol):
    """A timer; after a change of `due_ns` it must be put again."""

    due_ns: int


_Timer = TypeVar("_Timer", bound=Due)


class TimerQueue(Generic[_Timer]):
    """A queue by time; entries of timers that were put again, or have another time now, are skipped."""

    def __init__(self) -> None:
        self._order = itertools.count()
        self._heap: list[tuple[int, int, _Timer]] = []
        self._compact_at = _SPARE

    def put(self, timer: _Timer) -> None:
        """Adds a timer at its `due_ns`."""
        if len(self._heap) >= self._compact_at:
            # There are at most about twice as many entries as timers, however often timers are put again.
            self._heap = [entry for entry in self._heap if entry[0] == entry[2].due_ns]
            heapq.heapify(self._heap)
            self._compact_at = 2 * len(self._heap) + _SPARE
        heapq.heappush(self._heap, (timer.due_ns, next(self._order), timer))

    def first(self) -> _Timer | None:
        """Returns the timer that is due first, at whatever time."""
        while self._heap:
            due_ns, _, timer = self._heap[0]
            if timer.due_ns == due_ns:
                return timer
            heapq.heappop(self._heap)
        return None

    def pop(self) -> None:
        """Removes the timer that `first` returned."""
        heapq.heappop(self._heap)

    def __len__(self) -> int:
        """Returns the number of entries, skipped ones included."""
        return len(self._heap)
