"""The times of session messages: an idle source shows with them that it lives, and up to which number it has sent."""

from __future__ import annotations


class SessionMessages:
    """The timer of session messages: each interval of a silence is twice as long as the one before."""

    def __init__(self, minimum_ns: int, maximum_ns: int, now_ns: int) -> None:
        """Starts as after a datagram.

        Args:
            minimum_ns: `sm_minimum_interval`, in ns; 0 turns session messages off.
            maximum_ns: `sm_maximum_interval`, in ns.
            now_ns: the time.
        """
        self._minimum_ns, self._maximum_ns = minimum_ns, maximum_ns
        self._interval_ns = minimum_ns
        self._due_ns = now_ns + minimum_ns

    @property
    def next_ns(self) -> int | None:
        """The time at which the next session message is due; None when they are off."""
        return self._due_ns if self._minimum_ns else None

    def sent(self, now_ns: int) -> None:
        """Starts again with the shortest interval, because a datagram was sent."""
        self._interval_ns = self._minimum_ns
        self._due_ns = now_ns + self._minimum_ns

    def due(self, now_ns: int) -> bool:
        """Returns whether to send a session message now; if so, doubles the interval."""
        if not self._minimum_ns or now_ns < self._due_ns:
            return False
        self._interval_ns = min(2 * self._interval_ns, self._maximum_ns)
        self._due_ns = now_ns + self._interval_ns
        return True
