"""The recorder: writes what it receives into a log of an archive.

Two threads work for it: the context's, which puts messages into memory (`stage`) and never waits for a disk unless it
was told to, and one of its own, which writes them.
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

from ipcbus.archive.log_limits import Limits
from ipcbus.archive.record_buffer import BUFFER_BYTES_MIN, RecordBuffer
from ipcbus.archive.resume_positions import met_before
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

_SHOWN: Final = (
    *("messages", "bytes", "losses", "lost", "dropped", "missed"),
    *("next_offset", "buffered_bytes", "buffer_bytes", "behind_ns", "errors"),
)
_BUFFER_BYTES_MAX: Final = 1 << 46
"""More than a machine has."""
_NOT_IN_A_STREAM: Final = re.compile(r"[^A-Za-z0-9._-]")
_REFERENCE: Final = re.compile(r"\\[1-9]|\(\?P=|\(\?\(")


@dataclasses.dataclass(frozen=True, slots=True)
class RecorderStats:
    """What a recorder has done so far.

    What is not in the log is counted in sequence numbers, as only these are known of it: a message that is larger than
    a datagram has several.

    Attributes:
        state: `new`, `recording`, `failing` (the disk refuses, if only to remove the oldest segments; it tries again
            and again), or `closed`.
        messages: messages that are in the log.
        bytes: their bytes, headers included.
        losses: losses that the bus reported.
        lost: sequence numbers that these span.
        dropped: those of messages that came and found no memory, or no segment that could hold them; each is noted in
            the log.
        too_large: those among them of messages that no segment could hold.
        missed: those that were sent while no recorder was there, in sessions that an earlier one had met; noted too.
        unwritten: those of messages that were in memory when it was stopped, and that the disk refused; they
            are not noted in the log. The next recorder of the stream finds them missed, if their sessions are there
            still.
        buffered_bytes: memory in use by what is not in the log yet.
        buffer_bytes: how much memory there is.
        behind_ns: age of the oldest message that is not in the log yet.
        next_offset: of the log.
        errors: how often the disk refused.
        error: the last refusal; empty when there was none, or it is over.
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

    Everything that came before `stop` is called is in the log when it returns, or is noted there as lost. What the disk
    refuses is tried again; meanwhile messages wait in memory, and are dropped, noted, when that is full.
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
        """A recorder that does nothing before `start`.

        Args:
            context: receives; it may do other things too.
            archive: where to write.
            topics: names of topics, or with `pattern` regular expressions of Python's `re` that match whole topics.
            pattern: whether `topics` are regular expressions.
            stream: whose log it is in the archive; None takes the name of this host.
            buffer_bytes: how much memory messages may wait in for the disk. A message that is longer takes as much as
                it needs beside it, one at a time.
            when_full: what happens to a message that finds no memory. `drop`: it is not recorded, its number is noted
                as lost, and the bus is not held up; but once half of the memory is in use the context pauses, for each
                sixteenth of it 10 ms at most. `wait`: the context waits, and with it receiver-paced sources.
            flush_seconds: messages are readable in the archive after so long at most, while the disk keeps up.
            limits: of the log.

        Raises:
            ConfigError: an argument is out of range, or no topic or pattern.
        """
        if isinstance(topics, str) or not topics:
            raise ConfigError(f"{topics!r} are no topics to record; give a list of one or more")
        if when_full not in ("drop", "wait"):
            raise ConfigError(f"when_full = {when_full!r}: choose one of drop, wait")
        if not BUFFER_BYTES_MIN <= buffer_bytes <= _BUFFER_BYTES_MAX:
            raise ConfigError(f"buffer_bytes = {buffer_bytes}: give {BUFFER_BYTES_MIN} to {_BUFFER_BYTES_MAX}")
        if not 0 < flush_seconds <= 60:
            raise ConfigError(f"flush_seconds = {flush_seconds}: give a number above 0, of 60 at most")
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
        self._board: RecorderStatsBlock | None = None
        self._drain: WriterThread | None = None
        self._stage: RecordBuffer | None = None
        self._closed = False
        self._pid = os.getpid()

    # ------------------------------------------------------------------ what others call

    def start(self) -> None:
        """Begins to record.

        Raises:
            ArchiveLocked: another recorder writes this stream.
            ArchiveDamaged: the log has to be repaired first.
            StorageError: the system refuses.
            ConfigError: a topic cannot be one, or another receiver of the context contradicts.
            IpcBusError: it was started before.
        """
        if self._drain is not None:
            raise IpcBusError(f"the recorder of stream {self.stream!r} was started before; make another one")
        drain = WriterThread(self._archive, self.stream, self._limits, self._flush_s, self._tell)
        try:
            known = met_before(drain.log)
            stage = RecordBuffer(self._buffer_bytes, drain.wake.set, drain.room, waits=self._waits, known=known)
            self._board = recorder_stats_block(self._context, str(self._archive.path / self.stream))
        except BaseException:
            drain.close_unused()
            raise
        self._drain, self._stage = drain, stage
        atexit.register(self._at_exit)  # the threads do not keep a process alive
        drain.start(stage)
        try:
            receive = self._context.wildcard_receiver if self._pattern else self._context.receiver
            for topic in self._topics:
                self._receivers.append(receive(topic, stage.stage, ordered_delivery=1))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> RecorderStats:
        """Ends the recording: what has come is written, or noted as lost. Stopping twice does nothing more.

        Returns:
            The statistics, as they stay.

        Raises:
            StorageError: the disk refused what was left; the text says how much that was.
            WrongProcess: it was made before a fork, in the parent.
        """
        if os.getpid() != self._pid:
            raise WrongProcess(
                f"the recorder of stream {self.stream!r} belongs to the parent of this fork; stop it there"
            )
        if self._drain is not None and not self._closed:
            self._closed = True
            atexit.unregister(self._at_exit)
            # A message that waits for a disk that refuses holds up the context, which closing receivers needs.
            self._drain.end_waits()
            for receiver in self._receivers:
                receiver.close()
            try:
                self._drain.end()
            finally:
                if self._board is not None:
                    self._board.close()
        return self.stats

    @property
    def stats(self) -> RecorderStats:
        """What it has done so far; from any thread, at any time."""
        drain, stage = self._drain, self._stage
        if drain is None or stage is None:
            return RecorderStats("new", 0, 0, 0, 0, 0, 0, 0, 0, 0, self._buffer_bytes, 0, 0, 0, "")
        error = drain.error or drain.retain_error
        state: State = "closed" if self._closed else "recording" if error is None else "failing"
        first_ns = drain.first_ns
        return RecorderStats(
            state,
            drain.messages,
            drain.bytes,
            stage.losses,
            stage.lost,
            stage.dropped,
            stage.too_large,
            stage.missed,
            drain.unwritten,
            stage.filled,
            self._buffer_bytes,
            max(0, time.time_ns() - first_ns) if first_ns else 0,
            drain.next_offset,
            drain.errors,
            "" if error is None else str(error),
        )

    def __enter__(self) -> Self:
        """Starts it."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops it."""
        self.stop()

    def _at_exit(self) -> None:
        """The process ends and nobody has called `stop`."""
        if os.getpid() != self._pid:
            return
        try:
            self.stop()
        except StorageError as error:
            log.error("%s", error)

    def _tell(self) -> None:
        """Shows the statistics to whoever watches the bus."""
        if self._board is not None:
            found = self.stats
            self._board.show(failing=bool(found.error), **{name: getattr(found, name) for name in _SHOWN})


def union(patterns: Sequence[str]) -> str:
    """One pattern for all topics that one of several matches, so that none is received twice.

    Raises:
        ConfigError: one of them is no regular expression, or they cannot be put together.
    """
    for each in patterns:
        compile_pattern(each)
    if len(patterns) == 1:
        return patterns[0]
    found = "|".join(f"(?:{each})" for each in patterns)
    try:
        if any(_REFERENCE.search(each) for each in patterns):
            raise re.error("a reference to a group would mean another one")
        re.compile(found)
    except re.error as error:
        raise ConfigError(
            f"the patterns {', '.join(map(repr, patterns))} cannot be put together ({error}); give one pattern, and "
            "flags as in (?i:...)"
        ) from error
    return found
