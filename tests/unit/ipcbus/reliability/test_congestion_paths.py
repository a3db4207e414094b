"""The pace of a session, and what its source learns of the way to a client."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipcbus.reliability.congestion import FIRST_DATAGRAMS, LEAST_DATAGRAMS, CubicWindow
from ipcbus.reliability.congestion_paths import STEP_NS, Pacer, Path

UNIT, MS, SECOND = 1500, 1_000_000, 1_000_000_000
TRIP = 20 * MS


@settings(max_examples=50, deadline=None)
@given(st.integers(1000, 10**9), st.lists(st.integers(40, 9000), min_size=1, max_size=200))
def test_a_pace_is_kept_in_steps_of_a_millisecond(rate: int, sizes: list[int]) -> None:
    pacer, now, sent = Pacer(), SECOND, 0
    pacer.rate = rate
    step, step_ns = 0, now
    for size in sizes:
        while not pacer.allows(now):
            assert pacer.next_ns(now) > now
            now = pacer.next_ns(now)
        if now != step_ns:
            step, step_ns = 0, now
        # At once goes what the pace allows in a step; at the beginning also what a late timer may make up for.
        assert step <= rate * 6 * STEP_NS // SECOND
        pacer.spend(size, now)
        sent, step = sent + size, step + size
    assert (sent - sizes[-1]) * SECOND <= rate * (now - SECOND + 6 * STEP_NS)
    assert sent * SECOND >= rate * (now - SECOND - STEP_NS)


def test_a_path_counts_a_loss_in_each_round_trip() -> None:
    path = Path(CubicWindow(UNIT), 0, 0)
    window = path.control.window
    fresh = -1
    assert path.lost([(3, fresh)], 10, 10, 10 * UNIT, 0)
    assert not path.lost([(5, fresh), (9, fresh)], 12, 12, 12 * UNIT, 1)  # sent before that was known
    assert path.lost([(10, fresh)], 20, 20, 20 * UNIT, 2)
    assert not path.lost([(3, 11 * UNIT)], 20, 20, 20 * UNIT, 3)
    assert path.lost([(3, 21 * UNIT)], 30, 30, 30 * UNIT, 4)  # a repair was lost that was sent after the last loss
    assert path.control.window < window


def test_answers_tell_the_round_trip_and_what_is_on_its_way() -> None:
    path = Path(CubicWindow(UNIT), 0, 0)
    assert path.limit == FIRST_DATAGRAMS * UNIT
    path.asked(4, 4, 4 * UNIT, 0)
    path.repaired(UNIT)
    assert path.limit == (FIRST_DATAGRAMS - 1) * UNIT
    assert not path.answered(3, 8 * UNIT, TRIP // 2)
    assert path.answered(4, 8 * UNIT, TRIP)
    assert path.round_trip_ns == TRIP
    assert path.limit == (4 + 14 - 1) * UNIT  # 4 have come, and the window has grown by them


def test_a_question_without_an_answer_is_silence() -> None:
    path = Path(CubicWindow(UNIT), 0, 0)
    assert not path.is_asked
    path.asked(4, 4, 4 * UNIT, 0)
    due = path.silent_ns
    assert due is not None
    assert not path.turn(due - 1)
    assert path.turn(due)
    assert (path.timeouts, path.control.window) == (1, LEAST_DATAGRAMS * UNIT)
    path.asked(4, 4, 4 * UNIT, due)
    assert path.answered(9, 9 * UNIT, due + 1)
    assert path.timeouts == 0


def test_the_time_in_which_a_source_is_idle_does_not_count() -> None:
    path = Path(CubicWindow(UNIT), 0, 0)
    path.asked(0, 0, 0, 0)
    path.answered(0, 0, TRIP)
    assert path.took == 0
    for number in range(1, 22):  # 10 s later, a datagram in 10 ms
        now_ns = 10 * SECOND + number * 10 * MS
        path.asked(number, number, number * UNIT, now_ns)
        path.answered(number, number * UNIT, now_ns + MS // 10)
    assert path.took == pytest.approx(100 * UNIT, rel=0.15)
    path.asked(22, 22, 22 * UNIT, 11 * SECOND)
    assert path.turn(12 * SECOND)
    path.asked(22, 22, 22 * UNIT, 13 * SECOND)
    path.answered(22, 22 * UNIT, 13 * SECOND + TRIP)
    assert path.takes < 90 * UNIT  # the time of a silent client does count
