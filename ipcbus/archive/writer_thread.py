"""The thread that writes: empties a stage into a log, and goes on when the disk refuses."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Final

import numpy as np

from ipcbus.archive.batch_waits import numbers
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
"""So long after a refusal the disk is tried again."""
_LOOK_S: Final = 0.25
"""Time between two looks at what is not messages: syncs, and who watches."""
_RETAIN_S: Final = 1.0
_NONE: Final = np.zeros(0, np.uint32)
_MESSAGES: Final = [MessageType.DATA, MessageType.REQUEST, MessageType.RESPONSE]


class WriterThread:
    """Writes what a stage holds into the log of a stream.

    Attributes:
        messages: messages that are in the log.
        bytes: their bytes, headers included.
        next_offset: of the log.
        errors: how often the disk refused.
        error: the last refusal, until something is written again.
        retain_error: why the oldest segments could not be removed, until they could.
        unwritten: sequence numbers of messages that were in memory at the end and are not in the log.
        wake: set when there may be something to do.
    """

    def __init__(self, archive: Archive, stream: str, limits: Limits, flush_s: float, tell: Callable[[], None]) -> None:
        """Opens the log, so that nobody else writes it; `start` follows.

        Args:
            archive: where.
            stream: whose log.
            limits: of the log.
            flush_s: how long a message waits at most for others to be written with it.
            tell: called some times a second.

        Raises:
            ArchiveLocked, ArchiveDamaged, ConfigError, StorageError: as `Archive.writer`.
        """
        self._archive, self._stream, self._limits, self._flush_s, self._tell = archive, stream, limits, flush_s, tell
        self._writer: LogWriter = archive.writer(stream, limits=limits)
        self.log = self._writer.log
        self.next_offset = self._writer.next_offset
        self.messages = self.bytes = self.errors = self.unwritten = 0
        self.error: Exception | None = None
        self.retain_error: IpcBusError | None = None
        self.wake, self.room = threading.Event(), threading.Event()
        self._stage: RecordBuffer
        self._hand: RowBlock | None = None
        self._numbers: dict[str, NDArray[np.uint32]] = {}
        self._ending = self._ended = False
        self._usable = True
        self._flush_at: float | None = None
        self._retry_at = self._look_at = self._retain_at = 0.0
        self._appended_at = self._synced_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"ipcbus recorder {stream}", daemon=True)

    def close_unused(self) -> None:
        """Gives the log back when nothing was started."""
        self._writer.close()

    def start(self, stage: RecordBuffer) -> None:
        """Begins to write."""
        self._stage = stage
        self._thread.start()

    def end_waits(self) -> None:
        """The end is near: no message waits any more for a disk that refuses."""
        self._ending = True
        if self.error is not None:
            self._stage.waits = False
        self.wake.set()

    def end(self) -> None:
        """Writes what there is, and closes the log; nothing comes any more.

        Raises:
            StorageError: the disk refused what was left.
        """
        self._ending = self._ended = True
        self.wake.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    @property
    def first_ns(self) -> int:
        """When the oldest message came that is not in the log yet; 0 when all are."""
        hand = self._hand
        return hand.first_ns if hand is not None else self._stage.first_ns

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while True:
            ended = self._ended
            if not ended:
                self.wake.wait(self._pause())
                self.wake.clear()
            try:
                self._turn(ended)
            except Exception as error:  # whatever it is: a recorder goes on, and says so
                self._refused(error)
            if ended:
                break
        self._close()

    def _pause(self) -> float:
        """Seconds until something is due."""
        due = self._look_at
        if self.error is not None:
            due = min(due, self._retry_at)
        elif self._flush_at is not None:
            due = min(due, self._flush_at)
        return max(0.0, due - time.monotonic())

    def _turn(self, ended: bool) -> None:
        now = time.monotonic()
        if self.error is None or now >= self._retry_at or ended:
            self._write_out(now, ended)
        if now >= self._look_at:
            self._look_at = now + _LOOK_S
            self._tell()
            if self.error is None:
                self._care(now)

    def _write_out(self, now: float, ended: bool) -> None:
        """Writes what is full, and what is not when that is due."""
        if self.error is not None:
            self._reopen()
            if isinstance(self.error, StorageFull):
                self._retain(now)
        while self._write_next(partly=False):
            if time.monotonic() >= self._look_at:
                self.wake.set()  # there may be more
                break
        self._stage.settle()
        if self._flush_at is None:
            self._flush_at = now + self._flush_s if self._stage.filled else None
        elif now >= self._flush_at:
            self._write_next(partly=True)
            self._flush_at = now + self._flush_s if self._stage.filled else None
        while ended and not (self._stage.settle() and self._stage.filled == 0):
            self._write_next(partly=True)
        if self.error is not None:
            log.warning("stream %r of %s is written again", self._stream, self._archive.path)
            self.error = None

    def _write_next(self, *, partly: bool) -> bool:
        """Writes a buffer; returns whether there was one."""
        if self._hand is None:
            self._hand = self._stage.take(partly)
        buffer = self._hand
        if buffer is None:
            return False
        rows, data = buffer.rows, buffer.data
        end = self._writer.next_offset + len(rows)
        try:
            self._number(rows)
            self._writer.append(rows, data.data if len(data) else b"")
        finally:
            # Also where only the sync after it was refused: then the rows are there.
            if self._writer.next_offset >= end:
                self._hand = None
                self.messages += buffer.messages
                self.bytes += buffer.bytes
                self.next_offset = end
                self._appended_at = time.monotonic()
                self._stage.give_back(buffer)
        return True

    def _number(self, rows: NDArray[np.void]) -> None:
        """Puts the log's numbers of topics and sessions in the place of the stage's."""
        for field, names, number_of in (
            ("topic", self._stage.topics, self._writer.topic),
            ("session", self._stage.sources, self._writer.session),
        ):
            known = self._numbers.get(field, _NONE)
            if len(names) > len(known):
                # Of a copy: the context goes on adding.
                new = [number_of(name) for name in list(names)[len(known) :]]
                known = self._numbers[field] = np.append(known, np.array(new, np.uint32))
            rows[field] = known[rows[field]]

    def _care(self, now: float) -> None:
        """Syncs, rolls and removes what is due while nothing is appended."""
        limits = self._limits
        if limits.sync == "interval" and now - self._synced_at >= limits.sync_seconds:
            self._synced_at = now
            self._writer.sync()
        if now - self._appended_at >= limits.segment_seconds:
            self._writer.roll()
        if now >= self._retain_at:
            self._retain(now)

    def _retain(self, now: float) -> None:
        """Removes what the limits do not keep; whatever comes of that, messages can be written."""
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
                    "stream %r of %s: the oldest segments cannot be removed: %s; tried again every %g s, meanwhile "
                    "they take room",
                    self._stream,
                    self._archive.path,
                    error,
                    _RETAIN_S,
                )

    # ------------------------------------------------------------------ a disk that refuses

    def _refused(self, error: Exception) -> None:
        self.errors += 1
        before, self.error = self.error, error
        self._retry_at = time.monotonic() + RETRY_S
        if not isinstance(error, StorageFull):
            self._usable = False
        if before is None or type(before) is not type(error):
            log.error(
                "stream %r of %s cannot be written: %s; tried again every %g s, meanwhile messages wait in memory%s",
                self._stream,
                self._archive.path,
                error,
                RETRY_S,
                "" if self._stage.waits else ", and are noted as lost when that is full",
                exc_info=None if isinstance(error, IpcBusError) else error,
            )
        if self._ending:
            self._stage.waits = False

    def _reopen(self) -> None:
        """Makes the writer anew when it cannot be used any more."""
        if self._usable:
            return
        with contextlib.suppress(StorageError):
            self._writer.close()
        self._writer = self._archive.writer(self._stream, limits=self._limits)
        self._usable = True
        self._numbers.clear()

    def _close(self) -> None:
        if self._hand is not None or self._stage.filled:
            self._count_unwritten()
            left = f"{self._stage.filled} bytes of messages are not in the log of stream {self._stream!r}: {self.error}"
            self.error = StorageError(left)
        try:
            self._writer.close()
        except StorageError as error:
            self.error = self.error or error
        self._tell()

    def _count_unwritten(self) -> None:
        buffer = self._hand or self._stage.take()
        while buffer is not None:
            rows = buffer.rows
            self.unwritten += int(numbers(rows)[np.isin(rows["type"], _MESSAGES)].sum())
            buffer = self._stage.take()
