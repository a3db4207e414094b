"""How much of what is there goes into one micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def share(available: Mapping[str, int], limit: int, turn: int) -> dict[str, int]:
    """Divides a limit among logs as they have more or less to read.

    A log that has something gets one at least, so that none starves beside a busy one; where the limit is too small
    even for that, they take turns.

    Args:
        available: log -> what it has.
        limit: of all together, from 1.
        turn: any number that changes from batch to batch.

    Returns:
        Log -> its share, at most what it has, together at most the limit.
    """
    waiting = sorted(key for key, count in available.items() if count > 0)
    total = sum(available[key] for key in waiting)
    shares = {key: max(0, count) if total <= limit else 0 for key, count in available.items()}
    if total <= limit or not waiting:
        return shares
    turned = waiting[turn % len(waiting) :] + waiting[: turn % len(waiting)]
    for key in turned[:limit]:
        shares[key] = 1
    rest = limit - len(turned[:limit])
    for key in waiting if rest else ():
        shares[key] += (available[key] - 1) * rest // (total - len(waiting))  # rounded down
    left = limit - sum(shares.values())
    for key in turned:
        more = min(available[key] - shares[key], left)
        shares[key] += more
        left -= more
    return shares
