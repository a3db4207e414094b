"""The data of a report: every pipeline runs once, its results go to Parquet files, and a few numbers are drawn."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from ipcbus.spark.pipelines import audit, latency, rollup, throughput
from ipcbus.spark.pipelines.audit import COMPLETE
from ipcbus.spark.pipelines.exchange_feed import CHAIN_COLUMNS, chains, topics_of
from ipcbus.spark.pipelines.reading import read
from ipcbus.spark.pipelines.results import replace, write_results
from ipcbus.spark.pipelines.row_columns import SECOND_NS, start_of_interval

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from ipcbus.archive import Archive
    from ipcbus.spark.pipelines.pipeline import Pipeline
    from ipcbus.spark.pipelines.reading import Selection

    Line = dict[str, Any]

POINTS: Final = 400
"""Most points of a curve over time."""

SHOWN: Final = 8
"""Most topics with their own curves: the busiest."""

LINES: Final = 200
"""Most lines of a table."""

BARS: Final = 120
"""Most bars of trades."""


@dataclass
class ReportData:
    """Everything on the page.

    Attributes:
        totals: lines of `throughput.totals`, the busiest topic first; the line of all topics is `everything`.
        everything: the line of all topics; None without messages.
        topics: names of the topics that are drawn.
        step_ns: time between two points of `series`.
        series: topic (None: all others), begin of the step, messages; only steps with messages.
        percentiles: lines of `latency.percentiles` by topic.
        histogram: lines of `latency.histogram` with the latencies of the topics that are drawn.
        summary: the line of `audit.summary`.
        account: lines of `audit.verdicts` that are not complete, the worst first.
        complete: number of lines that are complete.
        bars: lines of `rollup.bars` of the busiest symbol.
        bars_step_ns: length of a bar.
        quotes: number of lines of `rollup.book`.
        links: lines of `exchange_feed.chains`.
    """

    totals: list[Line] = field(default_factory=list)
    everything: Line | None = None
    topics: list[str] = field(default_factory=list)
    step_ns: int = SECOND_NS
    series: list[Line] = field(default_factory=list)
    percentiles: dict[str | None, Line] = field(default_factory=dict)
    histogram: list[Line] = field(default_factory=list)
    summary: Line = field(default_factory=dict)
    account: list[Line] = field(default_factory=list)
    complete: int = 0
    bars: list[Line] = field(default_factory=list)
    bars_step_ns: int = SECOND_NS
    quotes: int = 0
    links: list[Line] = field(default_factory=list)


def fitting_interval_ns(archive: Archive) -> int:
    """Returns an interval that gives a report on the whole archive about half of `POINTS` points; at least 1 ms."""
    segments = [segment for log in archive.logs() for segment in log.segments() if segment.rows]
    if not segments:
        return SECOND_NS
    span = max(each.last_receive_ns for each in segments) - min(each.first_receive_ns for each in segments)
    exact = max(1_000_000, span // (POINTS // 2))
    power = int("1" + "0" * (len(str(exact)) - 1))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= exact)


def gather(
    spark: SparkSession,
    what: Selection,
    out: Path,
    *,
    interval_ns: int = SECOND_NS,
    peak_ns: int = 0,
    order: bool = False,
    step: Callable[[str], None] = lambda name: None,
) -> ReportData:
    """Runs all pipelines over an archive.

    Args:
        spark: the session that runs them.
        what: what to read of the archive.
        out: directory; results go to `out/<pipeline>/<result>`.
        interval_ns: interval of throughput and rollup; rollup runs only over topics with a feed in its format.
        peak_ns: the peak of throughput is over at least this time.
        order: see `audit.pipeline`.
        step: called with the name of each step at its begin.
    """
    data = ReportData()

    def run(pipeline: Pipeline) -> dict[str, DataFrame]:
        step(pipeline.name)
        rows = read(spark, what, pipeline.columns, events=pipeline.events)
        written = write_results(pipeline, pipeline.partials(rows), out / pipeline.name)
        return {name: spark.read.parquet(str(path)) for name, path in written.items()}

    _add_throughput(data, run(throughput.pipeline(interval_ns, peak_ns)), interval_ns)
    _add_latency(data, run(latency.pipeline()))
    _add_audit(data, run(audit.pipeline(order=order)))
    step("looking for a feed")
    feeds = topics_of(read(spark, what, ("topic", "value")))
    if feeds:
        what = dataclasses.replace(what, topics=tuple(feeds), pattern=False)
        _add_rollup(data, run(rollup.pipeline(interval_ns)), interval_ns)
        step("chains")
        links = replace(chains(read(spark, what, CHAIN_COLUMNS)), out / "rollup" / "chains")
        data.links = _lines(spark.read.parquet(str(links)).orderBy("topic", "session"))
    return data


def _add_throughput(data: ReportData, results: dict[str, DataFrame], interval_ns: int) -> None:
    totals = results["totals"]
    data.everything = next(iter(_lines(totals.where("topic IS NULL"))), None)
    data.totals = _lines(totals.where("topic IS NOT NULL").orderBy(F.desc("messages"), "topic"))
    data.topics = [line["topic"] for line in data.totals[:SHOWN]]
    if data.everything is None:
        return
    span = data.everything["last_ns"] - data.everything["first_ns"]
    data.step_ns = interval_ns * max(1, -(-span // (interval_ns * POINTS)))
    topic = F.when(F.col("topic").isin(data.topics), F.col("topic"))
    data.series = _lines(
        results["intervals"]
        .groupBy(topic.alias("topic"), _step(data.step_ns).alias("start_ns"))
        .agg(F.sum("messages").alias("messages"))
        .orderBy("topic", "start_ns"),
        POINTS * (SHOWN + 2),
    )


def _add_latency(data: ReportData, results: dict[str, DataFrame]) -> None:
    wanted = results["percentiles"].where(F.isnull("topic") | F.col("topic").isin(data.topics))
    busiest_first = wanted.orderBy(F.desc(F.isnull("topic")), F.desc("messages"), "topic")
    data.percentiles = {line["topic"]: line for line in _lines(busiest_first)}
    latencies = results["histogram"].where(F.col("figure") == latency.LATENCY)
    drawn = latencies.where(F.col("topic").isin(data.topics))
    data.histogram = _lines(drawn.orderBy("topic", "bucket"), 5000 * SHOWN)


def _add_audit(data: ReportData, results: dict[str, DataFrame]) -> None:
    (data.summary,) = _lines(results["summary"])
    wrong = results["audit"].where(F.col("verdict") != COMPLETE)
    worst = F.desc(F.col("missing") > 0), F.desc(F.col("lost_bus") + F.col("lost_recorder") + F.col("lost_repair"))
    data.account = _lines(wrong.orderBy(*worst, "topic", "source", "partition"))
    data.complete = results["audit"].where(F.col("verdict") == COMPLETE).count()


def _add_rollup(data: ReportData, results: dict[str, DataFrame], interval_ns: int) -> None:
    data.quotes = results["book"].count()
    busiest = results["bars"].groupBy("session", "topic", "symbol").agg(F.sum("trades").alias("trades"))
    first = next(iter(_lines(busiest.orderBy(F.desc("trades"), "session", "topic", "symbol"))), None)
    if first is None:
        return
    mine = results["bars"].where(
        (F.col("session") == first["session"])
        & (F.col("topic") == first["topic"])
        & F.col("symbol").eqNullSafe(first["symbol"])
    )
    (ends,) = _lines(mine.agg(F.min("start_ns").alias("first"), F.max("start_ns").alias("last")))
    data.bars_step_ns = interval_ns * max(1, -(-(ends["last"] - ends["first"]) // (interval_ns * BARS)))
    data.bars = _lines(
        mine.groupBy("symbol", "topic", _step(data.bars_step_ns).alias("step_ns"))
        .agg(
            F.min_by("open", "start_ns").cast("double").alias("open"),
            F.max("high").cast("double").alias("high"),
            F.min("low").cast("double").alias("low"),
            F.max_by("close", "start_ns").cast("double").alias("close"),
            F.sum("volume").cast("double").alias("volume"),
        )
        .orderBy("step_ns"),
        2 * BARS,
    )


def _step(length_ns: int) -> Column:
    return start_of_interval(F.col("start_ns"), length_ns)


def _lines(frame: DataFrame, most: int = LINES) -> list[Line]:
    return [row.asDict() for row in frame.limit(most).collect()]
