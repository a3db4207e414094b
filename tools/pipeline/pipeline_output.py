"""What `ipcbus pipeline` prints: the results of a run, in numbers for people and as JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ipcbus_tools.common import duration, number, plural, safe, size
from ipcbus_tools.render.text_tables import Row, show_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

_NONE = "-"
_ALL = "(all)"


@dataclass(frozen=True, slots=True)
class TopicTotals:
    """What a topic carried.

    Attributes:
        topic: its name; null for all topics.
        sessions: transport sessions that carried it.
        messages: messages of it.
        bytes: of their values.
        first_ns: when the first was received, ns since the epoch.
        last_ns: when the last was.
        seconds: between these.
        messages_per_second: over these; null for a single moment.
        bytes_per_second: the same in bytes.
        peak_messages_per_second: of the busiest interval.
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
    """How late the messages of a topic were received; percentiles are within 0.5 %, null where none are known.

    Attributes:
        topic: its name; null for all topics.
        messages: messages of which it is known.
        unstamped: messages whose time of sending is not known.
        negative: messages that were received before they were sent, as the clocks of two hosts disagree.
        min_ns: the shortest, exact.
        p50_ns: half of the messages were not later than this.
        p90_ns: 90 % of the messages.
        p99_ns: 99 % of the messages.
        p999_ns: 99.9 % of the messages.
        max_ns: the longest, exact.
        waits: messages of which the wait in the batch is known, from sending to the publication of the datagram.
        wait_mean_ns: mean of these waits.
        wait_p50_ns: half of these messages did not wait longer than this.
        wait_p99_ns: 99 % of them.
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
    """The account of a topic of a session, as one recorder recorded it; counts are of sequence numbers.

    Attributes:
        partition: number of the recorder's log in the archive.
        source: source string of the session; empty where a damaged archive does not tell.
        session: id of the session.
        topic: topic; empty as `source`.
        first: the lowest number that is accounted for; null for none.
        last: the highest.
        messages: messages that were recorded.
        numbers: numbers of these; a message in fragments has several.
        lost_bus: reported lost by the bus.
        lost_recorder: reported lost by the recorder, which had no room or was away.
        lost_repair: rows that cannot be read any more, or that a repair took out.
        missing: not there, and reported by nobody.
        damaged: not there, where rows cannot be read or were taken out.
        absent: sent while no receiver of the recorder had joined.
        gaps: places where the numbers of messages jump.
        duplicates: recorded again.
        late: recorded after a higher one; null where that was not looked at.
        contradicted: reported lost but recorded, or reported twice.
        begins: how often a receiver began.
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
        lines: topics of sessions, as recorded.
        messages: messages that were recorded.
        numbers: numbers of these.
        lost_bus: reported lost by the bus.
        lost_recorder: reported lost by the recorder.
        lost_repair: rows that cannot be read any more.
        missing: not there, and reported by nobody.
        damaged: not there, where rows cannot be read.
        absent: sent while no recorder had joined.
        gaps: places where numbers jump.
        duplicates: recorded again.
        late: recorded after a higher one; null where that was not looked at.
        contradicted: reported lost but recorded, or reported twice.
        verdict: the worst of all lines.
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
    """What was traded of a symbol.

    Attributes:
        symbol: as the exchange calls it; null where a message has none.
        topic: on which it came.
        session: id of the session.
        bars: intervals with trades.
        trades: how many.
        low: lowest price, a decimal text as all prices and volumes.
        high: highest price.
        close: last price.
        volume: what was traded.
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
    """A run of a pipeline; what it does not compute is null.

    Attributes:
        pipeline: its name.
        archive: the archive's directory.
        archive_id: the archive's id.
        seconds: how long it took, without the start of Spark.
        out: directory of its results as Parquet; null when they were only shown.
        report: the HTML page; null without.
        throughput: all topics first, then each by messages; 200 at most.
        latency: the same for latencies.
        audit: the sum of the account.
        account: its lines that are not complete, the worst first; 200 at most.
        bars: what was traded.
        quotes: intervals of which the best bid and ask are known.
        rows: rows that were written by `compact`.
        files: files of these.
        bytes: of these files.
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


def of(kind: type[Any], line: Mapping[str, Any]) -> Any:  # noqa: ANN401 - one of the kinds above
    """Returns a line of a result as one of the kinds above."""
    return kind(**{each.name: line[each.name] for each in dataclasses.fields(kind)})


def show(console: Console, run: PipelineRun) -> None:
    """Prints it for people."""
    if run.throughput is not None:
        show_table(console, "throughput", [_totals(each) for each in run.throughput])
    if run.latency is not None:
        show_table(console, "latency", [_latency(each) for each in run.latency])
    if run.account is not None:
        show_table(console, "audit", [_account(each) for each in run.account])
    if run.bars is not None:
        show_table(console, "trades", [_bars(each) for each in run.bars])
    for line in _sentences(run):
        console.print(safe(line), soft_wrap=True)


def _sentences(run: PipelineRun) -> list[str]:
    found = []
    if run.throughput is not None and not run.throughput:
        found.append("no messages")
    if run.audit is not None:
        found.append(_verdict(run.audit))
    if run.quotes is not None:
        found.append(f"{plural(run.quotes, 'interval')} with bid and ask")
    if run.rows is not None:
        found.append(f"{plural(run.rows, 'row')} in {plural(run.files or 0, 'file')}, {size(run.bytes or 0)}")
    if run.report is not None:
        found.append(f"report: {run.report}")
    if run.out is not None:
        found.append(f"results: {run.out}")
    return found


def _verdict(audit: AuditSummary) -> str:
    counts = (
        *(("lost", audit.lost_bus + audit.lost_recorder), ("missing without a report", audit.missing)),
        *(("damaged", audit.damaged), ("absent", audit.absent), ("duplicates", audit.duplicates)),
    )
    told = ", ".join(f"{number(count)} {name}" for name, count in counts if count) or "nothing lost"
    return f"{audit.verdict}: {plural(audit.messages, 'message')}, {plural(audit.lines, 'topic')} of sessions, {told}"


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
