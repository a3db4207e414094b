"""Session messages: when nothing else tells that a session lives, and up to where it has sent."""

from __future__ import annotations


class SessionMessages:
    """When the next session message is due: after some silence, then after twice as long each time."""

    def __init__(self, minimum_ns: int, maximum_ns: int, now_ns: int) -> None:
        """As after a datagram.

        Args:
            minimum_ns: `sm_minimum_interval`, in ns; 0 sends none.
            maximum_ns: `sm_maximum_interval`, in ns.
            now_ns: the time.
        """
        self._minimum_ns, self._maximum_ns = minimum_ns, maximum_ns
        self._interval_ns = minimum_ns
        self._due_ns = now_ns + minimum_ns

    @property
    def next_ns(self) -> int | None:
        """When the next one is due; None when none ever is."""
        return self._due_ns if self._minimum_ns else None

    def sent(self, now_ns: int) -> None:
        """A datagram was sent: it says what a session message would."""
        self._interval_ns = self._minimum_ns
        self._due_ns = now_ns + self._minimum_ns

    def due(self, now_ns: int) -> bool:
        """Returns whether one has to be sent now; the one after it is twice as far away."""
        if not self._minimum_ns or now_ns < self._due_ns:
            return False
        self._interval_ns = min(2 * self._interval_ns, self._maximum_ns)
        self._due_ns = now_ns + self._interval_ns
        return True
