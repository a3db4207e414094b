"""The topic numbers that a source's guaranteed messages had when this session sent them."""

from __future__ import annotations

from bisect import bisect_right


class TopicNumbers:
    """First and last topic number of each guaranteed message, as runs: both numbers grow by 1 from message to message.

    So a message needs a call only if it does not go on with the run: it has fragments, or messages without a guarantee
    came before it.
    """

    def __init__(self) -> None:
        """Begins without messages."""
        self._begins: list[int] = []
        self._firsts: list[int] = []
        self._lengths: list[int] = []

    def add(self, number: int, first: int, last: int) -> None:
        """Takes note of the topic numbers of a message; without fragments the run goes on with it.

        Args:
            number: GMD number; numbers of the calls increase, or the last one comes again.
            first: first topic number.
            last: last topic number.
        """
        while self._begins and self._begins[-1] >= number:
            for each in (self._begins, self._firsts, self._lengths):
                del each[-1]
        self._begins.append(number)
        self._firsts.append(first)
        self._lengths.append(last - first)

    def of(self, number: int) -> tuple[int, int] | None:
        """Returns first and last topic number of a message; None if this session did not send it."""
        at = bisect_right(self._begins, number) - 1
        if at < 0:
            return None
        past = number - self._begins[at]
        length = self._lengths[at]
        first = self._firsts[at] + past + (length if past else 0)
        return first, first if past else first + length

    def drop_below(self, number: int) -> None:
        """Forgets the messages below a number."""
        gone = bisect_right(self._begins, number) - 1
        if gone > 0:
            for each in (self._begins, self._firsts, self._lengths):
                del each[:gone]
