from __future__ import annotations

from itertools import count, pairwise
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from ipcbus.wire.number_ranges import NumberRanges

if TYPE_CHECKING:
    from collections.abc import Iterable

RANGE = st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


STEP = st.tuples(st.sampled_from(["add", "remove", "drop"]), RANGE, RANGE)


def numbers_of(found: Iterable[tuple[int, int]]) -> list[int]:
    return [number for low, high in found for number in range(low, high + 1)]


@given(st.lists(STEP, max_size=30))
def test_it_is_a_set(steps: list[tuple[str, tuple[int, int], tuple[int, int]]]) -> None:
    ranges, numbers = NumberRanges(), set[int]()
    for step, (first, last), (low, high) in steps:
        if step == "add":
            touching = not numbers.isdisjoint(range(first - 1, last + 2))
            assert ranges.touches(first, last) == touching
            ranges.add(first, last)
            numbers.update(range(first, last + 1))
        elif step == "remove":
            ranges.remove(first, last)
            numbers.difference_update(range(first, last + 1))
        else:
            ranges.drop_below(first)
            numbers = {number for number in numbers if number >= first}
        found = list(ranges)
        assert numbers_of(found) == sorted(numbers)
        asked = range(low, high + 1)
        assert numbers_of(ranges.within(low, high)) == [number for number in asked if number in numbers]
        assert numbers_of(ranges.without(low, high)) == [number for number in asked if number not in numbers]
        assert ranges.count(low, high) == len(numbers.intersection(asked))
        assert (low in ranges) == (low in numbers)
        assert ranges.behind(low) == next(number for number in count(low) if number not in numbers)
        assert not found or ranges.highest == max(numbers)
        assert list(NumberRanges(found)) == found
        assert all(high + 1 < low for (_, high), (low, _) in pairwise(found))
        assert len(ranges) == len(found)
        assert not found or ranges.front == found[0]


def test_numbers_may_be_high() -> None:
    ranges = NumberRanges()
    ranges.add(0, 2**62)
    ranges.add(2**62 + 1, 2**62 + 5)
    assert list(ranges) == [(0, 2**62 + 5)]
    ranges.clear()
    assert not ranges
