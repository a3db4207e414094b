"""Latency histograms: their sums and percentiles.

Each slot counts latencies in buckets whose width grows with the value (16 buckets an octave), so that the error of a
value is at most 1/32 of it. Histograms can be added, for example those of all slots of a session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ringbuf import layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Counts = np.ndarray[Any, np.dtype[np.uint64]]

_EDGES = layout.bucket_edges()
# A bucket contains the whole numbers from its edge to below the next edge; the last bucket counts as its edge.
_MIDDLES = np.append((_EDGES[:-1] + _EDGES[1:] - np.uint64(1)) // np.uint64(2), _EDGES[-1])


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Latencies in ns that a share of the messages did not exceed.

    Attributes:
        count: number of messages that were counted.
        p50: the median.
        p90: not exceeded by 90 of 100 messages.
        p99: not exceeded by 99 of 100 messages.
        p999: not exceeded by 999 of 1000 messages.
        max: the longest latency.
    """

    count: int
    p50: int
    p90: int
    p99: int
    p999: int
    max: int


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Counts by bucket of `layout.bucket_edges`, and the exact maximum.

    A sample counts for itself and for the messages since the sample before, so that the counts are numbers of messages.

    Attributes:
        counts: number of messages in each bucket, as a read-only array.
        max_ns: the longest latency in ns; 0 without a message.
    """

    counts: Counts
    max_ns: int = 0

    def __post_init__(self) -> None:
        """Checks the shape and keeps a read-only copy."""
        counts = np.array(self.counts, dtype=np.uint64)
        if counts.shape != _EDGES.shape:
            raise ValueError(f"a latency histogram has {len(_EDGES)} buckets, these counts have shape {counts.shape}")
        counts.flags.writeable = False
        object.__setattr__(self, "counts", counts)

    @classmethod
    def empty(cls) -> Histogram:
        """Returns a histogram whose counts are 0."""
        return cls(np.zeros_like(_EDGES))

    @classmethod
    def merged(cls, histograms: Iterable[Histogram]) -> Histogram:
        """Returns the sum of any number of histograms."""
        return sum(histograms, start=cls.empty())

    @property
    def count(self) -> int:
        """Number of messages that were counted."""
        return sum(self.counts.tolist())

    def __add__(self, other: Histogram) -> Histogram:
        """Returns the sum of two histograms."""
        return Histogram(self.counts + other.counts, max(self.max_ns, other.max_ns))

    def since(self, before: Histogram) -> Histogram | None:
        """Returns the counts since an earlier state; None if `before` is not an earlier state of this histogram.

        The maximum is exact if it has risen since; otherwise it is the middle of the highest bucket with a count.
        """
        if np.array_equal(self.counts, before.counts):
            return _NOTHING
        with np.errstate(over="ignore"):
            counts = self.counts - before.counts
        # A count wraps around to 0 at the end of its word; a count that is far lower has started again.
        if np.any(counts >> np.uint64(63)):
            return None
        if self.max_ns > before.max_ns:
            return Histogram(counts, self.max_ns)
        used = np.flatnonzero(counts)
        return Histogram(counts, min(int(_MIDDLES[used[-1]]), self.max_ns) if len(used) else 0)

    def __eq__(self, other: object) -> bool:
        """Returns whether counts and maximum are equal."""
        if not isinstance(other, Histogram):
            return NotImplemented
        return self.max_ns == other.max_ns and bool(np.array_equal(self.counts, other.counts))

    def __hash__(self) -> int:
        """Returns the same hash for equal histograms."""
        return hash((self.max_ns, self.counts.tobytes()))

    def percentile(self, share: float) -> int | None:
        """Returns the latency in ns that `share` (0 to 1) of the messages do not exceed; None without messages.

        It is the middle of its bucket, and never more than the exact maximum.
        """
        found = self._latencies((share,))
        return found[0] if found else None

    def below(self, limits: Iterable[int]) -> tuple[float, ...]:
        """Returns how many messages took less than each limit in ns; exact if the limit is the edge of a bucket."""
        # In floating point, as in `_latencies`.
        counted = np.concatenate(([0.0], np.cumsum(self.counts, dtype=np.float64)))
        places = np.searchsorted(_EDGES, np.array(list(limits), dtype=np.uint64))
        return tuple(counted[places].tolist())

    @property
    def sum_ns(self) -> float:
        """Sum of all latencies in ns, within 1/32: each counts as the middle of its bucket."""
        return float(self.counts.astype(np.float64) @ _MIDDLES.astype(np.float64))

    def percentiles(self) -> Percentiles | None:
        """Returns the usual percentiles, or None without messages."""
        found = self._latencies((0.5, 0.9, 0.99, 0.999, 1.0))
        if not found:
            return None
        p50, p90, p99, p999, highest = found
        return Percentiles(self.count, p50, p90, p99, p999, self.max_ns or highest)

    def _latencies(self, shares: tuple[float, ...]) -> list[int]:
        """Returns the latency at each share; an empty list without messages."""
        if not all(0 <= share <= 1 for share in shares):
            raise ValueError(f"the share of a percentile is one of {shares}, but it must be from 0 to 1")
        if not self.counts.any():
            return []
        # In floating point, so that counts of a damaged peer do not wrap around.
        below = np.cumsum(self.counts, dtype=np.float64)
        total = below[-1]
        places = np.searchsorted(below, np.maximum(1, np.ceil(np.array(shares) * total)))
        middles = [int(middle) for middle in _MIDDLES[np.minimum(places, len(_MIDDLES) - 1)]]
        return [min(middle, self.max_ns) if self.max_ns else middle for middle in middles]

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Histogram:
        """Returns a histogram from the result of `to_dict`.

        Raises:
            ValueError: the value is not a histogram, or has buckets of another layout.
        """
        try:
            buckets = [(int(edge), int(count)) for edge, count in value["buckets"]]
            index = np.searchsorted(_EDGES, np.array([edge for edge, _ in buckets], dtype=np.uint64))
            counts = np.zeros_like(_EDGES)
            counts[index] = [count for _, count in buckets]
            highest = int(value["max_ns"] or 0)
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"a latency histogram is damaged: {error!r}") from error
        if any(int(_EDGES[place]) != edge for place, (edge, _) in zip(index.tolist(), buckets, strict=True)):
            raise ValueError(
                "a latency histogram has buckets of another layout: another release of ipcbus wrote it; read it with "
                "that release"
            )
        return cls(counts, highest)

    def to_dict(self) -> dict[str, Any]:
        """Returns the percentiles, and the buckets that are not empty as `[lower edge in ns, count]`."""
        found = self.percentiles()
        used = np.flatnonzero(self.counts)
        return {
            "count": self.count,
            "p50_ns": found.p50 if found else None,
            "p90_ns": found.p90 if found else None,
            "p99_ns": found.p99 if found else None,
            "p99.9_ns": found.p999 if found else None,
            "max_ns": found.max if found else None,
            "buckets": [[int(_EDGES[i]), int(self.counts[i])] for i in used],
        }


_NOTHING = Histogram.empty()
