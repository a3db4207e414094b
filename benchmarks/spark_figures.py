"""What the suites of `benchmarks.spark` share: what they get and what they give."""

from __future__ import annotations

import dataclasses
import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


@dataclasses.dataclass(frozen=True)
class Setting:
    """Where a suite measures.

    Attributes:
        spark: the session.
        directory: for archives, empty, gone afterwards.
        factor: amount of work; 1 is the usual one.
        runs: how often each figure is taken.
        warm_up: whether a run that does not count goes before.
    """

    spark: SparkSession
    directory: Path
    factor: float
    runs: int
    warm_up: bool = True


@dataclasses.dataclass(frozen=True)
class Figure:
    """One line of the table.

    Attributes:
        name: what was measured.
        unit: of its values.
        values: of each run.
        aim: what it should reach.
        smaller_is_better: of times.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    aim: float | None = None
    smaller_is_better: bool = False

    @property
    def value(self) -> float:
        """The median."""
        return statistics.median(self.values)


def rate(count: int, runs: int, work: Callable[[], object], *, warm_up: bool = True) -> tuple[float, ...]:
    """How many a second, of each run; by default one run before them warms up."""
    if warm_up:
        work()
    found = []
    for _ in range(runs):
        begin = time.perf_counter()
        work()
        found.append(count / (time.perf_counter() - begin))
    return tuple(found)
