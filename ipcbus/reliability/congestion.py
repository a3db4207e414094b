"""Congestion control: how much a path through a network takes, from what came, what was lost, and the round trip.

`CubicWindow` is the window of CUBIC (RFC 9438), for LBT-RU. `LossRate` is the rate of TFRC (RFC 5348), for LBT-RM: it
swings less, and needs no answer to every window. Both have the same methods. Sizes are bytes of datagrams, each with
CHARGE.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final, Protocol

_SECOND: Final = 1_000_000_000
UNLIMITED: Final = 1 << 62
FIRST_DATAGRAMS: Final = 10
"""Datagrams that may be on their way before anything is known of a path."""
LEAST_DATAGRAMS: Final = 4
"""Datagrams that may be on their way whatever is lost: fewer would make a path with much random loss useless."""
_WINDOW_MAX: Final = 1 << 30

_BETA: Final = 0.7
_CUBE: Final = 0.4
_RENO: Final = 3 * (1 - _BETA) / (1 + _BETA)
_DELAY_SAMPLES: Final = 4
_DELAY_MIN_NS: Final = 4_000_000
_DELAY_MAX_NS: Final = 16_000_000

_WEIGHTS: Final = (1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2)


class Control(Protocol):
    """The congestion control of one path."""

    unit: int
    """The usual size of a datagram."""

    @property
    def window(self) -> int:
        """The bytes that may be on their way."""

    def rate(self, round_trip_ns: int) -> int:
        """Returns the bytes a second at which to send."""

    def acknowledged(self, size: int, count: int, now_ns: int, round_trip_ns: int, *, used: bool) -> None:
        """Takes note that bytes are not on their way any more.

        Args:
            size: the bytes.
            count: the number of datagrams that were sent by then.
            now_ns: the time.
            round_trip_ns: the round trip, as measured last.
            used: whether the source used what it might send; only then more may be sent.
        """

    def lost(self, count: int, now_ns: int) -> None:
        """Takes note of a loss that is not the consequence of one before.

        Args:
            count: the number of datagrams that were sent by now.
            now_ns: the time.
        """

    def silent(self) -> None:
        """Takes note that no answer came in time."""


class _QueueSign:
    """Tells from round trips that a queue has formed in the network (as in RFC 9406)."""

    def __init__(self) -> None:
        self._shortest_ns = UNLIMITED
        self._latest_ns: deque[int] = deque(maxlen=_DELAY_SAMPLES)

    def note(self, round_trip_ns: int) -> bool:
        """Takes a round trip; returns whether all of the latest ones were long."""
        self._shortest_ns = min(self._shortest_ns, round_trip_ns)
        self._latest_ns.append(round_trip_ns)
        delay = min(max(self._shortest_ns // 8, _DELAY_MIN_NS), _DELAY_MAX_NS)
        return len(self._latest_ns) == _DELAY_SAMPLES and min(self._latest_ns) > self._shortest_ns + delay

    def clear(self) -> None:
        """Forgets the latest ones."""
        self._latest_ns.clear()


class CubicWindow:
    """The window of CUBIC: after a loss it grows fast to where the loss was, stays there, then looks for more."""

    def __init__(self, unit: int) -> None:
        """Starts with the first window; `unit` is the usual size of a datagram."""
        self.unit = unit
        self._window = float(FIRST_DATAGRAMS * unit)
        self._threshold = math.inf
        self._highest = 0.0
        self._origin = self._estimate = 0.0
        self._begun_ns = -1
        self._plateau = 0.0
        self._queue_sign = _QueueSign()

    @property
    def window(self) -> int:
        """The bytes that may be on their way."""
        return int(self._window)

    def rate(self, round_trip_ns: int) -> int:
        """Returns the bytes a second at which to send: a little more than a window in each round trip."""
        gain = 2.0 if self._window < self._threshold else 1.25
        return int(gain * self._window * _SECOND / max(1, round_trip_ns))

    def acknowledged(self, size: int, count: int, now_ns: int, round_trip_ns: int, *, used: bool) -> None:
        """See `Control`."""
        del count
        queued = self._queue_sign.note(round_trip_ns)
        if not used:
            self._begun_ns = -1  # the time without use does not count
        elif self._window < self._threshold:
            self._window = min(self._window + size, _WINDOW_MAX)
            if queued:
                self._threshold = self._window
        else:
            self._grow(size, now_ns, round_trip_ns)

    def _grow(self, size: int, now_ns: int, round_trip_ns: int) -> None:
        if self._begun_ns < 0:
            self._begun_ns = now_ns
            self._origin = max(self._highest, self._window)
            self._plateau = ((self._origin - self._window) / self.unit / _CUBE) ** (1 / 3)
            self._estimate = self._window
        passed = (now_ns - self._begun_ns + round_trip_ns) / _SECOND - self._plateau
        target = self._origin + _CUBE * passed**3 * self.unit
        target = min(max(target, self._window), 1.5 * self._window)
        share = min(size / self._window, 1.0)
        self._estimate += _RENO * self.unit * share
        self._window = min(max(self._window + (target - self._window) * share, self._estimate), _WINDOW_MAX)

    def lost(self, count: int, now_ns: int) -> None:
        """See `Control`."""
        del count, now_ns
        self._fall(self._window * _BETA)

    def silent(self) -> None:
        """See `Control`: begins again with the least window."""
        self._fall(self._window * _BETA)
        self._window = float(LEAST_DATAGRAMS * self.unit)

    def _fall(self, window: float) -> None:
        # A window that did not come back to where it was makes room for others.
        self._highest = self._window * (1 + _BETA) / 2 if self._window < self._highest else self._window
        self._window = self._threshold = max(window, float(LEAST_DATAGRAMS * self.unit))
        self._begun_ns = -1
        self._queue_sign.clear()


class LossRate:
    """The rate that TCP would reach with the measured loss, from the mean of the last intervals between losses."""

    def __init__(self, unit: int) -> None:
        """Starts without a rate: the first datagrams go at once."""
        self.unit = unit
        self._rate = 0.0
        self._intervals: deque[int] = deque(maxlen=len(_WEIGHTS))
        self._lost_at = self._count = 0
        self._received = 0
        self._since_ns = -1
        self._came = 0.0
        self._used = False
        self._mean_root = 0.0
        self._round_trip = 0.0
        self._queue_sign = _QueueSign()
        self._doubles = True

    @property
    def window(self) -> int:
        """The bytes that may be on their way: limited only before the first answer."""
        return UNLIMITED if self._rate else FIRST_DATAGRAMS * self.unit

    def rate(self, round_trip_ns: int) -> int:
        """Returns the bytes a second at which to send; less when the round trip grows, before a queue overflows."""
        if not self._rate:
            return UNLIMITED
        root = math.sqrt(max(1, round_trip_ns))
        swing = self._mean_root / root if self._mean_root and self._intervals else 1.0
        return max(int(self._rate * min(swing, 1.0)), self._least(round_trip_ns))

    def acknowledged(self, size: int, count: int, now_ns: int, round_trip_ns: int, *, used: bool) -> None:
        """See `Control`."""
        self._count = max(self._count, count)
        queued = self._queue_sign.note(round_trip_ns)
        self._round_trip = max(1, round_trip_ns) / _SECOND
        root = math.sqrt(max(1, round_trip_ns))
        self._mean_root = 0.9 * self._mean_root + 0.1 * root if self._mean_root else root
        if not self._rate:
            self._rate, self._since_ns = FIRST_DATAGRAMS * self.unit * _SECOND / max(1, round_trip_ns), now_ns
            return
        if self._since_ns < 0:  # the time of a silence says nothing of the path
            self._received, self._since_ns = 0, now_ns
            return
        self._received += size
        self._used |= used
        passed = now_ns - self._since_ns
        if passed < round_trip_ns:
            return
        self._came = self._received * _SECOND / max(1, passed)
        wanted = self._equation(round_trip_ns) if self._intervals else self._rate * 2
        if not self._intervals and (queued or not self._doubles):
            # A queue has formed: what came is what the path takes.
            wanted = (self._rate if not self._doubles else self._came) + self.unit / self._round_trip
            self._rate, self._doubles = min(self._rate, wanted), False
        if wanted > self._rate:
            # What came shows what the path takes; a source with less to send learns nothing.
            wanted = min(wanted, max(self._rate, 2 * self._came)) if self._used else self._rate
        self._rate = max(wanted, self._least(round_trip_ns))
        self._received, self._since_ns, self._used = 0, now_ns, False

    def _least(self, round_trip_ns: int) -> int:
        return LEAST_DATAGRAMS * self.unit * _SECOND // max(1, round_trip_ns)

    def lost(self, count: int, now_ns: int) -> None:
        """See `Control`."""
        del now_ns
        if self._intervals:
            self._intervals.appendleft(max(1, count - self._lost_at))
        else:
            # The first interval is the one that gives half of what came.
            reached = (self._came or self._rate) / 2
            datagrams = reached * self._round_trip / self.unit
            self._intervals.appendleft(max(1, int(datagrams**2 * 2 / 3)))
            self._rate = min(self._rate, reached)
        self._lost_at = self._count = max(self._count, count)

    def silent(self) -> None:
        """See `Control`: halves the rate."""
        self._rate /= 2
        self._since_ns = -1

    def _equation(self, round_trip_ns: int) -> float:
        """Returns the rate of RFC 5348, section 3.1, for the mean interval between losses."""
        intervals = list(self._intervals)
        weights = _WEIGHTS[: len(intervals)]
        mean = sum(each * weight for each, weight in zip(intervals, weights, strict=True)) / sum(weights)
        latest = [self._count - self._lost_at, *intervals][: len(_WEIGHTS)]
        weights = _WEIGHTS[: len(latest)]
        mean = max(mean, sum(each * weight for each, weight in zip(latest, weights, strict=True)) / sum(weights))
        loss = min(1.0, 1 / max(1.0, mean))
        round_trip = round_trip_ns / _SECOND
        cost = math.sqrt(2 * loss / 3) + 12 * math.sqrt(3 * loss / 8) * loss * (1 + 32 * loss**2)
        return self.unit / (round_trip * cost)
