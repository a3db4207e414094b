"""The tasks of a query: the offsets that it asks for, limited to those that exist, and divided."""

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

ROWS_PER_TASK: Final = 2_000_000
BYTES_PER_TASK: Final = 64 << 20
"""Limits of one task, which a single message may exceed. Many tasks of a tenth of a second cost as little as a few long
tasks, and keep all cores busy to the end."""

logger = logging.getLogger("ipcbus.spark")


class Part(InputPartition):
    """The part of a log that one task reads.

    Equal offsets and options always give equal parts, so a batch that is repeated after a crash gets identical tasks.
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
        """Takes the first offset and the end as `span`; topics may begin later and end earlier."""
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
    """Returns the tasks that read from `begin` up to `end`; a log that `begin` does not name begins at 0.

    Args:
        archive: the archive.
        options: of these, `failOnDataLoss` and `minPartitions` matter.
        begin: log -> first offset.
        end: log -> offset after the last; only these logs are read.
        skip: log -> topic -> offset before which the topic is left out.
        stop: log -> topic -> offset from which on the topic is left out.

    Raises:
        OffsetsExpired: some of these offsets do not exist, and `failOnDataLoss` is true.
        ArchiveError: a log ends before it begins.
    """
    logs = {log.key: log for log in archive.logs()}
    spans: list[tuple[Log, int, int]] = []
    for key in sorted(end):
        first, last = begin.get(key, 0), end[key]
        if last < first:
            raise ArchiveError(
                f"log {key} of {archive.path} was requested from {first} to {last}; give an end after the begin"
            )
        if first == last:
            continue
        if key not in logs:
            report_lost(options, f"log {key} of {archive.path} no longer exists", first, last)
            continue
        if (damage := damage_of(logs[key], options)) is not None:
            report_lost(options, damage, first, last)
            continue
        first, last = _kept_range(logs[key], options, first, last, archive)
        if first < last:
            spans.append((logs[key], first, last))
    rows = sum(last - first for _, first, last in spans)
    return [
        Part(options.archive, archive.id, log.key, span, skip.get(log.key, {}), stop.get(log.key, {}))
        for log, first, last in spans
        for span in _split(log, first, last, -(-(last - first) * options.min_partitions // rows))
    ]


def report_lost(options: ReadOptions, why: str, first: int, end: int) -> None:
    """Reports offsets that were requested and do not exist, as `failOnDataLoss` says.

    Raises:
        OffsetsExpired: `failOnDataLoss` is true.
    """
    count = end - first
    if options.fail_on_data_loss:
        raise OffsetsExpired(
            f"{why}: offsets {first} to {end - 1} ({count} rows) were requested, but do not exist; keep data longer, "
            "or give groupId so that the archive waits for this query, or leave them out with failOnDataLoss false"
        )
    logger.warning(
        "%s: offsets %d to %d (%d rows) are left out, as failOnDataLoss is false", why, first, end - 1, count
    )


def damage_of(log: Log, options: ReadOptions) -> str | None:
    """Returns why no row of a log can be read; None where the log can be read.

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
    """Logs a warning, each text only once in a process."""
    logger.warning("%s", text)


def _kept_range(log: Log, options: ReadOptions, first: int, last: int, archive: Archive) -> tuple[int, int]:
    """Returns the part of an offset range that the log still has; reports the rest."""
    oldest, end = log.bounds()
    name = f"log {log.key} of {archive.path}"
    if last > end:
        report_lost(options, f"{name} ends at {end}", max(first, end), last)
    if first < oldest:
        report_lost(options, f"{name} is kept from {oldest} on", first, min(oldest, last))
        # With events, the task returns a row of a loss for the missing offsets.
        first = first if options.include_events else oldest
    return first, min(last, end)


def _split(log: Log, first: int, last: int, least: int) -> list[tuple[int, int]]:
    """Returns the offsets of at least `least` tasks, as long as each task has a row."""
    rows = last - first
    size = log.size(first, last) if rows > 1 else 0
    count = min(rows, max(least, -(-rows // ROWS_PER_TASK), -(-size // BYTES_PER_TASK)))
    edges = [first + rows * i // count for i in range(count + 1)]
    return list(pairwise(edges))
