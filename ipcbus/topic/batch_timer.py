"""When the open datagram of a session is published by its age. No clock: the time is passed in."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ipcbus.topic.batch import BatchWriter


class Look(NamedTuple):
    """What a look at an open datagram has found.

    Attributes:
        again_ns: ns until the next look; None when a send asks for it (`Policy.opened`).
        timed_out: whether an explicit batch was published before its end, because it was open for too long.
    """

    again_ns: int | None
    timed_out: bool


def look(batch: BatchWriter, now_ticks: int, interval_ns: int, explicit_ns: int) -> Look:
    """Publishes what is old enough.

    Args:
        batch: the open datagram.
        now_ticks: the time, by the clock of the session's ring.
        interval_ns: most age of what is in no explicit batch.
        explicit_ns: most age of an explicit batch; 0 is no limit.
    """
    left = batch.flush_older(now_ticks, interval_ns, explicit_ns)
    if left >= 0:
        return Look(left, False)
    # Cleared first and looked at again: a send in between either sees the flag or is seen here.
    batch.on_timer = False
    if not batch.ring.open_bytes:
        return Look(None, left == -2)
    batch.on_timer = True
    return Look(interval_ns, left == -2)
