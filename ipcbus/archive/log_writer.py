"""Writing a log: blocks of rows, published after their bytes, in segments."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from typing import TYPE_CHECKING, Final

import numpy as np

from ipcbus.archive import blocks, recovery, removed_offsets, retention
from ipcbus.archive import log_names as naming
from ipcbus.archive import watermark as marks
from ipcbus.archive.archive_layout import (
    BLOCK_BYTES_MAX,
    NAME_SESSION,
    NAME_TOPIC,
    ROW,
    SEGMENT_BYTES_MAX,
    WATERMARK_AT,
)
from ipcbus.archive.blocks import ROW_SIZE
from ipcbus.archive.log_names import Entry
from ipcbus.archive.removed_offsets import RemovedOffsets
from ipcbus.archive.segment_writer import SegmentWriter
from ipcbus.archive.watermark import Watermark
from ipcbus.errors import ClosedError, StorageError, WrongProcess

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from typing_extensions import Buffer

    from ipcbus.archive.cursors import Cursors
    from ipcbus.archive.log import Log
    from ipcbus.archive.log_limits import Limits
    from ipcbus.archive.retention import Retained
    from ipcbus.embedding import Files, Lock

RESERVE_MIN = 1 << 16
"""Least number of offsets that a synced watermark reserves for rows after it; a simulation sets fewer."""

_RESERVE: Final = 4  # offsets that are reserved, as a multiple of those used between the last two syncs


class LogRemoved(StorageError):
    """Files of a log were removed while it was written.

    Cure: the text says it; inside the package, no try with the same writer will succeed.
    """

    def __init__(self, folder: Path) -> None:
        """Names the directory of the log."""
        super().__init__(
            f"{folder}: files of the log, or its archive, were removed or moved while the log was written: what was "
            "written may be lost; put them back if they were moved, and start the recorder, or make the writer, again"
        )


class LogWriter:
    """The one writer of a log, made by `Archive.writer`; for one thread at a time, and a context manager.

    When the system fails to sync, the state of the disk is unknown, so every later call raises; a new writer finds out
    when it opens the log.

    Attributes:
        log: the log, for reading.
        recovered: what a crash had left, and how it was mended.
        next_offset: the offset of the next row.
    """

    def __init__(self, log: Log, limits: Limits, cursors: Cursors, files: Files, lock: Lock) -> None:
        """Mends the log and writes on at its end; owns the lock from now on."""
        self.log = log
        self._limits = limits
        self._cursors = cursors
        self._files = files
        self._lock: Lock | None = lock
        self._folder: Path = log.folder
        self._segment: SegmentWriter | None = None
        self._new: list[Entry] = []
        self._failed = ""
        self._pid = os.getpid()
        with contextlib.ExitStack() as on_error:
            recovery.begin(files, self._folder)
            self._marks = files.open(self._folder / marks.NAME, write=True)
            on_error.callback(self._marks.close)
            self.recovered = recovery.recover(files, self._folder, self._marks)
            self._names_file = files.open(self._folder / naming.NAME_OF_FILE, write=True, create=True)
            on_error.callback(self._names_file.close)
            self._files.sync_dir(self._folder)
            self._names, _, _ = naming.load(naming.read(self._names_file))
            self._names_room = naming.SIZE_MAX - self._names_file.size()
            self._highest = self._names.highest
            self.next_offset = self.recovered.next_offset
            self._boot = files.boot_id()
            self._reserve_rows = RESERVE_MIN
            self._synced_offset = self.next_offset
            self._synced_ns = time.monotonic_ns()
            self._note_holes()
            newest = marks.synced(self._marks)
            self._serial = 0 if newest is None else newest.serial
            self._put_synced(self._mark())
            self._publish()
            self._open = on_error.pop_all()
        self._numbers = {(NAME_TOPIC, text): number for number, text in self._names.topics.items()}
        self._numbers |= {(NAME_SESSION, text): number for number, text in self._names.sessions.items()}

    def __enter__(self) -> LogWriter:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the log."""
        self.close()

    def topic(self, name: str) -> int:
        """Returns the number of a topic in this log; a new name is on the disk before a row that uses it is published.

        Raises:
            ClosedError: the writer was closed.
            StorageError: the log cannot hold more names.
        """
        return self._number(NAME_TOPIC, name)

    def session(self, source: str) -> int:
        """Returns the number of a transport session, by its source string; otherwise like `topic`."""
        return self._number(NAME_SESSION, source)

    def append(self, rows: NDArray[np.void], data: Buffer) -> int:
        """Writes rows and the bytes of their messages, then publishes all or none of them; `next_offset` says which.

        Args:
            rows: of the type `archive_layout.ROW`; `position` counts from the beginning of `data`, and the rows cover
                it without a gap; the numbers of topics and sessions are those of this writer, or 0.
            data: the bytes of their messages.

        Returns:
            The offset of the first row.

        Raises:
            StorageFull: the disk is full; nothing was published, and the caller may try again later.
            StorageError: the system refuses; nothing was published, and the caller may try again, unless the text says
                that the writer has to be made anew. When a sync fails, rows may be published already: `next_offset` of
                this writer and of the new one says so.
            ValueError: rows and data contradict each other, or exceed a segment.
            ClosedError: the writer was closed.
        """
        self._check_usable()
        view = memoryview(data).cast("B")
        self._check(rows, view)
        first = self.next_offset
        if not len(rows):
            return first
        self._write_names()
        segment = self._segment_for(rows, len(view))
        before = segment.sizes
        try:
            segment.write(rows, view, _cuts(rows))
            self._advance(segment, first + len(rows))
        except StorageError:
            # After a failed sync a watermark that counts these rows may be on the disk: the next writer finds out.
            if not self._failed:
                segment.cut(before)
            raise
        except BaseException:  # Ctrl-C, perhaps after the rows were published: only the disk has the answer
            self._failed = self._failed or "it was interrupted while it wrote"
            raise
        if self._limits.sync == "interval" and self._sync_due():
            self.sync()
        return first

    def roll(self) -> None:
        """Closes the segment that is written, if it has rows; the next append begins another one.

        Raises:
            StorageError: the system refuses.
            ClosedError: the writer was closed.
        """
        self._check_usable()
        if self._segment is not None and self._segment.rows:
            self.sync()
            self._close_segment()
            self._publish()

    def check(self) -> None:
        """Looks whether the open files still have names: what goes into a removed file is lost with the next close.

        Raises:
            LogRemoved: a file has none; the writer has to be made anew.
        """
        if self._lock is None:
            return
        held = (self._lock, self._marks, self._names_file, *(self._segment.open_files if self._segment else ()))
        if not all(each.has_name() for each in held):
            error = LogRemoved(self._folder)
            self._failed = self._failed or str(error)
            raise error

    def sync(self) -> None:
        """Syncs all published rows, so that they survive a power loss.

        Raises:
            StorageError: the sync fails, or files were removed; the writer has to be made anew.
            ClosedError: the writer was closed.
        """
        self._check_usable()
        self.check()
        self._synced_ns = time.monotonic_ns()
        if self._synced_offset == self.next_offset:
            return
        if self._segment is not None:
            self._sync_files(self._segment)
        rows = self.next_offset - self._synced_offset
        self._reserve_rows = min(max(RESERVE_MIN, _RESERVE * rows), recovery.RESERVE_MAX)
        self._put_synced(self._mark())
        self._synced_offset = self.next_offset

    def retain(self, now_ns: int) -> Retained:
        """Removes the oldest closed segments that the limits do not keep; see `ipcbus.archive.retention`.

        Args:
            now_ns: the time, in ns since the epoch.

        Raises:
            StorageError: the system refuses.
            ClosedError: the writer was closed.
        """
        self._check_usable()
        written = 0 if self._segment is None else self._segment.disk_bytes
        return retention.retain(self._files, self.log, self._cursors.all(), self._limits, now_ns, written)

    def close(self) -> None:
        """Syncs and closes the log, and releases its lock; a second call does nothing.

        In the child of a fork it only closes the files: the log belongs to the parent.

        Raises:
            StorageError: the system refuses, or files were removed; the log is closed, and the next writer mends it.
        """
        if self._lock is None:
            return
        with contextlib.ExitStack() as at_end:  # runs each of them, also when others raise
            at_end.callback(self._lock.release)
            at_end.callback(self._open.close)
            at_end.callback(self._close_segment)
            try:
                if not self._failed and self._pid == os.getpid():
                    self._close_in_order()
            finally:
                self._failed = self._failed or "it was closed"
                self._lock = None

    def _close_segment(self) -> None:
        if self._segment is not None:
            segment, self._segment = self._segment, None
            segment.close()

    def _close_in_order(self) -> None:
        self.check()
        if self._segment is not None:
            self._sync_files(self._segment)
            self._segment.close()
            if not self._segment.rows:  # the disk was full at the first row
                self._segment.remove()
            self._segment = None
        self._reserve_rows = 0
        mark = dataclasses.replace(self._mark(), closed=True)
        self._put_synced(mark)
        self._marks.write_at(WATERMARK_AT[0], mark.pack())
        self._sync_marks()

    # ------------------------------------------------------------------------------------------ names

    def _number(self, kind: int, text: str) -> int:
        number = self._numbers.get((kind, text))
        if number is None:
            self._check_usable()
            number = self._highest + 1
            entry = Entry(number, kind, text)
            size = len(naming.pack([entry]))  # raises for a name that cannot be written
            if number > naming.NUMBER_MAX or size > self._names_room:
                raise StorageError(
                    f"{self._names_file.path}: has {number - 1} names, and more do not fit; use another stream"
                )
            self._names_room -= size
            self._new.append(entry)
            self._numbers[kind, text] = self._highest = number
        return number

    def _write_names(self) -> None:
        """Writes and syncs new names, so that after a power loss no row has a number with another meaning."""
        if not self._new:
            return
        self._names_file.append(naming.pack(self._new))
        try:
            self._names_file.sync()
        except StorageError as error:
            self._fail(error)
        self._names.add(self._new)
        self._new.clear()

    # ---------------------------------------------------------------------------------------- segments

    def _check(self, rows: NDArray[np.void], data: memoryview) -> None:
        if rows.dtype != ROW or rows.ndim != 1:
            raise ValueError(
                f"rows have type {rows.dtype}; give a one-dimensional array of ipcbus.archive.archive_layout.ROW"
            )
        if not blocks.covers(rows, 0, len(data)):
            raise ValueError(
                f"the {len(rows)} rows do not cover the {len(data)} bytes of data without a gap from position 0 on"
            )
        if len(data) > SEGMENT_BYTES_MAX or len(rows) > blocks.ROWS_MAX:
            raise ValueError(
                f"{len(rows)} rows with {len(data)} bytes exceed a segment ({SEGMENT_BYTES_MAX} bytes); append them in "
                "parts"
            )
        known = self._highest
        if len(rows) and (int(rows["topic"].max()) > known or int(rows["session"].max()) > known):
            raise ValueError(f"a topic or session of the rows has a number above {known}, the last one of this log")

    def _segment_for(self, rows: NDArray[np.void], length: int) -> SegmentWriter:
        """Returns the segment that has room for these rows and `length` bytes of messages."""
        if self._segment is not None and self._segment.is_over(rows, length, self._limits):
            self.roll()
        if self._segment is None:
            self._segment = SegmentWriter(self._files, self._folder, self.next_offset)
        return self._segment

    def _sync_files(self, segment: SegmentWriter) -> None:
        try:
            segment.sync()
        except StorageError as error:
            self._fail(error)

    # --------------------------------------------------------------------------------------- watermark

    def _advance(self, segment: SegmentWriter, next_offset: int) -> None:
        """Publishes what was written up to an offset."""
        before = self.next_offset
        always = self._limits.sync == "always"
        if always:
            self._sync_files(segment)
        self.next_offset = next_offset
        try:
            if always:
                self._reserve_rows = 0
                self._put_synced(self._mark())
                self._synced_offset = next_offset
            elif next_offset > self._synced.limit:
                self._put_synced(dataclasses.replace(self._synced, limit=next_offset + self._reserve_rows))
            self._publish()
        except StorageError:
            self.next_offset = before
            raise

    def _publish(self) -> None:
        self._marks.write_at(WATERMARK_AT[0], dataclasses.replace(self._mark(), limit=self._synced.limit).pack())

    def _mark(self) -> Watermark:
        segment = self._segment
        written = segment is not None and segment.rows > 0
        return Watermark(
            next_offset=self.next_offset,
            limit=self.next_offset + self._reserve_rows,
            base=segment.base if segment is not None and written else self.next_offset,
            data_bytes=segment.bytes if segment is not None else 0,
            blocks=segment.blocks if segment is not None else 0,
            names=self._names.highest,
            time_ns=time.time_ns(),
            boot=self._boot,
            gone=True,
        )

    def _note_holes(self) -> None:
        """Notes which offsets a power loss removed; for a log without a list, all that its segments do not hold."""
        published = marks.published(self._marks)
        known = self.log.removed_offsets(published) if published is not None else None
        if known is not None and not self.recovered.lost_power:
            return
        end = self.next_offset
        gaps = self.log.gaps(Watermark(next_offset=end, limit=end, base=end))
        if known is None:
            found = RemovedOffsets.of(gaps)
        else:
            found = known.with_holes((max(begin, self.recovered.safe), end) for begin, end in gaps)
        removed_offsets.save(self._files, self._folder, found)

    def _put_synced(self, mark: Watermark) -> None:
        """Writes a watermark over the older one of the two synced copies, and syncs it."""
        self._serial += 1
        mark = dataclasses.replace(mark, serial=self._serial)
        self._marks.write_at(marks.place_for_next(self._marks), mark.pack())
        self._sync_marks()
        self._synced = mark

    def _sync_marks(self) -> None:
        try:
            self._marks.sync()
        except StorageError as error:
            self._fail(error)

    def _sync_due(self) -> bool:
        return time.monotonic_ns() - self._synced_ns >= self._limits.sync_seconds * 1e9

    def _fail(self, error: StorageError) -> None:
        """Notes that the state of the disk is unknown.

        Raises:
            StorageError: always.
        """
        self._failed = f"it could not be synced ({error})"
        raise StorageError(f"{error}; close the writer of log {self.log.key} and make a new one") from error

    def _check_usable(self) -> None:
        if self._lock is None:
            raise ClosedError(f"the writer of log {self.log.key} is closed; make a new one with Archive.writer")
        if self._pid != os.getpid():
            raise WrongProcess(f"the writer of log {self.log.key} belongs to the parent of this fork; append there")
        if self._failed:
            raise StorageError(f"the writer of log {self.log.key}: {self._failed}; close it and make a new one")


def _cuts(rows: NDArray[np.void]) -> list[int]:
    """Returns the indices where blocks of at most `BLOCK_BYTES_MAX` begin, and the number of rows."""
    positions = rows["position"]
    most = BLOCK_BYTES_MAX // ROW_SIZE
    found = [0]
    while found[-1] < len(rows):
        at = found[-1]
        end = min(at + most, len(rows))
        last = rows[end - 1]
        if int(last["position"]) + int(last["headers"]) + int(last["length"]) - int(positions[at]) > BLOCK_BYTES_MAX:
            edge = int(positions[at]) + BLOCK_BYTES_MAX
            fitting = int(np.searchsorted(positions[at:end].astype(np.int64), edge, side="right"))
            end = at + max(1, fitting - 1)
        found.append(end)
    return found
