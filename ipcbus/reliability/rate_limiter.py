"""How many bytes may go onto the wire: a budget that is filled again every rate interval."""

from __future__ import annotations

_NS = 1_000_000_000


class RateLimiter:
    """A rate limit as Ultra Messaging has it: so many bits in each rate interval, and what is left is not saved up.

    A datagram longer than a whole interval's budget goes when the interval begins, and what it took too much is missing
    from the intervals after it; else it could never be sent.
    """

    def __init__(self, bits_per_second: int, interval_ns: int) -> None:
        """A full budget.

        Args:
            bits_per_second: the limit; 0 is none.
            interval_ns: `rate_interval`, in ns.
        """
        self._budget = bits_per_second * interval_ns // (8 * _NS)
        self._unlimited = bits_per_second == 0
        self._interval_ns = interval_ns
        self._left = self._budget
        self._since_ns = 0

    def take(self, size: int, now_ns: int) -> bool:
        """Takes so many bytes from the budget; False when it has not as many now."""
        if self._unlimited:
            return True
        if now_ns - self._since_ns >= self._interval_ns:
            self._fill(now_ns)
        if size > self._left and not (size > self._budget == self._left):
            return False
        self._left -= size
        return True

    def next_ns(self, size: int, now_ns: int) -> int:
        """Returns when so many bytes could be taken at the earliest."""
        if self._unlimited:
            return now_ns
        self._fill(now_ns)
        wanted = min(size, self._budget)
        if wanted <= self._left:
            return now_ns
        intervals = -((self._left - wanted) // max(1, self._budget))
        return self._since_ns + intervals * self._interval_ns

    def _fill(self, now_ns: int) -> None:
        passed = (now_ns - self._since_ns) // self._interval_ns
        if passed > 0:
            self._left = min(self._budget, self._left + passed * self._budget)
            self._since_ns += passed * self._interval_ns
