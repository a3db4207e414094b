from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ipcbus.gmd.topic_numbers import TopicNumbers


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=30))
def test_numbers_of_runs(steps: list[tuple[int, int]]) -> None:
    numbers, upcoming, before = TopicNumbers(), 0, (-1, -1)
    expected = {}
    for number, (others, fragments) in enumerate(steps, 4):
        first = upcoming + others
        upcoming = first + fragments + 1
        expected[number] = first, upcoming - 1
        # A run goes on with the number after that of the message before.
        if number == 4 or fragments or first != before[1] + 1:
            numbers.add(number, first, upcoming - 1)
        before = expected[number]
    assert numbers.of(3) is None
    assert {number: numbers.of(number) for number in expected} == expected
    low = 4 + len(steps) // 2
    numbers.drop_below(low)
    assert all(numbers.of(number) == value for number, value in expected.items() if number >= low)


def test_a_number_that_was_taken_back_comes_again() -> None:
    numbers = TopicNumbers()
    numbers.add(1, 0, 2)
    numbers.add(2, 5, 5)
    numbers.add(2, 9, 9)
    assert numbers.of(1) == (0, 2)
    assert numbers.of(2) == (9, 9)
