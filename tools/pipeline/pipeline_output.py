"""The output of `ipcbus pipeline`: the results of a run for people and as JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ipcbus_tools.common import duration, number, plural, safe, size
from ipcbus_tools.render.text_tables import Row, show_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

_NONE = "-"
_ALL = "(all)"


@dataclass(frozen=True, slots=True)
class TopicTotals:
    """The traffic of a topic.

    Attributes:
        topic: name of the topic; null for all topics.
        sessions: number of transport sessions that carried the topic.
        messages: number of messages.
        bytes: bytes of their values.
        first_ns: time when the first message was received, ns since the epoch.
        last_ns: time when the last message was received.
        seconds: time between these.
        messages_per_second: messages a second over that time; null if it is zero.
        bytes_per_second: bytes a second over that time; null if it is zero.
        peak_messages_per_second: messages a second in the busiest interval; in a report, in the busiest second or more.
    """

    topic: str | None
    sessions: int
    messages: int
    bytes: int
    first_ns: int
    last_ns: int
    seconds: float
    messages_per_second: float | None
    bytes_per_second: float | None
    peak_messages_per_second: float


@dataclass(frozen=True, slots=True)
class TopicLatency:
    """The latency of a topic's messages; percentiles are within 0.5 %, and null when no latency is known.

    Attributes:
        topic: name of the topic; null for all topics.
        messages: messages whose latency is known.
        unstamped: messages whose time of sending is not known.
        negative: messages that were received before they were sent, because the clocks of two hosts disagree.
        min_ns: the shortest latency, exact.
        p50_ns: latency that half of the messages do not exceed.
        p90_ns: latency that 90 % of the messages do not exceed.
        p99_ns: latency that 99 % of the messages do not exceed.
        p999_ns: latency that 99.9 % of the messages do not exceed.
        max_ns: the longest latency, exact.
        waits: messages whose wait in the batch is known: the time from sending to publishing the datagram.
        wait_mean_ns: mean of these waits.
        wait_p50_ns: wait that half of these messages do not exceed.
        wait_p99_ns: wait that 99 % of these messages do not exceed.
        wait_max_ns: the longest wait, exact.
    """

    topic: str | None
    messages: int
    unstamped: int
    negative: int
    min_ns: int | None
    p50_ns: int | None
    p90_ns: int | None
    p99_ns: int | None
    p999_ns: int | None
    max_ns: int | None
    waits: int
    wait_mean_ns: float | None
    wait_p50_ns: int | None
    wait_p99_ns: int | None
    wait_max_ns: int | None


@dataclass(frozen=True, slots=True)
class AuditLine:
    """The account of a topic on a session, as one recorder recorded it; counts are of sequence numbers.

    Attributes:
        partition: number of the recorder's log in the archive.
        source: source string of the session; empty if a damaged archive does not have it.
        session: id of the session.
        topic: name of the topic; empty if a damaged archive does not have it.
        first: the lowest sequence number in the account; null without any.
        last: the highest sequence number in the account.
        messages: recorded messages.
        numbers: sequence numbers of these; a message in fragments has several.
        lost_bus: reported lost by the bus.
        lost_recorder: reported lost by the recorder, which had a full buffer or did not run.
        lost_repair: in rows that cannot be read any more, or that a repair removed.
        missing: neither recorded nor reported lost.
        damaged: not recorded, next to rows that cannot be read or were removed.
        absent: sent while no receiver of the recorder had joined.
        gaps: places where the numbers of messages jump.
        duplicates: recorded again.
        late: recorded after a higher number; null if the order was not checked.
        contradicted: reported lost but recorded, or reported twice.
        begins: number of times that a receiver began.
        verdict: missing, lost, absent, duplicates or complete: the first that applies.
    """

    partition: int
    source: str
    session: int
    topic: str
    first: int | None
    last: int | None
    messages: int
    numbers: int
    lost_bus: int
    lost_recorder: int
    lost_repair: int
    missing: int
    damaged: int
    absent: int
    gaps: int
    duplicates: int
    late: int | None
    contradicted: int
    begins: int
    verdict: str


@dataclass(frozen=True, slots=True)
class AuditSummary:
    """The account of everything; counts are the sums of all lines.

    Attributes:
        lines: number of lines: topics on sessions, by recorder.
        messages: recorded messages.
        numbers: sequence numbers of these.
        lost_bus: reported lost by the bus.
        lost_recorder: reported lost by the recorder.
        lost_repair: in rows that cannot be read any more.
        missing: neither recorded nor reported lost.
        damaged: not recorded, next to rows that cannot be read.
        absent: sent while no recorder had joined.
        gaps: places where numbers jump.
        duplicates: recorded again.
        late: recorded after a higher number; null if the order was not checked.
        contradicted: reported lost but recorded, or reported twice.
        verdict: the worst verdict of all lines.
    """

    lines: int
    messages: int
    numbers: int
    lost_bus: int
    lost_recorder: int
    lost_repair: int
    missing: int
    damaged: int
    absent: int
    gaps: int
    duplicates: int
    late: int | None
    contradicted: int
    verdict: str


@dataclass(frozen=True, slots=True)
class SymbolBars:
    """The trades of a symbol.

    Attributes:
        symbol: name that the exchange uses; null if the messages have none.
        topic: topic of the messages.
        session: id of the session.
        bars: number of intervals with trades.
        trades: number of trades.
        low: lowest price, as decimal text like all prices and volumes.
        high: highest price.
        close: last price.
        volume: traded quantity.
    """

    symbol: str | None
    topic: str
    session: int
    bars: int
    trades: int
    low: str
    high: str
    close: str
    volume: str


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """A run of a pipeline; results that the pipeline does not compute are null.

    Attributes:
        pipeline: name of the pipeline.
        archive: the archive's directory.
        archive_id: the archive's id.
        seconds: duration of the run, without the start of Spark.
        out: directory of the results as Parquet; null if they were only printed.
        report: path of the HTML page; null without a report.
        throughput: traffic of all topics first, then of each topic by messages; 200 lines at most.
        latency: latency of all topics first, then of each topic by messages; 200 lines at most.
        audit: the sums of the account.
        account: the lines of the account that are not complete, the worst first; 200 at most.
        bars: trades by symbol.
        quotes: number of intervals with a best bid and ask.
        rows: rows that `compact` wrote.
        files: files of these rows.
        bytes: bytes of these files.
    """

    pipeline: str
    archive: str
    archive_id: str
    seconds: float
    out: str | None = None
    report: str | None = None
    throughput: tuple[TopicTotals, ...] | None = None
    latency: tuple[TopicLatency, ...] | None = None
    audit: AuditSummary | None = None
    account: tuple[AuditLine, ...] | None = None
    bars: tuple[SymbolBars, ...] | None = None
    quotes: int | None = None
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None


def from_row(kind: type[Any], line: Mapping[str, Any]) -> Any:  # noqa: ANN401 - one of the classes above
    """Returns a row of a result as an object of one of the classes above."""
    return kind(**{each.name: line[each.name] for each in dataclasses.fields(kind)})


def show(console: Console, run: PipelineRun) -> None:
    """Prints a run for people."""
    show_table(console, "throughput", [_totals(each) for each in run.throughput or ()])
    show_table(console, "latency", [_latency(each) for each in run.latency or ()])
    show_table(console, "audit", [_account(each) for each in run.account or ()])
    show_table(console, "trades", [_bars(each) for each in run.bars or ()])
    for line in _sentences(run):
        console.print(safe(line), soft_wrap=True)


def _sentences(run: PipelineRun) -> list[str]:
    found = []
    if run.throughput is not None and not run.throughput:
        found.append("no messages")
    if run.audit is not None:
        found.append(_verdict(run.audit, run.account or ()))
    if run.quotes is not None:
        found.append(f"{plural(run.quotes, 'interval')} with bid and ask")
    if run.rows is not None:
        found.append(f"{plural(run.rows, 'row')} in {plural(run.files or 0, 'file')}, {size(run.bytes or 0)}")
    if run.report is not None:
        found.append(f"report: {run.report}")
    if run.out is not None:
        found.append(f"results: {run.out}")
    return found


def _verdict(audit: AuditSummary, account: Sequence[AuditLine]) -> str:
    counts = (
        *(("lost", audit.lost_bus + audit.lost_recorder), ("missing without a report", audit.missing)),
        # In most rows that cannot be read are the numbers that count as damaged; without a message on both sides, none.
        *(("damaged", audit.damaged), ("unreadable besides", max(0, audit.lost_repair - audit.damaged))),
        *(("absent", audit.absent), ("duplicates", audit.duplicates)),
    )
    topics = audit.lines - sum(not line.session for line in account)  # rows that cannot be read have no session
    text = ", ".join(f"{number(count)} {name}" for name, count in counts if count) or "nothing lost"
    return f"{audit.verdict}: {plural(audit.messages, 'message')}, {plural(topics, 'topic')} of sessions, {text}"


def _totals(line: TopicTotals) -> Row:
    return {
        "topic": _ALL if line.topic is None else line.topic,
        "sessions": number(line.sessions),
        "messages": number(line.messages),
        "bytes": size(line.bytes),
        "msgs/s": _NONE if line.messages_per_second is None else number(line.messages_per_second),
        "bytes/s": _NONE if line.bytes_per_second is None else size(line.bytes_per_second),
        "msgs/s, peak": number(line.peak_messages_per_second),
    }


def _latency(line: TopicLatency) -> Row:
    return {
        "topic": _ALL if line.topic is None else line.topic,
        "messages": number(line.messages),
        "min": duration(line.min_ns),
        "p50": duration(line.p50_ns),
        "p90": duration(line.p90_ns),
        "p99": duration(line.p99_ns),
        "p99.9": duration(line.p999_ns),
        "max": duration(line.max_ns),
        "wait, mean": duration(line.wait_mean_ns),
        "wait, p50": duration(line.wait_p50_ns),
        "wait, p99": duration(line.wait_p99_ns),
        "unstamped": number(line.unstamped) if line.unstamped else "",
        "negative": number(line.negative) if line.negative else "",
    }


def _account(line: AuditLine) -> Row:
    counts = {
        "lost by bus": line.lost_bus,
        "by recorder": line.lost_recorder,
        "unreadable": line.lost_repair,
        "missing": line.missing,
        "damaged": line.damaged,
        "absent": line.absent,
        "gaps": line.gaps,
        "duplicates": line.duplicates,
        "late": line.late or 0,
    }
    return {
        "verdict": line.verdict,
        "topic": line.topic or "unknown",
        "source": line.source or "unknown",
        "messages": number(line.messages),
        **{name: number(count) if count else "" for name, count in counts.items()},
    }


def _bars(line: SymbolBars) -> Row:
    return {
        "symbol": line.symbol or _NONE,
        "topic": line.topic,
        "trades": number(line.trades),
        "bars": number(line.bars),
        "low": line.low,
        "high": line.high,
        "close": line.close,
        "volume": line.volume,
    }
