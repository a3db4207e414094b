"""The requests for a range of messages: what to ask a source for, when to ask again, and when to give up."""

from __future__ import annotations

from dataclasses import dataclass

NUMBERS_A_REQUEST = 256
"""Most numbers of one request."""


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """The times and limits of requests.

    Attributes:
        interval_ns: how long to wait for an answer before the same messages are asked for again.
        interval_max_ns: each further wait is twice as long, up to this time.
        timeout_ns: how long to ask without any answer before the messages are given up.
        outstanding_max: most requests that are unanswered.
    """

    interval_ns: int
    interval_max_ns: int
    timeout_ns: int
    outstanding_max: int


class RangeRequests:
    """Asks for the messages of a range in the order of their numbers; no clock: the time is passed in.

    The channel keeps the order of its messages. So an answer that does not begin at the next number belongs to an
    earlier attempt, and all that is unanswered is asked for again after a while.
    """

    def __init__(self, times: RequestTimes) -> None:
        """Begins without a range."""
        self._times = times
        self._next = self._asked = 0
        self._interval_ns = times.interval_ns
        self._progress_ns = self._asked_ns = 0
        self._waits = False

    def ask(self, first: int, last: int, now_ns: int) -> list[tuple[int, int]]:
        """Returns the requests to send now, each with its first and last number.

        Args:
            first: the first number that is missing.
            last: the last number that is missing.
            now_ns: the time.
        """
        if not self._waits or first != self._next:
            self._waits, self._next, self._asked = True, first, first
            self._interval_ns, self._progress_ns = self._times.interval_ns, now_ns
        elif self._asked > first and now_ns - self._asked_ns >= self._interval_ns:
            self._asked = first
            self._interval_ns = min(2 * self._interval_ns, self._times.interval_max_ns)
        until = min(last + 1, first + self._times.outstanding_max * NUMBERS_A_REQUEST)
        # Few large requests: a small one only at the end of the range, or when nothing else is asked for.
        if until - self._asked < NUMBERS_A_REQUEST and until <= last and self._asked > first:
            return []
        found = []
        while self._asked < until:
            end = min(self._asked + NUMBERS_A_REQUEST, until)
            found.append((self._asked, end - 1))
            self._asked, self._asked_ns = end, now_ns
        return found

    def accepts(self, first: int, last: int) -> bool:
        """Returns whether an answer for these numbers is the next one."""
        return self._waits and first == self._next and last < self._asked

    def answered(self, last: int, now_ns: int) -> None:
        """Notes that everything up to this number is answered."""
        self._next = last + 1
        self._progress_ns = self._asked_ns = now_ns
        self._interval_ns = self._times.interval_ns

    def hold(self, now_ns: int) -> None:
        """Notes that the receiver has no room now, so that time does not count."""
        self._progress_ns = self._asked_ns = now_ns

    def refused(self) -> None:
        """Notes that the requests of the last `ask` could not be sent."""
        self._asked = self._next

    def is_hopeless(self, now_ns: int) -> bool:
        """Returns whether no answer has come for too long."""
        return self._waits and now_ns - self._progress_ns >= self._times.timeout_ns

    @property
    def next_ns(self) -> int:
        """When to call again though nothing comes, in ns."""
        return min(self._asked_ns + self._interval_ns, self._progress_ns + self._times.timeout_ns)
