"""The player: sends the messages of an archive again, with their content and at their pace."""

from __future__ import annotations

import datetime
import heapq
import itertools
import math
import threading
import time
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np

from ipcbus.archive.archive_layout import LOSS_TYPES, TYPE_LOSS_DAMAGE
from ipcbus.archive.log import leave_out
from ipcbus.embedding import MESSAGE_HEADER_BYTES, source_options, unpack_headers
from ipcbus.errors import ArchiveDamaged, ArchiveMissing, ConfigError
from ipcbus.message import MessageType
from ipcbus.wildcard import compile_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Unpack

    from numpy.typing import NDArray

    from ipcbus.archive.archive import Archive
    from ipcbus.archive.log import Log
    from ipcbus.archive.segments import Chunk
    from ipcbus.config import SourceOptions
    from ipcbus.config.keywords import SourceKeywords
    from ipcbus.context import Context
    from ipcbus.source import Source

Boundary = int | datetime.datetime
"""An offset or a time, at which a replay begins or ends."""

MAX_SPEED: Final = 0.0
_SLEEP_MIN_S: Final = 0.0002
"""A message that is due within this time is sent now, as a shorter sleep is not exact."""
_RUN_MIN: Final = 8
"""Least average length of runs of one topic for which `send_many` is worth it."""
_CHUNK_ROWS: Final = 8192
_CHUNK_BYTES: Final = 4 << 20

_DueMessage = tuple[int, int, memoryview, bytes | None]
"""Receive time, number of the target, value, header block."""


class Target:
    """A topic that is sent again.

    Attributes:
        topic: its name in the archive.
        source: the source that sends it; topics with one new name share a source.
        sent: messages so far.
        bytes: bytes of their values so far.
    """

    def __init__(self, topic: str, source: Source) -> None:
        self.topic, self.source = topic, source
        self.sent = self.bytes = 0


class Player:
    """Sends what an archive holds: the messages of all its logs, in the order of their receive times.

    Value and headers are those of the recorded message, byte for byte. Sessions, sequence numbers, times and the
    division into datagrams are new. The player counts losses, and skips beginnings and ends of sessions.

    Attributes:
        logs: the logs that are read, each with first offset and end.
        targets: the topics that are sent.
        loop: how often everything was sent.
        position: rows that were read in this loop, of `rows`.
        lost: sequence numbers that the archive reports as lost, in the rows read in this loop.
        missing: offsets that the archive lost itself, in the rows read in this loop.
    """

    def __init__(
        self,
        archive: Archive,
        context: Context,
        *,
        topics: Sequence[str] | None = None,
        pattern: str | None = None,
        rename: Mapping[str, str] | None = None,
        stream: str | None = None,
        speed: float = 1.0,
        start: Boundary | None = None,
        end: Boundary | None = None,
        loops: int = 1,
        **options: Unpack[SourceKeywords],
    ) -> None:
        """Makes the sources; call `play` when receivers have joined.

        Messages that are recorded from now on are not replayed. Memory is bounded, however large the archive is.

        Args:
            archive: the archive to send.
            context: the context that sends.
            topics: send only these; all of them must be in the archive.
            pattern: send only topics whose whole name this regular expression of Python's `re` matches.
            rename: name in the archive -> name to send under.
            stream: send only the log of this stream.
            speed: 1 as recorded, 10 ten times as fast, 0 as fast as possible.
            start: offset or time of the first message; None: from the beginning. Offsets are those of one log: with
                several, give `stream`. A time without a zone is in the zone of this host.
            end: offset or time after the last message; None: to the end.
            loops: how often to send everything; 0 for ever.
            **options: options of the sources, for example `transport`. For LBT-SMX all rows are read once, and its
                datagrams are made as long as the longest message needs.

        Raises:
            ConfigError: an argument is out of range, or contradicts another one; a topic or option is wrong.
            ArchiveMissing: the archive has no such stream or topic.
            ArchiveError, StorageError: the archive cannot be read.
            SharedMemoryFull, ClosedError, WrongProcess: as `Context.source`.
        """
        if not 0 <= speed < math.inf:
            raise ConfigError(f"speed = {speed}: give 1 for the recorded speed, a factor, or 0 for full speed")
        if loops < 0:
            raise ConfigError(f"loops = {loops}: give 1 or more, or 0 for ever")
        self._speed, self._loops = speed, loops
        self._stopped = threading.Event()
        found = [log for log in archive.logs() if stream in (None, log.stream)]
        if not found:
            what = "has no log yet" if stream is None else f"has no stream {stream!r}"
            raise ArchiveMissing(f"{archive.path} {what}; 'ipcbus archive info' shows what it holds")
        if len(found) > 1 and (isinstance(start, int) or isinstance(end, int)):
            names = ", ".join(log.stream for log in found)
            raise ConfigError(
                f"an offset belongs to one log, and {archive.path} has several; choose one stream of {names}"
            )
        self.logs = [(log, *_range(log, start, end)) for log in found]
        self.rows = sum(last - first for _, first, last in self.logs)
        self.loop = self.position = self.lost = self.missing = 0
        chosen = _topics_to_send(archive, [log for log, _, _ in self.logs], topics, pattern, rename or {})
        options = fitting_options(source_options(context, **options), options, self.longest)
        sources = {name: context.source(name, **options) for name in dict.fromkeys(chosen.values())}
        self.targets = [Target(topic, sources[name]) for topic, name in chosen.items()]
        self._sources = list(sources.values())

    @property
    def sources(self) -> list[Source]:
        """The sources, one for each name that is sent."""
        return self._sources

    @property
    def sent(self) -> int:
        """Messages sent so far."""
        return sum(target.sent for target in self.targets)

    def play(self) -> None:
        """Sends everything; returns when all is sent or `stop` was called. The counts are valid at any moment.

        Raises:
            ArchiveDamaged: bytes contradict their checksums, or a header block is invalid.
            OffsetsExpired: retention removed rows that were still to be sent.
            StorageError: the system refuses.
            Otherwise as `Source.send`.
        """
        try:
            while not self._stopped.is_set() and (self._loops == 0 or self.loop < self._loops):
                self.position = self.lost = self.missing = 0
                self._play_once()
                if not self._stopped.is_set():
                    self.loop += 1
                if self.rows == 0:
                    break
        finally:
            self._flush()

    def stop(self) -> None:
        """Ends `play` within a few thousand messages; any thread may call it."""
        self._stopped.set()

    def close(self) -> None:
        """Closes the sources."""
        for source in self._sources:
            source.close()

    def longest(self) -> int:
        """Returns the bytes of the longest message, headers included; reads all rows."""
        return max(
            (
                int((chunk.rows["length"].astype(np.int64) + chunk.rows["headers"]).max())
                for log, first, last in self.logs
                for chunk in log.read(first, last, verify=False, messages=False, on_damage=leave_out, on_hole=leave_out)
            ),
            default=0,
        )

    # ------------------------------------------------------------------ one loop

    def _play_once(self) -> None:
        if self._speed == MAX_SPEED and len(self.logs) == 1:
            for part in self._parts(*self.logs[0]):
                self._send_part(part)
                if self._stopped.is_set():
                    return
            return
        begin, first_ns, speed = 0.0, -1, self._speed * 1e9
        for due in self._messages():
            if speed:
                if first_ns < 0:
                    begin, first_ns = time.monotonic(), due[0]
                early = begin + (due[0] - first_ns) / speed - time.monotonic()
                if early > _SLEEP_MIN_S:
                    self._flush()
                    self._stopped.wait(min(early, threading.TIMEOUT_MAX))
            if self._stopped.is_set():
                return
            self._send(due)

    def _send(self, due: _DueMessage) -> None:
        _, number, value, block = due
        target = self.targets[number]
        if block is None:
            target.source.send(value)
        else:
            target.source.send(value, headers=_headers(block, target.topic))
        target.sent += 1
        target.bytes += len(value)

    def _send_part(self, part: _Messages) -> None:
        """Sends consecutive messages of one topic with one call, where the runs are long enough."""
        if len(part.numbers) == 0:
            return
        cuts = part.cuts()
        if len(part.numbers) < _RUN_MIN * len(cuts):
            for due in part.messages():
                if self._stopped.is_set():
                    return
                self._send(due)
            return
        for first, end in itertools.pairwise((0, *cuts, len(part.numbers))):
            target = self.targets[int(part.numbers[first])]
            lengths = part.ends[first:end] - part.values[first:end]
            if part.blocks[first] or int(lengths.max()) > target.source.message_max:
                for due in part.messages(first, end):
                    self._send(due)
            elif not self._stopped.is_set():
                _send_many(target, part.run(first, end), lengths)

    def _flush(self) -> None:
        # Sources share sessions, and one flush for each session publishes its open batch.
        for source in {source.source: source for source in self._sources}.values():
            source.flush()

    def _messages(self) -> Iterator[_DueMessage]:
        """Yields the messages of all logs by receive time."""
        logs = [(due for part in self._parts(*each) for due in part.messages()) for each in self.logs]
        return logs[0] if len(logs) == 1 else heapq.merge(*logs, key=itemgetter(0))

    def _parts(self, log: Log, first: int, last: int) -> Iterator[_Messages]:
        """Yields the messages of a log that are to be sent, some thousands at a time."""
        numbers = {target.topic: number for number, target in enumerate(self.targets)}
        names = log.topics()
        table = np.full(max(names, default=0) + 1, -1, np.int64)
        for number, name in names.items():
            table[number] = numbers.get(name, -1)

        def missing(begin: int, end: int) -> None:
            self.missing += end - begin

        for chunk in log.read(first, last, max_rows=_CHUNK_ROWS, max_bytes=_CHUNK_BYTES, on_hole=missing):
            chosen = table[chunk.rows["topic"]]
            kinds = chunk.rows["type"]
            losses = np.isin(kinds, LOSS_TYPES) & ((chosen >= 0) | (kinds == TYPE_LOSS_DAMAGE))
            self.lost += int(chunk.rows["numbers"][losses].sum(dtype=np.int64))
            sends = (chosen >= 0) & (kinds == MessageType.DATA)
            yield _Messages(chunk, sends, chosen[sends])
            self.position += len(chunk.rows)


class _Messages:
    """Consecutive messages: the target of each, and the place of its bytes."""

    def __init__(self, chunk: Chunk, sends: NDArray[np.bool_], numbers: NDArray[np.int64]) -> None:
        rows = chunk.rows[sends]
        self._times = rows["receive_ns"]
        self._data = chunk.data
        self.numbers = numbers
        self._begins = rows["position"].astype(np.int64) - chunk.data_start
        self.values = self._begins + rows["headers"]
        self.ends = self.values + rows["length"]
        self.blocks = rows["headers"] > 0

    def cuts(self) -> list[int]:
        """Returns the indices where the topic changes; a message with headers stands alone."""
        found = (np.diff(self.numbers) != 0) | self.blocks[1:] | self.blocks[:-1]
        return (np.flatnonzero(found) + 1).tolist()

    def messages(self, first: int = 0, end: int | None = None) -> Iterator[_DueMessage]:
        data = self._data.data
        for at, number, begin, start, stop in zip(
            *(each[first:end].tolist() for each in (self._times, self.numbers, self._begins, self.values, self.ends)),
            strict=True,
        ):
            yield at, number, data[start:stop], None if start == begin else bytes(data[begin:start])

    def run(self, first: int, end: int) -> NDArray[np.uint8] | list[memoryview]:
        """Returns the values of messages without headers; one array where all have one length and follow each other."""
        starts, stops = self.values[first:end], self.ends[first:end]
        length = int(stops[0] - starts[0])
        if length and int(stops[-1] - starts[0]) == length * len(starts) and bool((stops - starts == length).all()):
            return self._data[int(starts[0]) : int(stops[-1])].reshape(-1, length)
        data = self._data.data
        return [data[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]


def _headers(block: bytes, topic: str) -> tuple[tuple[str, bytes], ...]:
    try:
        return unpack_headers(block)
    except ValueError as error:
        raise ArchiveDamaged(
            f"the header block of a message of topic {topic!r} is damaged ({error}); see ipcbus archive verify"
        ) from error


def _send_many(target: Target, values: NDArray[np.uint8] | list[memoryview], lengths: NDArray[np.int64]) -> None:
    """Sends messages of one sequence number each; counts those that were sent, also when a signal ends the call."""
    before = target.source.sequence_number
    try:
        target.source.send_many(values)
    finally:
        sent = target.source.sequence_number - before
        target.sent += sent
        target.bytes += int(lengths[:sent].sum())


def _range(log: Log, start: Boundary | None, end: Boundary | None) -> tuple[int, int]:
    """Returns first offset and end of what to read from a log."""
    first, last = log.bounds()
    begin = first if start is None else _offset(log, start)
    stop = last if end is None else _offset(log, end)
    if isinstance(start, int) and not first <= start <= last:
        raise ConfigError(f"log {log.key} has the offsets {first} to {last}, not {start}; start at one of these")
    begin, stop = max(begin, first), min(stop, last)
    return begin, max(begin, stop)


def _offset(log: Log, boundary: Boundary) -> int:
    if isinstance(boundary, int):
        return boundary
    try:
        seconds = boundary.timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError(
            f"{boundary.isoformat()} is not a valid time on this host ({error}); give a later one"
        ) from error
    return log.offset_at(int(seconds * 1e9))


def _topics_to_send(
    archive: Archive, logs: list[Log], topics: Sequence[str] | None, pattern: str | None, rename: Mapping[str, str]
) -> dict[str, str]:
    """Returns the topics to send, each with the name to send under."""
    if topics is not None and pattern is not None:
        raise ConfigError("give topics or a pattern, not both")
    there = {name for log in logs for name in log.topics().values()}
    unknown = [name for name in (*(topics or ()), *rename) if name not in there]
    if unknown:
        raise ArchiveMissing(
            f"{archive.path} has no topic {', '.join(map(repr, unknown))}; 'ipcbus archive info' shows what it holds"
        )
    if pattern is not None:
        matches = compile_pattern(pattern).fullmatch
        there = {name for name in there if matches(name)}
    return {name: rename.get(name, name) for name in sorted(there if topics is None else set(topics))}


def fitting_options(chosen: SourceOptions, options: SourceKeywords, longest: Callable[[], int]) -> SourceKeywords:
    """Returns options for sources whose sessions can carry the longest message; only LBT-SMX needs more than was given.

    Args:
        chosen: the values of `options`, with those of the config.
        options: the options that the caller gave.
        longest: returns the bytes of the longest message, with its headers; called only where it matters.
    """
    if chosen.transport != "lbtsmx":
        return options
    # The message with its header, and again as a multiple of 8 bytes.
    need = (longest() + MESSAGE_HEADER_BYTES + 7) & ~7
    if need <= chosen.transport_lbtsmx_datagram_max_size:
        return options
    # Two of them have to fit into the window, each with the header of its record.
    window = 1 << (2 * need + 64 - 1).bit_length()
    return options | {
        "transport_lbtsmx_datagram_max_size": need,
        "transport_lbtsmx_transmission_window_size": max(window, chosen.transport_lbtsmx_transmission_window_size),
    }
