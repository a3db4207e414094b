"""The recorder: writes what it receives into a log of an archive.

Two threads work for it. The thread of the context puts messages into a record buffer, and waits for the disk only with
`when_full="wait"`. A thread of the recorder writes them.
"""

from __future__ import annotations

import atexit
import dataclasses
import logging
import os
import re
import socket
import time
from typing import TYPE_CHECKING, Final, Literal

from ipcbus.archive import recorded_topics
from ipcbus.archive.log_limits import Limits
from ipcbus.archive.record_buffer import BUFFER_BYTES_MIN, RecordBuffer
from ipcbus.archive.resume_positions import read_resume_positions
from ipcbus.archive.writer_thread import WriterThread
from ipcbus.embedding import recorder_stats_block
from ipcbus.errors import ConfigError, IpcBusError, StorageError, WrongProcess
from ipcbus.wildcard import compile_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from ipcbus.archive.archive import Archive
    from ipcbus.context import Context
    from ipcbus.embedding import RecorderStatsBlock
    from ipcbus.receiver import Receiver

log = logging.getLogger("ipcbus")

State = Literal["new", "recording", "failing", "closed"]

_SHOWN_COUNTS: Final = (
    *("messages", "bytes", "losses", "lost", "dropped", "missed"),
    *("next_offset", "buffered_bytes", "buffer_bytes", "behind_ns", "errors"),
)
_BUFFER_BYTES_MAX: Final = 1 << 46
"""More memory than a machine has."""
_NOT_IN_A_STREAM: Final = re.compile(r"[^A-Za-z0-9._-]")
_REFERENCE: Final = re.compile(r"\\[1-9]|\(\?P=|\(\?\(")


@dataclasses.dataclass(frozen=True, slots=True)
class RecorderStats:
    """What a recorder has done so far.

    Messages that are not in the log are counted by sequence numbers, which is all that is known of them: a message that
    is longer than a datagram has several.

    Attributes:
        state: `new`, `recording`, `failing` (the disk refuses to write, or to remove the oldest segments; the recorder
            tries again), or `closed`.
        messages: messages in the log.
        bytes: bytes of these messages, headers included.
        losses: losses that the bus reported.
        lost: sequence numbers that these losses span.
        dropped: sequence numbers of messages that found no memory, or are too large for a segment; the log has a loss
            for each.
        too_large: the part of `dropped` whose messages are too large for a segment.
        missed: sequence numbers that were sent while no recorder ran, in sessions that an earlier recorder saw, and
            that their source did not keep (option late_join); the log has a loss for each.
        unwritten: sequence numbers of messages that were in memory at the stop, and that the disk refused; the log has
            no loss for them. The next recorder of the stream counts them as missed if their sessions still exist.
        buffered_bytes: memory that holds messages which are not in the log yet.
        buffer_bytes: size of the memory.
        behind_ns: age of the oldest message that is not in the log yet.
        next_offset: the offset after the last row of the log.
        errors: how often the disk refused.
        error: the last refusal; empty when none is current.
    """

    state: State
    messages: int
    bytes: int
    losses: int
    lost: int
    dropped: int
    too_large: int
    missed: int
    unwritten: int
    buffered_bytes: int
    buffer_bytes: int
    behind_ns: int
    next_offset: int
    errors: int
    error: str


class Recorder:
    """Records topics into a log of an archive.

    A recorder goes on where an earlier recorder of the stream stopped: it takes what was sent meanwhile from sources
    that keep it (option late_join), and notes the rest as lost.

    When `stop` returns, everything that arrived before is in the log, or is noted there as lost. When the disk refuses,
    the recorder tries again; meanwhile messages wait in memory, and when the memory is full they are dropped and noted
    as lost.
    """

    def __init__(
        self,
        context: Context,
        archive: Archive,
        topics: Sequence[str],
        *,
        pattern: bool = False,
        stream: str | None = None,
        buffer_bytes: int = 64 << 20,
        when_full: Literal["drop", "wait"] = "drop",
        flush_seconds: float = 0.05,
        limits: Limits | None = None,
    ) -> None:
        """Prepares a recorder; `start` begins the recording.

        Args:
            context: receives the messages; it may have other receivers.
            archive: where to write.
            topics: names of topics, or with `pattern` regular expressions of Python's `re` that match whole topics.
            pattern: whether `topics` are regular expressions.
            stream: name of the stream in the archive; None: the name of this host.
            buffer_bytes: memory for messages that wait for the disk. A longer message takes the memory that it needs in
                addition, one at a time.
            when_full: what happens to a message that finds no memory. `drop`: it is not recorded, its number is noted
                as lost, and the bus goes on; but once half of the memory is in use, the context pauses for at most 10
                ms for each sixteenth of it. `wait`: the context waits, and with it receiver-paced sources.
            flush_seconds: longest time after which a message can be read in the archive, while the disk keeps up.
            limits: limits of the log.

        Raises:
            ConfigError: an argument is out of range, or `topics` are invalid.
        """
        if isinstance(topics, str) or not topics:
            raise ConfigError(f"topics = {topics!r}: give a list of one or more topics")
        if when_full not in ("drop", "wait"):
            raise ConfigError(f"when_full = {when_full!r}: choose one of drop, wait")
        if not BUFFER_BYTES_MIN <= buffer_bytes <= _BUFFER_BYTES_MAX:
            raise ConfigError(f"buffer_bytes = {buffer_bytes}: give {BUFFER_BYTES_MIN} to {_BUFFER_BYTES_MAX}")
        if not 0 < flush_seconds <= 60:
            raise ConfigError(f"flush_seconds = {flush_seconds}: give a number of seconds above 0 and at most 60")
        self._context = context
        self._archive = archive
        self._topics = [union(topics)] if pattern else list(dict.fromkeys(topics))
        self._pattern = pattern
        self.stream = stream or _NOT_IN_A_STREAM.sub("_", socket.gethostname()).lstrip(".-") or "host"
        self._buffer_bytes = buffer_bytes
        self._waits = when_full == "wait"
        self._flush_s = flush_seconds
        self._limits = limits or Limits()
        self._receivers: list[Receiver] = []
        self._stats_block: RecorderStatsBlock | None = None
        self._writer_thread: WriterThread | None = None
        self._buffer: RecordBuffer | None = None
        self._closed = False
        self._pid = os.getpid()

    # ------------------------------------------------------------------ public methods

    def start(self) -> None:
        """Begins to record.

        Raises:
            ArchiveLocked: another recorder writes this stream.
            ArchiveDamaged: the log has to be repaired first.
            StorageError: the system refuses.
            ConfigError: a topic is invalid, or another receiver of the context contradicts this one.
            IpcBusError: the recorder was started before.
        """
        if self._writer_thread is not None:
            raise IpcBusError(f"the recorder of stream {self.stream!r} was started before; make another one")
        writer_thread = WriterThread(self._archive, self.stream, self._limits, self._flush_s, self._show_stats)
        try:
            positions = read_resume_positions(writer_thread.log)
            buffer = RecordBuffer(
                self._buffer_bytes,
                writer_thread.wake.set,
                writer_thread.freed,
                waits=self._waits,
                resume_positions=positions,
            )
            self._stats_block = recorder_stats_block(self._context, str(self._archive.path / self.stream))
        except BaseException:
            writer_thread.close_unused()
            raise
        self._writer_thread, self._buffer = writer_thread, buffer
        recorded_topics.note(self._archive, self.stream, self._topics, pattern=self._pattern, flush_s=self._flush_s)
        atexit.register(self._at_exit)  # the threads do not keep a process alive
        writer_thread.start(buffer)
        try:
            receive = self._context.wildcard_receiver if self._pattern else self._context.receiver
            for topic in self._topics:
                self._receivers.append(receive(topic, buffer.record, ordered_delivery=1))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> RecorderStats:
        """Ends the recording: what has arrived is written, or noted as lost. A second call does nothing.

        Returns:
            The final statistics.

        Raises:
            StorageError: the disk refused the rest; the text says how much that was.
            WrongProcess: the recorder was made before a fork, in the parent.
        """
        if os.getpid() != self._pid:
            raise WrongProcess(
                f"the recorder of stream {self.stream!r} belongs to the parent of this fork; stop it there"
            )
        if self._writer_thread is not None and not self._closed:
            self._closed = True
            atexit.unregister(self._at_exit)
            # Closing receivers needs the context, which must not wait for a disk that refuses.
            self._writer_thread.end_waits()
            for receiver in self._receivers:
                receiver.close()
            recorded_topics.forget(self._archive, self.stream)
            try:
                self._writer_thread.end()
            finally:
                if self._stats_block is not None:
                    self._stats_block.close()
        return self.stats

    @property
    def stats(self) -> RecorderStats:
        """What the recorder has done so far; any thread may read it at any time."""
        writer_thread, buffer = self._writer_thread, self._buffer
        if writer_thread is None or buffer is None:
            return RecorderStats("new", 0, 0, 0, 0, 0, 0, 0, 0, 0, self._buffer_bytes, 0, 0, 0, "")
        error = writer_thread.error or writer_thread.retain_error
        state: State = "closed" if self._closed else "recording" if error is None else "failing"
        first_ns = writer_thread.first_ns
        return RecorderStats(
            state,
            writer_thread.messages,
            writer_thread.bytes,
            buffer.losses,
            buffer.lost,
            buffer.dropped,
            buffer.too_large,
            buffer.missed,
            writer_thread.unwritten,
            buffer.filled,
            self._buffer_bytes,
            max(0, time.time_ns() - first_ns) if first_ns else 0,
            writer_thread.next_offset,
            writer_thread.errors,
            "" if error is None else str(error),
        )

    def __enter__(self) -> Self:
        """Starts the recorder."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops the recorder."""
        self.stop()

    def _at_exit(self) -> None:
        """Stops the recorder at the end of a process that did not call `stop`."""
        if os.getpid() != self._pid:
            return
        try:
            self.stop()
        except StorageError as error:
            log.error("%s", error)

    def _show_stats(self) -> None:
        """Shows the statistics to other processes."""
        if self._stats_block is not None:
            found = self.stats
            self._stats_block.show(failing=bool(found.error), **{name: getattr(found, name) for name in _SHOWN_COUNTS})


def union(patterns: Sequence[str]) -> str:
    """Returns one pattern for all topics that one of several patterns matches, so that no topic is received twice.

    Raises:
        ConfigError: a pattern is not a regular expression, or the patterns cannot be joined.
    """
    for each in patterns:
        compile_pattern(each)
    if len(patterns) == 1:
        return patterns[0]
    found = "|".join(f"(?:{each})" for each in patterns)
    try:
        if any(_REFERENCE.search(each) for each in patterns):
            raise re.error("one of them refers to a group of its own")
        re.compile(found)
    except re.error as error:
        raise ConfigError(
            f"the patterns {', '.join(map(repr, patterns))} do not work together ({error}); write them as one "
            "pattern, and flags inside a group, for example (?i:...)"
        ) from error
    return found
