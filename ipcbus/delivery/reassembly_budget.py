"""How much memory incomplete streams may take."""

from __future__ import annotations

import heapq
from typing import Protocol

_PARTIAL_BYTES = 512
"""What an incomplete message takes besides its bytes, about."""


class Holder(Protocol):
    """A delivery controller, as far as it shares a budget with others."""

    @property
    def oldest_gap(self) -> int | None:
        """What `ReassemblyBudget.opened` gave for its first gap; None without a gap."""

    def give_up_oldest(self) -> None:
        """Gives its first gap up, because the context holds too much."""


class ReassemblyBudget:
    """What all delivery controllers of a context may hold together.

    Attributes:
        entries: buffered messages and missing ranges now.
        bytes: memory of incomplete messages now.
    """

    def __init__(self, entries_max: int = 0, bytes_max: int = 2**31) -> None:
        """Nothing is held.

        Args:
            entries_max: option delivery_control_maximum_total_map_entries; 0 is no limit.
            bytes_max: option delivery_control_maximum_reassembly_bytes.
        """
        self._entries_max, self._bytes_max = entries_max, bytes_max
        self.entries = self.bytes = 0
        self._turn = 0
        self._known: set[Holder] = set()
        self._waiting: list[tuple[int, Holder]] = []  # a heap; each holder once, perhaps by a gap that it has no more

    def opened(self, holder: Holder) -> int:
        """Returns a gap has opened; returns its turn, by which gaps of all topics are compared."""
        self._turn += 1
        if holder not in self._known:
            self._known.add(holder)
            heapq.heappush(self._waiting, (self._turn, holder))
        return self._turn

    def oldest(self) -> Holder | None:
        """Who has the gap that opened first; None when nobody has one."""
        while self._waiting:
            turn, holder = self._waiting[0]
            now = holder.oldest_gap
            if now == turn:
                return holder
            if now is None:
                heapq.heappop(self._waiting)
                self._known.remove(holder)
            else:
                heapq.heapreplace(self._waiting, (now, holder))
        return None

    def forget(self, holder: Holder) -> None:
        """Somebody holds nothing any more."""
        if holder in self._known:
            self._known.remove(holder)
            self._waiting = [each for each in self._waiting if each[1] is not holder]
            heapq.heapify(self._waiting)

    @property
    def exceeded(self) -> bool:
        """Whether more entries are held than may be."""
        return 0 < self._entries_max < self.entries

    def reserve(self, message_bytes: int) -> bool:
        """Takes memory for a message; False when there is too little left."""
        # One message as long as the limit fits, so its own overhead does not count against it.
        if self.bytes + message_bytes > self._bytes_max:
            return False
        self.bytes += message_bytes + _PARTIAL_BYTES
        return True

    def release(self, message_bytes: int) -> None:
        """Gives a message's memory back."""
        self.bytes -= message_bytes + _PARTIAL_BYTES
