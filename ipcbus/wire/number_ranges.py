"""Sets of numbers as ranges."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class NumberRanges:
    """A set of numbers as few ranges: they are sorted, and no two of them touch."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        """Makes the set of all numbers of these ranges."""
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    def __len__(self) -> int:
        """Returns the number of ranges."""
        return len(self._firsts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Gives first and last number of each range."""
        return zip(self._firsts, self._lasts, strict=True)

    def __contains__(self, number: int) -> bool:
        """Returns whether a number is here."""
        at = bisect_left(self._lasts, number)
        return at < len(self._firsts) and self._firsts[at] <= number

    @property
    def front(self) -> tuple[int, int]:
        """First and last number of the lowest range."""
        return self._firsts[0], self._lasts[0]

    @property
    def highest(self) -> int:
        """The highest number."""
        return self._lasts[-1]

    def touches(self, first: int, last: int) -> bool:
        """Returns whether `add` would join these numbers to a range that is here already."""
        at = bisect_left(self._lasts, first - 1)
        return at < len(self) and self._firsts[at] <= last + 1

    def within(self, first: int, last: int) -> list[tuple[int, int]]:
        """Returns those of the numbers first..last that are here, as ranges."""
        firsts, lasts = self._firsts, self._lasts
        at = bisect_left(lasts, first)
        if at == len(firsts) or firsts[at] > last:
            return []
        if lasts[at] >= last:
            return [(max(first, firsts[at]), last)]
        found = [(max(first, firsts[at]), lasts[at])]
        at += 1
        while at < len(firsts) and firsts[at] <= last:
            found.append((firsts[at], min(lasts[at], last)))
            at += 1
        return found

    def behind(self, number: int) -> int:
        """Returns the lowest number from this one on that is not here."""
        at = bisect_left(self._lasts, number)
        return self._lasts[at] + 1 if at < len(self._firsts) and self._firsts[at] <= number else number

    def without(self, first: int, last: int) -> list[tuple[int, int]]:
        """Returns those of the numbers first..last that are not here, as ranges."""
        found = []
        for begin, end in self.within(first, last):
            if first < begin:
                found.append((first, begin - 1))
            first = end + 1
        if first <= last:
            found.append((first, last))
        return found

    def count(self, first: int, last: int) -> int:
        """Returns how many of the numbers first..last are here."""
        return sum(end - begin + 1 for begin, end in self.within(first, last))

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

    def remove(self, first: int, last: int) -> None:
        """Removes the numbers first..last."""
        firsts, lasts = self._firsts, self._lasts
        begin = end = bisect_left(lasts, first)
        while end < len(firsts) and firsts[end] <= last:
            end += 1
        if begin == end:
            return
        low, high = firsts[begin], lasts[end - 1]
        kept = [part for part in ((low, first - 1), (last + 1, high)) if part[0] <= part[1]]
        firsts[begin:end] = [part[0] for part in kept]
        lasts[begin:end] = [part[1] for part in kept]

    def drop_below(self, number: int) -> None:
        """Removes all numbers below `number`."""
        gone = bisect_left(self._lasts, number)
        del self._firsts[:gone], self._lasts[:gone]
        if self._firsts:
            self._firsts[0] = max(self._firsts[0], number)

    def clear(self) -> None:
        """Removes all numbers."""
        self._firsts.clear()
        self._lasts.clear()
