"""Every pipeline over made-up traffic, beside DuckDB and Polars on the same rows as Parquet; the results are compared.

At factor 1 there are 10 M rows, at factor 5 the 50 M of the full figure. A figure of Spark is given twice: of the
archive itself, and of the Parquet that `compact` made of it, which is what the other two read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import duckdb
import polars as pl

from benchmarks.spark_figures import Figure, Setting, rate
from benchmarks.traffic import Traffic, Truth
from ipcbus.spark.pipelines import audit, latency, throughput
from ipcbus.spark.pipelines.compact import compact
from ipcbus.spark.pipelines.reading import Selection, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame

    from ipcbus.spark.pipelines.pipeline import Pipeline

ROWS: Final = 10_000_000

_SECOND_NS: Final = 1_000_000_000
_DATA: Final = "type = 0"
_SHARES: Final = (*latency.PERCENTILES.values(), 1000)

_THROUGHPUT: Final = f"""
SELECT session, topic, receiveTimeNs - receiveTimeNs % {_SECOND_NS} AS start_ns, count(*) AS messages,
    sum(octet_length(value)) AS bytes
FROM rows WHERE {_DATA} GROUP BY ALL ORDER BY ALL
"""
_LATENCY: Final = f"""
SELECT topic, count(*) AS messages,
    quantile_disc(receiveTimeNs - publishTimeNs, [0.5, 0.9, 0.99, 0.999, 1.0]) AS found
FROM rows WHERE {_DATA} AND publishTimeNs != 0 AND receiveTimeNs >= publishTimeNs GROUP BY topic ORDER BY topic
"""
# Rows that account for numbers, sorted by these: what is between two of them is missing, what is common is twice.
_AUDIT: Final = """
WITH numbered AS (
    SELECT type, numbers, seq, seq - numbers + 1 AS first, max(seq) OVER (
        PARTITION BY "partition", source, topic ORDER BY seq - numbers + 1, "offset"
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM rows WHERE type IN (0, 4, 5, 255)
)
SELECT count(*) FILTER (type = 0), sum(numbers) FILTER (type IN (4, 5)), sum(numbers) FILTER (type = 255),
    sum(greatest(first - before - 1, 0)), sum(greatest(before - first + 1, 0)) FROM numbered
"""


def figures(setting: Setting) -> Iterator[Figure]:
    """The suite."""
    rows = int(ROWS * setting.factor)
    path, parquet = setting.directory / "traffic", setting.directory / "parquet"
    truth = Traffic(rows).write(path)
    # Once: it replaces what is there, and takes as long again.
    yield Figure(
        "compact, archive to Parquet with losses", "rows/s", rate(rows, 1, lambda: _compact(setting, path, parquet))
    )
    files = f"{parquet}/*/*.parquet"
    cases: list[tuple[Pipeline, Any, Any, Callable[[Any, Any, Any], None]]] = [
        (throughput.pipeline(), _THROUGHPUT, _polars_throughput, _same_throughput),
        (latency.pipeline(), _LATENCY, _polars_latency, _same_latency),
        (audit.pipeline(), _AUDIT, _polars_audit, lambda *found: _same_audit(truth, *found)),
    ]
    for pipeline, query, by_polars, compare in cases:
        yield from _beside(setting, path, files, rows, pipeline, query, by_polars, compare)
    in_order = audit.pipeline(order=True)
    yield Figure(
        "audit of the order of all, Spark, archive",
        "rows/s",
        rate(rows, setting.runs, lambda: _collect(in_order, _of_archive(setting, path, in_order))),
    )


def _beside(
    setting: Setting,
    path: Path,
    files: str,
    rows: int,
    pipeline: Pipeline,
    query: str,
    by_polars: Callable[[pl.LazyFrame], Any],
    compare: Callable[[Any, Any, Any], None],
) -> Iterator[Figure]:
    last: dict[str, Any] = {}

    def measure(engine: str, work: Callable[[], Any]) -> Figure:
        def run() -> None:
            last[engine] = work()

        return Figure(f"{pipeline.name}, {engine}", "rows/s", rate(rows, setting.runs, run))

    yield measure("Spark, archive", lambda: _collect(pipeline, _of_archive(setting, path, pipeline)))
    yield measure("Spark, Parquet", lambda: _collect(pipeline, setting.spark.read.parquet(files)))
    yield measure("DuckDB, Parquet", lambda: _duckdb(query, files))
    yield measure("Polars, Parquet", lambda: by_polars(pl.scan_parquet(files, hive_partitioning=False)))
    if last["Spark, archive"] != last["Spark, Parquet"]:
        raise ValueError(f"{pipeline.name}: Spark finds something else in the archive than in the Parquet made of it")
    compare(last["Spark, archive"], last["DuckDB, Parquet"], last["Polars, Parquet"])


def _compact(setting: Setting, path: Path, parquet: Path) -> None:
    compact(read(setting.spark, Selection(path), events=True), parquet)


def _of_archive(setting: Setting, path: Path, pipeline: Pipeline) -> DataFrame:
    return read(setting.spark, Selection(path), pipeline.columns, events=pipeline.events)


def _collect(pipeline: Pipeline, rows: DataFrame) -> list[tuple[Any, ...]]:
    """The result that the other engines have too."""
    tables = {name: table.persist() for name, table in pipeline.partials(rows).items()}
    try:
        results = pipeline.results(tables)
        if pipeline.name == "throughput":
            wanted = results["intervals"].select("session", "topic", "start_ns", "messages", "bytes")
        elif pipeline.name == "latency":
            names = ("topic", "messages", *latency.PERCENTILES, "max_ns")
            wanted = results["percentiles"].where("topic IS NOT NULL").select(*names)
        else:
            wanted = results["summary"].select("messages", "lost_bus", "lost_recorder", "missing", "duplicates")
        return sorted(tuple(row) for row in wanted.collect())
    finally:
        for table in tables.values():
            table.unpersist()


def _duckdb(query: str, files: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.execute(f"CREATE VIEW rows AS SELECT * FROM read_parquet('{files}', hive_partitioning = false)")
        return connection.execute(query).fetchall()


def _polars_throughput(rows: pl.LazyFrame) -> list[tuple[Any, ...]]:
    time = pl.col("receiveTimeNs")
    counted = rows.filter(pl.col("type") == 0).group_by(
        "session", "topic", (time - time % _SECOND_NS).alias("start_ns")
    )
    return sorted(counted.agg(pl.len(), pl.col("value").bin.size().sum()).collect().rows())


def _polars_latency(rows: pl.LazyFrame) -> list[tuple[Any, ...]]:
    late = pl.col("receiveTimeNs") - pl.col("publishTimeNs")
    known = rows.filter((pl.col("type") == 0) & (pl.col("publishTimeNs") != 0)).with_columns(late=late)
    # The first value at or above the rank is what quantile_disc takes too.
    places = [pl.col("late").sort().get((pl.len() * share + 999) // 1000 - 1).alias(f"p{share}") for share in _SHARES]
    return sorted(known.filter(pl.col("late") >= 0).group_by("topic").agg(pl.len(), *places).collect().rows())


def _polars_audit(rows: pl.LazyFrame) -> list[tuple[Any, ...]]:
    first, kind, numbers = pl.col("seq") - pl.col("numbers") + 1, pl.col("type"), pl.col("numbers")
    key = ("partition", "source", "topic")
    covering = rows.filter(kind.is_in([0, 4, 5, 255])).select(*key, "type", "numbers", "seq", "offset", first=first)
    before = pl.col("seq").cum_max().shift(1).over(key)
    numbered = covering.sort(*key, "first", "offset").with_columns(before=before)
    hole = (pl.col("first") - pl.col("before") - 1).clip(lower_bound=0).sum()
    common = (pl.col("before") - pl.col("first") + 1).clip(lower_bound=0).sum()
    lost = (numbers.filter(kind.is_in([4, 5])).sum(), numbers.filter(kind == 255).sum())
    sums = ((kind == 0).sum(), *lost, hole, common)
    return numbered.select(*(each.alias(str(place)) for place, each in enumerate(sums))).collect().rows()


def _same_throughput(spark: Any, by_duckdb: Any, by_polars: Any) -> None:  # noqa: ANN401 - lists of rows
    if not spark == by_duckdb == by_polars:
        raise ValueError("throughput: the engines do not agree")


def _same_latency(spark: Any, by_duckdb: Any, by_polars: Any) -> None:  # noqa: ANN401
    """Ranks are exact, values within half of a bucket."""
    exact = [(topic, messages, *found) for topic, messages, found in by_duckdb]
    if exact != by_polars:
        raise ValueError("latency: DuckDB and Polars do not agree")
    for mine, theirs in zip(spark, exact, strict=True):
        if mine[:2] != theirs[:2] or any(
            abs(a - b) > b * 0.0051 + 1 for a, b in zip(mine[2:], theirs[2:], strict=True)
        ):
            raise ValueError(f"latency: Spark finds {mine}, DuckDB {theirs}")


def _same_audit(truth: Truth, spark: Any, by_duckdb: Any, by_polars: Any) -> None:  # noqa: ANN401
    names = ("messages", "lost_bus", "lost_recorder", "missing", "duplicates")
    expected = [tuple(getattr(truth, name) for name in names)]
    for engine, found in (("Spark", spark), ("DuckDB", by_duckdb), ("Polars", by_polars)):
        if [tuple(map(int, row)) for row in found] != expected:
            raise ValueError(f"audit: {engine} finds {found}, planted was {expected}")
