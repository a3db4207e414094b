from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ipcbus.recovery.number_ranges import NumberRanges

RANGE = st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(st.tuples(st.booleans(), RANGE), max_size=30))
def test_it_is_a_set(steps: list[tuple[bool, tuple[int, int]]]) -> None:
    ranges, numbers = NumberRanges(), set[int]()
    for adds, (first, last) in steps:
        if adds:
            touching = not numbers.isdisjoint(range(first - 1, last + 2))
            assert ranges.touches(first, last) == touching
            ranges.add(first, last)
            numbers.update(range(first, last + 1))
        else:
            ranges.drop_below(first)
            numbers = {number for number in numbers if number >= first}
        found = list(ranges)
        assert [number for low, high in found for number in range(low, high + 1)] == sorted(numbers)
        assert all(high + 1 < low for (_, high), (low, _) in pairwise(found))
        assert len(ranges) == len(found)
        assert not found or ranges.front == found[0]


def test_numbers_may_be_high() -> None:
    ranges = NumberRanges()
    ranges.add(0, 2**62)
    ranges.add(2**62 + 1, 2**62 + 5)
    assert list(ranges) == [(0, 2**62 + 5)]
