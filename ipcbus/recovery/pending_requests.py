"""The requests of a context that wait for responses: their numbers, their time-outs, and what is not theirs.

It has no clock, no thread and no lock: the time is passed in, and its user calls it from one thread at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Asker = TypeVar("Asker")

FOREVER_NS = (1 << 63) - 1
"""A time in ns that never comes."""

_NUMBERS = 1 << 64


@dataclass(slots=True)
class _Pending(Generic[Asker]):
    asker: Asker
    is_single: bool
    until_ns: int


class PendingRequests(Generic[Asker]):
    """The requests in flight. An asker is whatever its user gives: it gets the responses to its request."""

    def __init__(self, first_number: int, maximum: int) -> None:
        """Begins without requests.

        Args:
            first_number: the number of the first request; a random one keeps apart the responses to the requests of an
                earlier context.
            maximum: most requests in flight.
        """
        self._first = self._next = first_number % _NUMBERS
        self._maximum = maximum
        self._pending: dict[int, _Pending[Asker]] = {}
        self._check_at_ns = FOREVER_NS
        self.begun = 0
        """Requests begun so far."""
        self.responses = 0
        """Responses to requests in flight so far."""
        self.late = 0
        """Responses to requests that had ended; they are dropped."""
        self.unknown = 0
        """Responses to numbers that no request had; they are dropped."""

    def __len__(self) -> int:
        """Returns the number of requests in flight."""
        return len(self._pending)

    @property
    def is_full(self) -> bool:
        """Whether no other request may begin now."""
        return len(self._pending) >= self._maximum

    def askers(self) -> list[Asker]:
        """Returns the askers of all requests in flight, the oldest first."""
        return [pending.asker for pending in self._pending.values()]

    def begin(self, asker: Asker, *, is_single: bool, until_ns: int = FOREVER_NS) -> int:
        """Begins a request; call it only if `is_full` is False.

        Args:
            asker: gets the responses.
            is_single: whether the first response ends the request.
            until_ns: when the request ends without more responses; FOREVER_NS for never.

        Returns:
            The number of the request, 64 bits.
        """
        number = self._next
        self._next = (number + 1) % _NUMBERS
        self.begun += 1
        self._pending[number] = _Pending(asker, is_single, until_ns)
        self._check_at_ns = min(self._check_at_ns, until_ns)
        return number

    def take_response(self, number: int) -> Asker | None:
        """Notes a response; returns its asker, or None when the response is late or unknown."""
        pending = self._pending.get(number)
        if pending is None:
            # As many numbers as requests begun were given, in order from the first one on.
            if (number - self._first) % _NUMBERS < self.begun:
                self.late += 1
            else:
                self.unknown += 1
            return None
        self.responses += 1
        if pending.is_single:
            del self._pending[number]
        return pending.asker

    def end(self, number: int) -> bool:
        """Ends a request; returns False if it had ended before."""
        return self._pending.pop(number, None) is not None

    def end_due(self, now_ns: int) -> list[Asker]:
        """Ends the requests whose time is over, and returns their askers, the oldest request first."""
        if now_ns < self._check_at_ns:
            return []
        due = [number for number, pending in self._pending.items() if pending.until_ns <= now_ns]
        found = [self._pending.pop(number).asker for number in due]
        self._check_at_ns = min((each.until_ns for each in self._pending.values()), default=FOREVER_NS)
        return found

    @property
    def check_at_ns(self) -> int:
        """When to call `end_due` again at the latest; FOREVER_NS without a request that has a time."""
        return self._check_at_ns if self._pending else FOREVER_NS
