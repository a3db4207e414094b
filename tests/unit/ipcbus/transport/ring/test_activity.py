"""Signs of life in virtual time."""

from __future__ import annotations

import itertools

import pytest

from ipcbus.transport.ring.activity import ActivityTimeout, OwnerActivity
from tests.kit.cases import each_of

MS = 1_000_000


def test_an_idle_session_gives_a_sign_every_interval() -> None:
    pulse = OwnerActivity(100 * MS)
    given = [now for now in range(0, 1000) if pulse.is_due(7, now * MS)]
    assert given == list(range(100, 1000, 100))


def test_data_are_signs_of_life() -> None:
    pulse = OwnerActivity(100 * MS)
    assert not any(pulse.is_due(now // 50, now * MS) for now in range(0, 2000))


def test_it_is_asked_again_twice_an_interval() -> None:
    pulse = OwnerActivity(100 * MS)
    pulse.is_due(0, 0)
    assert pulse.next_ns == 50 * MS
    pulse.is_due(0, 20 * MS)  # too early: nothing is looked at
    assert pulse.next_ns == 50 * MS
    pulse.is_due(0, 70 * MS)
    assert pulse.next_ns == 120 * MS


@each_of("last", range(0, 120, 7))
def test_no_silence_is_longer_than_one_and_a_half_intervals(last: int) -> None:
    """Whenever the last data came, which is before the rule for timeouts: twice the interval."""
    pulse = OwnerActivity(100 * MS)
    given = [now for now in range(0, 1000) if pulse.is_due(int(now >= last), now * MS) and now >= last]
    assert len(given) > 5
    assert max(later - sooner for sooner, later in itertools.pairwise([last, *given])) <= 150


def test_an_interval_of_nearly_nothing_is_one() -> None:
    pulse = OwnerActivity(1)
    assert [pulse.is_due(0, now) for now in range(3)] == [False, True, True]


def test_a_session_is_silent_when_neither_word_changes_for_the_timeout() -> None:
    silence = ActivityTimeout(100)
    assert not silence.too_long((0, 0), 1000)  # begins with the first look, whenever that is
    assert not silence.too_long((0, 0), 1099)
    assert silence.too_long((0, 0), 1100)


@pytest.mark.parametrize("sign", [(1, 0), (0, 1), (1, 1)])
def test_either_word_is_a_sign_of_life(sign: tuple[int, int]) -> None:
    silence = ActivityTimeout(100)
    silence.too_long((0, 0), 0)
    assert not silence.too_long(sign, 99)
    assert not silence.too_long(sign, 198)
    assert silence.too_long(sign, 199)


def test_a_sign_that_comes_late_ends_the_silence() -> None:
    silence = ActivityTimeout(100)
    silence.too_long((5, 5), 0)
    assert silence.too_long((5, 5), 100)
    assert not silence.broken_by((5, 5))
    assert silence.broken_by((6, 5))
    assert not silence.too_long((6, 5), 500)
