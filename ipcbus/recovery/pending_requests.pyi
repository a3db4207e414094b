"""The requests of a context that wait for responses: their numbers, their time-outs, and what is not theirs.

It has no clock: the time is passed in. Any thread may call it.
"""

from typing import Final, Generic, TypeVar

Asker = TypeVar("Asker")

FOREVER_NS: Final[int]
"""A time in ns that never comes."""

class PendingRequests(Generic[Asker]):
    """The requests in flight. An asker is whatever its user gives: it gets the responses to its request."""

    begun: int
    """Requests begun so far."""
    responses: int
    """Responses to requests in flight so far."""
    late: int
    """Responses to requests that had ended; they are dropped."""
    unknown: int
    """Responses to numbers that no request had; they are dropped."""

    def __init__(self, first_number: int, maximum: int) -> None:
        """Begins without requests.

        Args:
            first_number: the number of the first request, 64 bits; a random one keeps apart the responses to the
                requests of an earlier context.
            maximum: most requests in flight.
        """

    def __len__(self) -> int:
        """Returns the number of requests in flight."""

    def askers(self) -> list[Asker]:
        """Returns the askers of all requests in flight, the oldest first."""

    def begin(self, asker: Asker, *, is_single: bool, until_ns: int = ...) -> int | None:
        """Begins a request.

        Args:
            asker: gets the responses.
            is_single: whether the first response ends the request.
            until_ns: when the request ends without more responses; FOREVER_NS, the default, for never.

        Returns:
            The number of the request, 64 bits; None when there are too many in flight.
        """

    def take_response(self, number: int) -> Asker | None:
        """Notes a response; returns its asker, or None when the response is late or unknown."""

    def end(self, number: int) -> bool:
        """Ends a request; returns False if it had ended before."""

    def end_due(self, now_ns: int) -> list[Asker]:
        """Ends the requests whose time is over, and returns their askers, the oldest request first."""

    @property
    def check_at_ns(self) -> int:
        """When to call `end_due` again at the latest; FOREVER_NS without a request that has a time."""
