"""Rows on the disk, from the task that wrote them to the commit that publishes them.

A staging directory holds a directory for each application: `txnAppId`, else the id of the query or of the batch job::

    <staging>/<application>/
        lock                    held by the process that commits
        ledger                  what was decided, see `ledger`
        progress.<batch>        how far it is published, see `ledger`
        <batch>.<partition>.<attempt>.<time>.<random>.arrow      what one task has staged, an Arrow stream

A staged file is written under its name with `.part` at the end, synced, and renamed. Spark counts attempts anew in each
application of its own, so that the time (s since the epoch, in hex) and random bits keep apart what else would have one
name; the time also tells how old an orphan is.
"""

from __future__ import annotations

import io
import itertools
import re
import secrets
import socket
import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ipcbus.embedding import FileMissing
from ipcbus.errors import SinkError, StorageError
from ipcbus.spark.sink.outgoing_messages import PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ipcbus.embedding import File, Files

JOB_PREFIX: Final = "job-"
"""Batch jobs without `txnAppId` are applications whose names begin so."""

SUFFIX: Final = ".arrow"
PART: Final = ".part"

_NAME: Final = re.compile(r"(\d{1,18})\.(\d{1,9})\.\d{1,18}\.([0-9a-f]{8,12})\.[0-9a-f]{8}\.arrow(?:\.part)?")
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Staged:
    """A file that a task has staged.

    Attributes:
        name: of the file.
        rows: how many.
        size: bytes.
        crc: CRC-32 of all of it.
    """

    name: str
    rows: int
    size: int
    crc: int

    @property
    def partition(self) -> int:
        """The partition of the frame that it is of."""
        return told_by(self.name).partition


@dataclass(frozen=True, slots=True)
class Told:
    """What the name of a staged file tells.

    Attributes:
        batch: the micro-batch.
        partition: the partition of the frame.
        time_s: when it was begun, in s since the epoch.
    """

    batch: int
    partition: int
    time_s: int


def told_by(name: str) -> Told:
    """What the name of a staged file tells, finished or not.

    Raises:
        ValueError: it is the name of something else.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is no name of a staged file")
    return Told(int(found[1]), int(found[2]), int(found[3], 16))


def stage(
    files: Files, directory: Path, batch: int, partition: int, attempt: int, content: Iterable[pa.RecordBatch]
) -> Staged | None:
    """Writes the rows of one task so that they survive a power loss, once the directory is synced.

    Args:
        files: where files are.
        directory: of the application.
        batch: the micro-batch.
        partition: the partition of the frame.
        attempt: id of the attempt of the task.
        content: record batches of schema `PLAIN`.

    Returns:
        What was staged; None where there was no row.

    Raises:
        StorageError: the disk refuses; what was written is gone again.
    """
    filled = (each for each in content if each.num_rows)
    first = next(filled, None)
    if first is None:
        return None
    name = f"{batch}.{partition}.{attempt}.{int(time.time()):08x}.{secrets.token_hex(4)}{SUFFIX}"
    part = directory / (name + PART)
    files.make_dir(directory)
    file = files.open(part, write=True, create=True, exclusive=True)
    try:
        try:
            out, rows = _Out(file), 0
            with pa.ipc.new_stream(out, PLAIN) as writer:
                for each in itertools.chain([first], filled):
                    writer.write_batch(each)
                    rows += each.num_rows
            file.sync()
        finally:
            file.close()
        files.rename(part, directory / name)
    except BaseException:
        files.remove(part)
        raise
    return Staged(name, rows, out.size, out.crc)


def check(files: Files, directory: Path, staged: Staged) -> None:
    """Finds out whether a file is there and whole.

    Raises:
        SinkError: it is not here; the text names this host.
        StorageError: it is not what was staged.
    """
    path = directory / staged.name
    try:
        file = files.open(path)
    except FileMissing:
        raise SinkError(
            f"sink ipcbus: {path}, which a task has staged, is not on this host ({socket.gethostname()}): exactly-once "
            "needs all tasks and the driver on one host; use at-least-once for several"
        ) from None
    try:
        crc = size = 0
        while piece := file.read_at(size, _CHUNK):
            crc = zlib.crc32(piece, crc)
            size += len(piece)
    finally:
        file.close()
    if (size, crc) != (staged.size, staged.crc):
        raise StorageError(
            f"{path}: {size} bytes with checksum {crc:08x} are not the {staged.size} with {staged.crc:08x} that were "
            "staged: the disk has damaged them; restore the file, or begin anew with another txnAppId"
        )


def read(files: Files, directory: Path, staged: Staged) -> Iterator[pa.RecordBatch]:
    """Yields the record batches of a file that was checked."""
    file = files.open(directory / staged.name)
    try:
        with pa.ipc.open_stream(pa.PythonFile(_In(file), mode="r")) as reader:
            yield from reader
    finally:
        file.close()


class _Out(io.RawIOBase):
    """What pyarrow writes a file into."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.size = self.crc = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - whatever has a buffer
        view = memoryview(data).cast("B")
        self._file.append(view)
        self.crc = zlib.crc32(view, self.crc)
        self.size += len(view)
        return len(view)


class _In(io.RawIOBase):
    """What pyarrow reads a file from."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read_at(self._at, size if size >= 0 else self._file.size() - self._at)
        self._at += len(data)
        return data
