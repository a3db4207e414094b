"""Every pipeline over made-up traffic, beside DuckDB and Polars on the same rows as Parquet; the results are compared.

At factor 1 there are 10 M rows, at factor 5 the 50 M of the full figure. A few messages in a million are lost, missing,
twice or late, as on a bus that is well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from benchmarks.spark_beside import Case, Data
from benchmarks.traffic import Traffic, Truth
from ipcbus.spark.pipelines import audit, latency, throughput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from benchmarks.spark_beside import Lines
    from benchmarks.spark_figures import Figure, Setting
    from ipcbus.spark.pipelines.pipeline import Tables

ROWS: Final = 10_000_000
DISTURBANCES: Final = 2

_SECOND_NS: Final = 1_000_000_000
_DATA: Final = "type = 0"
_SHARES: Final = (*latency.PERCENTILES.values(), 1000)
_AUDITED: Final = ("messages", "lost_bus", "lost_recorder", "missing", "duplicates")

_THROUGHPUT: Final = f"""
SELECT session, topic, receiveTimeNs - receiveTimeNs % {_SECOND_NS} AS start_ns, count(*) AS messages,
    sum(octet_length(value)) AS bytes
FROM rows WHERE {_DATA} GROUP BY ALL
"""
_LATENCY: Final = f"""
SELECT topic, count(*) AS messages,
    quantile_disc(receiveTimeNs - publishTimeNs, [0.5, 0.9, 0.99, 0.999, 1.0]) AS found
FROM rows WHERE {_DATA} AND publishTimeNs != 0 AND receiveTimeNs >= publishTimeNs GROUP BY topic
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
    data = Data(setting.directory / "traffic", setting.directory / "parquet", int(ROWS * setting.factor))
    truth = Traffic(data.rows, disturbances=DISTURBANCES).write(data.archive)
    yield data.compact(setting)
    fast, in_order = (
        Case(audit.pipeline(order=order), _audit, (_AUDIT,), _polars_audit, lambda *found: _same_audit(truth, *found))
        for order in (False, True)
    )
    cases = (
        Case(throughput.pipeline(), _throughput, (_THROUGHPUT,), _polars_throughput, _same_throughput),
        Case(latency.pipeline(), _latency, (_LATENCY,), _polars_latency, _same_latency),
        fast,
    )
    for case in cases:
        yield from case.figures(setting, data)
    yield in_order.of_archive(setting, data, "audit of the order of all, Spark, archive")


def _throughput(results: Tables) -> list[DataFrame]:
    return [results["intervals"].select("session", "topic", "start_ns", "messages", "bytes")]


def _latency(results: Tables) -> list[DataFrame]:
    names = ("topic", "messages", *latency.PERCENTILES, "max_ns")
    return [results["percentiles"].where("topic IS NOT NULL").select(*names)]


def _audit(results: Tables) -> list[DataFrame]:
    return [results["summary"].select(*_AUDITED)]


def _polars_throughput(rows: pl.LazyFrame) -> Lines:
    time = pl.col("receiveTimeNs")
    counted = rows.filter(pl.col("type") == 0).group_by(
        "session", "topic", (time - time % _SECOND_NS).alias("start_ns")
    )
    return sorted(counted.agg(pl.len(), pl.col("value").bin.size().sum()).collect().rows())


def _polars_latency(rows: pl.LazyFrame) -> Lines:
    late = pl.col("receiveTimeNs") - pl.col("publishTimeNs")
    known = rows.filter((pl.col("type") == 0) & (pl.col("publishTimeNs") != 0)).with_columns(late=late)
    # The first value at or above the rank is what quantile_disc takes too.
    count = pl.len().cast(pl.Int64)  # times 1000 it is more than its own type holds
    places = [pl.col("late").sort().get((count * share + 999) // 1000 - 1).alias(f"p{share}") for share in _SHARES]
    return sorted(known.filter(pl.col("late") >= 0).group_by("topic").agg(pl.len(), *places).collect().rows())


def _polars_audit(rows: pl.LazyFrame) -> Lines:
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


def _same_throughput(spark: Lines, by_duckdb: Lines, by_polars: Lines) -> None:
    if not spark == by_duckdb == by_polars:
        raise ValueError("throughput: the engines do not agree")


def _same_latency(spark: Lines, by_duckdb: Lines, by_polars: Lines) -> None:
    """Spark's values are within half of a bucket; DuckDB's rank is a product in floating point, one off at times."""
    flat = [(topic, messages, *found) for topic, messages, found in by_duckdb]
    for engine, found, error in (("Spark", spark, 0.0051), ("DuckDB", flat, 0.0005)):
        for mine, exact in zip(found, by_polars, strict=True):
            if mine[:2] != exact[:2] or any(
                abs(a - b) > b * error + 1 for a, b in zip(mine[2:], exact[2:], strict=True)
            ):
                raise ValueError(f"latency: {engine} finds {mine}, Polars {exact}")


def _same_audit(truth: Truth, spark: Lines, by_duckdb: Lines, by_polars: Lines) -> None:
    expected = [tuple(getattr(truth, name) for name in _AUDITED)]
    for engine, found in (("Spark", spark), ("DuckDB", by_duckdb), ("Polars", by_polars)):
        if [tuple(map(int, row)) for row in found] != expected:
            raise ValueError(f"audit: {engine} finds {found}, planted was {expected}")
