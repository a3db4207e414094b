"""Messages and bytes received in each interval."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ipcbus.spark.pipelines.pipeline import Pipeline
from ipcbus.spark.pipelines.row_columns import SECOND_NS, each, messages, start_of_interval, timestamp

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ipcbus.spark.pipelines.pipeline import Tables

KEY: Final = ("session", "topic")


def pipeline(interval_ns: int = SECOND_NS, peak_ns: int = 0) -> Pipeline:
    """Returns the pipeline `throughput` with intervals of this length; the peak is over at least `peak_ns`."""
    return Pipeline(
        name="throughput",
        columns=(*KEY, "value", "receiveTimeNs"),
        events=False,
        partials=lambda rows: {"counts": counts(rows, interval_ns)},
        merge={"counts": merge},
        results=partial(_results, interval_ns=interval_ns, peak_ns=peak_ns),
        parameters=f"intervals of {interval_ns} ns",
    )


def counts(rows: DataFrame, interval_ns: int = SECOND_NS) -> DataFrame:
    """Counts messages and bytes of each session, topic and interval.

    Args:
        rows: rows of the data source; `receiveTimeNs` gives the interval of a message.
        interval_ns: length of an interval, whole microseconds.

    Returns:
        session, topic, start_ns (of the interval), messages, bytes (of the values), first_ns and last_ns (receive
        times). `merge` merges several of them.
    """
    start = start_of_interval(F.col("receiveTimeNs"), interval_ns)
    return (
        messages(rows)
        .groupBy(*KEY, start.alias("start_ns"))
        .agg(
            F.count("*").alias("messages"),
            F.coalesce(F.sum(F.octet_length("value").cast("bigint")), F.lit(0)).alias("bytes"),
            F.min("receiveTimeNs").alias("first_ns"),
            F.max("receiveTimeNs").alias("last_ns"),
        )
    )


def merge(several: DataFrame) -> DataFrame:
    """Merges several tables of `counts` into one."""
    return several.groupBy(*KEY, "start_ns").agg(*_summed())


def intervals(counted: DataFrame, interval_ns: int = SECOND_NS) -> DataFrame:
    """Returns the table for people and other programs.

    Returns:
        start (timestamp), start_ns, session, topic, messages, bytes, messages_per_second, bytes_per_second; ordered.
    """
    seconds = interval_ns / SECOND_NS
    return counted.select(
        timestamp(F.col("start_ns")).alias("start"),
        "start_ns",
        *KEY,
        "messages",
        "bytes",
        (F.col("messages") / seconds).alias("messages_per_second"),
        (F.col("bytes") / seconds).alias("bytes_per_second"),
    ).orderBy("start_ns", *KEY)


def totals(counted: DataFrame, interval_ns: int = SECOND_NS, peak_ns: int = 0) -> DataFrame:
    """Returns the traffic of each topic, and of all topics.

    Args:
        counted: what `counts` or `merge` returned.
        interval_ns: length of its intervals.
        peak_ns: the peak is over as many intervals as reach this time; over one interval if that is longer.

    Returns:
        topic (null: all), sessions, messages, bytes, first_ns, last_ns, seconds (between these), messages_per_second
        and bytes_per_second (over these; null for a single moment), peak_messages_per_second (of the busiest interval).
    """
    everything = counted.withColumn("topic", F.lit(None).cast("string"))
    both = counted.unionByName(everything)
    span_ns = interval_ns * max(1, -(-peak_ns // interval_ns))
    start = start_of_interval(F.col("start_ns"), span_ns).alias("start_ns")
    busiest = both.groupBy("topic", start).agg(F.sum("messages").alias("messages")).groupBy("topic")
    peak = busiest.agg((F.max("messages") / (span_ns / SECOND_NS)).alias("peak_messages_per_second"))
    summed = both.groupBy("topic").agg(F.size(F.collect_set("session")).alias("sessions"), *_summed())
    seconds = (F.col("last_ns") - F.col("first_ns")) / SECOND_NS
    return (
        summed.join(peak.withColumnRenamed("topic", "of"), F.col("topic").eqNullSafe(F.col("of")))
        .select(
            "topic",
            "sessions",
            "messages",
            "bytes",
            "first_ns",
            "last_ns",
            seconds.alias("seconds"),
            F.try_divide("messages", seconds).alias("messages_per_second"),
            F.try_divide("bytes", seconds).alias("bytes_per_second"),
            "peak_messages_per_second",
        )
        .orderBy("topic")
    )


def _results(tables: Tables, interval_ns: int, peak_ns: int) -> Tables:
    counted = tables["counts"]
    return {"intervals": intervals(counted, interval_ns), "totals": totals(counted, interval_ns, peak_ns)}


def _summed() -> list[Column]:
    return [*each(F.sum, "messages", "bytes"), *each(F.min, "first_ns"), *each(F.max, "last_ns")]
