"""The numbers of a topic that are missing."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Gaps:
    """Ranges of missing numbers, ascending, each with the time at which it is given up, and when it opened.

    Gaps open at the end of the stream, so later ones are given up later.
    """

    def __init__(self) -> None:
        """Nothing is missing."""
        self._firsts: list[int] = []
        self._rest: list[tuple[int, int, int]] = []  # last number, due time and turn, beside each first

    def __len__(self) -> int:
        """Returns how many ranges there are."""
        return len(self._firsts)

    @property
    def first(self) -> int:
        """The first missing number; there is one."""
        return self._firsts[0]

    @property
    def due_ns(self) -> int:
        """When the first range is given up; there is one."""
        return self._rest[0][1]

    @property
    def turn(self) -> int | None:
        """What `open` was told of the first range; None when there is none."""
        return self._rest[0][2] if self._rest else None

    def open(self, first: int, last: int, due_ns: int, turn: int = 0) -> None:
        """Numbers behind all others are missing; `turn` grows from gap to gap, over all topics."""
        self._firsts.append(first)
        self._rest.append((last, due_ns, turn))

    def fill(self, number: int) -> bool:
        """Returns a number has come; False when it was not missing."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0:
            return False
        first = self._firsts[at]
        last, due_ns, turn = self._rest[at]
        if number > last:
            return False
        if first == last:
            del self._firsts[at], self._rest[at]
        elif number == first:
            self._firsts[at] = number + 1
        elif number == last:
            self._rest[at] = (number - 1, due_ns, turn)
        else:
            self._rest[at] = (number - 1, due_ns, turn)
            self._firsts.insert(at + 1, number + 1)
            self._rest.insert(at + 1, (last, due_ns, turn))
        return True

    def give_up(self) -> tuple[int, int]:
        """Takes the first range away; returns its first and last number."""
        last = self._rest.pop(0)[0]
        return self._firsts.pop(0), last

    def cover(self, first: int, last: int) -> bool:
        """Returns whether every number from `first` to `last` is missing; true of no numbers at all."""
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
