"""Segments: their files, and reading from one of them.

Everything is read with pread into own memory, not through a mapping. When another process truncates a mapped file, or
its disk fails, SIGBUS ends the reader; pread returns fewer bytes or an error. It is not slower: from the page cache, 4
MiB at a time with CRC-32, pread reached 2.5 to 2.8 GB/s and a fresh mapping 2.2 GB/s (docs/decisions/0016-archive.md).
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

    from ipcbus.archive.watermark import Watermark
    from ipcbus.embedding import Files

_FILE: Final = re.compile(r"(\d{20})\.(blk|dat|idx)", re.ASCII)
_BLOCKS_READ: Final = 1 << 16  # blocks that are read at least, however few rows there are
_RECORDS: Final = 1024  # records of blocks that are read at once

SUFFIXES: Final = ("dat", "idx", "blk")
"""Suffixes of the files of a segment, in the order in which they are made."""


def remove(files: Files, folder: Path, base: int) -> None:
    """Removes a segment, the records of blocks first, as the segment exists while they do."""
    for suffix in reversed(SUFFIXES):
        files.remove(file_of(folder, base, suffix))


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """The summary of a segment.

    Attributes:
        base: first offset.
        rows: number of messages, losses and other events.
        bytes: bytes of its messages, headers included.
        disk_bytes: bytes of its three files.
        closed: whether the segment is complete.
        first_receive_ns: the least receive time of its rows, in ns since the epoch; 0 without rows.
        last_receive_ns: the greatest receive time.
        losses: rows that are losses.
        lost: sequence numbers that these losses span.
        hole: offsets before the segment that were given, or may have been given, and are lost; usually 0.
        damaged: blocks with a damaged record; their rows are counted, but not the messages and losses in them.
    """

    base: int
    rows: int
    bytes: int
    disk_bytes: int
    closed: bool
    first_receive_ns: int
    last_receive_ns: int
    losses: int
    lost: int
    hole: int
    damaged: int

    @property
    def end(self) -> int:
        """The offset after the last row."""
        return self.base + self.rows


@dataclasses.dataclass(slots=True)
class Chunk:
    """Consecutive rows and the bytes of their messages.

    The value of row i is `data[row.position + row.headers - data_start :][: row.length]`.
    """

    offset: int
    """Offset of `rows[0]`."""
    rows: NDArray[np.void]
    """Rows of the type `ipcbus.archive.archive_layout.ROW`; read-only."""
    data: NDArray[np.uint8]
    """Bytes of the segment's data from `data_start` on; read-only."""
    data_start: int


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """Rows that cannot be read."""

    first: int
    """Offset of the first of these rows."""
    end: int
    """Offset after the last."""
    suffix: str
    """Suffix of the segment's file that has the damage."""
    at: int
    """Position in that file, in bytes."""
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class ChunkLimits:
    """What to read, and the size of chunks."""

    max_rows: int
    max_bytes: int
    verify: bool
    """Whether checksums are checked."""
    messages: bool = True
    """Whether the bytes of messages are read."""
    wants: Callable[[Block], bool] | None = None
    """Returns, from the record of a block, whether to read the block."""


def file_of(folder: Path, base: int, suffix: str) -> Path:
    """Returns the path of a segment's file."""
    return folder / f"{base:020d}.{suffix}"


def bases(names: list[str]) -> list[int]:
    """Returns the base offsets of the segments that a directory with these names holds, sorted."""
    return sorted(base for suffix, base in _files(names) if suffix == "blk")


def leftovers(names: list[str], next_offset: int) -> list[tuple[str, int]]:
    """Returns suffix and base of the files, among these names, of segments that were being made or removed."""
    first = min([*bases(names), next_offset])
    return [(suffix, base) for suffix, base in _files(names) if base < first or base >= next_offset]


def orphans(names: list[str], next_offset: int) -> list[tuple[str, int]]:
    """Returns suffix and base of files among the segments whose `.blk` file is missing; no crash leaves these."""
    found = bases(names)
    first = min([*found, next_offset])
    return [(suffix, base) for suffix, base in _files(names) if first <= base < next_offset and base not in found]


def _files(names: list[str]) -> list[tuple[str, int]]:
    found = [(match[2], int(match[1])) for name in names if (match := _FILE.fullmatch(name)) is not None]
    return [(suffix, base) for suffix, base in found if base < OFFSET_END]  # other files do not belong to segments


class OpenSegment:
    """The files of a segment, open for reading; a context manager."""

    def __init__(self, files: Files, folder: Path, base: int, blocks_max: int | None = None) -> None:
        """Opens the files.

        Args:
            files: the storage.
            folder: the directory of the log.
            base: the first offset.
            blocks_max: how many blocks are published; None for all.

        Raises:
            FileMissing: the segment does not exist, or no longer.
            StorageError: the system refuses.
        """
        self.base = base
        self._open = contextlib.ExitStack()
        with contextlib.ExitStack() as on_error:
            self.blk, self.idx, self.dat = (
                on_error.enter_context(contextlib.closing(files.open(file_of(folder, base, suffix))))
                for suffix in reversed(SUFFIXES)
            )
            self._open = on_error.pop_all()
        # Each block has a row, so a longer file is damaged, unless rows are lost.
        rows = min(max(self.idx.size() // ROW_SIZE, _BLOCKS_READ), blocks.ROWS_MAX)
        there = min(self.blk.size() // blocks.SIZE, rows)
        self.count = there if blocks_max is None else min(there, blocks_max)

    def __enter__(self) -> OpenSegment:
        """Returns the segment itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the files."""
        self._open.close()

    def records(self, index: int, count: int) -> list[Block | None]:
        """Returns blocks from `index` on; None for a damaged record."""
        count = min(count, self.count - index)
        return blocks.parse(self.blk.read_at(index * blocks.SIZE, count * blocks.SIZE), self.base)

    def all_records(self) -> Iterator[list[Block | None]]:
        """Yields all blocks, many at a time."""
        for index in range(0, self.count, _RECORDS):
            yield self.records(index, _RECORDS)

    def table(self, index: int, count: int) -> NDArray[np.void]:
        """Returns records of blocks from `index` on as an array, unchecked."""
        data = self.blk.read_at(index * blocks.SIZE, min(count, self.count - index) * blocks.SIZE)
        return np.frombuffer(data, BLOCK, len(data) // blocks.SIZE)

    def end(self) -> int:
        """Returns the offset after the last row; by the size of the file of rows where the last record is damaged."""
        for block in self.records(self.count - 1, 1) if self.count else ():
            if block is not None:
                return block.end
        return self.base + self.idx.size() // ROW_SIZE

    def find(self, offset: int) -> int:
        """Returns the index of the block that holds an offset, or of an earlier one."""
        low, high = 0, self.count  # the block is in [low, high)
        while high - low > 1:
            middle = (low + high) // 2
            for block in self.records(middle, 1):
                if block is None:
                    return 0  # the search fails where records are damaged
                low, high = (middle, high) if block.first_offset <= offset else (low, middle)
        return low

    def position(self, offset: int) -> int:
        """Returns where the messages before an offset end in the data, by the last row before it, unchecked."""
        raw = self.idx.read_at((offset - 1 - self.base) * ROW_SIZE, ROW_SIZE) if offset > self.base else b""
        if len(raw) < ROW_SIZE:
            return 0
        row = np.frombuffer(raw, ROW)[0]
        return int(row["position"]) + int(row["headers"]) + int(row["length"])

    def walk(self, start: int, end: int, records: int = _RECORDS) -> Iterator[Block | Damage]:
        """Yields the blocks that hold the offsets from `start` to `end`, and the damage between them.

        Args:
            start: the first offset.
            end: the offset after the last.
            records: how many records are read at once.
        """
        index, covered, follows = self.find(start), start, self.base
        behind = index  # the record after the last good one
        while covered < end and index < self.count:
            found = self.records(index, records)
            for number, block in enumerate(found, index):
                if block is None or block.end <= covered or block.first_offset < follows:
                    continue
                at = behind * blocks.SIZE
                if block.first_offset > covered:
                    yield Damage(covered, min(block.first_offset, end), "blk", at, "the record of its block is damaged")
                if block.first_offset >= end:
                    return
                yield block
                covered = follows = block.end
                behind = number + 1
                if covered >= end:
                    return
            index += max(1, len(found))
        if covered < end:
            yield Damage(covered, end, "blk", behind * blocks.SIZE, "the record of its block is damaged or missing")

    def read_block(self, block: Block) -> tuple[bytes, bytes]:
        """Returns the bytes of a block's rows and messages, as far as the files have them."""
        raw = self.idx.read_at((block.first_offset - self.base) * ROW_SIZE, block.rows * ROW_SIZE)
        return raw, self.dat.read_at(block.position, block.bytes)

    def fault(self, block: Block, kinds: NDArray[np.uint8] | None = None) -> Fault | None:
        """Returns what is wrong with the content of a block, or None; with `kinds`, names are checked too."""
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
        """Yields the rows from `start` to `end`; reads many small blocks in one go.

        Args:
            start: the first offset.
            end: the offset after the last.
            limits: what to read, and the size of chunks.
            kinds: what each number of the log's names stands for (`LogNames.kinds`).
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
        """Yields the rows between `start` and `end` of consecutive blocks."""
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
            for block in run:  # one by one, as the others may be good
                yield from self._read([block], start, end, limits, kinds)
        else:
            yield Damage(max(first.first_offset, start), min(first.end, end), *found)

    def _run_fault(self, run: list[Block], raw: memoryview, data: memoryview | None) -> Fault | None:
        """Returns what contradicts the checksums of consecutive blocks; None when nothing does."""
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
    """Yields rows in chunks that keep the limits; a larger row is a chunk of its own."""
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


def summary(opened: OpenSegment, mark: Watermark, limit: int) -> Segment:
    """Returns the summary of a segment; the caller, which knows the segment before it, sets its hole."""
    written = opened.base == mark.base
    size = losses = lost = damaged = 0
    times: list[int] = []
    for found in opened.all_records():
        good = [block for block in found if block is not None]
        size += sum(block.bytes for block in good)
        losses += sum(block.losses for block in good)
        lost += sum(block.lost for block in good)
        damaged += len(found) - len(good)
        times += (
            [min(block.first_receive_ns for block in good), max(block.last_receive_ns for block in good)]
            if good
            else []
        )
    return Segment(
        base=opened.base,
        rows=(mark.next_offset if written else min(opened.end(), limit)) - opened.base,
        bytes=size,
        disk_bytes=opened.blk.size() + opened.idx.size() + opened.dat.size(),
        closed=not written,
        first_receive_ns=min(times, default=0),
        last_receive_ns=max(times, default=0),
        losses=losses,
        lost=lost,
        hole=0,
        damaged=damaged,
    )
