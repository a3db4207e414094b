"""Blocks: rows and bytes that are written in one go, and the checks that find a damaged block."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ipcbus.archive.archive_layout import (
    BLOCK,
    BLOCK_BYTES_MAX,
    FORMAT,
    FORMATS,
    LOSS_TYPES,
    NAME_SESSION,
    NAME_TOPIC,
    ROW,
    SEGMENT_BYTES_MAX,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Buffer

    Rows = NDArray[np.void]
    Kinds = NDArray[np.uint8]

SIZE: Final = BLOCK.itemsize
"""Bytes of a block's record."""

ROW_SIZE: Final = ROW.itemsize
ROWS_MAX: Final = SEGMENT_BYTES_MAX // ROW_SIZE
"""Most rows in one segment."""

_CHECKED: Final = SIZE - 4
_LOSS = np.zeros(256, np.bool_)
_LOSS[list(LOSS_TYPES)] = True


class Block(NamedTuple):
    """A block's record; see `ipcbus.archive.archive_layout`."""

    first_offset: int
    rows: int
    position: int
    bytes: int
    rows_crc: int
    bytes_crc: int
    losses: int
    lost: int
    first_receive_ns: int
    last_receive_ns: int
    format: int
    crc: int

    @property
    def end(self) -> int:
        """The offset after its last row."""
        return self.first_offset + self.rows


def describe(first_offset: int, rows: Rows, position: int, data: Buffer) -> bytes:
    """Returns the record of a block."""
    record = np.zeros(1, BLOCK)
    lost = _LOSS[np.ascontiguousarray(rows["type"])]
    times = np.ascontiguousarray(rows["receive_ns"])  # one copy of the column, instead of a strided read for each use
    record["first_offset"] = first_offset
    record["rows"] = len(rows)
    record["position"] = position
    record["bytes"] = memoryview(data).nbytes
    record["rows_crc"] = zlib.crc32(rows.view(np.uint8).data)
    record["bytes_crc"] = zlib.crc32(data)
    record["losses"] = np.count_nonzero(lost)
    record["lost"] = rows["numbers"][lost].sum(dtype=np.uint64)
    record["first_receive_ns"] = times.min()
    record["last_receive_ns"] = times.max()
    record["format"] = FORMAT
    made = record.tobytes()[:_CHECKED]
    return made + zlib.crc32(made).to_bytes(4, "little")


def parse(data: Buffer, base: int) -> list[Block | None]:
    """Returns the blocks of consecutive records; None for a record that is damaged or cannot be of this segment."""
    view = memoryview(data).cast("B")
    count = len(view) // SIZE
    fields = np.frombuffer(view[: count * SIZE], BLOCK).tolist()
    return [_checked(Block(*each), view[i * SIZE : i * SIZE + _CHECKED], base) for i, each in enumerate(fields)]


def _checked(block: Block, record: memoryview, base: int) -> Block | None:
    return block if block.crc == zlib.crc32(record) and fits(block, base) else None


def fits(block: Block, base: int) -> bool:
    """Returns whether a block can be part of the segment with this base."""
    first = block.first_offset - base
    inside = first >= 0 and block.rows > 0 and first + block.rows <= ROWS_MAX
    inside = inside and block.position + block.bytes <= SEGMENT_BYTES_MAX
    small = block.rows == 1 or max(block.rows * ROW_SIZE, block.bytes) <= BLOCK_BYTES_MAX
    return inside and small and block.format in FORMATS


class Fault(NamedTuple):
    """Damage that was found in a block."""

    suffix: str
    """Suffix of the segment's file that has the damage."""
    at: int
    """Position in that file, in bytes."""
    reason: str


def fault(block: Block, base: int, rows: Buffer, data: Buffer | None) -> Fault | None:
    """Returns what contradicts the checksums of a block; None when nothing does.

    Args:
        block: the block.
        base: first offset of its segment.
        rows: the bytes of its rows, as far as the file has them.
        data: the bytes of its messages, as far as the file has them; None when they were not read.
    """
    at = (block.first_offset - base) * ROW_SIZE
    have_rows = memoryview(rows).nbytes
    have_data = block.bytes if data is None else memoryview(data).nbytes
    if have_rows < block.rows * ROW_SIZE:
        return Fault("idx", at, f"the file has {have_rows} of {block.rows * ROW_SIZE} bytes of its rows")
    if have_data < block.bytes:
        return Fault("dat", block.position, f"the file has {have_data} of {block.bytes} bytes of its messages")
    if zlib.crc32(rows) != block.rows_crc:
        return Fault("idx", at, "the checksum of its rows is wrong")
    if data is not None and zlib.crc32(data) != block.bytes_crc:
        return Fault("dat", block.position, "the checksum of its messages is wrong")
    return None


def contradiction(rows: Rows, position: int, length: int, kinds: Kinds) -> str:
    """Returns what is impossible in some rows, whatever their checksum says; empty when they are possible.

    Readers pass positions and numbers to code that trusts them, so rows are checked even when checksums are not.

    Args:
        rows: the rows of one or more blocks.
        position: where their messages begin.
        length: bytes of their messages.
        kinds: what each number of the log's names stands for (`LogNames.kinds`).
    """
    if not covers(rows, position, length):
        return "its rows do not cover its messages"
    for field, kind in (("topic", NAME_TOPIC), ("session", NAME_SESSION)):
        numbers = rows[field]
        if int(numbers.max(initial=0)) >= len(kinds) or not (kinds[numbers] & kind).all():
            return f"a {field} of its rows has no name"
    return ""


def covers(rows: Rows, position: int, length: int) -> bool:
    """Returns whether the messages of rows follow each other without a gap and fill exactly this part of the data."""
    if not len(rows):
        return length == 0
    starts, sizes = np.ascontiguousarray(rows["position"]), np.ascontiguousarray(rows["length"])
    if int(starts[0]) != position or int(sizes.max()) > length:
        return False
    sizes = sizes + rows["headers"]  # 32 bits suffice: `length` is far below 2 GiB
    if int(starts[-1]) + int(sizes[-1]) != position + length:
        return False
    after = starts[1:]
    return bool((starts[:-1] <= after).all() and (after - starts[:-1] == sizes[:-1]).all())
