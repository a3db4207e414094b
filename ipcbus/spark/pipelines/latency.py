"""Latencies of messages, and their waits in batches, as percentiles by topic.

The latencies are counted in a logarithmic histogram: bucket `b` holds those from 1.01 ** b up to 1.01 ** (b + 1) ns.
Its counts are whole numbers, so they add up exactly over micro-batches, archives and hosts. A percentile has its exact
rank, and its value, the middle of a bucket, is within 0.5 % of the true one; the histogram of a year is as large as
that of an hour. `docs/how-to/pipelines.md` compares it with sketches.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from ipcbus.spark.pipelines.pipeline import Pipeline
from ipcbus.spark.pipelines.row_columns import each, messages

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ipcbus.spark.pipelines.pipeline import Tables

GROWTH: Final = 1.01
"""Width of a bucket; the error is at most half of it."""

ZERO: Final = -1
"""Bucket of latencies of 0 ns, which have no logarithm."""

UNSTAMPED: Final = -2
"""Bucket of messages whose send time is not known (`publishTimeNs` 0)."""

NEGATIVE: Final = -3
"""Bucket of messages that were received before they were sent, because two clocks disagree."""

LATENCY: Final = "latency"
BATCH_WAIT: Final = "batch_wait"
"""Values of the column `figure` of a histogram: times from send to receive, or to publication."""

PERCENTILES: Final = {"p50_ns": 500, "p90_ns": 900, "p99_ns": 990, "p999_ns": 999}
"""Column of the result -> its percentile of latencies, per mille."""

WAITS: Final = {"wait_p50_ns": 500, "wait_p99_ns": 990}
"""Column of the result -> its percentile of waits in the batch, per mille."""


def pipeline() -> Pipeline:
    """Returns the pipeline `latency`."""
    return Pipeline(
        name="latency",
        columns=("topic", "publishTimeNs", "receiveTimeNs", "batchWaitNs"),
        events=False,
        partials=lambda rows: {"histogram": histogram(rows)},
        merge={"histogram": merge},
        results=_results,
    )


def histogram(rows: DataFrame) -> DataFrame:
    """Counts the latencies and the waits in the batch of each topic.

    Args:
        rows: rows of the data source; without column `batchWaitNs` all waits are unknown.

    Returns:
        topic, figure (LATENCY or BATCH_WAIT), bucket (or ZERO, UNSTAMPED, NEGATIVE), messages, total_ns, min_ns and
        max_ns (of the times in the bucket; null where they are unknown). An unknown wait is in no bucket. `merge`
        merges several of them.
    """
    sent, time = F.col("publishTimeNs"), F.col("time")
    wait = F.col("batchWaitNs") if "batchWaitNs" in rows.columns else F.lit(None).cast("bigint")
    figures = {LATENCY: F.when(sent != 0, F.try_subtract(F.col("receiveTimeNs"), sent)), BATCH_WAIT: wait}
    # Both figures in one pass over the rows.
    pairs = [F.struct(F.lit(name).alias("figure"), value.alias("time")) for name, value in figures.items()]
    bucket = (
        F.when(F.isnull(time), UNSTAMPED)
        .when(time < 0, NEGATIVE)
        .when(time == 0, ZERO)
        .otherwise(F.floor(F.log(time) / math.log(GROWTH)).cast("int"))
    )
    return (
        messages(rows)
        .select("topic", F.explode(F.array(*pairs)).alias("each"))
        .select("topic", "each.*")
        .where((F.col("figure") == LATENCY) | F.isnotnull(time))
        .groupBy("topic", "figure", bucket.alias("bucket"))
        .agg(
            F.count("*").alias("messages"),
            F.sum(time.cast("double")).alias("total_ns"),
            F.min(time).alias("min_ns"),
            F.max(time).alias("max_ns"),
        )
    )


def merge(several: DataFrame) -> DataFrame:
    """Merges several histograms into one."""
    return several.groupBy("topic", "figure", "bucket").agg(*_summed())


def percentiles(counted: DataFrame) -> DataFrame:
    """Returns percentiles by topic, and over all topics.

    The percentile q of n latencies is the one at place ceil(n * q) when they are sorted.

    Args:
        counted: a histogram.

    Returns:
        topic (null: all), messages (with a latency of 0 or more), unstamped, negative, min_ns, p50_ns, p90_ns, p99_ns,
        p999_ns, max_ns; min and max are exact; null where no message has a latency. For waits in the batch: waits
        (messages whose wait is known), wait_mean_ns, wait_p50_ns, wait_p99_ns, wait_max_ns; null where no wait is
        known.
    """
    everything = merge(counted.withColumn("topic", F.lit(None).cast("string")))
    both = counted.unionByName(everything)
    known = F.col("bucket") >= ZERO
    lines = Window.partitionBy("topic", "figure")
    # Places up to a bucket, itself included; buckets without a latency come first and count 0.
    places = F.sum(F.when(known, F.col("messages")).otherwise(0)).over(lines.orderBy("bucket"))
    total = F.sum(F.when(known, F.col("messages")).otherwise(0)).over(lines)
    placed = both.withColumn("places", places).withColumn("total", total)
    late, waited = known & (F.col("figure") == LATENCY), known & (F.col("figure") == BATCH_WAIT)
    waits = F.coalesce(F.sum(F.when(waited, F.col("messages"))), F.lit(0))
    return (
        placed.groupBy("topic")
        .agg(
            F.max(F.when(F.col("figure") == LATENCY, F.col("total"))).alias("messages"),
            *(_sum_of(bucket).alias(name) for name, bucket in (("unstamped", UNSTAMPED), ("negative", NEGATIVE))),
            F.min(F.when(late, F.col("min_ns"))).alias("min_ns"),
            *(_at(late, q).alias(name) for name, q in PERCENTILES.items()),
            F.max(F.when(late, F.col("max_ns"))).alias("max_ns"),
            waits.alias("waits"),
            (F.sum(F.when(waited, F.col("total_ns"))) / F.nullif(waits, F.lit(0))).alias("wait_mean_ns"),
            *(_at(waited, q).alias(name) for name, q in WAITS.items()),
            F.max(F.when(waited, F.col("max_ns"))).alias("wait_max_ns"),
        )
        .orderBy("topic")
    )


def middle_ns(bucket: Column) -> Column:
    """Returns the value that stands for the latencies of a bucket: its geometric middle, within its min and max."""
    middle = F.round(F.pow(F.lit(GROWTH), bucket + 0.5)).cast("bigint")
    return F.greatest(F.least(middle, F.col("max_ns")), F.col("min_ns"))


def _results(tables: Tables) -> Tables:
    return {"percentiles": percentiles(tables["histogram"]), "histogram": tables["histogram"]}


def _summed() -> list[Column]:
    return [*each(F.sum, "messages", "total_ns"), *each(F.min, "min_ns"), *each(F.max, "max_ns")]


def _sum_of(bucket: int) -> Column:
    mine = (F.col("figure") == LATENCY) & (F.col("bucket") == bucket)
    return F.coalesce(F.sum(F.when(mine, F.col("messages"))), F.lit(0))


def _at(which: Column, per_mille: int) -> Column:
    """Returns the value of a percentile: that of the lowest bucket that reaches its place."""
    reached = which & (F.col("places") * 1000 >= F.col("total") * per_mille)
    return F.min(F.when(reached, middle_ns(F.col("bucket"))))
