"""Reading the blocks of a log in small steps, for a thread that must not be away for long."""

from __future__ import annotations

import zlib
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from ipcbus.archive.blocks import ROW_SIZE
from ipcbus.embedding import FileMissing
from ipcbus.errors import IpcBusError

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    from ipcbus.archive.blocks import Block
    from ipcbus.archive.log import Log

_BYTES: Final = 256 << 10
"""About the most bytes that a step reads and checks."""
_BLOCKS: Final = 256
"""Most blocks whose records a step reads, and most small blocks that are read together."""


class CheckedRows(NamedTuple):
    """Consecutive rows whose checksums are right."""

    offset: int
    """The offset of the first row."""
    rows: Buffer
    data: Buffer
    """The bytes of their messages; empty when they were not wanted."""
    position: int
    """Where these bytes begin in the segment."""


class _Part:
    """Some bytes of a file that belong to blocks, read and checked from step to step."""

    def __init__(self, at: int, sums: list[tuple[int, int]]) -> None:
        """Begins at a position, with the length and the checksum of the bytes of each block."""
        self._at = at
        self._sums = deque((length, crc) for length, crc in sums if length)
        self.bytes = bytearray(sum(length for length, _ in sums))
        """All of them; those that are not read yet are 0."""
        self._have = 0
        self._left, self._crc = (self._sums[0][0] if self._sums else 0), 0

    def step(self, log: Log, base: int, suffix: str) -> str | None:
        """Reads on; returns what is wrong, empty when all is read and right, and None while there is more."""
        have, size = self._have, len(self.bytes)
        stop = min(have + _BYTES, size)
        piece = log.read_bytes(base, suffix, self._at + have, stop - have) if have < stop else b""
        if len(piece) < stop - have:
            return f"the file has {have + len(piece)} of {size} bytes of them"
        self.bytes[have:stop] = piece
        self._have = stop
        view = memoryview(piece)
        while view:
            now = view[: self._left]
            self._crc, self._left, view = zlib.crc32(now, self._crc), self._left - len(now), view[len(now) :]
            if not self._left:
                if self._sums.popleft()[1] != self._crc:
                    return "a checksum is wrong"
                self._left, self._crc = (self._sums[0][0] if self._sums else 0), 0
        return "" if stop == size else None


class BlockSteps:
    """Reads the blocks of a log, one after the other; several small ones together. No file is open between steps."""

    def __init__(
        self, log: Log, start: int, wants: Callable[[bytearray, int], bool] | None, fault: Callable[[str], None] | None
    ) -> None:
        """Begins before a row.

        Args:
            log: the log.
            start: the offset of the first row that is wanted; earlier ones of its block come too.
            wants: called with some rows, which it may change, and the offset of the first; returns whether their
                messages are wanted. None: never.
            fault: called with the rows that cannot be read, and why; they are left out.
        """
        self._log, self._wants, self._fault = log, wants, fault
        self.offset = start
        """The rows before this offset are read, or cannot be."""
        self._runs: deque[tuple[int, list[Block]]] = deque()
        self._rows: _Part | None = None
        self._data: _Part | None = None

    def step(self, end: int) -> CheckedRows | None:
        """Reads on: about 256 KiB at most, or the records of 256 blocks.

        Args:
            end: the offset after the last published row.

        Returns:
            Rows, when they are complete.
        """
        try:
            return self._step(end)
        except FileMissing:  # retention has just removed the segment
            self._skip("")
        except (IpcBusError, OSError) as error:
            self._skip(str(error))
            self.offset = max(self.offset, end) if not self._runs else self.offset
        return None

    def _step(self, end: int) -> CheckedRows | None:
        if not self._runs:
            self._plan(end)
            return None
        base, run = self._runs[0]
        first, last = run[0], run[-1]
        if self._rows is None:
            at = (first.first_offset - base) * ROW_SIZE
            self._rows = _Part(at, [(each.rows * ROW_SIZE, each.rows_crc) for each in run])
        if self._data is None:
            wrong = self._rows.step(self._log, base, "idx")
            if wrong == "":
                rows = self._rows.bytes
                if self._wants is None or not self._wants(rows, first.first_offset):
                    self._done()
                    return CheckedRows(first.first_offset, rows, b"", first.position) if self._wants is None else None
                self._data = _Part(first.position, [(each.bytes, each.bytes_crc) for each in run])
                if last.position + last.bytes == first.position:
                    self._done()
                    return CheckedRows(first.first_offset, rows, b"", first.position)
        else:
            wrong = self._data.step(self._log, base, "dat")
            if wrong == "":
                found = CheckedRows(first.first_offset, self._rows.bytes, self._data.bytes, first.position)
                self._done()
                return found
        if wrong:
            self._skip(wrong)
        return None

    def _plan(self, end: int) -> None:
        """Reads the records of the next blocks, and joins small ones that follow each other."""
        found = self._log.blocks(self.offset, end, _BLOCKS, self._lost)
        run: list[Block] = []
        size, base = 0, -1
        for segment, block in found:
            more = block.bytes + block.rows * ROW_SIZE
            joins = (
                run
                and segment == base
                and size + more <= _BYTES
                and (block.first_offset, block.position) == (run[-1].end, run[-1].position + run[-1].bytes)
            )
            if not joins:
                run, size, base = [], 0, segment
                self._runs.append((base, run))
            run.append(block)
            size += more
        if not found:
            self.offset = end

    def _done(self) -> None:
        _, run = self._runs.popleft()
        self.offset = max(self.offset, run[-1].end)
        self._rows = self._data = None

    def _skip(self, why: str) -> None:
        """Leaves out the blocks at hand; several are tried again one by one, as the others may be good."""
        if not self._runs:
            if why and self._fault is not None:
                self._fault(why)
            return
        base, run = self._runs[0]
        if len(run) > 1:
            self._runs.popleft()
            self._runs.extendleft((base, [each]) for each in reversed(run))
            self._rows = self._data = None
            return
        if why:
            self._lost(run[0].first_offset, run[0].end, why)
        self._done()

    def _lost(self, first: int, end: int, why: str) -> None:
        if self._fault is not None:
            self._fault(f"rows {first} to {end - 1}: {why}")
