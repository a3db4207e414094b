from __future__ import annotations

import pytest

from tests.kit.cases import each_of


@pytest.fixture
def ten() -> int:
    return 10


@each_of("a", (1, 2))
@each_of(("b", "c"), [(3, 4), pytest.param(5, 6, id="five")])
def test_the_other_arguments_are_fixtures(ten: int, a: int, b: int, c: int) -> None:
    assert ten > a + b


def test_every_case_is_tried_and_each_that_failed_is_named() -> None:
    tried = []

    @each_of("number", range(5), ids=lambda number: f"number {number}")
    def check(number: int) -> None:
        tried.append(number)
        if number == 4:
            with pytest.raises(ValueError, match="x"):
                pass
        assert number != 2, "is two"

    with pytest.raises(BaseExceptionGroup, match="2 of 5 cases failed") as raised:
        check()
    assert tried == [0, 1, 2, 3, 4]
    assert [error.__notes__ for error in raised.value.exceptions] == [["case: number 2"], ["case: number 4"]]
    assert "is two" in str(raised.value.exceptions[0])


def test_all_values_of_a_case_name_it() -> None:
    @each_of("a, b", [("x", 1), ("y", 2)])
    def check(a: str, b: int) -> None:
        assert b == 1

    with pytest.raises(ExceptionGroup) as raised:
        check()
    assert raised.value.exceptions[0].__notes__ == ["case: 'y', 2"]


def test_a_test_whose_time_is_over_ends() -> None:
    tried = []

    @each_of("number", range(5))
    def check(number: int) -> None:
        tried.append(number)
        pytest.fail("Timeout (>60.0s) from pytest-timeout.")

    with pytest.raises(BaseExceptionGroup, match="1 of 5"):
        check()
    assert tried == [0]


def test_what_would_test_nothing_is_refused() -> None:
    def check(a: int) -> None:
        raise NotImplementedError

    with pytest.raises(AssertionError, match="no cases"):
        each_of("a", ())
    with pytest.raises(AssertionError, match="does not take"):
        each_of("b", (1,))(check)
    with pytest.raises(AssertionError, match="no marks"):
        each_of("a", [pytest.param(1, marks=pytest.mark.long)])
