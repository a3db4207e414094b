from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ipcbus.gmd.delivery_modes import ALL, SOME
from ipcbus.gmd.delivery_terms import Deadlines, DeliveryTerms
from ipcbus.gmd.gmd_settings import FOREVER_NS


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([SOME, ALL]), st.integers(0, 2)), max_size=20))
def test_runs_have_the_terms_of_each_number(steps: list[tuple[int, int, int]]) -> None:
    terms, number = DeliveryTerms(), 1
    expected: dict[int, tuple[int, int]] = {}
    for step, mode, timeout_ns in steps:
        expected.update({each: terms.current for each in range(number, number + step)})
        number += step
        terms.change(number, mode, timeout_ns)
        assert terms.current == (mode, timeout_ns)
    expected.update({each: terms.current for each in range(number, number + 3)})
    low = number // 2 + 1
    for _ in range(2):
        found = {}
        for first, last, mode, timeout_ns in terms.runs(low, number + 2):
            found.update({each: (mode, timeout_ns) for each in range(first, last + 1)})
        assert found == {each: value for each, value in expected.items() if each >= low}
        terms.drop_below(low)


def test_terms_of_no_messages() -> None:
    assert list(DeliveryTerms().runs(5, 4)) == []


def test_deadlines_of_messages_that_are_sent_together_are_one() -> None:
    deadlines = Deadlines()
    assert deadlines.next_ns == FOREVER_NS
    deadlines.add(1, 3, 1000, 0)
    deadlines.add(4, 5, 1000, 10)
    deadlines.add(6, 6, 1000, 11)
    deadlines.add(7, 7, 500, 12)
    assert deadlines.next_ns == 512
    assert list(deadlines.take(511)) == []
    assert list(deadlines.take(600)) == [(7, 7)]
    assert list(deadlines.take(1009)) == []
    assert list(deadlines.take(1010)) == [(1, 5)]
    assert list(deadlines.take(1011)) == [(6, 6)]
    assert deadlines.next_ns == FOREVER_NS
