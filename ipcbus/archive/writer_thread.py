"""The writer thread of a recorder: writes a record buffer into a log, and goes on when the disk refuses."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Final

import numpy as np

from ipcbus.archive.archive import NAME as ARCHIVE
from ipcbus.archive.batch_waits import numbers
from ipcbus.archive.log_writer import LogRemoved
from ipcbus.errors import IpcBusError, StorageError, StorageFull
from ipcbus.message import MessageType

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ipcbus.archive.archive import Archive
    from ipcbus.archive.log_limits import Limits
    from ipcbus.archive.log_writer import LogWriter
    from ipcbus.archive.record_buffer import RecordBuffer
    from ipcbus.archive.row_block import RowBlock

log = logging.getLogger("ipcbus")

RETRY_S: Final = 0.5
"""Time from a refusal of the disk to the next try, in s."""
_HOUSEKEEPING_S: Final = 0.25
"""Time between two rounds of housekeeping (syncs, statistics), in s."""
_RETAIN_S: Final = 1.0
_NO_NUMBERS: Final = np.zeros(0, np.uint32)
_MESSAGES: Final = [MessageType.DATA, MessageType.REQUEST, MessageType.RESPONSE]


class WriterThread:
    """Writes a record buffer into the log of a stream.

    Attributes:
        messages: messages in the log.
        bytes: bytes of these messages, headers included.
        next_offset: the offset after the last row of the log.
        errors: how often the disk refused.
        error: the last refusal, until a write succeeds.
        retain_error: why the oldest segments could not be removed, until a removal succeeds.
        unwritten: sequence numbers of messages that were in memory at the end and are not in the log.
        wake: set when there may be something to write.
        freed: set when a block of memory was given back.
    """

    def __init__(
        self, archive: Archive, stream: str, limits: Limits, flush_s: float, show_stats: Callable[[], None]
    ) -> None:
        """Opens the log and takes its lock; `start` follows.

        Args:
            archive: the archive.
            stream: the stream to write.
            limits: limits of the log.
            flush_s: longest time that a message waits for others to be written with it, in s.
            show_stats: called several times a second.

        Raises:
            ArchiveLocked, ArchiveDamaged, ConfigError, StorageError: as `Archive.writer`.
        """
        self._archive, self._stream, self._limits, self._flush_s, self._show_stats = (
            archive,
            stream,
            limits,
            flush_s,
            show_stats,
        )
        self._writer: LogWriter = archive.writer(stream, limits=limits)
        self.log = self._writer.log
        self.next_offset = self._writer.next_offset
        self.messages = self.bytes = self.errors = self.unwritten = 0
        self.error: Exception | None = None
        self.retain_error: IpcBusError | None = None
        self.wake, self.freed = threading.Event(), threading.Event()
        self._buffer: RecordBuffer
        self._block: RowBlock | None = None
        self._numbers: dict[str, NDArray[np.uint32]] = {}
        self._ending = self._ended = False
        self._usable = True
        self._flush_at: float | None = None
        self._retry_at = self._housekeeping_at = self._retain_at = 0.0
        self._appended_at = self._synced_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"ipcbus recorder {stream}", daemon=True)

    def close_unused(self) -> None:
        """Closes the log of a writer that was not started."""
        self._writer.close()

    def start(self, buffer: RecordBuffer) -> None:
        """Begins to write."""
        self._buffer = buffer
        self._thread.start()

    def end_waits(self) -> None:
        """Announces the end: from now on no message waits for a disk that refuses."""
        self._ending = True
        if self.error is not None:
            self._buffer.waits = False
        self.wake.set()

    def end(self) -> None:
        """Writes the rest and closes the log; no message may follow.

        Raises:
            StorageError: the disk refused the rest.
        """
        self._ending = self._ended = True
        self.wake.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    @property
    def first_ns(self) -> int:
        """Receive time of the oldest message that is not in the log yet; 0 when all are."""
        block = self._block
        return block.first_ns if block is not None else self._buffer.first_ns

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while True:
            ended = self._ended
            if not ended:
                self.wake.wait(self._pause())
                self.wake.clear()
            try:
                self._run_once(ended)
            except Exception as error:  # any error: a recorder goes on, and logs it
                self._disk_refused(error)
            if ended:
                break
        self._close()

    def _pause(self) -> float:
        """Returns the seconds until something is due."""
        due = self._housekeeping_at
        if self.error is not None:
            due = min(due, self._retry_at)
        elif self._flush_at is not None:
            due = min(due, self._flush_at)
        return max(0.0, due - time.monotonic())

    def _run_once(self, ended: bool) -> None:
        now = time.monotonic()
        if self.error is None or now >= self._retry_at or ended:
            self._write_due(now, ended)
        if now >= self._housekeeping_at:
            self._housekeeping_at = now + _HOUSEKEEPING_S
            self._show_stats()
            if self.error is None:
                self._housekeep(now)

    def _write_due(self, now: float, ended: bool) -> None:
        """Writes full blocks, and the open one when its time has come."""
        if ended or self.error is not None:
            self._check_files()
        if self.error is not None:
            self._reopen()
            if isinstance(self.error, StorageFull):
                self._retain(now)
        while self._write_next(partly=False):
            if time.monotonic() >= self._housekeeping_at:
                self.wake.set()  # there may be more
                break
        self._buffer.flush_notes()
        if self._flush_at is None:
            self._flush_at = now + self._flush_s if self._buffer.filled else None
        elif now >= self._flush_at:
            self._write_next(partly=True)
            self._flush_at = now + self._flush_s if self._buffer.filled else None
        while ended and not (self._buffer.flush_notes() and self._buffer.filled == 0):
            self._write_next(partly=True)
        if self.error is not None:
            log.warning("stream %r of %s can be written again", self._stream, self._archive.path)
            self.error = None

    def _write_next(self, *, partly: bool) -> bool:
        """Writes a block; returns whether there was one."""
        if self._block is None:
            self._block = self._buffer.take(partly)
        block = self._block
        if block is None:
            return False
        rows, data = block.rows, block.data
        end = self._writer.next_offset + len(rows)
        try:
            self._translate_numbers(rows)
            self._writer.append(rows, data.data if len(data) else b"")
        finally:
            # True also when only the sync after it failed: then the rows are in the log.
            if self._writer.next_offset >= end:
                self._block = None
                self.messages += block.messages
                self.bytes += block.bytes
                self.next_offset = end
                self._appended_at = time.monotonic()
                self._buffer.give_back(block)
        return True

    def _translate_numbers(self, rows: NDArray[np.void]) -> None:
        """Replaces the buffer's numbers of topics and sessions by those of the log."""
        for field, names, number_of in (
            ("topic", self._buffer.topics, self._writer.topic),
            ("session", self._buffer.sources, self._writer.session),
        ):
            known = self._numbers.get(field, _NO_NUMBERS)
            if len(names) > len(known):
                # A copy, as the context goes on adding names.
                new = [number_of(name) for name in list(names)[len(known) :]]
                known = self._numbers[field] = np.append(known, np.array(new, np.uint32))
            rows[field] = known[rows[field]]

    def _housekeep(self, now: float) -> None:
        """Syncs, closes segments and removes segments when that is due."""
        limits = self._limits
        if limits.sync == "interval" and now - self._synced_at >= limits.sync_seconds:
            self._synced_at = now
            self._writer.sync()
        if now - self._appended_at >= limits.segment_seconds:
            self._writer.roll()
        if now >= self._retain_at:
            self._check_files()
            self._retain(now)

    def _check_files(self) -> None:
        """Looks whether the log and its archive are still there.

        Raises:
            LogRemoved: they are not, or were not earlier: a new writer must not hide that what was recorded is gone.
        """
        if isinstance(self.error, LogRemoved):
            raise LogRemoved(self.log.folder)
        self._writer.check()
        there = [ARCHIVE]
        with contextlib.suppress(StorageError):  # a directory that cannot be read does not end a recording
            there = self._archive.files.names(self._archive.path)
        if ARCHIVE not in there:
            raise LogRemoved(self.log.folder)

    def _retain(self, now: float) -> None:
        """Removes what the limits do not keep; an error does not stop the recording."""
        limits = self._limits
        self._retain_at = now + _RETAIN_S
        if limits.retain_bytes is limits.retain_seconds is limits.hard_cap_bytes is None:
            return
        try:
            self._writer.retain(time.time_ns())
            self.retain_error = None
        except IpcBusError as error:
            self.errors += 1
            before, self.retain_error = self.retain_error, error
            if before is None:
                log.error(
                    "stream %r of %s: the oldest segments cannot be removed: %s; the recorder tries again every "
                    "%g s, and meanwhile they take disk space",
                    self._stream,
                    self._archive.path,
                    error,
                    _RETAIN_S,
                )

    # ------------------------------------------------------------------ a disk that refuses

    def _disk_refused(self, error: Exception) -> None:
        self.errors += 1
        before, self.error = self.error, error
        self._retry_at = time.monotonic() + RETRY_S
        if not isinstance(error, StorageFull):
            self._usable = False
        if before is None or type(before) is not type(error):
            again = "" if isinstance(error, LogRemoved) else f"the recorder tries again every {RETRY_S:g} s, and "
            log.error(
                "stream %r of %s cannot be written: %s; %smessages wait in memory%s%s",
                self._stream,
                self._archive.path,
                error,
                again,
                "" if self._buffer.waits else "; when it is full, they are noted as lost",
                "; let the archive keep less (retain_bytes)" if isinstance(error, StorageFull) else "",
                exc_info=None if isinstance(error, IpcBusError) else error,
            )
        if self._ending:
            self._buffer.waits = False

    def _reopen(self) -> None:
        """Opens the log again when its writer failed."""
        if self._usable:
            return
        with contextlib.suppress(StorageError):
            self._writer.close()
        self._writer = self._archive.writer(self._stream, limits=self._limits)
        self._usable = True
        self._numbers.clear()

    def _close(self) -> None:
        if self._block is not None or self._buffer.filled:
            self._count_unwritten()
            text = (
                f"{self._buffer.filled} bytes of messages are not in the log of stream {self._stream!r}: {self.error}"
            )
            self.error = StorageError(text)
        try:
            self._writer.close()
        except StorageError as error:
            self.error = self.error or error
        self._show_stats()

    def _count_unwritten(self) -> None:
        block = self._block or self._buffer.take()
        while block is not None:
            rows = block.rows
            self.unwritten += int(numbers(rows)[np.isin(rows["type"], _MESSAGES)].sum())
            block = self._buffer.take()
