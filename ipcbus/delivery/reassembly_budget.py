"""The limits on buffered messages and on the memory of incomplete messages, for all topics of a context."""

from __future__ import annotations

import heapq
from typing import Protocol

from ipcbus.delivery.assembly import MemoryBudget


class Holder(Protocol):
    """The part of a delivery controller that the budget needs."""

    @property
    def oldest_gap(self) -> int | None:
        """The number that `ReassemblyBudget.gap_opened` returned for its first gap; None without a gap."""

    def give_up_oldest(self) -> None:
        """Gives up its first gap, because the context has buffered too much."""


class ReassemblyBudget(MemoryBudget):
    """The limits that all delivery controllers of a context share.

    Attributes:
        entries: number of buffered messages and gaps now.
        bytes: memory of incomplete messages now.
    """

    def __init__(self, entries_max: int = 0, bytes_max: int = 2**31) -> None:
        """Makes a budget that nothing uses yet.

        Args:
            entries_max: option delivery_control_maximum_total_map_entries; 0 for no limit.
            bytes_max: option delivery_control_maximum_reassembly_bytes.
        """
        super().__init__(bytes_max)
        self._entries_max = entries_max
        self.entries = 0
        self._openings = 0
        self._with_gaps: set[Holder] = set()
        self._heap: list[tuple[int, Holder]] = []  # a heap; each holder once, perhaps with a gap that is closed

    def gap_opened(self, holder: Holder) -> int:
        """Notes a new gap; returns its opening number, which puts the gaps of all topics in order."""
        self._openings += 1
        if holder not in self._with_gaps:
            self._with_gaps.add(holder)
            heapq.heappush(self._heap, (self._openings, holder))
        return self._openings

    def oldest(self) -> Holder | None:
        """Returns the controller whose gap opened first; None when there is no gap."""
        while self._heap:
            opening_number, holder = self._heap[0]
            now = holder.oldest_gap
            if now == opening_number:
                return holder
            if now is None:
                heapq.heappop(self._heap)
                self._with_gaps.remove(holder)
            else:
                heapq.heapreplace(self._heap, (now, holder))
        return None

    def forget(self, holder: Holder) -> None:
        """Forgets a controller that has no gaps any more."""
        if holder in self._with_gaps:
            self._with_gaps.remove(holder)
            self._heap = [each for each in self._heap if each[1] is not holder]
            heapq.heapify(self._heap)

    @property
    def exceeded(self) -> bool:
        """Whether there are more entries than the limit allows."""
        return 0 < self._entries_max < self.entries

    @property
    def room(self) -> int:
        """How many more entries the limit allows."""
        return self._entries_max - self.entries if self._entries_max else 1 << 30
