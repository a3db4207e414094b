from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipcbus.stats import Histogram
from ringbuf import layout

EDGES = layout.bucket_edges()


def histogram(values: list[int]) -> Histogram:
    """What a slot would hold after these latencies."""
    counts = np.zeros(layout.HISTOGRAM_BUCKETS, np.uint64)
    for value in values:
        counts[np.searchsorted(EDGES, np.uint64(value), "right") - 1] += np.uint64(1)
    return Histogram(counts, max(values, default=0))


LATENCIES = st.lists(st.integers(1, 10**11), min_size=1, max_size=200)


@given(LATENCIES, st.floats(0, 1))
def test_percentile_is_near_the_exact_one(values: list[int], share: float) -> None:
    exact = sorted(values)[max(0, int(np.ceil(share * len(values))) - 1)]
    found = histogram(values).percentile(share)
    assert found is not None
    assert abs(found - exact) <= exact / 32 + 1


@given(LATENCIES, LATENCIES)
def test_sum_is_that_of_all_values(some: list[int], others: list[int]) -> None:
    assert histogram(some) + histogram(others) == histogram(some + others)
    assert Histogram.merged([histogram(some), histogram(others)]) == histogram(some + others)


@given(LATENCIES)
def test_percentiles_rise_to_the_maximum(values: list[int]) -> None:
    found = histogram(values).percentiles()
    assert found is not None
    assert found.count == len(values)
    assert found.p50 <= found.p90 <= found.p99 <= found.p999 <= found.max == max(values)


@given(LATENCIES, st.lists(st.sampled_from(EDGES.tolist()), max_size=30))
def test_below_an_edge_is_exact(values: list[int], limits: list[int]) -> None:
    assert histogram(values).below(limits) == tuple(sum(value < limit for value in values) for limit in limits)


def test_below_has_no_end() -> None:
    assert histogram([1, 2]).below([0, 1 << 63]) == (0, 2)


@given(LATENCIES)
def test_sum_of_latencies_is_near_the_exact_one(values: list[int]) -> None:
    assert histogram(values).sum_ns == pytest.approx(sum(values), rel=1 / 32)


def test_small_values_are_exact() -> None:
    for value in range(1, 16):
        assert histogram([value] * 3).percentile(0.5) == value


def test_middle_of_the_bucket() -> None:
    # 1000 lies in the bucket from 992 to 1023, in which nothing says where; the maximum is far above.
    assert histogram([1000, 1000, 5000]).percentile(0.5) == (992 + 1023) // 2


def test_weights_count() -> None:
    counts = np.zeros(layout.HISTOGRAM_BUCKETS, np.uint64)
    counts[3], counts[12] = 989, 11
    found = Histogram(counts, 12)
    assert [found.percentile(share) for share in (0.5, 0.989, 0.99)] == [3, 3, 12]
    assert found.count == 1000


def test_open_bucket_counts_as_its_edge() -> None:
    counts = np.zeros(layout.HISTOGRAM_BUCKETS, np.uint64)
    counts[-1] = 1
    assert Histogram(counts).percentile(1.0) == int(EDGES[-1])
    assert Histogram(counts, 2**60).percentiles() is not None


def test_nothing_counted() -> None:
    empty = Histogram.empty()
    assert empty.percentile(0.5) is None
    assert empty.percentiles() is None
    assert empty.to_dict() == {
        "count": 0,
        "p50_ns": None,
        "p90_ns": None,
        "p99_ns": None,
        "p99.9_ns": None,
        "max_ns": None,
        "buckets": [],
    }


def test_to_dict_holds_what_merging_needs() -> None:
    found = histogram([1, 1, 1000]).to_dict()
    assert found["buckets"] == [[1, 2], [992, 1]]
    assert (found["count"], found["p50_ns"], found["max_ns"]) == (3, 1, 1000)


def test_counts_that_a_damaged_peer_has_written() -> None:
    found = Histogram(np.full(layout.HISTOGRAM_BUCKETS, 2**64 - 1, np.uint64), 2**64 - 1)
    assert found.count == 560 * (2**64 - 1)
    assert found.percentiles() is not None
    assert len(found.to_dict()["buckets"]) == 560


def test_is_a_value() -> None:
    one, same, other = histogram([5, 7]), histogram([5, 7]), histogram([5, 8])
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != "a histogram"


def test_keeps_its_own_counts() -> None:
    counts = np.zeros(layout.HISTOGRAM_BUCKETS, np.uint64)
    found = Histogram(counts)
    counts[0] = 1
    assert found.count == 0
    with pytest.raises(ValueError, match="read-only"):
        found.counts[0] = 1


def test_refuses_other_layouts() -> None:
    with pytest.raises(ValueError, match="560 buckets"):
        Histogram(np.zeros(10, np.uint64))


@pytest.mark.parametrize("share", [-0.1, 1.1, 50])
def test_refuses_shares_beyond_one(share: float) -> None:
    with pytest.raises(ValueError, match="must be from 0 to 1"):
        Histogram.empty().percentile(share)


def test_one_that_began_anew_has_no_past() -> None:
    assert histogram([5, 7]).since(histogram([5, 5, 7])) is None
    found = histogram([5, 7, 7]).since(histogram([5, 7]))
    assert found == histogram([7])


def test_nothing_since_is_longer_than_the_longest_of_all() -> None:
    """The middle of the bucket of 1000 lies above it."""
    found = histogram([1000, 1000]).since(histogram([1000]))
    assert found == histogram([1000])
