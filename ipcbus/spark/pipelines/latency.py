"""How late messages were received, as percentiles by topic.

The latencies are counted in a logarithmic histogram: bucket `b` holds those from 1.01 ** b up to 1.01 ** (b + 1) ns.
Its counts are whole numbers and just add up, over micro-batches, archives and hosts. A percentile is then of exact
rank, and its value, the middle of a bucket, is within 0.5 % of the true one; a histogram of an hour and one of a year
have the same size. `docs/how-to/pipelines.md` compares it with sketches.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from ipcbus.spark.pipelines.pipeline import Pipeline
from ipcbus.spark.pipelines.rows import messages

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ipcbus.spark.pipelines.pipeline import Tables

GROWTH: Final = 1.01
"""Width of a bucket; the error is at most half of it."""

ZERO: Final = -1
"""Bucket of latencies of 0 ns, which have no logarithm."""

UNSTAMPED: Final = -2
"""Bucket of messages whose time of sending is not known (`publishTimeNs` 0)."""

NEGATIVE: Final = -3
"""Bucket of messages that were received before they were sent: two clocks that disagree."""

PERCENTILES: Final = {"p50_ns": 500, "p90_ns": 900, "p99_ns": 990, "p999_ns": 999}
"""Columns of the result: how many of a thousand latencies are not above it."""


def pipeline() -> Pipeline:
    """The pipeline `latency`."""
    return Pipeline(
        name="latency",
        columns=("topic", "publishTimeNs", "receiveTimeNs"),
        events=False,
        partials=lambda rows: {"histogram": histogram(rows)},
        merge={"histogram": merge},
        results=_results,
    )


def histogram(rows: DataFrame) -> DataFrame:
    """Counts of the latencies of each topic, from sending to receiving.

    Args:
        rows: of the data source.

    Returns:
        topic, bucket (or ZERO, UNSTAMPED, NEGATIVE), messages, min_ns and max_ns (of the latencies in it; null where
        they are unknown). Several of them merge with `merge`.
    """
    sent, latency = F.col("publishTimeNs"), F.col("latency")
    bucket = (
        F.when(F.isnull(latency), UNSTAMPED)
        .when(latency < 0, NEGATIVE)
        .when(latency == 0, ZERO)
        .otherwise(F.floor(F.log(latency) / math.log(GROWTH)).cast("int"))
    )
    return (
        messages(rows)
        .select("topic", F.when(sent != 0, F.try_subtract(F.col("receiveTimeNs"), sent)).alias("latency"))
        .groupBy("topic", bucket.alias("bucket"))
        .agg(F.count("*").alias("messages"), F.min("latency").alias("min_ns"), F.max("latency").alias("max_ns"))
    )


def merge(several: DataFrame) -> DataFrame:
    """One histogram of several."""
    return several.groupBy("topic", "bucket").agg(*_summed())


def percentiles(counted: DataFrame) -> DataFrame:
    """Percentiles by topic, and of all topics.

    The percentile q of n latencies is the one at place ceil(n * q) when they are sorted.

    Args:
        counted: a histogram.

    Returns:
        topic (null: all), messages (with a latency of 0 or more), unstamped, negative, min_ns, p50_ns, p90_ns, p99_ns,
        p999_ns, max_ns; min and max are exact; null where no message has a latency.
    """
    everything = merge(counted.withColumn("topic", F.lit(None).cast("string")))
    both = counted.unionByName(everything)
    known = F.col("bucket") >= ZERO
    by_value = Window.partitionBy("topic").orderBy("bucket")
    # Places up to and with a bucket; those that have no latency come first and take none.
    places = F.sum(F.when(known, F.col("messages")).otherwise(0)).over(by_value)
    total = F.sum(F.when(known, F.col("messages")).otherwise(0)).over(Window.partitionBy("topic"))
    placed = both.withColumn("places", places).withColumn("total", total)
    return (
        placed.groupBy("topic")
        .agg(
            F.max("total").alias("messages"),
            *(_sum_of(bucket).alias(name) for name, bucket in (("unstamped", UNSTAMPED), ("negative", NEGATIVE))),
            F.min(F.when(known, F.col("min_ns"))).alias("min_ns"),
            *(_at(q).alias(name) for name, q in PERCENTILES.items()),
            F.max(F.when(known, F.col("max_ns"))).alias("max_ns"),
        )
        .orderBy("topic")
    )


def middle_ns(bucket: Column) -> Column:
    """What stands for the latencies of a bucket: its geometric middle, and never beyond what is in it."""
    middle = F.round(F.pow(F.lit(GROWTH), bucket + 0.5)).cast("bigint")
    return F.greatest(F.least(middle, F.col("max_ns")), F.col("min_ns"))


def _results(tables: Tables) -> Tables:
    return {"percentiles": percentiles(tables["histogram"]), "histogram": tables["histogram"]}


def _summed() -> list[Column]:
    return [F.sum("messages").alias("messages"), F.min("min_ns").alias("min_ns"), F.max("max_ns").alias("max_ns")]


def _sum_of(bucket: int) -> Column:
    return F.coalesce(F.sum(F.when(F.col("bucket") == bucket, F.col("messages"))), F.lit(0))


def _at(per_mille: int) -> Column:
    """The latency at the place of a percentile: that of the lowest bucket which reaches it."""
    reached = (F.col("bucket") >= ZERO) & (F.col("places") * 1000 >= F.col("total") * per_mille)
    return F.min(F.when(reached, middle_ns(F.col("bucket"))))
