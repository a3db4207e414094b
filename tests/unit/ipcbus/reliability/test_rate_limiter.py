from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipcbus.reliability.rate_limiter import RateLimiter

MS = 1_000_000


def test_so_many_bytes_an_interval() -> None:
    limiter = RateLimiter(8_000_000, 10 * MS)  # 10,000 bytes each 10 ms
    assert limiter.take(6000, 0)
    assert limiter.take(4000, 0)
    assert not limiter.take(1, 9 * MS)
    assert limiter.next_ns(1, 9 * MS) == 10 * MS
    assert limiter.take(1, 10 * MS)


def test_what_is_left_is_not_saved_up() -> None:
    limiter = RateLimiter(8_000_000, 10 * MS)
    assert limiter.take(10_000, 1000 * MS)
    assert not limiter.take(1, 1000 * MS)


def test_longer_than_the_budget() -> None:
    limiter = RateLimiter(8_000_000, 10 * MS)
    assert limiter.take(25_000, 0)
    assert not limiter.take(1, 10 * MS)
    assert limiter.next_ns(25_000, 10 * MS) == 30 * MS
    assert not limiter.take(25_000, 20 * MS)
    assert limiter.take(25_000, 30 * MS)


def test_no_limit() -> None:
    limiter = RateLimiter(0, 10 * MS)
    assert limiter.take(1 << 40, 0)
    assert limiter.next_ns(1 << 40, 5) == 5


@given(
    st.integers(1, 10**9),
    st.sampled_from([5, 10, 20, 50, 100]),
    st.lists(st.tuples(st.integers(1, 65536), st.integers(0, 30 * MS)), max_size=50),
)
def test_never_more_than_the_rate(rate: int, interval: int, sends: list[tuple[int, int]]) -> None:
    limiter = RateLimiter(rate, interval * MS)
    now = taken = 0
    longest = 0
    for size, pause in sends:
        now += pause
        if limiter.take(size, now):
            taken += size
            longest = max(longest, size)
        else:
            assert limiter.next_ns(size, now) > now
    # A limit below one byte an interval has a longer interval.
    interval_ns = max(interval * MS, -(-8 * 10**9 // rate))
    allowed = rate * interval_ns // (8 * 10**9)
    assert taken <= allowed * (now // interval_ns + 1) + longest


@pytest.mark.parametrize("size", [1, 9000, 40_000])
def test_at_the_time_it_names_it_can_be_taken(size: int) -> None:
    limiter = RateLimiter(8_000_000, 10 * MS)
    assert limiter.take(33_333, 0)
    assert limiter.take(size, limiter.next_ns(size, 3 * MS))


def test_a_limit_below_one_byte_an_interval_lets_bytes_go_at_its_rate() -> None:
    limiter = RateLimiter(100, 10 * MS)
    assert limiter.take(1000, 0)
    due_ns = limiter.next_ns(1, 0)
    assert due_ns == 80_000 * MS  # 8,000 bits at 100 a second
    assert not limiter.take(1, due_ns - 1)
    assert limiter.take(1, due_ns)


def test_intervals_stay_where_they_are_whenever_it_is_asked() -> None:
    limiter = RateLimiter(8_000_000, 10 * MS)
    assert limiter.take(10_000, 19 * MS)
    # That was the second interval, and the third begins in a millisecond.
    assert limiter.next_ns(10_000, 19 * MS) == 20 * MS
    assert limiter.take(10_000, 20 * MS)
