"""Retention: removes the oldest closed segments, by age and by bytes, unless a cursor holds them below the hard cap."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

from ipcbus.archive import removed_offsets, segments
from ipcbus.archive.removed_offsets import RemovedOffsets
from ipcbus.errors import StorageFull

if TYPE_CHECKING:
    from ipcbus.archive.cursors import Cursor
    from ipcbus.archive.log import Log
    from ipcbus.archive.log_limits import Limits
    from ipcbus.archive.segments import Segment
    from ipcbus.embedding import Files


@dataclasses.dataclass(frozen=True, slots=True)
class Retained:
    """The result of a retention."""

    segments: int
    """Segments that were removed."""
    rows: int
    """Rows in the removed segments."""
    bytes: int
    """Bytes on the disk that were freed."""
    missed: dict[str, int]
    """Group -> rows that it still needed and that the hard cap removed."""


def retain(
    files: Files, log: Log, cursors: dict[str, Cursor], limits: Limits, now_ns: int, written_bytes: int
) -> Retained:
    """Removes what the limits do not keep; the caller holds the lock of the log.

    A segment is removed when the log with it takes more than `retain_bytes`, or when all of its rows are older than
    `retain_seconds`; but not while a cursor younger than `cursor_max_age_seconds` holds it, unless the log takes more
    than the hard cap. Older segments are removed first.

    Args:
        files: the storage.
        log: the log.
        cursors: group -> cursor.
        limits: limits of the log.
        now_ns: the time, in ns since the epoch.
        written_bytes: size of the segment that the caller writes.
    """
    closed = log.segments(closed=True)
    total = written_bytes + sum(segment.disk_bytes for segment in closed)
    fresh = {
        group: offset
        for group, cursor in cursors.items()
        if (offset := cursor.needs(log.key, log.partition)) is not None
        and now_ns - cursor.time_ns <= limits.cursor_max_age_seconds * 1e9
    }
    held = min(fresh.values(), default=None)
    removed: list[Segment] = []
    for segment, newer in itertools.zip_longest(closed, closed[1:]):
        over = limits.retain_bytes is not None and total > limits.retain_bytes
        # The newest row of a damaged segment is unknown, but it is older than the next segment.
        last_ns = segment.last_receive_ns
        if segment.damaged:
            last_ns = (newer.first_receive_ns if newer is not None else 0) or now_ns
        old = limits.retain_seconds is not None and now_ns - last_ns > limits.retain_seconds * 1e9
        capped = limits.cap_bytes is not None and total > limits.cap_bytes
        needed = held is not None and segment.end > held
        if not (capped or ((over or old) and not needed)):
            break
        removed.append(segment)
        total -= segment.disk_bytes
    if removed:
        following = (base for base in segments.bases(files.names(log.folder)) if base > removed[-1].base)
        remove(files, log, [segment.base for segment in removed], next(following, log.watermark().next_offset))
    missed = {
        group: sum(max(0, segment.end - max(segment.base, offset)) for segment in removed)
        for group, offset in fresh.items()
    }
    return Retained(
        len(removed),
        sum(segment.rows for segment in removed),
        sum(segment.disk_bytes for segment in removed),
        {group: rows for group, rows in missed.items() if rows},
    )


def remove(files: Files, log: Log, bases: list[int], first: int) -> None:
    """Removes segments, after noting that the log is kept from the offset `first` on."""
    mark = log.watermark()
    noted = (log.removed_offsets(mark) or RemovedOffsets.of(log.gaps(mark))).removed(first)
    full = False
    try:
        removed_offsets.save(files, log.folder, noted)
    except StorageFull:
        full = True  # the disk has room when the first segment is removed
    for base in bases:
        segments.remove(files, log.folder, base)
        if full:
            removed_offsets.save(files, log.folder, noted)
            full = False
    files.sync_dir(log.folder)
