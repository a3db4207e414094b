"""What the tasks of a query read: the offsets that were asked for, held against what there is, and divided."""

from __future__ import annotations

import functools
import logging
import socket
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from ipcbus.errors import ArchiveDamaged, ArchiveError, OffsetsExpired

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipcbus.archive.archive import Archive
    from ipcbus.archive.log import Log
    from ipcbus.spark.offsets import Skips
    from ipcbus.spark.read_options import ReadOptions

ROWS_EACH: Final = 2_000_000
BYTES_EACH: Final = 64 << 20
"""A task reads no more, unless a single message is longer. Many tasks of a tenth of a second cost as little as a few
long ones, and keep all cores busy to the end."""

log_ = logging.getLogger("ipcbus.spark")


class Part(InputPartition):
    """What one task reads: some offsets of one log.

    It is the same for the same offsets and options whenever it is planned, so that a batch that is repeated after a
    crash has the same tasks.
    """

    def __init__(
        self,
        path: str,
        archive: str,
        key: str,
        span: tuple[int, int],
        begins: Mapping[str, int],
        ends: Mapping[str, int],
    ) -> None:
        """Offsets from the first of `span` up to, without, the second; topics may begin later and end earlier."""
        self.path = path
        self.archive = archive
        self.host = socket.gethostname()
        self.key = key
        self.start, self.end = span
        self.begins = dict(begins)
        self.ends = dict(ends)


def plan(
    archive: Archive,
    options: ReadOptions,
    begin: Mapping[str, int],
    end: Mapping[str, int],
    skip: Skips,
    stop: Skips,
) -> list[Part]:
    """Returns the tasks that read from `begin` up to `end`; a log that `begin` does not know begins at 0.

    Args:
        archive: what is read.
        options: `failOnDataLoss` and `minPartitions` count.
        begin: log -> first offset.
        end: log -> offset after the last; only its logs are read.
        skip: log -> topic -> offset before which it is left out.
        stop: log -> topic -> offset from which on it is left out.

    Raises:
        OffsetsExpired: not all of these offsets are there, and `failOnDataLoss` is true.
        ArchiveError: a log ends before it begins.
    """
    logs = {log.key: log for log in archive.logs()}
    spans: list[tuple[Log, int, int]] = []
    for key in sorted(end):
        first, last = begin.get(key, 0), end[key]
        if last < first:
            raise ArchiveError(
                f"log {key} of {archive.path} was asked for from {first} to {last}; give an end after the begin"
            )
        if first == last:
            continue
        if key not in logs:
            lost(options, f"log {key} of {archive.path} is gone", first, last)
            continue
        if (damage := unreadable(logs[key], options)) is not None:
            lost(options, damage, first, last)
            continue
        first, last = _kept(logs[key], options, first, last, archive)
        if first < last:
            spans.append((logs[key], first, last))
    rows = sum(last - first for _, first, last in spans)
    return [
        Part(options.archive, archive.id, log.key, span, skip.get(log.key, {}), stop.get(log.key, {}))
        for log, first, last in spans
        for span in _pieces(log, first, last, -(-(last - first) * options.min_partitions // rows))
    ]


def lost(options: ReadOptions, why: str, first: int, end: int) -> None:
    """Deals with rows that were asked for and cannot be had, as `failOnDataLoss` says.

    Raises:
        OffsetsExpired: it is true.
    """
    count = end - first
    if options.fail_on_data_loss:
        raise OffsetsExpired(
            f"{why}: offsets {first} to {end - 1} ({count} rows) were asked for and cannot be had; keep data longer, "
            "or give groupId so that the archive waits for this query, or go on without them with failOnDataLoss false"
        )
    log_.warning("%s: offsets %d to %d (%d rows) are left out, as failOnDataLoss is false", why, first, end - 1, count)


def unreadable(log: Log, options: ReadOptions) -> str | None:
    """Why no row of a log can be read; None where rows can, or where `failOnDataLoss` lets the damage raise.

    Raises:
        ArchiveDamaged: the watermark or the list of names is damaged, and `failOnDataLoss` is true.
    """
    try:
        log.bounds()
        log.names()
    except ArchiveDamaged as error:
        if options.fail_on_data_loss:
            raise
        return str(error)
    return None


@functools.cache
def warn_once(text: str) -> None:
    """Logs a warning, the same one only once in a process."""
    log_.warning("%s", text)


def _kept(log: Log, options: ReadOptions, first: int, last: int, archive: Archive) -> tuple[int, int]:
    """What is to be read of these offsets of a log."""
    oldest, end = log.bounds()
    name = f"log {log.key} of {archive.path}"
    if last > end:
        lost(options, f"{name} ends at {end}", max(first, end), last)
    if first < oldest:
        lost(options, f"{name} is kept from {oldest} on", first, min(oldest, last))
        # With events a task reads what is gone all the same, and has a row that says so.
        first = first if options.include_events else oldest
    return first, min(last, end)


def _pieces(log: Log, first: int, last: int, least: int) -> list[tuple[int, int]]:
    """Returns the offsets of each task, of so many at least, as long as each has a row."""
    rows = last - first
    size = log.size(first, last) if rows > 1 else 0
    count = min(rows, max(least, -(-rows // ROWS_EACH), -(-size // BYTES_EACH)))
    edges = [first + rows * i // count for i in range(count + 1)]
    return list(pairwise(edges))
