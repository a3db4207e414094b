"""Timers as descriptors (timerfd_create(2)), which Python has from 3.13 on, and the check of timeouts."""

from __future__ import annotations

import ctypes
import math
import numbers
import os
import time
from typing import Any

FOREVER_NS = 1 << 62
"""A time in ns that never comes, and a wait without end."""

LOOK_S = 0.05
"""Seconds after which a wait for others to join checks again, also without a notification."""

_LONGEST_S = 1e9

_GIVE = "give seconds as a number, 0 not to wait, or None to wait for ever"

_libc = ctypes.CDLL(None, use_errno=True)


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", ctypes.c_long * 2), ("value", ctypes.c_long * 2))


def bounded(timeout: Any) -> float | None:  # noqa: ANN401 - whatever the caller gave
    """Returns a timeout in seconds; None (for ever) if it is longer than the system's calls can count, 0 if negative.

    Raises:
        TypeError: the timeout is not a number.
        ValueError: the timeout is NaN.
    """
    if type(timeout) is not float:
        if timeout is None:
            return None
        if isinstance(timeout, bool) or not isinstance(timeout, numbers.Real):
            raise TypeError(f"timeout = {timeout!r} is not a time; {_GIVE}")
        try:
            timeout = float(timeout)
        except OverflowError:  # a whole number beyond every float
            timeout = math.inf if abs(timeout) == timeout else 0.0
    if math.isnan(timeout):
        raise ValueError(f"timeout = {timeout!r} is not a time; {_GIVE}")
    return None if timeout > _LONGEST_S else max(float(timeout), 0.0)


def create() -> int:
    """Returns the descriptor of a new timer, not set yet; it is readable once the timer has run out.

    Raises:
        OSError: the system has no descriptor left.
    """
    # os.timerfd_create came with Python 3.13.
    fd = int(_libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"timerfd_create: {os.strerror(code)}")
    return fd


def arm(fd: int, delay_ns: int) -> None:
    """Sets the timer to run out once, after `delay_ns`."""
    spec = _Itimerspec((0, 0), (delay_ns // 1_000_000_000, delay_ns % 1_000_000_000))
    _libc.timerfd_settime(fd, 0, ctypes.byref(spec), None)
