"""A rate limit: a budget of bytes that is filled again every rate interval."""

from __future__ import annotations

_NS = 1_000_000_000


class RateLimiter:
    """A rate limit as in Ultra Messaging: a budget for each rate interval; bytes that are not used do not add up.

    A datagram longer than a whole budget may go at the beginning of an interval, and the budgets of the next intervals
    pay for it; otherwise it could never be sent. Where a budget would be below one byte, the interval is longer.
    """

    def __init__(self, bits_per_second: int, interval_ns: int) -> None:
        """Starts with a full budget.

        Args:
            bits_per_second: the limit; 0 means no limit.
            interval_ns: `rate_interval`, in ns.
        """
        if bits_per_second:
            interval_ns = max(interval_ns, -(-8 * _NS // bits_per_second))  # a budget of no byte would never pay
        self._budget = bits_per_second * interval_ns // (8 * _NS)
        self._unlimited = bits_per_second == 0
        self._interval_ns = interval_ns
        self._available = self._budget
        self._since_ns = 0

    @property
    def unlimited(self) -> bool:
        """Whether there is no limit."""
        return self._unlimited

    def take(self, size: int, now_ns: int) -> bool:
        """Takes `size` bytes from the budget; returns False, and takes nothing, when there are not enough."""
        if self._unlimited:
            return True
        if now_ns - self._since_ns >= self._interval_ns:
            self._fill(now_ns)
        if size > self._available and not (size > self._budget == self._available):
            return False
        self._available -= size
        return True

    def next_ns(self, size: int, now_ns: int) -> int:
        """Returns the earliest time at which `take` would take `size` bytes."""
        if self._unlimited:
            return now_ns
        self._fill(now_ns)
        needed = min(size, self._budget)
        if needed <= self._available:
            return now_ns
        intervals = -((self._available - needed) // max(1, self._budget))
        return self._since_ns + intervals * self._interval_ns

    def _fill(self, now_ns: int) -> None:
        passed = (now_ns - self._since_ns) // self._interval_ns
        if passed > 0:
            self._available = min(self._budget, self._available + passed * self._budget)
            self._since_ns += passed * self._interval_ns
