"""Signs of life of a ring session: when its owner has to give one, and when a reader times out.

A sign of life is a change of the activity counter, the ring's session message, or of the tail. Callers pass in the
time.
"""

from __future__ import annotations


class OwnerActivity:
    """The owner's timer: messages are signs of life too, so only an idle session has to give one."""

    def __init__(self, interval_ns: int) -> None:
        """Starts before the first sign of life.

        Args:
            interval_ns: longest time without a sign of life; it may take half as long again.
        """
        self._interval_ns = interval_ns
        self._tail = -1
        self._sign_ns = 0
        self.next_ns = 0

    def is_due(self, tail: int, now_ns: int) -> bool:
        """Returns whether to give a sign of life now; `next_ns` is the time at which to call again."""
        if now_ns < self.next_ns:
            return False
        # A tail that moved may have moved long ago; a look every half interval keeps the error below a half.
        self.next_ns = now_ns + max(1, self._interval_ns // 2)
        moved, self._tail = tail != self._tail, tail
        if moved or now_ns - self._sign_ns >= self._interval_ns:
            self._sign_ns = now_ns
            return not moved
        return False


class ActivityTimeout:
    """The timer of a reader: the activity timeout."""

    def __init__(self, timeout_ns: int) -> None:
        """Starts before the first sign of life.

        Args:
            timeout_ns: time without a sign of life after which a session has ended for the reader.
        """
        self.timeout_ns = timeout_ns
        self._signs: tuple[int, int] | None = None
        self._since_ns = 0

    def too_long(self, signs: tuple[int, int], now_ns: int) -> bool:
        """Notes activity counter and tail; returns whether neither has changed for the timeout."""
        if self.broken_by(signs):
            self._signs, self._since_ns = signs, now_ns
        return now_ns - self._since_ns >= self.timeout_ns

    def broken_by(self, signs: tuple[int, int]) -> bool:
        """Returns whether these differ from the signs that were noted last."""
        return signs != self._signs
