"""A pipeline: rows become small tables that merge, and these become results.

The tables merge exactly, so a pipeline can be a batch job (one table), a streaming job (one table for each micro-batch,
see `streaming_job`) and the work of several hosts (one table for each archive).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    Tables = dict[str, DataFrame]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The functions that turn rows into results.

    Attributes:
        name: the name on the command line.
        columns: the columns that it needs.
        events: whether it needs events too (option `includeEvents`).
        partials: rows -> tables by name.
        merge: name of a table -> function that merges the union of several.
        results: tables -> results by name.
        parameters: what the tables depend on besides rows, in words; only tables with equal parameters merge.
    """

    name: str
    columns: tuple[str, ...]
    events: bool
    partials: Callable[[DataFrame], Tables]
    merge: Mapping[str, Callable[[DataFrame], DataFrame]]
    results: Callable[[Tables], Tables]
    parameters: str = ""

    def run(self, rows: DataFrame) -> Tables:
        """Returns the results of rows; Spark computes them when they are used."""
        return self.results(self.partials(rows))
