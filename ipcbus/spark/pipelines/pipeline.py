"""A pipeline: rows become small tables that merge, and these become results.

Because the tables merge exactly, the same pipeline is a batch job (one table), a streaming job (one for each
micro-batch, see `stream`) and the work of several hosts (one for each archive).
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
    """What turns rows into results.

    Attributes:
        name: as on the command line.
        columns: what it looks at; no more need be read.
        events: whether it needs losses and begins too (option `includeEvents`).
        partials: rows -> tables by name.
        merge: by name of a table: what makes one of the union of several.
        results: tables -> results by name.
        parameters: what lines of the tables depend on besides rows, in words; only tables of the same ones merge.
    """

    name: str
    columns: tuple[str, ...]
    events: bool
    partials: Callable[[DataFrame], Tables]
    merge: Mapping[str, Callable[[DataFrame], DataFrame]]
    results: Callable[[Tables], Tables]
    parameters: str = ""

    def run(self, rows: DataFrame) -> Tables:
        """Returns the results of rows; nothing is computed before they are used."""
        return self.results(self.partials(rows))
