"""Segments: their files, and what is read from one of them.

Everything is read with pread into memory of our own, not through a mapping. A mapping that another process truncates,
or whose disk fails, ends the reader by SIGBUS, where pread gives fewer bytes or an error. And it is no slower: from the
page cache, 4 MiB at a time with their CRC-32, pread made 2.5 to 2.8 GB/s and a fresh mapping 2.2 GB/s
(docs/decisions/0016-archive.md).
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from typing import TYPE_CHECKING, Final

import numpy as np

from ipcbus.archive import blocks
from ipcbus.archive.archive_layout import BLOCK, OFFSET_END, ROW
from ipcbus.archive.blocks import ROW_SIZE, Block, Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from ipcbus.embedding import Files

_FILE: Final = re.compile(r"(\d{20})\.(blk|dat|idx)", re.ASCII)
_BLOCKS_READ: Final = 1 << 16  # that are looked at, however few rows there are
_RECORDS: Final = 1024  # records of blocks that are read at once

SUFFIXES: Final = ("dat", "idx", "blk")
"""Of the files of a segment, in the order in which they are made."""


def remove(files: Files, folder: Path, base: int) -> None:
    """Removes a segment; records of blocks first: without them it is not there."""
    for suffix in reversed(SUFFIXES):
        files.remove(file_of(folder, base, suffix))


@dataclasses.dataclass(slots=True)
class Chunk:
    """Rows that follow each other, and the bytes of their messages.

    The value of row i is `data[row.position + row.headers - data_start :][: row.length]`.
    """

    offset: int
    """Of `rows[0]`."""
    rows: NDArray[np.void]
    """Of the type `ipcbus.archive.archive_layout.ROW`; read-only."""
    data: NDArray[np.uint8]
    """Read-only; from `data_start` of the segment's data on."""
    data_start: int


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """Rows that cannot be read."""

    first: int
    """Offset of the first of them."""
    end: int
    """Offset after the last."""
    suffix: str
    """Of the segment's file that the damage is found in."""
    at: int
    """Byte in that file."""
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class ChunkLimits:
    """What is read, and in chunks of which size."""

    max_rows: int
    max_bytes: int
    verify: bool
    """Whether checksums are looked at."""
    messages: bool = True
    """Whether the bytes of messages are read."""
    wants: Callable[[Block], bool] | None = None
    """Says of a block, by its record, whether any of its rows is wanted; a block of which none is is not read."""


def file_of(folder: Path, base: int, suffix: str) -> Path:
    """Returns the path of a segment's file."""
    return folder / f"{base:020d}.{suffix}"


def bases(names: list[str]) -> list[int]:
    """Returns the base offsets of the segments that a directory with these names holds, sorted."""
    return sorted(base for suffix, base in _files(names) if suffix == "blk")


def leftovers(names: list[str], next_offset: int) -> list[tuple[str, int]]:
    """Suffix and base of the files, of a directory with these names, of segments that were being made or removed."""
    first = min([*bases(names), next_offset])
    return [(suffix, base) for suffix, base in _files(names) if base < first or base >= next_offset]


def orphans(names: list[str], next_offset: int) -> list[tuple[str, int]]:
    """The same of files that stand among segments, but have lost the file that makes them one: no crash leaves them."""
    found = bases(names)
    first = min([*found, next_offset])
    return [(suffix, base) for suffix, base in _files(names) if first <= base < next_offset and base not in found]


def _files(names: list[str]) -> list[tuple[str, int]]:
    found = [(match[2], int(match[1])) for name in names if (match := _FILE.fullmatch(name)) is not None]
    return [(suffix, base) for suffix, base in found if base < OFFSET_END]  # others are nobody's segments


class OpenSegment:
    """The files of a segment, open for reading; a context manager."""

    def __init__(self, files: Files, folder: Path, base: int, blocks_max: int | None = None) -> None:
        """Opens them.

        Args:
            files: where.
            folder: the log.
            base: the first offset.
            blocks_max: how many blocks are published; None for all.

        Raises:
            FileMissing: it is not there, or no longer.
            StorageError: the system refuses.
        """
        self.base = base
        self._open = contextlib.ExitStack()
        with contextlib.ExitStack() as until_done:
            self.blk, self.idx, self.dat = (
                until_done.enter_context(contextlib.closing(files.open(file_of(folder, base, suffix))))
                for suffix in reversed(SUFFIXES)
            )
            self._open = until_done.pop_all()
        # Each block has a row: a file that is longer than that lies, unless it is the rows that are lost.
        rows = min(max(self.idx.size() // ROW_SIZE, _BLOCKS_READ), blocks.ROWS_MAX)
        there = min(self.blk.size() // blocks.SIZE, rows)
        self.count = there if blocks_max is None else min(there, blocks_max)

    def __enter__(self) -> OpenSegment:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the files."""
        self._open.close()

    def records(self, index: int, count: int) -> list[Block | None]:
        """Blocks from `index` on; None for a damaged one."""
        count = min(count, self.count - index)
        return blocks.parse(self.blk.read_at(index * blocks.SIZE, count * blocks.SIZE), self.base)

    def all_records(self) -> Iterator[list[Block | None]]:
        """Yields all blocks, many at a time."""
        for index in range(0, self.count, _RECORDS):
            yield self.records(index, _RECORDS)

    def table(self, index: int, count: int) -> NDArray[np.void]:
        """Records of blocks from `index` on as an array, unchecked."""
        data = self.blk.read_at(index * blocks.SIZE, min(count, self.count - index) * blocks.SIZE)
        return np.frombuffer(data, BLOCK, len(data) // blocks.SIZE)

    def end(self) -> int:
        """Returns the offset after its last row; what the size of its rows says where the last block is damaged."""
        for block in self.records(self.count - 1, 1) if self.count else ():
            if block is not None:
                return block.end
        return self.base + self.idx.size() // ROW_SIZE

    def find(self, offset: int) -> int:
        """Returns the index of the block that holds an offset, or of one before it."""
        low, high = 0, self.count  # the block is in [low, high)
        while high - low > 1:
            middle = (low + high) // 2
            for block in self.records(middle, 1):
                if block is None:
                    return 0  # the search is no use where records are damaged
                low, high = (middle, high) if block.first_offset <= offset else (low, middle)
        return low

    def position(self, offset: int) -> int:
        """Returns where the messages before an offset end in the data, as its row says, unchecked."""
        raw = self.idx.read_at((offset - 1 - self.base) * ROW_SIZE, ROW_SIZE) if offset > self.base else b""
        if len(raw) < ROW_SIZE:
            return 0
        row = np.frombuffer(raw, ROW)[0]
        return int(row["position"]) + int(row["headers"]) + int(row["length"])

    def walk(self, start: int, end: int) -> Iterator[Block | Damage]:
        """Yields the blocks that hold the offsets from `start` to `end`, and what of them no good block holds."""
        index, told, follows = self.find(start), start, self.base
        behind = index  # the record after the last good one
        while told < end and index < self.count:
            found = self.records(index, _RECORDS)
            for number, block in enumerate(found, index):
                if block is None or block.end <= told or block.first_offset < follows:
                    continue
                at = behind * blocks.SIZE
                if block.first_offset > told:
                    yield Damage(told, min(block.first_offset, end), "blk", at, "the record of its block is damaged")
                if block.first_offset >= end:
                    return
                yield block
                told = follows = block.end
                behind = number + 1
                if told >= end:
                    return
            index += max(1, len(found))
        if told < end:
            yield Damage(told, end, "blk", behind * blocks.SIZE, "the record of its block is damaged or missing")

    def read_block(self, block: Block) -> tuple[bytes, bytes]:
        """Returns the bytes of a block's rows and messages, as far as they are there."""
        raw = self.idx.read_at((block.first_offset - self.base) * ROW_SIZE, block.rows * ROW_SIZE)
        return raw, self.dat.read_at(block.position, block.bytes)

    def fault(self, block: Block, kinds: NDArray[np.uint8] | None = None) -> Fault | None:
        """What is wrong with what a block says is there; names are looked at where they are given."""
        raw, data = self.read_block(block)
        found = blocks.fault(block, self.base, raw, data)
        if found is not None:
            return found
        rows = np.frombuffer(raw, ROW)
        if kinds is None:
            reason = "" if blocks.covers(rows, block.position, block.bytes) else "its rows do not cover its messages"
        else:
            reason = blocks.contradiction(rows, block.position, block.bytes, kinds)
        return Fault("idx", (block.first_offset - self.base) * ROW_SIZE, reason) if reason else None

    def chunks(self, start: int, end: int, limits: ChunkLimits, kinds: NDArray[np.uint8]) -> Iterator[Chunk | Damage]:
        """Yields the rows from `start` to `end`; many small blocks are read in one go.

        Args:
            start: the first offset.
            end: the offset after the last.
            limits: of each chunk.
            kinds: what each number of the log's names is (`Names.kinds`).
        """
        run: list[Block] = []
        size = rows = 0
        for piece in self.walk(start, end):
            if limits.wants is not None and isinstance(piece, Block) and not limits.wants(piece):
                continue
            fits = isinstance(piece, Block) and (
                rows + piece.rows <= limits.max_rows
                and size + piece.bytes <= limits.max_bytes
                and run
                and (piece.first_offset, piece.position) == (run[-1].end, run[-1].position + run[-1].bytes)
            )
            if not fits:
                yield from self._read(run, start, end, limits, kinds)
                run, size, rows = [], 0, 0
            if isinstance(piece, Damage):
                yield piece
                continue
            run.append(piece)
            size, rows = size + piece.bytes, rows + piece.rows
        yield from self._read(run, start, end, limits, kinds)

    def _read(
        self, run: list[Block], start: int, end: int, limits: ChunkLimits, kinds: NDArray[np.uint8]
    ) -> Iterator[Chunk | Damage]:
        """Yields the rows of blocks that stand behind each other, those between `start` and `end`."""
        if not run:
            return
        first, begin = run[0], run[0].position
        row_at, row_bytes = (first.first_offset - self.base) * ROW_SIZE, (run[-1].end - first.first_offset) * ROW_SIZE
        length = run[-1].position + run[-1].bytes - begin
        raw = self.idx.read_at(row_at, row_bytes)
        data = self.dat.read_at(begin, length) if limits.messages else b""
        found = None
        if limits.verify or len(raw) < row_bytes or len(data) < limits.messages * length:
            found = self._run_fault(run, memoryview(raw), memoryview(data) if limits.messages else None)
        if found is None:
            reason = blocks.contradiction(np.frombuffer(raw, ROW), begin, length, kinds)
            found = Fault("idx", row_at, reason) if reason else None
        if found is None:
            low, high = max(start, first.first_offset), min(end, run[-1].end)
            rows = np.frombuffer(raw, ROW)[low - first.first_offset : high - first.first_offset]
            yield from _cut(low, rows, np.frombuffer(data, np.uint8), begin, limits)
        elif len(run) > 1:
            for block in run:  # each for itself: the others are good
                yield from self._read([block], start, end, limits, kinds)
        else:
            yield Damage(max(first.first_offset, start), min(first.end, end), *found)

    def _run_fault(self, run: list[Block], raw: memoryview, data: memoryview | None) -> Fault | None:
        """What contradicts the checksums of blocks that stand behind each other."""
        row, at = 0, 0
        for block in run:
            row_end, end = row + block.rows * ROW_SIZE, at + block.bytes
            found = blocks.fault(block, self.base, raw[row:row_end], None if data is None else data[at:end])
            if found is not None:
                return found
            row, at = row_end, end
        return None


def _cut(
    offset: int, rows: NDArray[np.void], data: NDArray[np.uint8], begin: int, limits: ChunkLimits
) -> Iterator[Chunk]:
    """Rows in chunks that keep the limits; a row that is larger stands alone."""
    positions, at = rows["position"], 0
    while at < len(rows):
        start, end = int(positions[at]), min(at + limits.max_rows, len(rows))
        last = rows[end - 1]
        stop = int(last["position"]) + int(last["headers"]) + int(last["length"])
        if stop - start > limits.max_bytes:
            fitting = int(np.searchsorted(positions[at:end].astype(np.int64), start + limits.max_bytes, side="right"))
            end = at + max(1, fitting - 1)
            stop = int(positions[end]) if end < len(rows) else stop
        yield Chunk(offset + at, rows[at:end], data[start - begin : stop - begin], start)
        at = end
