"""Recorded messages and events one by one: written into an archive, and what a reader has to make of each."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ipcbus.archive import Chunk
from ipcbus.archive.archive_layout import BATCH_WAIT, BATCH_WAIT_NS, ROW
from ipcbus.wire.properties import pack

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ipcbus.archive import LogWriter

SOURCE = "LBT-IPC:6481f8d4:20001"
SESSION = 0x6481F8D4
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclasses.dataclass(frozen=True)
class Record:
    """A message, or an event where `type` says so."""

    value: bytes = b""
    topic: str = "t"
    source: str = SOURCE
    headers: tuple[tuple[str, bytes], ...] = ()
    seq: int = 0
    send_ns: int = 0
    receive_ns: int = 0
    flags: int = 0
    type: int = 0
    numbers: int = 1
    batch_wait_ns: int | None = None


class Names(Protocol):
    """Gives topics and source strings their numbers."""

    def topic(self, name: str) -> int:
        """Of a topic."""

    def session(self, source: str) -> int:
        """Of a source string."""


def packed(names: Names, records: Sequence[Record]) -> tuple[NDArray[np.void], bytes]:
    """Rows and bytes of records; an empty topic or source is number 0."""
    blocks = [pack(record.headers) for record in records]
    rows = np.zeros(len(records), ROW)
    at = 0
    for row, record, block in zip(rows, records, blocks, strict=True):
        row["position"], row["length"], row["headers"] = at, len(record.value), len(block)
        row["topic"] = names.topic(record.topic) if record.topic else 0
        row["session"] = names.session(record.source) if record.source else 0
        row["numbers"], row["flags"], row["type"] = record.numbers, record.flags, record.type
        if record.batch_wait_ns is not None:
            row["numbers"] = BATCH_WAIT | record.batch_wait_ns // BATCH_WAIT_NS
        row["sequence"], row["send_ns"], row["receive_ns"] = record.seq, record.send_ns, record.receive_ns
        at += len(block) + len(record.value)
    return rows, b"".join(block + record.value for block, record in zip(blocks, records, strict=True))


def append(writer: LogWriter, records: Sequence[Record]) -> int:
    """Appends records in one go; returns the offset of the first."""
    return writer.append(*packed(writer, records))


class Unwritten:
    """A log that is only in memory: rows of one segment, and names."""

    key = "host/0"
    partition = 0

    def __init__(self, records: Sequence[Record]) -> None:
        """The records as one chunk, from offset 0 on."""
        self._topics: dict[str, int] = {}
        self._sessions: dict[str, int] = {}
        rows, data = packed(self, records)
        self.chunk = Chunk(0, rows, np.frombuffer(data, np.uint8), 0)

    def topic(self, name: str) -> int:
        """Number of a topic."""
        return self._topics.setdefault(name, len(self._topics) + 1)

    def session(self, source: str) -> int:
        """Number of a source string."""
        return self._sessions.setdefault(source, len(self._sessions) + 1)

    def topics(self) -> dict[int, str]:
        """Topics by number."""
        return {number: name for name, number in self._topics.items()}

    def sessions(self) -> dict[int, str]:
        """Source strings by number."""
        return {number: source for source, number in self._sessions.items()}

    def read(self, start: int, end: int) -> Chunk:
        """Some of the rows."""
        rows = self.chunk.rows[start:end]
        begin = int(rows[0]["position"])
        stop = int(rows[-1]["position"]) + int(rows[-1]["headers"]) + int(rows[-1]["length"])
        return Chunk(start, rows, self.chunk.data[begin:stop], begin)


def as_row(record: Record, offset: int, partition: int = 0) -> dict[str, Any]:
    """What Arrow's `to_pylist` gives of a record, made the plain way."""
    is_message = record.type == 0
    return {
        "key": next((value for name, value in record.headers if name == "key"), None),
        "value": record.value if is_message else None,
        "topic": record.topic,
        "partition": partition,
        "offset": offset,
        "timestamp": EPOCH + timedelta(microseconds=record.receive_ns // 1000),
        "timestampType": 0,
        "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
        "session": SESSION if record.source == SOURCE else 0,
        "seq": record.seq,
        "publishTimeNs": record.send_ns,
        "receiveTimeNs": record.receive_ns,
        "flags": record.flags,
        "type": record.type,
        "numbers": record.numbers,
        "source": record.source,
        "batchWaitNs": record.batch_wait_ns,
    }


def as_rows(
    records: Iterable[Record], first: int = 0, partition: int = 0, *, waits: bool = False
) -> list[dict[str, Any]]:
    """The same of records that have offsets from `first` on; with their waits in the batch only if asked for."""
    found = [as_row(record, offset, partition) for offset, record in enumerate(records, first)]
    return found if waits else [{name: row[name] for name in row if name != "batchWaitNs"} for row in found]


def counted(count: int, start: int = 0, topic: str = "t", size: int = 8) -> list[Record]:
    """Messages whose value is their sequence number; a second apart in receive time, from the epoch on."""
    return [
        Record(number.to_bytes(8, "big").rjust(size, b"\0"), topic, seq=number, receive_ns=number * 10**9)
        for number in range(start, start + count)
    ]
