from __future__ import annotations

from random import Random

import pytest

from ipcbus.reliability.loss_detector import TABLE, Cause, LossDetector, NakSettings, State

MS = 1_000_000
TERMS = NakSettings(initial_backoff=50 * MS, backoff=200 * MS, suppress=1000 * MS, generation=10_000 * MS)


class Middle(Random):
    """Draws the middle, so that backoffs are as long as their options."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def lost(*numbers: int, terms: NakSettings = TERMS, random: Random | None = None) -> LossDetector:
    found = LossDetector(terms, Middle() if random is None else random)
    for number in numbers:
        assert found.add_missing(number, number + 1, 0) == 0
    return found


def asked(found: LossDetector, until: int) -> list[tuple[int, list[int]]]:
    """When which numbers are asked for, in ms."""
    told = []
    while (now := found.next_ns) is not None and now <= until:
        asks, given_up = found.due(now)
        if asks:
            told.append((now // MS, asks))
        if not asks and not given_up:
            following = found.next_ns
            assert following is None or following > now
    return told


def test_every_state_knows_every_cause() -> None:
    assert set(TABLE) == {(state, cause) for state in State for cause in Cause}


def test_asked_for_again_and_again_until_it_is_given_up() -> None:
    found = lost(5)
    times = [time for time, _ in asked(found, 20_000 * MS)]
    assert times == list(range(50, 10_000, 200))
    assert len(found) == 0


def test_at_once_without_a_first_backoff() -> None:
    found = lost(5, terms=NakSettings(initial_backoff=0))
    assert found.due(0) == ([5], [])


def test_found_missing_together_asked_for_together() -> None:
    found = LossDetector(TERMS, Random(1))
    found.add_missing(3, 7, 0)
    assert found.next_ns is not None
    assert found.due(found.next_ns) == ([3, 4, 5, 6], [])


def test_what_comes_first_is_never_asked_for() -> None:
    found = lost(5)
    recovered = found.recover(5, 30 * MS)
    assert recovered == (30 * MS, 0)
    assert asked(found, 20_000 * MS) == []
    assert found.recover(5, 31 * MS) is None


def test_an_ncf_suppresses() -> None:
    found = lost(5, 6)
    assert found.due(50 * MS) == ([5, 6], [])
    assert found.ncf([5, 99], 60 * MS) == 1
    told = asked(found, 1500 * MS)
    assert [time for time, numbers in told if 6 in numbers] == [250, 450, 650, 850, 1050, 1250, 1450]
    # Not for the suppress interval, then after another backoff.
    assert [time for time, numbers in told if 5 in numbers] == [1260, 1460]


def test_what_the_source_holds_no_more() -> None:
    found = lost(3, 4, 9)
    assert found.drop_below(5) == [3, 4]
    assert found.drop_below(5) == []
    assert 9 in found


def test_no_more_than_it_may_remember() -> None:
    terms = NakSettings(entries_max=3)
    found = LossDetector(terms, Middle())
    assert found.add_missing(0, 2, 0) == 0
    assert found.add_missing(10, 12, 0) == 1
    assert [number in found for number in (0, 1, 10, 11)] == [False, True, True, True]
    assert found.add_missing(100, 1_000_000_000_000, 0) == 999_999_999_900
    assert len(found) == 3
    assert 999_999_999_999 in found


def test_who_is_refused_for_ever_takes_no_memory() -> None:
    found = lost(5)
    for now in range(10_000):
        found.ncf([5], now)
    assert len(found._timers) < 2000
    assert found.next_ns is not None


@pytest.mark.parametrize("seed", range(20))
def test_backoffs_are_drawn_from_half_to_one_and_a_half(seed: int) -> None:
    found = lost(5, random=Random(seed))
    assert found.next_ns is not None
    assert 25 * MS <= found.next_ns <= 75 * MS
    now = found.next_ns
    found.due(now)
    assert found.next_ns is not None
    assert 100 * MS <= found.next_ns - now <= 300 * MS


def test_a_timer_from_before_a_refusal_means_nothing() -> None:
    """The number was to be asked for again at 250 ms; the NCF puts that off, and no request breaks it."""
    found = lost(7)
    assert found.due(50 * MS) == ([7], [])
    assert found.ncf([7], 100 * MS) == 1
    assert found.due(300 * MS) == ([], [])
    assert asked(found, 2000 * MS) == [(1300, [7]), (1500, [7]), (1700, [7]), (1900, [7])]
