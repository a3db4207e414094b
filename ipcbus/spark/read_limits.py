"""Limits of a micro-batch, divided among logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def share(available: Mapping[str, int], limit: int, turn: int) -> dict[str, int]:
    """Divides a limit among logs in proportion to what they have to read.

    Each log that has something gets at least one, so that a busy log does not starve the others; where the limit is too
    small for that, the logs take turns.

    Args:
        available: log -> how much it has.
        limit: limit of all together, from 1.
        turn: any number that changes from batch to batch.

    Returns:
        Log -> its share, at most what it has, and together at most the limit.
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
    remaining = limit - sum(shares.values())
    for key in turned:
        more = min(available[key] - shares[key], remaining)
        shares[key] += more
        remaining -= more
    return shares
