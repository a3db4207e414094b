"""Things that are due at a time, the earliest first."""

from __future__ import annotations

import heapq
import itertools
from typing import Generic, Protocol, TypeVar

_SPARE = 64

NEVER = -1
"""Due time of what is not waited for."""


class Due(Protocol):
    """Something with a time, which may be changed at any time; then it has to be put again."""

    due_ns: int


_Thing = TypeVar("_Thing", bound=Due)


class TimerQueue(Generic[_Thing]):
    """A queue by time. What is put again, or is due at another time since, is passed over where it stood before."""

    def __init__(self) -> None:
        """Empty."""
        self._order = itertools.count()
        self._heap: list[tuple[int, int, _Thing]] = []
        self._compact_at = _SPARE

    def put(self, thing: _Thing) -> None:
        """It is due at its `due_ns`."""
        if len(self._heap) >= self._compact_at:
            # However often things are put again, there are at most twice as many entries as things, and some.
            self._heap = [entry for entry in self._heap if entry[0] == entry[2].due_ns]
            heapq.heapify(self._heap)
            self._compact_at = 2 * len(self._heap) + _SPARE
        heapq.heappush(self._heap, (thing.due_ns, next(self._order), thing))

    def first(self) -> _Thing | None:
        """What is due first, whenever that is."""
        while self._heap:
            due_ns, _, thing = self._heap[0]
            if thing.due_ns == due_ns:
                return thing
            heapq.heappop(self._heap)
        return None

    def pop(self) -> None:
        """Takes away what `first` returned."""
        heapq.heappop(self._heap)

    def __len__(self) -> int:
        """Entries, those included that will be passed over."""
        return len(self._heap)
