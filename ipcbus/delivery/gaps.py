"""The sequence numbers of a topic that are missing."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


NEVER = 2**63 - 1
"""Due time of a gap that a recovery fills: time alone does not give it up."""


class Gaps:
    """Ranges of missing numbers, ascending. Each has a time at which it is given up, and the number of its opening.

    Gaps open at the end of the stream, so later gaps are given up later, unless a recovery changes their times.
    """

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._rest: list[tuple[int, int, int]] = []  # last number, due time and opening number, beside each first

    def __len__(self) -> int:
        """Returns the number of ranges."""
        return len(self._firsts)

    @property
    def first(self) -> int:
        """The first missing number; there must be one."""
        return self._firsts[0]

    @property
    def due_ns(self) -> int:
        """The time at which the first range is given up; there must be one."""
        return self._rest[0][1]

    @property
    def opening_number(self) -> int | None:
        """The opening number of the first range; None when nothing is missing."""
        return self._rest[0][2] if self._rest else None

    def open(self, first: int, last: int, due_ns: int, opening_number: int = 0) -> None:
        """Adds a range behind all others; `opening_number` increases from gap to gap, over all topics.

        Adjacent ranges that a recovery fills become one.
        """
        if due_ns == NEVER and self._rest and self._rest[-1][:2] == (first - 1, NEVER):
            self._rest[-1] = (last, NEVER, self._rest[-1][2])
            return
        self._firsts.append(first)
        self._rest.append((last, due_ns, opening_number))

    def fill(self, number: int) -> bool:
        """Removes a number that has arrived; returns False when it was not missing."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0:
            return False
        first = self._firsts[at]
        last, due_ns, opening_number = self._rest[at]
        if number > last:
            return False
        if first == last:
            del self._firsts[at], self._rest[at]
        elif number == first:
            self._firsts[at] = number + 1
        elif number == last:
            self._rest[at] = (number - 1, due_ns, opening_number)
        else:
            self._rest[at] = (number - 1, due_ns, opening_number)
            self._firsts.insert(at + 1, number + 1)
            self._rest.insert(at + 1, (last, due_ns, opening_number))
        return True

    def give_up(self) -> tuple[int, int]:
        """Removes the first range and returns its first and last number."""
        last = self._rest.pop(0)[0]
        return self._firsts.pop(0), last

    @property
    def first_end(self) -> int:
        """The number after the first range; there must be one."""
        return self._rest[0][0] + 1

    def drop_below(self, number: int) -> None:
        """Removes all missing numbers below `number`."""
        while self._firsts and self._firsts[0] < number:
            if self._rest[0][0] >= number:
                self._firsts[0] = number
                return
            del self._firsts[0], self._rest[0]

    def drop(self, first: int, last: int) -> None:
        """Removes the missing numbers from `first` to `last`."""
        self.set_due(first, last, -1)
        kept = [(begin, rest) for begin, rest in zip(self._firsts, self._rest, strict=True) if rest[1] != -1]
        self._firsts, self._rest = [begin for begin, _ in kept], [rest for _, rest in kept]

    def set_due(self, first: int, last: int, due_ns: int) -> None:
        """Changes the time at which the missing numbers from `first` to `last` are given up."""
        at = max(0, bisect_right(self._firsts, first) - 1)
        while first <= last and at < len(self._firsts) and self._firsts[at] <= last:
            begin, (end, before_ns, opening_number) = self._firsts[at], self._rest[at]
            pieces = [
                (begin, min(end, first - 1), before_ns),
                (max(begin, first), min(end, last), due_ns),
                (max(begin, last + 1), end, before_ns),
            ]
            pieces = [piece for piece in pieces if piece[0] <= piece[1]]
            self._firsts[at : at + 1] = [piece[0] for piece in pieces]
            self._rest[at : at + 1] = [(piece[1], piece[2], opening_number) for piece in pieces]
            at += len(pieces)

    def settle(self, below: int) -> None:
        """Makes the ranges below a number due, except those that a recovery fills."""
        self._rest = [(each[0], 0, each[2]) if each[0] < below and each[1] != NEVER else each for each in self._rest]

    def put_off(self, due_ns: int) -> None:
        """Makes no range due before a time."""
        self._rest = [(last, max(before_ns, due_ns), opening) for last, before_ns, opening in self._rest]

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yields all ranges, ascending."""
        return ((begin, rest[0]) for begin, rest in zip(self._firsts, self._rest, strict=True))

    def recovering(self, first: int = 0) -> Iterator[tuple[int, int]]:
        """Yields the ranges from number `first` on that a recovery fills, ascending."""
        at = max(0, bisect_right(self._firsts, first) - 1)
        while at < len(self._firsts):
            begin, (last, due_ns, _) = self._firsts[at], self._rest[at]
            at += 1
            if due_ns == NEVER and last >= first:
                yield max(begin, first), last

    def cover(self, first: int, last: int) -> bool:
        """Returns whether every number from `first` to `last` is missing; true for an empty range."""
        return next(self.present(first, last), None) is None

    def present(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yields the ranges between `first` and `last` that are not missing, ascending."""
        at = max(0, bisect_right(self._firsts, first) - 1)
        while first <= last and at < len(self._firsts):
            begin, end = self._firsts[at], self._rest[at][0]
            at += 1
            if end < first:
                continue
            if begin > last:
                break
            if begin > first:
                yield first, begin - 1
            first = end + 1
        if first <= last:
            yield first, last
