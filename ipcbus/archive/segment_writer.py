"""The segment that is written."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np

from ipcbus.archive import blocks, segments
from ipcbus.archive.archive_layout import ROW, SEGMENT_BYTES_MAX
from ipcbus.archive.blocks import ROW_SIZE
from ipcbus.archive.segments import SUFFIXES, file_of
from ipcbus.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from ipcbus.archive.log_limits import Limits
    from ipcbus.embedding import Files

_NS: float = 1e9


class SegmentWriter:
    """The three files of the segment that is written, and how much of them is written.

    Attributes:
        base: first offset.
        rows: number of rows.
        bytes: bytes of its messages.
        blocks: number of blocks.
        open_files: the three files.
    """

    def __init__(self, files: Files, folder: Path, base: int) -> None:
        """Makes the files."""
        self.base = base
        self.rows = self.bytes = self.blocks = 0
        self._first_ns = 0
        self._scratch = np.empty(0, ROW)  # kept, as new memory costs more than the copy itself
        self._files = files
        self._folder = folder
        self._new = True  # the directory may not have its names yet
        with contextlib.ExitStack() as on_error:
            opened = []
            for suffix in SUFFIXES:
                path = file_of(folder, base, suffix)
                on_error.callback(files.remove, path)
                opened.append(files.open(path, write=True, create=True))
                on_error.callback(opened[-1].close)
                opened[-1].truncate(0)  # an earlier try may have left bytes, which were never published
            self._dat, self._idx, self._blk = self.open_files = opened
            on_error.pop_all()

    def is_over(self, rows: NDArray[np.void], length: int, limits: Limits) -> bool:
        """Returns whether rows with `length` bytes are too much, or too late, for a segment that has rows."""
        if not self.rows:
            return False
        size = self.bytes + length
        total = self.disk_bytes + length + len(rows) * ROW_SIZE
        late = int(rows["receive_ns"][-1]) - self._first_ns > limits.segment_seconds * _NS
        full = size > SEGMENT_BYTES_MAX or self.rows + len(rows) > blocks.ROWS_MAX
        return total > limits.segment_bytes or late or full

    def write(self, rows: NDArray[np.void], data: memoryview, cuts: list[int]) -> None:
        """Writes rows and bytes as blocks that begin at `cuts`; the records of the blocks come last."""
        placed = self._placed(rows)
        starts = [*(int(rows["position"][at]) for at in cuts[:-1]), len(data)]
        records = [
            blocks.describe(self.base + self.rows + first, placed[first:end], self.bytes + begin, data[begin:stop])
            for first, end, begin, stop in zip(cuts, cuts[1:], starts, starts[1:], strict=False)
        ]
        self._dat.append(data)
        self._idx.append(placed.view(np.uint8).data)
        self._blk.append(b"".join(records))
        if not self.rows:
            self._first_ns = int(rows["receive_ns"][0])
        self.rows += len(rows)
        self.bytes += len(data)
        self.blocks += len(records)

    def _placed(self, rows: NDArray[np.void]) -> NDArray[np.void]:
        """Returns a copy of the rows with positions of this segment."""
        if len(self._scratch) < len(rows):
            self._scratch = np.empty(len(rows), ROW)
        placed = self._scratch[: len(rows)]
        placed.view(np.uint8)[:] = np.ascontiguousarray(rows).view(np.uint8)
        placed["position"] += np.uint32(self.bytes)
        return placed

    @property
    def disk_bytes(self) -> int:
        """Bytes of the three files."""
        return self.bytes + self.rows * ROW_SIZE + self.blocks * blocks.SIZE

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The present number of rows, bytes and blocks, for `cut`."""
        return self.rows, self.bytes, self.blocks

    def cut(self, sizes: tuple[int, int, int]) -> None:
        """Removes what was written since `sizes` was read, and not published."""
        self.rows, self.bytes, self.blocks = sizes
        lengths = (self.bytes, self.rows * ROW_SIZE, self.blocks * blocks.SIZE)
        for file, length in zip(self.open_files, lengths, strict=True):
            with contextlib.suppress(StorageError):  # then the next append overwrites it
                file.truncate(length)

    def sync(self) -> None:
        """Syncs the files and their names.

        Raises:
            StorageError: the sync fails.
        """
        for file in self.open_files:
            file.sync()
        if self._new:
            self._files.sync_dir(self._folder)
            self._new = False

    def remove(self) -> None:
        """Removes the files."""
        segments.remove(self._files, self._folder, self.base)

    def close(self) -> None:
        """Closes all files, also when one raises."""
        with contextlib.ExitStack() as at_end:
            for file in self.open_files:
                at_end.callback(file.close)
