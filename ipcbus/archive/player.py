"""The player: sends the messages of an archive again, as they were and when they were."""

from __future__ import annotations

import datetime
import heapq
import math
import threading
import time
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ipcbus.archive.layout import LOSS_TYPES, TYPE_LOSS_DAMAGE
from ipcbus.errors import ArchiveMissing, ConfigError
from ipcbus.message import MessageType
from ipcbus.wildcard import compile_pattern
from ipcbus.wire.layout import MESSAGE_HEADER_BYTES
from ipcbus.wire.properties import unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ipcbus.archive.archive import Archive
    from ipcbus.archive.log import Log
    from ipcbus.config import SourceOptions
    from ipcbus.context import Context
    from ipcbus.source import Source

Edge = int | datetime.datetime
"""Where to begin or end: an offset, or a time."""

MAX_SPEED: Final = 0.0
_NEAR_S: Final = 0.0002
"""A message due so soon is sent now: waiting for less is not exact anyway."""
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
        lost: messages that the archive has noted as lost, in what was read in this loop.
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
            **options: of the sources, for example `transport`. For LBT-SMX everything is read once, and its datagrams
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
        options = carrying(context._config.values("source", "", **options), options, self.longest)
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
            ArchiveDamaged: bytes contradict their checksums.
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
        """Ends `play` at the next message; any thread may call it."""
        self._stopped.set()

    def close(self) -> None:
        """Ends the sources."""
        for source in self._sources:
            source.close()

    def longest(self) -> int:
        """Bytes of the longest message, headers included; reads everything."""
        return max(
            (
                int((chunk.rows["length"].astype(np.int64) + chunk.rows["headers"]).max())
                for log, first, last in self.logs
                for chunk in log.read(first, last, verify=False, on_damage=_ignore, on_hole=_ignore)
            ),
            default=0,
        )

    # ------------------------------------------------------------------ one loop

    def _play_once(self) -> None:
        targets, stopped, speed = self.targets, self._stopped.is_set, self._speed * 1e9
        send = [target.source.send for target in targets]
        begin, first_ns = 0.0, -1
        for at, number, value, block in self._messages():
            if speed:
                if first_ns < 0:
                    begin, first_ns = time.monotonic(), at
                early = begin + (at - first_ns) / speed - time.monotonic()
                if early > _NEAR_S:
                    self._flush()
                    self._stopped.wait(early)
            if stopped():
                return
            if block is None:
                send[number](value)
            else:
                send[number](value, headers=unpack(block))
            target = targets[number]
            target.sent += 1
            target.bytes += len(value)

    def _flush(self) -> None:
        # Sources share sessions; one of each session is enough to publish what is batched.
        for source in {source.source: source for source in self._sources}.values():
            source.flush()

    def _messages(self) -> Iterator[_Due]:
        """The messages of all logs, by receive time."""
        parts = [self._messages_of(*each) for each in self.logs]
        return parts[0] if len(parts) == 1 else heapq.merge(*parts, key=itemgetter(0))

    def _messages_of(self, log: Log, first: int, last: int) -> Iterator[_Due]:
        numbers = {target.topic: number for number, target in enumerate(self.targets)}
        names = log.topics()
        table = np.full(max(names, default=0) + 1, -1, np.int64)
        for number, name in names.items():
            table[number] = numbers.get(name, -1)

        def missing(begin: int, end: int) -> None:
            self.missing += end - begin

        for chunk in log.read(first, last, max_rows=_CHUNK_ROWS, max_bytes=_CHUNK_BYTES, on_hole=missing):
            rows, data = chunk.rows, chunk.data.data
            chosen = table[rows["topic"]]
            kinds = rows["type"]
            self._count(rows, chosen, kinds)
            sends = rows[(chosen >= 0) & (kinds == MessageType.DATA)]
            begins = sends["position"].astype(np.int64) - chunk.data_start
            values = begins + sends["headers"]
            for at, number, begin, start, end in zip(
                sends["receive_ns"].tolist(),
                table[sends["topic"]].tolist(),
                begins.tolist(),
                values.tolist(),
                (values + sends["length"]).tolist(),
                strict=True,
            ):
                yield at, number, data[start:end], None if start == begin else bytes(data[begin:start])
            self.position += len(rows)

    def _count(self, rows: NDArray[np.void], chosen: NDArray[np.int64], kinds: NDArray[np.uint8]) -> None:
        losses = np.isin(kinds, LOSS_TYPES) & ((chosen >= 0) | (kinds == TYPE_LOSS_DAMAGE))
        self.lost += int(rows["numbers"][losses].sum(dtype=np.int64))


def _range(log: Log, start: Edge | None, end: Edge | None) -> tuple[int, int]:
    """The offsets of a log from and to which to read."""
    first, last = log.bounds()
    begin = first if start is None else _offset(log, start)
    stop = last if end is None else _offset(log, end)
    if isinstance(start, int) and not first <= start <= last:
        raise ConfigError(f"log {log.key} has the offsets {first} to {last}, not {start}; start at one of these")
    begin, stop = max(begin, first), min(stop, last)
    return begin, max(begin, stop)


def _offset(log: Log, edge: Edge) -> int:
    return edge if isinstance(edge, int) else log.offset_at(int(edge.timestamp() * 1e9))


def _choose(
    archive: Archive, logs: list[Log], topics: Sequence[str] | None, pattern: str | None, rename: Mapping[str, str]
) -> dict[str, str]:
    """The topics to send, and what to call them."""
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


def _ignore(*_: object) -> None:
    """What cannot be read is told when it is sent."""
