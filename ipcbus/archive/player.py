"""The player: sends the messages of an archive again, as they were and when they were."""

from __future__ import annotations

import datetime
import heapq
import itertools
import math
import threading
import time
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ipcbus.archive.archive_layout import LOSS_TYPES, TYPE_LOSS_DAMAGE
from ipcbus.archive.log import leave_out
from ipcbus.embedding import MESSAGE_HEADER_BYTES, source_options, unpack_headers
from ipcbus.errors import ArchiveDamaged, ArchiveMissing, ConfigError
from ipcbus.message import MessageType
from ipcbus.wildcard import compile_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ipcbus.archive.archive import Archive
    from ipcbus.archive.log import Log
    from ipcbus.archive.segments import Chunk
    from ipcbus.config import SourceOptions
    from ipcbus.context import Context
    from ipcbus.source import Source

Edge = int | datetime.datetime
"""Where to begin or end: an offset, or a time."""

MAX_SPEED: Final = 0.0
_NEAR_S: Final = 0.0002
"""A message due so soon is sent now: waiting for less is not exact anyway."""
_WORTH: Final = 8
"""Messages that are sent in one go are so many on average, at least."""
_CHUNK_ROWS: Final = 8192
_CHUNK_BYTES: Final = 4 << 20

_Due = tuple[int, int, memoryview, bytes | None]
"""Receive time, number of the target, value, header block."""


class Target:
    """A topic that is sent again.

    Attributes:
        topic: its name in the archive.
        source: sends it; topics that are given the same new name share one.
        sent: messages so far.
        bytes: of their values.
    """

    def __init__(self, topic: str, source: Source) -> None:
        """Nothing is sent yet."""
        self.topic, self.source = topic, source
        self.sent = self.bytes = 0


class Player:
    """Sends what an archive holds: the messages of all its logs, in the order of their receive times.

    Value and headers are those of the recorded message, byte for byte. Sessions, sequence numbers and times are new, as
    is what goes together into a datagram. Losses are counted; the beginnings and ends of sessions are left out.

    Attributes:
        logs: the logs that are read, with the offsets from and to which.
        targets: the topics that are sent.
        loop: how often everything was sent.
        position: rows of this loop that are read, of `rows`.
        lost: sequence numbers that the archive has noted as lost, in what was read in this loop.
        missing: offsets that the archive itself has lost, likewise.
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
        start: Edge | None = None,
        end: Edge | None = None,
        loops: int = 1,
        **options: Any,  # noqa: ANN401 - as `Context.source` takes them
    ) -> None:
        """Makes the sources; `play` follows, when receivers have joined.

        What is recorded from now on is not replayed. Memory stays bounded, however large the archive is.

        Args:
            archive: what to send.
            context: sends.
            topics: only these; all of them must be in the archive.
            pattern: only topics that this regular expression of Python's `re` matches as a whole.
            rename: new names of topics, by their names in the archive.
            stream: only the log of this stream.
            speed: 1 as recorded, 10 ten times as fast, 0 as fast as it goes.
            start: offset or time of the first; None from the beginning. Offsets are those of one log: with several,
                give `stream`. A time without a zone is of this host's.
            end: offset or time after the last; None to the end.
            loops: how often; 0 for ever.
            **options: of the sources, for example `transport`. For LBT-SMX all rows are read once, and its datagrams
                are made as long as the longest message needs.

        Raises:
            ConfigError: an argument is out of range, or contradicts another one; a topic or option is wrong.
            ArchiveMissing: there is no such stream or topic.
            ArchiveError, StorageError: the archive cannot be read.
            SharedMemoryFull, ClosedError, WrongProcess: as `Context.source`.
        """
        if not 0 <= speed < math.inf:
            raise ConfigError(f"speed = {speed}: give 1 for as recorded, a factor, or 0 for as fast as it goes")
        if loops < 0:
            raise ConfigError(f"loops = {loops}: give how often to send everything, or 0 for ever")
        self._speed, self._loops = speed, loops
        self._stopped = threading.Event()
        found = [log for log in archive.logs() if stream in (None, log.stream)]
        if not found:
            what = "has no log yet" if stream is None else f"has no stream {stream!r}"
            raise ArchiveMissing(f"{archive.path} {what}; 'ipcbus archive info' shows what it holds")
        if len(found) > 1 and (isinstance(start, int) or isinstance(end, int)):
            names = ", ".join(log.stream for log in found)
            raise ConfigError(
                f"offsets are those of one log, and {archive.path} has several; choose a stream of {names}"
            )
        self.logs = [(log, *_range(log, start, end)) for log in found]
        self.rows = sum(last - first for _, first, last in self.logs)
        self.loop = self.position = self.lost = self.missing = 0
        chosen = _choose(archive, [log for log, _, _ in self.logs], topics, pattern, rename or {})
        options = carrying(source_options(context, **options), options, self.longest)
        sources = {name: context.source(name, **options) for name in dict.fromkeys(chosen.values())}
        self.targets = [Target(topic, sources[name]) for topic, name in chosen.items()]
        self._sources = list(sources.values())

    @property
    def sources(self) -> list[Source]:
        """What is sent on, one a topic."""
        return self._sources

    @property
    def sent(self) -> int:
        """Messages so far."""
        return sum(target.sent for target in self.targets)

    def play(self) -> None:
        """Sends everything; returns when it is sent, or `stop` was called. The counts are right at any moment.

        Raises:
            ArchiveDamaged: bytes contradict their checksums, or a header block makes no sense.
            OffsetsExpired: retention took away what was to come.
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
        """Ends `play` after the message, or the few thousand, that it is at; any thread may call it."""
        self._stopped.set()

    def close(self) -> None:
        """Ends the sources."""
        for source in self._sources:
            source.close()

    def longest(self) -> int:
        """Bytes of the longest message, headers included; reads all rows."""
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
                if early > _NEAR_S:
                    self._flush()
                    self._stopped.wait(early)
            if self._stopped.is_set():
                return
            self._send(due)

    def _send(self, due: _Due) -> None:
        _, number, value, block = due
        target = self.targets[number]
        if block is None:
            target.source.send(value)
        else:
            target.source.send(value, headers=_headers(block, target.topic))
        target.sent += 1
        target.bytes += len(value)

    def _send_part(self, part: _Part) -> None:
        """Sends what comes one after the other on one topic in one go, where that is worth it."""
        if len(part.numbers) == 0:
            return
        cuts = part.cuts()
        if len(part.numbers) < _WORTH * len(cuts):
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
        # Sources share sessions; one of each session is enough to publish what is batched.
        for source in {source.source: source for source in self._sources}.values():
            source.flush()

    def _messages(self) -> Iterator[_Due]:
        """Yields the messages of all logs, by receive time."""
        logs = [(due for part in self._parts(*each) for due in part.messages()) for each in self.logs]
        return logs[0] if len(logs) == 1 else heapq.merge(*logs, key=itemgetter(0))

    def _parts(self, log: Log, first: int, last: int) -> Iterator[_Part]:
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
            yield _Part(chunk, sends, chosen[sends])
            self.position += len(chunk.rows)


class _Part:
    """Messages that follow one another: of each its target, and where its bytes lie."""

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
        """Returns where another topic begins; what has headers stands alone."""
        found = (np.diff(self.numbers) != 0) | self.blocks[1:] | self.blocks[:-1]
        return (np.flatnonzero(found) + 1).tolist()

    def messages(self, first: int = 0, end: int | None = None) -> Iterator[_Due]:
        """Yields each of them."""
        data = self._data.data
        for at, number, begin, start, stop in zip(
            *(each[first:end].tolist() for each in (self._times, self.numbers, self._begins, self.values, self.ends)),
            strict=True,
        ):
            yield at, number, data[start:stop], None if start == begin else bytes(data[begin:start])

    def run(self, first: int, end: int) -> NDArray[np.uint8] | list[memoryview]:
        """The values of some that have no headers; in one array where all are as long and follow one another."""
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
            f"the header block of a message of topic {topic!r} makes no sense ({error}); see ipcbus archive verify"
        ) from error


def _send_many(target: Target, values: NDArray[np.uint8] | list[memoryview], lengths: NDArray[np.int64]) -> None:
    """Sends messages that each take one number, and counts those that were sent, also when a signal ends it."""
    before = target.source.sequence_number
    try:
        target.source.send_many(values)
    finally:
        sent = target.source.sequence_number - before
        target.sent += sent
        target.bytes += int(lengths[:sent].sum())


def _range(log: Log, start: Edge | None, end: Edge | None) -> tuple[int, int]:
    """Returns the offsets of a log from and to which to read."""
    first, last = log.bounds()
    begin = first if start is None else _offset(log, start)
    stop = last if end is None else _offset(log, end)
    if isinstance(start, int) and not first <= start <= last:
        raise ConfigError(f"log {log.key} has the offsets {first} to {last}, not {start}; start at one of these")
    begin, stop = max(begin, first), min(stop, last)
    return begin, max(begin, stop)


def _offset(log: Log, edge: Edge) -> int:
    if isinstance(edge, int):
        return edge
    try:
        seconds = edge.timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError(f"{edge.isoformat()} is no time of this host's clock ({error}); give a later one") from error
    return log.offset_at(int(seconds * 1e9))


def _choose(
    archive: Archive, logs: list[Log], topics: Sequence[str] | None, pattern: str | None, rename: Mapping[str, str]
) -> dict[str, str]:
    """Returns the topics to send, and what to call them."""
    if topics is not None and pattern is not None:
        raise ConfigError("give the topics or a pattern of them, not both")
    there = {name for log in logs for name in log.topics().values()}
    wanted = [name for name in (*(topics or ()), *rename) if name not in there]
    if wanted:
        raise ArchiveMissing(
            f"{archive.path} has no topic {', '.join(map(repr, wanted))}; 'ipcbus archive info' shows what it holds"
        )
    if pattern is not None:
        matches = compile_pattern(pattern).fullmatch
        there = {name for name in there if matches(name)}
    return {name: rename.get(name, name) for name in sorted(there if topics is None else set(topics))}


def carrying(chosen: SourceOptions, options: dict[str, Any], longest: Callable[[], int]) -> dict[str, Any]:
    """Options of sources whose sessions carry messages of any length, which those of LBT-SMX do not by themselves.

    Args:
        chosen: the values of `options`, with those of the config.
        options: what was asked for.
        longest: finds the bytes of the longest message, with its headers; called where it matters.
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
