"""Timers as descriptors, and timeouts as callers give them."""

from __future__ import annotations

import math
import os
import select
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from ipcbus.runtime.loop import timerfd
from tests.kit.bus import GIVE_UP_S
from tests.kit.cases import each_of


@each_of(
    ("timeout", "seconds"),
    [
        (None, None),
        (0, 0.0),
        (2, 2.0),
        (0.25, 0.25),
        (Fraction(1, 4), 0.25),
        (-1, 0.0),
        (-math.inf, 0.0),
        (math.inf, None),
        (1e9, 1e9),
        (1.1e9, None),
        (10**400, None),
        (-(10**400), 0.0),
    ],
)
def test_a_timeout_is_bounded(timeout: object, seconds: float | None) -> None:
    assert timerfd.bounded(timeout) == seconds


@each_of("timeout", [True, "1", b"1", Decimal(1), [1], 1j])
def test_what_is_not_a_number_is_refused_by_its_value(timeout: object) -> None:
    with pytest.raises(TypeError, match="is not a time; give seconds"):
        timerfd.bounded(timeout)


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="timeout = nan"):
        timerfd.bounded(math.nan)


def test_a_timer_has_the_whole_delay_and_is_readable_once_it_has_run_out() -> None:
    fd = timerfd.create()
    try:
        assert not os.get_inheritable(fd)
        timerfd.arm(fd, 3600 * 1_000_000_000 + 999_999_999)
        left = Path(f"/proc/self/fdinfo/{fd}").read_text().partition("it_value: (")[2]
        seconds, nanoseconds = (int(number) for number in left.partition(")")[0].split(","))
        assert 3000 <= seconds <= 3600
        assert 0 <= nanoseconds < 1_000_000_000
        assert select.select([fd], [], [], 0)[0] == []
        timerfd.arm(fd, 1)  # a new delay takes the place of the old one
        assert select.select([fd], [], [], GIVE_UP_S)[0] == [fd]
        assert int.from_bytes(os.read(fd, 8), "little") == 1  # it has run out once
        with pytest.raises(BlockingIOError):
            os.read(fd, 8)
    finally:
        os.close(fd)
