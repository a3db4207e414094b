"""Sets of numbers as ranges."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class NumberRanges:
    """A set of numbers as few ranges: they are sorted, and no two of them touch."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __len__(self) -> int:
        """Returns the number of ranges."""
        return len(self._firsts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Gives first and last number of each range."""
        return zip(self._firsts, self._lasts, strict=True)

    @property
    def front(self) -> tuple[int, int]:
        """First and last number of the lowest range."""
        return self._firsts[0], self._lasts[0]

    def touches(self, first: int, last: int) -> bool:
        """Returns whether `add` would join these numbers to a range that is here already."""
        at = bisect_left(self._lasts, first - 1)
        return at < len(self) and self._firsts[at] <= last + 1

    def add(self, first: int, last: int) -> None:
        """Adds the numbers first..last."""
        begin = bisect_left(self._lasts, first - 1)
        end = begin
        while end < len(self) and self._firsts[end] <= last + 1:
            end += 1
        if end > begin:
            first, last = min(first, self._firsts[begin]), max(last, self._lasts[end - 1])
        self._firsts[begin:end] = [first]
        self._lasts[begin:end] = [last]

    def drop_below(self, number: int) -> None:
        """Removes all numbers below `number`."""
        gone = bisect_left(self._lasts, number)
        del self._firsts[:gone], self._lasts[:gone]
        if self._firsts:
            self._firsts[0] = max(self._firsts[0], number)
