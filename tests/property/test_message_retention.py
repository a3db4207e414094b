"""Whatever is put into a retention, it holds what a list would hold, and gives it back byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipcbus.topic.message_retention import Retention
from tests.kit.retaining import NaiveRetention, fragments, kept, message

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

Step = tuple[str, int, int, int]

LENGTH = st.integers(0, 20) | st.integers(0, 400) | st.integers(0, 30_000)


@st.composite
def steps(draw: DrawFn) -> Step:
    """What happens, two numbers of it, and how much time passes before."""
    what = draw(st.sampled_from(["put"] * 6 + ["fragments", "fragments", "broken off", "expire", "hole", "clear"]))
    return what, draw(LENGTH), draw(st.integers(1, 60)), draw(st.integers(0, 50))


class Pair:
    """A retention and what it has to be."""

    def __init__(self, size_threshold: int, age_threshold: int, size_limit: int) -> None:
        self.real = Retention(size_threshold, age_threshold, size_limit)
        self.naive = NaiveRetention(size_threshold, age_threshold, size_limit)
        self.now = 1000

    def put(self, raw: bytes) -> None:
        """One more message in both."""
        self.real.put(self.now, raw)
        self.naive.put(self.now, raw)

    def do(self, step: Step) -> None:
        """Does one step in both."""
        what, size, count, passed = step
        self.now += passed
        number = self.naive.next
        if what == "put":
            for i in range(count if size < 400 else 1):
                self.put(message(number + i, bytes([number + i & 0xFF]) * size))
        elif what == "fragments" or what == "broken off":
            parts = fragments(number, bytes(i & 0xFF for i in range(size + 1)), 1 + size // count)
            for part in parts[: -1 if what == "broken off" else None]:
                self.put(part)
                self.now += passed == 7
        elif what == "hole":
            self.put(message(number + count, b"after a hole"))
        elif what == "expire":
            self.real.expire(self.now)
            self.naive.expire(self.now)
        else:
            self.real.clear()
            self.naive.held = []

    def check(self) -> None:
        """Both hold the same."""
        real, naive = self.real, self.naive
        assert (real.low, real.next, real.retained_bytes) == (naive.low, naive.next, naive.retained_bytes)
        assert real.retained_bytes <= naive.size_limit
        assert not naive.held or naive.held[0].begins

    def check_read(self, first: int, last: int, published: int, bytes_max: int) -> None:
        """Both give the same."""
        self.real.published = published
        low, following, entries = self.real.read(first, last, bytes_max)
        found = kept(entries)
        assert found == self.naive.read(first, last, published, bytes_max)
        assert (low, following) == ((found[0].sequence, found[-1].sequence + 1) if found else (first, first))
        assert [each.sequence for each in found] == list(range(low, following))


THRESHOLD = st.just(0) | st.integers(1, 200_000)
AGE = st.just(0) | st.integers(1, 300)
LIMIT = st.integers(0, 1000) | st.integers(1000, 300_000) | st.just(10**9)
READ = st.tuples(st.integers(-5, 900), st.integers(-5, 900), st.integers(-5, 50), st.integers(0, 200_000))


def holds_what_a_list_would_hold(
    threshold: int, age: int, limit: int, todo: list[Step], reads: list[tuple[int, int, int, int]]
) -> None:
    pair = Pair(threshold, age, limit)
    for step in todo:
        pair.do(step)
        pair.check()
    for first, last, unpublished, bytes_max in reads:
        near = [max(0, pair.naive.low + each) for each in (first, last)]
        pair.check_read(min(near), max(near), max(0, pair.naive.next - unpublished), bytes_max)
    pair.check_read(0, 2**64 - 1, 2**64 - 1, 2**64 - 1)
    pair.check_read(0, 2**64 - 1, pair.naive.next, 0)


@pytest.mark.parametrize("examples", [100, pytest.param(1000, marks=pytest.mark.long)])
def test_it_holds_what_a_list_would_hold(examples: int) -> None:
    cases = given(THRESHOLD, AGE, LIMIT, st.lists(steps(), max_size=40), st.lists(READ, max_size=10))
    settings(max_examples=examples)(cases(holds_what_a_list_would_hold))()
