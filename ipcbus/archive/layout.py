"""Every byte of an archive, described once; numbers are little-endian.

An archive is a directory, with a log for each recorder that writes into it::

    archive.json                            id and format of the archive
    consumers/<group>.json                  cursors: what each consumer has dealt with
    <stream>/<partition>/                   a log; its partition number is unique in the archive
        lock                                held by the one process that writes the log
        names                               checksummed records: number and name of each topic and session
        watermark                           Watermark: the offset that follows the last published row
        <base offset, 20 digits>.idx        a segment: its Rows, one after the other
        <base offset, 20 digits>.dat        the bytes of its messages, one after the other
        <base offset, 20 digits>.blk        its Blocks: what was written in one go, with checksums

The row of offset `o` stands in the segment of the highest base up to `o`, at row `o - base`. Offsets of a log grow by
one a row and are never given twice. Where a segment does not begin at the offset that follows the one before it, the
offsets between are lost (a disk lost what had been published), and readers are told.

A row is a message, or a loss (LOSS_TYPES). A message's bytes are its header block (`headers` bytes, as
`wire.properties` describes them, mostly none) and then its value (`length` bytes); they begin at `position` of the
segment's data and end where those of the next row begin. A loss has no bytes::

     0          4          8          12         16         20      22     23     24
    +----------+----------+----------+----------+----------+-------+------+------+
    | position | length   | topic    | session  | numbers  |headers| flags| type |
    +----------+----------+----------+----------+----------+-------+------+------+----------+
    | sequence                       | send_ns                     | receive_ns             |
    +--------------------------------+-----------------------------+------------------------+ 48

`sequence` is `Message.sequence_number`, the last that the row spans, and `numbers` how many it spans: one for a
message, more for one that came in fragments, and for a loss all that was lost. `topic` and `session` are numbers of
the log's names. Times are ns since the epoch; `send_ns` is 0 where it is not known.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ringbuf import codegen

FORMAT = 1
"""Version of all this; a reader refuses another one by name."""

SEGMENT_BYTES_MAX = 2**31 - 2**16
"""Arrow's offsets are 32 bits wide, so a segment's data never grows to 2 GiB."""

TYPE_LOSS_RECORDER = 255
"""`type` of a loss that the recorder caused itself: it had no room. Other types are those of `MessageType`."""

TYPE_LOSS_DAMAGE = 254
"""`type` of what the repair of an archive took out: `numbers` rows of unknown topic (topic 0, session 0)."""

LOSS_TYPES = (4, 5, TYPE_LOSS_DAMAGE, TYPE_LOSS_RECORDER)
"""Types whose rows are losses: UNRECOVERABLE_LOSS and UNRECOVERABLE_LOSS_BURST of `MessageType`, and those above."""


def _struct(size: int, fields: list[tuple[str, str, int]]) -> np.dtype[np.void]:
    names, formats, offsets = zip(*fields, strict=True)
    return np.dtype({"names": list(names), "formats": list(formats), "offsets": list(offsets), "itemsize": size})


ROW = _struct(
    48,
    [
        ("position", "<u4", 0),
        ("length", "<u4", 4),
        ("topic", "<u4", 8),
        ("session", "<u4", 12),
        ("numbers", "<u4", 16),
        ("headers", "<u2", 20),
        ("flags", "u1", 22),
        ("type", "u1", 23),
        ("sequence", "<i8", 24),
        ("send_ns", "<i8", 32),
        ("receive_ns", "<i8", 40),
    ],
)

BLOCK = _struct(
    56,
    [
        ("first_row", "<u4", 0),
        ("rows", "<u4", 4),
        ("position", "<u4", 8),
        ("bytes", "<u4", 12),
        ("rows_crc", "<u4", 16),
        ("bytes_crc", "<u4", 20),
        ("first_receive_ns", "<i8", 24),
        ("last_receive_ns", "<i8", 32),
        ("losses", "<u4", 40),
        ("format", "<u4", 44),
        ("reserved", "<u4", 48),
        ("crc", "<u4", 52),  # of the 52 bytes before it
    ],
)

WATERMARK = _struct(
    64,
    [
        ("magic", "S8", 0),
        ("format", "<u4", 8),
        ("closed", "<u4", 12),  # 1 when the writer has ended in order
        ("next_offset", "<u8", 16),
        ("base", "<u8", 24),  # of the segment that is written
        ("rows", "<u8", 32),
        ("bytes", "<u8", 40),
        ("time_ns", "<u8", 48),  # when it was written
        ("reserved", "<u4", 56),
        ("crc", "<u4", 60),  # of the 60 bytes before it
    ],
)

WATERMARK_MAGIC = b"ipcbuswm"

STRUCTS = {"Row": ROW}
"""What compiled code writes; `_layout.pxd` is generated from it."""

CONSTANTS = {"TYPE_LOSS_RECORDER": TYPE_LOSS_RECORDER, "SEGMENT_BYTES_MAX": SEGMENT_BYTES_MAX}


def declarations() -> str:
    """The text of `_layout.pxd`."""
    return codegen.render("ipcbus.archive.layout", STRUCTS, CONSTANTS)


if __name__ == "__main__":
    codegen.main("ipcbus.archive.layout", Path(__file__).with_name("_layout.pxd"), declarations())
