"""The output of `ipcbus archive`: an archive, its logs, and the positions of its consumers."""

from __future__ import annotations

import contextlib
import datetime
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ipcbus.archive import Segment  # noqa: TC001 - the schema looks the types up
from ipcbus.archive.archive_layout import LOSS_TYPES
from ipcbus.archive.batch_waits import UNKNOWN, batch_waits
from ipcbus.archive.log import leave_out
from ipcbus.archive.repair import Repair  # noqa: TC001
from ipcbus.archive.verify import Finding  # noqa: TC001
from ipcbus.errors import OffsetsExpired
from ipcbus_tools.common import age, duration, number, plural, safe, size
from ipcbus_tools.render.text_tables import Row, show_table

if TYPE_CHECKING:
    from rich.console import Console

    from ipcbus.archive import Archive, Log

_DATA = 0
_NEWEST: Final = 1 << 20  # rows from which the waits in the batch are computed
_NONE = "-"


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic in a log; its numbers are null without `--count`.

    Attributes:
        topic: name of the topic.
        messages: number of messages.
        bytes: bytes of their values and headers.
        losses: rows that record losses.
        lost: sequence numbers lost in these rows.
    """

    topic: str
    messages: int | None
    bytes: int | None
    losses: int | None
    lost: int | None


@dataclass(frozen=True, slots=True)
class BatchWait:
    """The waits of messages in batches, from sending to publishing the datagram.

    Attributes:
        rows: number of newest rows of the log that were read; 1,048,576 at most.
        messages: messages among these rows whose wait is known.
        mean_ns: mean of their waits, in ns.
        longest_ns: the longest wait, in ns.
    """

    rows: int
    messages: int
    mean_ns: float
    longest_ns: int

    @classmethod
    def of(cls, log: Log, first: int, end: int) -> BatchWait | None:
        """Returns the waits in a log with these offsets; None if no wait is known."""
        rows = messages = total = longest = 0
        start = max(first, end - _NEWEST)
        with contextlib.suppress(OffsetsExpired):  # retention may be faster
            for chunk in log.read(start, end, verify=False, messages=False, on_damage=leave_out, on_hole=leave_out):
                rows += len(chunk.rows)
                found = batch_waits(chunk.rows)
                found = found[found != UNKNOWN]
                messages += len(found)
                total += int(found.sum())
                longest = max(longest, int(found.max(initial=0)))
        return cls(rows, messages, total / messages, longest) if messages else None


@dataclass(frozen=True, slots=True)
class LogInfo:
    """A log of an archive.

    Attributes:
        key: stream and partition of the log, as `stream/partition`.
        stream: name of the stream.
        partition: number of the log; no other log of the archive has it.
        writer: the process that writes the log now, as it describes itself; empty without one.
        first_offset: the first offset that is kept.
        next_offset: the offset that the next row will have.
        rows: rows that are kept: messages, losses and other events.
        bytes: bytes of the messages, headers included.
        disk_bytes: bytes of the segments.
        first_receive_ns: the earliest receive time of the rows, in ns since the epoch; null without rows.
        last_receive_ns: the latest receive time of the rows.
        losses: rows that record losses.
        lost: sequence numbers lost in these rows.
        batch_wait: waits of messages in batches, from the newest rows; null if no wait is known.
        holes: offsets between first and next that a power loss took, or may have taken.
        missing: offsets between first and next whose segments are missing, although neither retention nor a power loss
            took them; `ipcbus archive verify` names them.
        damaged: blocks with a damaged record; `ipcbus archive verify` checks every byte.
        topics: topics of the log.
        sessions: source strings of its transport sessions.
        segments: segments of the log, oldest first.
    """

    key: str
    stream: str
    partition: int
    writer: str
    first_offset: int
    next_offset: int
    rows: int
    bytes: int
    disk_bytes: int
    first_receive_ns: int | None
    last_receive_ns: int | None
    losses: int
    lost: int
    batch_wait: BatchWait | None
    holes: int
    missing: int
    damaged: int
    topics: tuple[TopicInfo, ...]
    sessions: tuple[str, ...]
    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, archive: Archive, log: Log, *, count: bool) -> LogInfo:
        """Returns the facts about a log."""
        first, end = log.bounds()
        segments = tuple(log.segments())
        gaps = log.missing()
        if segments:  # rows may have been added or removed in between
            begins = [segments[0].base, *(begin for begin, _ in gaps)]
            first, end = max(first, min(begins)), max(end, segments[-1].end)
        missing = sum(stop - begin for begin, stop in gaps)
        rows = sum(segment.rows for segment in segments)
        filled = [segment for segment in segments if segment.last_receive_ns]
        return cls(
            key=log.key,
            stream=log.stream,
            partition=log.partition,
            writer=archive.writing(log.stream) or "",
            first_offset=first,
            next_offset=end,
            rows=rows,
            bytes=sum(segment.bytes for segment in segments),
            disk_bytes=sum(segment.disk_bytes for segment in segments),
            first_receive_ns=min((segment.first_receive_ns for segment in filled), default=None),
            last_receive_ns=max((segment.last_receive_ns for segment in filled), default=None),
            losses=sum(segment.losses for segment in segments),
            lost=sum(segment.lost for segment in segments),
            batch_wait=BatchWait.of(log, first, end),
            holes=max(0, end - first - rows - missing),
            missing=missing,
            damaged=sum(segment.damaged for segment in segments),
            topics=_topics(log, first, end, count=count),
            sessions=tuple(log.sessions().values()),
            segments=segments,
        )


@dataclass(frozen=True, slots=True)
class CursorAt:
    """The position of a consumer in a log.

    Attributes:
        log: key of the log.
        offset: the first offset that the consumer still needs.
        lag: number of offsets that it has not read; null if the log is gone.
        missed: number of offsets that it has not read and that are no longer kept; null if the log is gone.
    """

    log: str
    offset: int
    lag: int | None
    missed: int | None


@dataclass(frozen=True, slots=True)
class CursorInfo:
    """The positions of a consumer.

    Attributes:
        group: name of the consumer.
        committed_ns: time when it last committed its cursor, in ns since the epoch; null if the cursor is damaged.
        logs: the consumer's position in each log.
        reason: the damage of the cursor, which then has no positions; empty without damage.
    """

    group: str
    committed_ns: int | None
    logs: tuple[CursorAt, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class ArchiveInfo:
    """An archive at one moment.

    Attributes:
        archive: directory of the archive.
        id: 32 hexadecimal digits that no other archive has.
        taken_ns: time of this state, in ns since the epoch.
        logs: logs of the archive, by partition.
        cursors: positions of its consumers.
    """

    archive: str
    id: str
    taken_ns: int
    logs: tuple[LogInfo, ...]
    cursors: tuple[CursorInfo, ...]

    @classmethod
    def of(cls, archive: Archive, *, count: bool = False) -> ArchiveInfo:
        """Returns the facts about an archive.

        Args:
            archive: the archive.
            count: whether to count messages and bytes by topic, which reads all rows.
        """
        logs = tuple(LogInfo.of(archive, log, count=count) for log in archive.logs())
        return cls(str(archive.path), archive.id, time.time_ns(), logs, _cursors(archive, logs))


@dataclass(frozen=True, slots=True)
class Findings:
    """The damage of an archive.

    Attributes:
        archive: directory of the archive.
        id: 32 hexadecimal digits that no other archive has.
        findings: the damaged places; empty without damage.
    """

    archive: str
    id: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Repairs:
    """The repairs of an archive.

    Attributes:
        archive: directory of the archive.
        id: 32 hexadecimal digits that no other archive has.
        repairs: the repairs; empty if there was no damage.
    """

    archive: str
    id: str
    repairs: tuple[Repair, ...]


def _topics(log: Log, first: int, end: int, *, count: bool) -> tuple[TopicInfo, ...]:
    names = log.topics()
    if not count:
        return tuple(TopicInfo(name, None, None, None, None) for name in names.values())
    width = max(names, default=0) + 1
    found = np.zeros((4, width), np.int64)
    for chunk in log.read(first, end, verify=False, messages=False, on_damage=leave_out, on_hole=leave_out):
        rows = chunk.rows
        lost = np.isin(rows["type"], LOSS_TYPES)
        data = rows["type"] == _DATA
        lengths = rows["length"].astype(np.int64) + rows["headers"]
        for line, which, weights in (
            (0, data, None),
            (1, data, lengths),
            (2, lost, None),
            (3, lost, rows["numbers"]),
        ):
            weight = None if weights is None else weights[which]
            found[line] += np.bincount(rows["topic"][which], weight, minlength=width).astype(np.int64)
    return tuple(TopicInfo(name, *found[:, topic].tolist()) for topic, name in names.items())


def _cursors(archive: Archive, logs: tuple[LogInfo, ...]) -> tuple[CursorInfo, ...]:
    bounds = {log.key: (log.first_offset, log.next_offset) for log in logs}
    good = [
        CursorInfo(group, cursor.time_ns, tuple(_at(*each, bounds) for each in cursor.offsets.items()), "")
        for group, cursor in archive.cursors.all().items()
    ]
    bad = [CursorInfo(group, None, (), reason) for group, reason in archive.cursors.damaged().items()]
    return tuple(sorted([*good, *bad], key=lambda cursor: cursor.group))


def _at(key: str, offset: int, bounds: dict[str, tuple[int, int]]) -> CursorAt:
    if key not in bounds:
        return CursorAt(key, offset, None, None)
    first, end = bounds[key]
    return CursorAt(key, offset, max(0, end - offset), max(0, first - offset))


def show(console: Console, found: ArchiveInfo) -> None:
    """Prints the facts about an archive for people."""
    console.print(safe(found.archive), style="bold")
    total = sum(log.disk_bytes for log in found.logs)
    console.print(f"  id {found.id}, {size(total)} in {plural(len(found.logs), 'log')}", soft_wrap=True)
    show_table(console, "logs", [_log(log, found.taken_ns) for log in found.logs])
    for log in found.logs:
        show_table(console, f"topics of {log.key}", [_topic(topic) for topic in log.topics])
        show_table(console, f"sessions of {log.key}", [{"source": source} for source in log.sessions])
    show_table(console, "cursors", [row for cursor in found.cursors for row in _cursor(cursor, found.taken_ns)])


def _log(log: LogInfo, now_ns: int) -> Row:
    last = log.last_receive_ns
    return {
        "log": log.key,
        "offsets": f"{log.first_offset}-{log.next_offset - 1}" if log.next_offset > log.first_offset else _NONE,
        "rows": number(log.rows),
        "size": size(log.disk_bytes),
        "segments": len(log.segments),
        "losses": number(log.losses),
        "lost": number(log.lost),
        "batch wait": _NONE if log.batch_wait is None else duration(round(log.batch_wait.mean_ns)),
        "longest": _NONE if log.batch_wait is None else duration(log.batch_wait.longest_ns),
        "holes": number(log.holes) if log.holes else "",
        "missing": number(log.missing) if log.missing else "",
        "damaged": number(log.damaged) if log.damaged else "",
        "from": _moment(log.first_receive_ns),
        "to": _moment(last),
        "idle": _NONE if last is None else age((now_ns - last) / 1e9),
        "written by": log.writer or _NONE,
    }


def _topic(topic: TopicInfo) -> Row:
    if topic.messages is None or topic.bytes is None:
        return {"topic": topic.topic}
    return {
        "topic": topic.topic,
        "messages": number(topic.messages),
        "size": size(topic.bytes),
        "losses": number(topic.losses or 0),
        "lost": number(topic.lost or 0),
    }


def _cursor(cursor: CursorInfo, now_ns: int) -> list[Row]:
    if cursor.committed_ns is None:
        empty: Row = dict.fromkeys(("group", "log", "next", "lag", "missed", "committed"), "")
        return [empty | {"group": cursor.group, "reason": cursor.reason}]
    return [
        {
            "group": cursor.group,
            "log": at.log,
            "next": number(at.offset),
            "lag": _NONE if at.lag is None else number(at.lag),
            "missed": number(at.missed) if at.missed else "",
            "committed": f"{age((now_ns - cursor.committed_ns) / 1e9)} ago",
            "reason": "the log is gone" if at.lag is None else "",
        }
        for at in cursor.logs
    ]


def _moment(time_ns: int | None) -> str:
    if time_ns is None:
        return _NONE
    try:
        return datetime.datetime.fromtimestamp(time_ns // 1_000_000_000).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{time_ns} ns"  # out of the range of dates
