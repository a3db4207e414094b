"""The algorithms of congestion control."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipcbus.reliability.congestion import FIRST_DATAGRAMS, LEAST_DATAGRAMS, UNLIMITED, CubicWindow, LossRate

UNIT, MS, SECOND = 1500, 1_000_000, 1_000_000_000
TRIP = 20 * MS


def rounds(control: CubicWindow | LossRate, begin: int, count: int, trip: int = TRIP) -> list[int]:
    """Answers of a path on which nothing is lost, one a round trip; the windows or rates after each."""
    found = []
    for turn in range(begin, begin + count):
        size = min(control.window, control.rate(trip) * trip // SECOND)
        control.acknowledged(size, turn * 100, turn * trip, trip, used=True)
        found.append(control.window if isinstance(control, CubicWindow) else control.rate(trip))
    return found


def test_a_window_doubles_until_the_first_loss() -> None:
    control = CubicWindow(UNIT)
    assert control.window == FIRST_DATAGRAMS * UNIT
    assert rounds(control, 0, 3) == [FIRST_DATAGRAMS * UNIT * 2**turn for turn in (1, 2, 3)]
    control.lost(0, 0)
    assert control.window == int(0.7 * 80 * UNIT)


def test_a_window_comes_back_to_where_the_loss_was_stays_there_and_goes_on() -> None:
    """RFC 9438: the time to the plateau is K, the cube root of (Wmax - W) / 0.4."""
    control = CubicWindow(UNIT)
    trip = 100 * MS
    rounds(control, 0, 4, trip)
    highest = control.window / UNIT
    control.lost(0, 0)
    plateau = (highest * 0.3 / 0.4) ** (1 / 3)
    windows = [each / UNIT for each in rounds(control, 0, int(2.5 * plateau * 10), trip)]
    at = [windows[int(share * plateau * 10)] for share in (0.5, 1, 1.5, 2.2)]
    assert at[0] > 0.95 * highest
    assert at[1] == pytest.approx(highest, rel=0.01)
    assert at[2] < 1.05 * highest
    assert at[3] > 1.2 * highest


def test_a_window_that_is_not_used_does_not_grow() -> None:
    control = CubicWindow(UNIT)
    control.acknowledged(UNIT, 1, 0, TRIP, used=False)
    assert control.window == FIRST_DATAGRAMS * UNIT


def test_a_queue_ends_the_doubling_before_it_overflows() -> None:
    control = CubicWindow(UNIT)
    control.acknowledged(UNIT, 1, 0, TRIP, used=True)
    for turn in range(4):
        control.acknowledged(UNIT, 1, turn, TRIP + 10 * MS, used=True)
    before = control.window
    control.acknowledged(before, 1, 5, TRIP + 10 * MS, used=True)
    assert control.window < 1.1 * before


def test_a_window_keeps_room_for_few_datagrams() -> None:
    control = CubicWindow(UNIT)
    for turn in range(20):
        control.lost(turn, turn)
    assert control.window == LEAST_DATAGRAMS * UNIT
    rounds(control, 0, 10)
    control.silent()
    assert control.window == LEAST_DATAGRAMS * UNIT


@pytest.mark.parametrize("interval", [50, 100, 1000])
def test_a_rate_is_that_of_the_equation(interval: int) -> None:
    """RFC 5348, section 3.1, with a loss in each so many datagrams."""
    control = LossRate(UNIT)
    control.acknowledged(UNIT, 0, 0, TRIP, used=True)
    for turn in range(1, 12):
        control.lost(turn * interval, turn * SECOND)
    now = 12 * SECOND
    for _ in range(40):  # it doubles at most in a round trip
        now += TRIP
        control.acknowledged(10**9, 11 * interval, now, TRIP, used=True)
    loss = 1 / interval
    cost = math.sqrt(2 * loss / 3) + 12 * math.sqrt(3 * loss / 8) * loss * (1 + 32 * loss**2)
    assert control.rate(TRIP) == pytest.approx(UNIT / (0.02 * cost), rel=0.01)
    assert control.rate(4 * TRIP) < control.rate(TRIP)


def test_a_rate_grows_with_the_time_since_the_last_loss_and_falls_in_silence() -> None:
    control = LossRate(UNIT)
    rounds(control, 0, 4)
    control.lost(400, 0)
    before = control.rate(TRIP)
    later = rounds(control, 5, 200)
    assert later[-1] > 2 * before
    control.silent()
    assert control.rate(TRIP) == pytest.approx(later[-1] / 2, rel=0.01)


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from([CubicWindow, LossRate]),
    st.lists(
        st.tuples(st.sampled_from(["came", "idle", "lost", "silent"]), st.integers(0, 10**7), st.integers(1, 10**10)),
        max_size=60,
    ),
)
def test_whatever_happens_something_may_be_sent(
    kind: type[CubicWindow | LossRate], events: list[tuple[str, int, int]]
) -> None:
    control, now, count = kind(UNIT), 0, 0
    for what, size, passed in events:
        now, count = now + passed, count + size // UNIT
        if what == "lost":
            control.lost(count, now)
        elif what == "silent":
            control.silent()
        else:
            control.acknowledged(size, count, now, passed, used=what == "came")
        assert control.window >= LEAST_DATAGRAMS * UNIT
        assert UNLIMITED >= control.rate(passed) >= LEAST_DATAGRAMS * UNIT * SECOND // passed
