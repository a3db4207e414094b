"""Staged rows: on the disk from the task that wrote them to the commit that publishes them.

A staging directory holds a directory for each application: `txnAppId`, else the id of the query or of the batch job::

    <staging>/<application>/
        lock                    held by the process that commits
        ledger                  the decisions, see `publish_ledger`
        progress.<batch>        how much of the batch is published, see `publish_ledger`
        <batch>.<partition>.<attempt>.<time>.<random>.arrow      the rows of one task, an Arrow stream

A task writes a file under its name with `.part` at the end, syncs it, and renames it. As each Spark application counts
attempts from 0, the time (s since the epoch, in hex) and random bits keep names apart; the time also gives the age of
an orphan.
"""

from __future__ import annotations

import contextlib
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
"""Prefix of the names of applications that are batch jobs without `txnAppId`."""

SUFFIX: Final = ".arrow"
PART: Final = ".part"

_NAME: Final = re.compile(r"(\d{1,18})\.(\d{1,9})\.\d{1,18}\.([0-9a-f]{8,12})\.[0-9a-f]{8}\.arrow(?:\.part)?")
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Staged:
    """A file that a task has staged.

    Attributes:
        name: name of the file.
        rows: number of rows.
        size: size in bytes.
        crc: CRC-32 of the file.
    """

    name: str
    rows: int
    size: int
    crc: int

    @property
    def partition(self) -> int:
        """The partition of the frame that the rows belong to."""
        return parse_name(self.name).partition


@dataclass(frozen=True, slots=True)
class StagedName:
    """The parts of the name of a staged file.

    Attributes:
        batch: the micro-batch.
        partition: the partition of the frame.
        time_s: when the file was begun, in s since the epoch.
    """

    batch: int
    partition: int
    time_s: int


def parse_name(name: str) -> StagedName:
    """Returns the parts of the name of a staged file, finished or not.

    Raises:
        ValueError: the name is not that of a staged file.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is not the name of a staged file")
    return StagedName(int(found[1]), int(found[2]), int(found[3], 16))


def stage(
    files: Files, directory: Path, batch: int, partition: int, attempt: int, content: Iterable[pa.RecordBatch]
) -> Staged | None:
    """Writes the rows of one task, so that they survive a power loss once the directory is synced.

    Args:
        files: the storage.
        directory: the directory of the application.
        batch: the micro-batch.
        partition: the partition of the frame.
        attempt: id of the attempt of the task.
        content: record batches of schema `PLAIN`.

    Returns:
        The staged file; None without rows.

    Raises:
        StorageError: the disk refuses; the file is removed again.
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
        with contextlib.closing(file):
            out, rows = _Out(file), 0
            with pa.ipc.new_stream(out, PLAIN) as writer:
                for each in itertools.chain([first], filled):
                    writer.write_batch(each)
                    rows += each.num_rows
            file.sync()
        files.rename(part, directory / name)
    except BaseException:
        files.remove(part)
        raise
    return Staged(name, rows, out.size, out.crc)


def check(files: Files, directory: Path, staged: Staged) -> None:
    """Checks that a staged file exists and is whole.

    Raises:
        SinkError: the file is not on this host, which the text names.
        StorageError: the file is not what was staged.
    """
    path = directory / staged.name
    try:
        with contextlib.closing(files.open(path)) as file:
            crc = size = 0
            while piece := file.read_at(size, _CHUNK):
                crc = zlib.crc32(piece, crc)
                size += len(piece)
    except FileMissing:
        raise SinkError(
            f"sink ipcbus: {path}, which a task has staged, is not on this host ({socket.gethostname()}): exactly-once "
            "needs all tasks and the driver on one host; use at-least-once for several"
        ) from None
    if (size, crc) != (staged.size, staged.crc):
        raise StorageError(
            f"{path}: {size} bytes with checksum {crc:08x}, but {staged.size} bytes with {staged.crc:08x} were "
            "staged: the disk has damaged the file; restore it, or start again with another txnAppId"
        )


def read(files: Files, directory: Path, staged: Staged) -> Iterator[pa.RecordBatch]:
    """Yields the record batches of a checked file."""
    with (
        contextlib.closing(files.open(directory / staged.name)) as file,
        pa.ipc.open_stream(pa.PythonFile(_In(file), mode="r")) as reader,
    ):
        yield from reader


class _Out(io.RawIOBase):
    """The output stream of pyarrow, into a file."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.size = self.crc = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - any object with a buffer
        view = memoryview(data).cast("B")
        self._file.append(view)
        self.crc = zlib.crc32(view, self.crc)
        self.size += len(view)
        return len(view)


class _In(io.RawIOBase):
    """The input stream of pyarrow, from a file."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read_at(self._at, size if size >= 0 else self._file.size() - self._at)
        self._at += len(data)
        return data
