"""Runs a pipeline over an archive, and selects the results to print."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from ipcbus.archive import Archive
from ipcbus.archive.columns import default_columns
from ipcbus.spark.pipelines import audit, latency, rollup, throughput
from ipcbus.spark.pipelines.audit import COMPLETE
from ipcbus.spark.pipelines.compact import compact
from ipcbus.spark.pipelines.reading import Selection, read, read_stream, several
from ipcbus.spark.pipelines.results import write_results
from ipcbus.spark.pipelines.row_columns import SECOND_NS
from ipcbus.spark.pipelines.streaming_job import StreamingJob, start_compact
from ipcbus.storage.files import Disk
from ipcbus_tools.common import notes, safe
from ipcbus_tools.pipeline.pipeline_output import (
    AuditLine,
    AuditSummary,
    PipelineRun,
    SymbolBars,
    TopicLatency,
    TopicTotals,
    from_row,
)
from ipcbus_tools.pipeline.spark_job import spark
from ipcbus_tools.signals import Stopped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from ipcbus.spark.pipelines.pipeline import Pipeline
    from ipcbus_tools.pipeline.spark_job import Spark
    from ipcbus_tools.signals import SignalHandler

LINES: Final = 200
"""Lines of a table that are printed, at most."""

_REFRESH_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Request:
    """The options and arguments of the command line.

    Attributes:
        name: the pipeline, or `report`.
        what: the archive, and which of its rows to read.
        master: the Spark master.
        confs: settings of Spark.
        out: directory of the results.
        interval_ns: length of the intervals of throughput and rollup; None: the default, which a report chooses.
        order: whether the audit checks the order of messages.
        events: whether compact writes events too.
        checkpoint: directory of the stream's checkpoint; None runs a batch.
        every_seconds: seconds between two micro-batches; None reads the rows there are, and ends.
    """

    name: str
    what: Selection
    master: str
    confs: Mapping[str, str]
    out: Path | None
    interval_ns: int | None
    order: bool
    events: bool
    checkpoint: Path | None
    every_seconds: float | None


def run(request: Request, signals: SignalHandler, *, quiet: bool = False) -> tuple[PipelineRun, Stopped | None]:
    """Runs the pipeline of a request.

    Returns:
        The results to print, and the signal that ended a stream, whose results cover the rows read until then.

    Raises:
        ArchiveError: there is no archive, or it cannot be read.
        Failure: Spark or Java is missing, or a job fails.
        Stopped: a signal ended a run that is not a stream.
    """
    archive = Archive(request.what.archive)
    _note(request, archive)
    empty = PipelineRun(request.name, str(archive.path), archive.id, 0.0)
    with spark(f"ipcbus pipeline {request.name}", request.master, request.confs, signals, quiet=quiet) as job:
        begin, stopped = time.monotonic(), None
        if request.name == "report":
            found = _report(request, job, empty)
        elif request.checkpoint is None:
            found = _batch(request, job, empty)
        else:
            stopped, found = _stream(request, job, empty)
        return replace(found, seconds=round(time.monotonic() - begin, 3)), stopped


def _note(request: Request, archive: Archive) -> None:
    """Prints a note when messages may count twice; only audit and compact treat each log on its own."""
    found = [] if request.name in ("audit", "compact") else several(archive, request.what)
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        text = f"note: more than one log has session {found[0]}{more}; messages of two recorders count twice"
        notes().print(safe(f"{text}: choose a log with --partition, 'ipcbus archive info' lists them"), soft_wrap=True)


def _pipeline(request: Request) -> Pipeline:
    length = request.interval_ns or SECOND_NS
    if request.name == "throughput":
        return throughput.pipeline(length)
    if request.name == "latency":
        return latency.pipeline()
    return audit.pipeline(order=request.order) if request.name == "audit" else rollup.pipeline(length)


def _compacted_columns(request: Request) -> tuple[str, ...]:
    return default_columns(events=request.events, waits=True)


def _where(request: Request) -> Path | None:
    return None if request.out is None else request.out.absolute() / request.name


def _batch(request: Request, job: Spark, empty: PipelineRun) -> PipelineRun:
    out, session = _where(request), job.session
    if request.name == "compact" and out is not None:
        rows = read(session, request.what, _compacted_columns(request), events=request.events)
        job.run("compact", lambda: compact(rows, out))
        return job.run("counting", lambda: _compacted(session, empty, out))
    pipeline = _pipeline(request)
    rows = read(session, request.what, pipeline.columns, events=pipeline.events)

    def work() -> PipelineRun:
        tables = pipeline.partials(rows)
        if out is not None:
            written = write_results(pipeline, tables, out)
            return _read_back(session, empty, written, out)
        kept = {name: table.persist() for name, table in tables.items()}
        return replace(empty, **_printed(pipeline.results(kept)))

    return job.run(request.name, work)


def _stream(request: Request, job: Spark, empty: PipelineRun) -> tuple[Stopped | None, PipelineRun]:
    """Follows a stream to its end or to a signal, which it returns so that the results are printed first."""
    out, checkpoint, session = _where(request), request.checkpoint, job.session
    if out is None or checkpoint is None:
        raise ValueError("a stream needs --out and --checkpoint")
    pipeline = None if request.name == "compact" else _pipeline(request)
    columns, events = _compacted_columns(request), request.events
    if pipeline is not None:
        columns, events = pipeline.columns, pipeline.events
    rows = read_stream(session, request.what, columns, events=events)
    every, place = request.every_seconds, checkpoint.absolute()
    work = None if pipeline is None else StreamingJob(pipeline, out, None if every is None else _REFRESH_S)
    if work is None:
        query = start_compact(rows, place, out, every_seconds=every)
    else:
        query = work.start(rows, place, every_seconds=every)
    stopped = None
    try:
        job.follow(query, lambda: None if work is None else work.refresh(session))
    except Stopped as signal:
        stopped = signal
    if work is None:
        return stopped, job.run("counting", lambda: _compacted(session, empty, out))
    written = job.run("results", lambda: work.write_results(session))
    return stopped, job.run("results", lambda: _read_back(session, empty, written, out))


def _report(request: Request, job: Spark, empty: PipelineRun) -> PipelineRun:
    from ipcbus.spark.pipelines.report_data import fitting_interval_ns, gather
    from ipcbus.spark.pipelines.report_html import page, period

    if request.out is None:
        raise ValueError("a report needs --out")
    out = request.out.absolute()
    facts = job.run(
        "report",
        lambda: gather(
            job.session,
            request.what,
            out,
            interval_ns=request.interval_ns or fitting_interval_ns(Archive(request.what.archive)),
            # The report chooses short intervals for its charts; over a few ms a peak says nothing.
            peak_ns=request.interval_ns or SECOND_NS,
            order=request.order,
            step=job.describe,
        ),
    )
    where = f"{empty.archive}, archive {empty.archive_id[:8]}"
    html = page(facts, f"Traffic of {Path(empty.archive).name}", f"{where}, {period(facts.everything)}".rstrip(", "))
    file = out / "report.html"
    Disk().replace(file, html.encode())
    totals = [*([facts.everything] if facts.everything else []), *facts.totals]
    return replace(
        empty,
        out=str(out),
        report=str(file),
        throughput=tuple(from_row(TopicTotals, line) for line in totals),
        latency=tuple(from_row(TopicLatency, line) for line in facts.percentiles.values()),
        audit=from_row(AuditSummary, facts.summary),
        account=tuple(from_row(AuditLine, line) for line in facts.account),
        quotes=facts.quotes,
    )


def _read_back(session: SparkSession, empty: PipelineRun, written: Mapping[str, Path], out: Path) -> PipelineRun:
    frames = {name: session.read.parquet(str(path)) for name, path in written.items()}
    return replace(empty, out=str(out), **_printed(frames))


def _printed(results: Mapping[str, DataFrame]) -> dict[str, Any]:
    """Returns the fields of `PipelineRun` that these results fill."""
    found: dict[str, Any] = {}
    for field, name, kind in (("throughput", "totals", TopicTotals), ("latency", "percentiles", TopicLatency)):
        if name in results:
            lines = results[name].orderBy(F.desc(F.isnull("topic")), F.desc("messages"), "topic")
            found[field] = _lines(kind, lines)
    if "audit" in results:
        wrong = results["audit"].where(F.col("verdict") != COMPLETE)
        lines = wrong.orderBy(F.desc("missing"), F.desc("lost_bus"), "topic", "source", "partition")
        found["account"] = _lines(AuditLine, lines)
        (found["audit"],) = _lines(AuditSummary, results["summary"])
    if "bars" in results:
        found["bars"] = _lines(SymbolBars, _symbols(results["bars"]))
        found["quotes"] = results["book"].count()
    return found


def _symbols(bars: DataFrame) -> DataFrame:
    return (
        bars.groupBy("symbol", "topic", "session")
        .agg(
            F.count("*").alias("bars"),
            F.sum("trades").alias("trades"),
            F.min("low").cast("string").alias("low"),
            F.max("high").cast("string").alias("high"),
            F.max_by("close", "start_ns").cast("string").alias("close"),
            F.sum("volume").cast("string").alias("volume"),
        )
        .orderBy(F.desc("trades"), "symbol", "topic", "session")
    )


def _lines(kind: type[Any], frame: DataFrame) -> tuple[Any, ...]:
    return tuple(from_row(kind, row.asDict()) for row in frame.limit(LINES).collect())


def _compacted(session: SparkSession, empty: PipelineRun, out: Path) -> PipelineRun:
    files = sorted(out.glob("*=*/*.parquet"))
    rows = session.read.parquet(*map(str, files)).count() if files else 0
    total = sum(file.stat().st_size for file in files)
    return replace(empty, out=str(out), rows=rows, files=len(files), bytes=total)
