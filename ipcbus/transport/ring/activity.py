"""Signs of life of a ring session: when its owner gives one, and when a reader has waited too long for one.

A sign is a change of the activity counter, which stands for Ultra Messaging's session message, or of the tail. No
clock: the time is passed in.
"""

from __future__ import annotations


class OwnerActivity:
    """The owner's side: data are signs of life too, so only an idle session has to give one."""

    def __init__(self, interval_ns: int) -> None:
        """A session that has given none yet.

        Args:
            interval_ns: longest time without a sign, within half of it.
        """
        self._interval_ns = interval_ns
        self._tail = -1
        self._sign_ns = 0
        self.next_ns = 0

    def is_due(self, tail: int, now_ns: int) -> bool:
        """Returns whether a sign has to be given now; `next_ns` says when to ask again."""
        if now_ns < self.next_ns:
            return False
        # A tail that moved was moved at any time since the last look: at half the interval that errs by a half only.
        self.next_ns = now_ns + max(1, self._interval_ns // 2)
        moved, self._tail = tail != self._tail, tail
        if moved or now_ns - self._sign_ns >= self._interval_ns:
            self._sign_ns = now_ns
            return not moved
        return False


class ActivityTimeout:
    """A reader's side."""

    def __init__(self, timeout_ns: int) -> None:
        """Nothing was seen yet.

        Args:
            timeout_ns: a session without a sign of life for so long has ended for the reader.
        """
        self.timeout_ns = timeout_ns
        self._signs: tuple[int, int] | None = None
        self._since_ns = 0

    def too_long(self, signs: tuple[int, int], now_ns: int) -> bool:
        """Notes activity and tail; says whether both have stood still for the timeout."""
        if self.broken_by(signs):
            self._signs, self._since_ns = signs, now_ns
        return now_ns - self._since_ns >= self.timeout_ns

    def broken_by(self, signs: tuple[int, int]) -> bool:
        """Returns whether these are not the signs that were noted last."""
        return signs != self._signs
