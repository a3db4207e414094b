"""Locks that other processes are expected to hold, and a look at all of them in compiled code."""

from collections.abc import Iterable

class HeldLocks:
    """Locks of `ringbuf.liveness`."""

    def __init__(self, locks: Iterable[tuple[int, int]]) -> None:
        """Notes the locks.

        Args:
            locks: the descriptor and the byte of each. A descriptor that is closed later counts as a lock that is free.
        """

    def all_held(self) -> bool:
        """Returns whether other open file descriptions hold all of the locks."""
