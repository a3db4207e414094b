"""The common grid of timers that recur: one wake-up of a sleeping context serves several of them.

A context that is awake runs such a timer up to its lead early: what it does then, right after a message, does not delay
the next one, as a wake-up of its own might.
"""

from __future__ import annotations

LEAD_MAX_NS = 30_000_000
_PARTS = 8


def lead_ns(interval_ns: int) -> int:
    """Returns how much early a timer may run, in ns: an eighth of its interval, and at most 30 ms."""
    return min(interval_ns // _PARTS, LEAD_MAX_NS)


def early_ns(due_ns: int, interval_ns: int) -> int:
    """Returns from when on a timer may run that is due then, in ns of the monotonic clock."""
    return due_ns - lead_ns(interval_ns)


def next_ns(now_ns: int, interval_ns: int) -> int:
    """Returns when a timer that runs now is due again, in ns of the monotonic clock."""
    return ((now_ns + lead_ns(interval_ns)) // interval_ns + 1) * interval_ns
