"""A pipeline beside DuckDB and Polars: what each finds, and how fast.

A figure of Spark is given twice: of the archive itself, and of the Parquet that `compact` made of it, which is what the
other two read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl

from benchmarks.spark_figures import Figure, Setting, rate
from ipcbus.spark.pipelines.compact import compact
from ipcbus.spark.pipelines.reading import Selection, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame

    from ipcbus.spark.pipelines.pipeline import Pipeline, Tables

    Lines = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Data:
    """What is read.

    Attributes:
        archive: directory of the archive.
        parquet: directory of what `compact` made of it.
        rows: how many there are.
    """

    archive: Path
    parquet: Path
    rows: int

    def compact(self, setting: Setting) -> Figure:
        """Makes the Parquet; once, as that replaces what is there and takes as long again."""

        def work() -> None:
            compact(read(setting.spark, Selection(self.archive), events=True), self.parquet)

        name = f"compact, {self.archive.name} to Parquet with losses"
        return Figure(name, "rows/s", rate(self.rows, 1, work, warm_up=False))

    @property
    def files(self) -> str:
        """All files of the Parquet."""
        return f"{self.parquet}/*/*.parquet"


@dataclass(frozen=True)
class Case:
    """What is to be found.

    Attributes:
        pipeline: how Spark does it.
        wanted: of its results, what the others find too.
        queries: how DuckDB does it; of a view `rows`.
        by_polars: how Polars does it; of all rows.
        compare: raises ValueError when the three, in this order, do not agree.
    """

    pipeline: Pipeline
    wanted: Callable[[Tables], list[DataFrame]]
    queries: tuple[str, ...]
    by_polars: Callable[[pl.LazyFrame], Lines]
    compare: Callable[[Lines, Lines, Lines], None]

    def by_spark(self, rows: DataFrame) -> Lines:
        """What Spark finds; the pipeline's small tables are computed once, as the command does."""
        tables = {name: table.persist() for name, table in self.pipeline.partials(rows).items()}
        try:
            wanted = self.wanted(self.pipeline.results(tables))
            return sorted(tuple(row) for table in wanted for row in table.collect())
        finally:
            for table in tables.values():
                table.unpersist()

    def by_duckdb(self, files: str) -> Lines:
        """What DuckDB finds."""
        with duckdb.connect() as connection:
            connection.execute(f"CREATE VIEW rows AS SELECT * FROM read_parquet('{files}', hive_partitioning = false)")
            return sorted(row for query in self.queries for row in connection.execute(query).fetchall())

    def figures(self, setting: Setting, data: Data) -> Iterator[Figure]:
        """How fast each of them is.

        Raises:
            ValueError: they do not agree.
        """
        last: dict[str, Lines] = {}

        def measure(engine: str, find: Callable[[], Lines]) -> Figure:
            def work() -> None:
                last[engine] = find()

            values = rate(data.rows, setting.runs, work, warm_up=setting.warm_up)
            return Figure(f"{self.pipeline.name}, {engine}", "rows/s", values)

        yield measure("Spark, archive", lambda: self.by_spark(self._read(setting, data)))
        yield measure("Spark, Parquet", lambda: self.by_spark(setting.spark.read.parquet(data.files)))
        yield measure("DuckDB, Parquet", lambda: self.by_duckdb(data.files))
        yield measure("Polars, Parquet", lambda: self.by_polars(pl.scan_parquet(data.files, hive_partitioning=False)))
        found, same, *others = last.values()
        if found != same:
            raise ValueError(
                f"{self.pipeline.name}: Spark finds something else in an archive than in the Parquet of it"
            )
        self.compare(found, *others)

    def of_archive(self, setting: Setting, data: Data, name: str) -> Figure:
        """How fast Spark alone is."""

        def work() -> None:
            self.by_spark(self._read(setting, data))

        return Figure(name, "rows/s", rate(data.rows, setting.runs, work, warm_up=setting.warm_up))

    def _read(self, setting: Setting, data: Data) -> DataFrame:
        return read(setting.spark, Selection(data.archive), self.pipeline.columns, events=self.pipeline.events)
