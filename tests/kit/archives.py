"""Rows for archives, made and compared."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from ipcbus.archive import removed_offsets
from ipcbus.archive.archive_layout import ROW
from ipcbus.archive.segments import SUFFIXES, file_of
from ipcbus.storage.files import Disk, DiskFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import pytest
    from numpy.typing import NDArray

    from ipcbus.archive import Chunk, LogWriter


class Watch:
    """Notes from which kinds of files bytes are read, and how many."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on, until the end of the test."""
        self.bytes: Counter[str] = Counter()
        read_at = DiskFile.read_at

        def noted(file: DiskFile, offset: int, length: int) -> bytes:
            found = read_at(file, offset, length)
            self.bytes[file.path.suffix] += len(found)
            return found

        monkeypatch.setattr(DiskFile, "read_at", noted)

    @property
    def suffixes(self) -> set[str]:
        """Of the files that were read from."""
        return set(self.bytes)


def made(
    values: Sequence[bytes], *, topic: int = 0, session: int = 0, first: int = 0, time_ns: int = 0, type: int = 0
) -> tuple[NDArray[np.void], bytes]:
    """Rows for values, and their bytes; sequence numbers count from `first`, receive times from `time_ns`."""
    rows = np.zeros(len(values), ROW)
    lengths = np.array([len(value) for value in values], np.uint32)
    rows["length"] = lengths
    rows["position"] = np.cumsum(lengths) - lengths
    rows["topic"], rows["session"], rows["type"], rows["numbers"] = topic, session, type, 1
    rows["sequence"] = first + np.arange(len(values))
    rows["receive_ns"] = time_ns + np.arange(len(values))
    return rows, b"".join(values)


def add(writer: LogWriter, values: Sequence[bytes], *, topic: str = "t", first: int = 0, time_ns: int = 0) -> int:
    """Appends values in one block."""
    number, session = writer.topic(topic), writer.session("LBT-IPC:1:1")
    return writer.append(*made(values, topic=number, session=session, first=first, time_ns=time_ns))


def lose_in_power_loss(folder: Path, base: int, end: int) -> None:
    """Removes a segment of a log, as if a power loss had taken it: the log knows of the hole."""
    for suffix in SUFFIXES:
        file_of(folder, base, suffix).unlink()
    known = removed_offsets.load(Disk(), folder)
    assert known is not None
    removed_offsets.save(Disk(), folder, known.with_holes([(base, end)]))


def values_of(chunks: Iterable[Chunk]) -> list[bytes]:
    """The values of all rows."""
    found = []
    for chunk in chunks:
        for row in chunk.rows:
            start = int(row["position"]) + int(row["headers"]) - chunk.data_start
            found.append(chunk.data[start : start + int(row["length"])].tobytes())
    return found
