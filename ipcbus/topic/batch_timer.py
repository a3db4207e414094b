"""The age limit of the open datagram of a session. No clock: the time is passed in."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ipcbus.topic.batch import BatchWriter


class TimerResult(NamedTuple):
    """The result of a check of an open datagram.

    Attributes:
        next_ns: ns until the next check; None when the next send asks for it (`SendPolicy.batch_opened`).
        timed_out: whether an explicit batch was published before its end, because it was open for too long.
    """

    next_ns: int | None
    timed_out: bool


def publish_old(batch: BatchWriter, now_ticks: int, interval_ns: int, explicit_ns: int) -> TimerResult:
    """Publishes the open datagram if it is old enough.

    Args:
        batch: the open datagram.
        now_ticks: the time, by the clock of the session's ring.
        interval_ns: greatest age of messages that are in no explicit batch.
        explicit_ns: greatest age of an explicit batch; 0 for no limit.
    """
    rest_ns = batch.flush_older(now_ticks, interval_ns, explicit_ns)
    goes_on = batch.timer_runs and batch.ring.head != batch.timer_head
    batch.timer_head = batch.ring.head
    # In a burst a datagram may begin to wait at any time, long before the next look at the interval.
    interval_ns = min(batch.watch_burst(goes_on) or interval_ns, interval_ns)
    if rest_ns >= 0:
        return TimerResult(min(rest_ns, interval_ns), False)
    if goes_on:
        # The next datagram of a stream opens soon, and a timer that has to be started again wakes the driver.
        return TimerResult(interval_ns, rest_ns == -2)
    # A send meanwhile either finds that the timer has ended, or is found here.
    return TimerResult(None if batch.end_timer() else interval_ns, rest_ns == -2)
