from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ipcbus.spark.read_limits import share

AVAILABLE = st.dictionaries(st.text("abcdef", min_size=1, max_size=2), st.integers(0, 10_000), max_size=8)


def test_in_proportion() -> None:
    assert share({"a": 900, "b": 100, "c": 0}, 100, 0) == {"a": 90, "b": 10, "c": 0}


def test_all_of_it_where_the_limit_is_not_reached() -> None:
    assert share({"a": 9, "b": 1}, 10, 0) == {"a": 9, "b": 1}


def test_nothing_there() -> None:
    assert share({}, 5, 3) == {}
    assert share({"a": 0}, 5, 3) == {"a": 0}


def test_a_quiet_log_is_not_starved() -> None:
    assert share({"busy": 10**12, "quiet": 1}, 10, 0) == {"busy": 9, "quiet": 1}


def test_where_the_limit_is_less_than_the_logs_they_take_turns() -> None:
    chosen = [{key for key, count in share(dict.fromkeys("abc", 5), 1, turn).items() if count} for turn in range(3)]
    assert chosen == [{"a"}, {"b"}, {"c"}]


@given(AVAILABLE, st.integers(1, 12_000), st.integers(0, 100))
def test_limits_are_kept_and_used(available: dict[str, int], limit: int, turn: int) -> None:
    shares = share(available, limit, turn)
    assert shares.keys() == available.keys()
    assert all(0 <= shares[key] <= available[key] for key in available)
    assert sum(shares.values()) == min(limit, sum(available.values()))
    if limit >= len(available):
        assert all(shares[key] for key in available if available[key])
