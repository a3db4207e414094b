"""Missing numbers, range by range; whatever order, tests/property has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipcbus.delivery.gaps import NEVER, Gaps


@pytest.fixture
def gaps() -> Gaps:
    """3 to 5 due at 10, 6 to 9 due at 20, 15 due at 30."""
    made = Gaps()
    made.open(3, 5, 10)
    made.open(6, 9, 20)
    made.open(15, 15, 30)
    return made


def ranges(gaps: Gaps) -> list[tuple[int, int, int]]:
    """First, last and due time of all, by giving them up."""
    found = []
    while gaps:
        due_ns = gaps.due_ns
        found.append((*gaps.give_up(), due_ns))
    return found


def test_without_gaps_nothing_is_missing() -> None:
    assert not Gaps()
    assert not Gaps().fill(0)
    assert list(Gaps().present(2, 4)) == [(2, 4)]
    assert not Gaps().cover(2, 4)


def test_ranges_that_touch_keep_their_times(gaps: Gaps) -> None:
    assert (len(gaps), gaps.first) == (3, 3)
    assert ranges(gaps) == [(3, 5, 10), (6, 9, 20), (15, 15, 30)]


@pytest.mark.parametrize(
    ("number", "left"),
    [
        (6, [(7, 9, 20)]),
        (9, [(6, 8, 20)]),
        (7, [(6, 6, 20), (8, 9, 20)]),
    ],
)
def test_what_comes_cuts_its_range(gaps: Gaps, number: int, left: list[tuple[int, int, int]]) -> None:
    assert gaps.fill(number)
    assert not gaps.fill(number)
    assert ranges(gaps) == [(3, 5, 10), *left, (15, 15, 30)]


def test_a_range_of_one_is_gone_when_it_is_filled(gaps: Gaps) -> None:
    assert gaps.fill(15)
    assert len(gaps) == 2


@pytest.mark.parametrize("number", [0, 2, 10, 14, 16])
def test_what_is_not_missing_fills_nothing(gaps: Gaps, number: int) -> None:
    assert not gaps.fill(number)
    assert len(gaps) == 3


@pytest.mark.parametrize(
    ("first", "last", "covered"),
    [
        (3, 5, True),
        (4, 4, True),
        (3, 9, True),
        (5, 6, True),
        (2, 3, False),
        (9, 10, False),
        (9, 15, False),
        (7, 6, True),
    ],
)
def test_numbers_are_covered_when_all_of_them_are_missing(gaps: Gaps, first: int, last: int, covered: bool) -> None:
    assert gaps.cover(first, last) == covered


@pytest.mark.parametrize(
    ("first", "last", "there"),
    [
        (0, 20, [(0, 2), (10, 14), (16, 20)]),
        (4, 12, [(10, 12)]),
        (3, 9, []),
        (11, 13, [(11, 13)]),
        (10, 15, [(10, 14)]),
        (5, 4, []),
    ],
)
def test_what_is_present_lies_between(gaps: Gaps, first: int, last: int, there: list[tuple[int, int]]) -> None:
    assert list(gaps.present(first, last)) == there


def recovered(*ranges: tuple[int, int]) -> Gaps:
    """Gaps that a recovery fills."""
    gaps = Gaps()
    for number, (first, last) in enumerate(ranges):
        gaps.open(first, last, NEVER, number)
    return gaps


def test_adjacent_gaps_of_a_recovery_become_one_and_others_do_not() -> None:
    gaps = recovered((1, 3), (4, 9), (11, 12))
    assert list(gaps.recovering()) == [(1, 9), (11, 12)]
    gaps.open(13, 14, 5)
    assert len(gaps) == 3
    assert (gaps.first, gaps.first_end, gaps.due_ns, gaps.opening_number) == (1, 10, NEVER, 0)


def test_what_a_recovery_fills_is_told_from_a_number_on() -> None:
    gaps = recovered((1, 3), (6, 9), (11, 12))
    gaps.open(20, 21, 100)
    assert list(gaps.recovering(7)) == [(7, 9), (11, 12)]
    assert list(gaps.recovering(10)) == [(11, 12)]
    assert list(gaps.recovering(13)) == []


def test_numbers_below_another_are_dropped() -> None:
    gaps = recovered((1, 3), (6, 9))
    gaps.drop_below(3)
    assert list(gaps.recovering()) == [(3, 3), (6, 9)]
    gaps.drop_below(7)
    assert list(gaps.recovering()) == [(7, 9)]
    gaps.drop_below(10)
    assert len(gaps) == 0


def test_some_numbers_are_dropped() -> None:
    gaps = recovered((1, 5), (8, 9))
    gaps.drop(3, 8)
    assert list(gaps.ranges()) == [(1, 2), (9, 9)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), max_size=6), st.integers(0, 60), st.integers(0, 60))
def test_the_time_of_some_numbers_changes(steps: list[tuple[int, int]], first: int, last: int) -> None:
    gaps, missing, at = Gaps(), set(), 0
    for number, (skip, length) in enumerate(steps):
        at += skip + 1
        gaps.open(at, at + length - 1, NEVER, number)
        missing |= set(range(at, at + length))
        at += length
    gaps.set_due(first, last, 5)
    left = {number for begin, end in gaps.recovering() for number in range(begin, end + 1)}
    assert left == {number for number in missing if not first <= number <= last}
    assert all(gaps.fill(number) for number in sorted(missing))
    assert len(gaps) == 0


def test_what_is_settled_is_due_and_what_a_recovery_fills_is_not(gaps: Gaps) -> None:
    gaps.open(20, 25, NEVER)
    gaps.settle(30)
    assert ranges(gaps) == [(3, 5, 0), (6, 9, 0), (15, 15, 0), (20, 25, NEVER)]


def test_a_range_that_is_not_all_below_is_not_settled(gaps: Gaps) -> None:
    gaps.settle(9)
    assert ranges(gaps) == [(3, 5, 0), (6, 9, 20), (15, 15, 30)]


def test_nothing_is_due_before_the_time_until_which_it_is_put_off(gaps: Gaps) -> None:
    gaps.open(20, 25, NEVER)
    gaps.put_off(25)
    assert ranges(gaps) == [(3, 5, 25), (6, 9, 25), (15, 15, 30), (20, 25, NEVER)]
