"""Every byte of an archive, described once; numbers are little-endian.

An archive is a directory, with a log for each stream that is recorded into it::

    archive.json                            id and format of the archive
    consumers/<group>.json                  cursors: what each consumer has dealt with
    partitions/<partition>                  whose log has this number: the name of its stream
    <stream>/lock                           held by the one process that writes the log of the stream
    <stream>/<partition>/                   the log
        names                               checksummed records: number and name of each topic and session
        gone.json                           what of the log is gone, and why (`ipcbus.archive.removed_offsets`)
        watermark                           Watermark: the offset that follows the last published row
        <base offset, 20 digits>.dat        a segment: the bytes of its messages, one after the other
        <base offset, 20 digits>.idx        its Rows, one after the other
        <base offset, 20 digits>.blk        its Blocks: what was written in one go, with checksums

The row of offset `o` stands in the segment of the highest base up to `o`, at row `o - base`. Offsets of a log grow by
one a row and are never given twice. Where a segment does not begin at the offset that follows the one before it, the
offsets between are gone, and readers are told: in a hole that a power loss left, if gone.json names it, else because
somebody or something took a segment away. A segment is there when its `.blk` is: that file is made last and removed
first.

A row is a message, or a loss (LOSS_TYPES). A message's bytes are its header block (`headers` bytes, as
`wire.properties` describes them, mostly none) and then its value (`length` bytes); they begin at `position` of the
segment's data and end where those of the next row of the same block begin. A loss has no bytes::

     0          4          8          12         16         20      22     23     24
    +----------+----------+----------+----------+----------+-------+------+------+
    | position | length   | topic    | session  | numbers  |headers| flags| type |
    +----------+----------+----------+----------+----------+-------+------+------+----------+
    | sequence                       | send_ns                     | receive_ns             |
    +--------------------------------+-----------------------------+------------------------+ 48

`sequence` is `Message.sequence_number`, the last that the row spans, and `numbers` how many it spans: one for a
message, more for one that came in fragments, and for a loss all that was lost. Of a message of one number that bit
BATCH_WAIT is set says that its wait in the batch is known, and the 31 bits below are that wait in units of
BATCH_WAIT_NS: the time from its sending to the publication of its datagram. `topic` and `session` are numbers of
the log's names, which both kinds share; 0 is none. Times are ns since the epoch; `send_ns` is 0 where it is not known.

A block covers `rows` rows from `first_offset` on, and `bytes` bytes of data from `position` on; blocks follow each
other without a gap in offsets, and without overlap in bytes::

     0              8      12         16      20         24          28       32
    +--------------+------+----------+-------+----------+-----------+--------+
    | first_offset | rows | position | bytes | rows_crc | bytes_crc | losses |
    +--------------+------+----------+-------+----------+-----------+--------+--------+-----+
    | lost         | first_receive_ns        | last_receive_ns                | format | crc |
    +--------------+-------------------------+--------------------------------+--------+-----+ 64

Checksums are CRC-32 as zlib computes it. The watermark file holds one Watermark three times, at WATERMARK_AT: first the
one that readers read, written after each block; then, written in turns, what was true when all before it had been
synced: at least one of these two survives whatever a power loss does to the other.

A record of `names` (`storage.records`) holds the names that became known in one go, each as NAME and its text in UTF-8.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ipcbus.message import MessageType
from ringbuf import codegen

FORMAT = 2
"""Version of all this that is written; a reader refuses by name what is not among FORMATS."""

FORMATS = (1, 2)
"""Versions that are read. Format 1 has no waits in the batch; all else is as in format 2."""

SEGMENT_BYTES_MAX = 2**31 - 2**16
"""Arrow's offsets are 32 bits wide, so a segment's data never grows to 2 GiB."""

OFFSET_END = 2**62
"""Offsets are below; what says otherwise lies."""

BLOCK_BYTES_MAX = 2**26
"""Bytes of rows, and of messages, in one block, unless it is a single message: what a reader has to hold at once."""

TYPE_LOSS_RECORDER = 255
"""`type` of a loss that the recorder caused itself: it had no room, or was away. Others are those of `MessageType`."""

TYPE_LOSS_DAMAGE = 254
"""`type` of what the repair of an archive took out: `numbers` rows of unknown topic (topic 0, session 0)."""

LOSS_TYPES = (
    int(MessageType.UNRECOVERABLE_LOSS),
    int(MessageType.UNRECOVERABLE_LOSS_BURST),
    TYPE_LOSS_DAMAGE,
    TYPE_LOSS_RECORDER,
)
"""Types of the rows that are losses."""


BATCH_WAIT_BIT = 31

BATCH_WAIT = 1 << BATCH_WAIT_BIT
"""Bit of `numbers` of a message that says: one number, and the lower bits are the message's wait in the batch."""

BATCH_WAIT_NS = 16
"""Unit of that wait; so it reaches to 34 s, as stamps do. A longer one shows as that."""


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
    64,
    [
        ("first_offset", "<u8", 0),
        ("rows", "<u4", 8),
        ("position", "<u4", 12),
        ("bytes", "<u4", 16),
        ("rows_crc", "<u4", 20),
        ("bytes_crc", "<u4", 24),
        ("losses", "<u4", 28),  # rows that are losses
        ("lost", "<u8", 32),  # the sum of their numbers
        ("first_receive_ns", "<i8", 40),  # the least of its rows
        ("last_receive_ns", "<i8", 48),  # the greatest
        ("format", "<u4", 56),
        ("crc", "<u4", 60),  # of the 60 bytes before it
    ],
)

WATERMARK = _struct(
    96,
    [
        ("magic", "S8", 0),
        ("format", "<u4", 8),
        ("closed", "<u4", 12),  # 1 when the writer has ended in order
        ("next_offset", "<u8", 16),
        ("limit", "<u8", 24),  # no offset from here on was given before this was synced
        ("base", "<u8", 32),  # of the segment that is written; next_offset when it has no row yet
        ("bytes", "<u8", 40),  # of its data
        ("blocks", "<u4", 48),  # of its blocks
        ("names", "<u4", 52),  # the highest number of a name
        ("time_ns", "<u8", 56),  # when it was written
        ("boot", "V16", 64),  # Files.boot_id of the writer: while it is the same, no power was lost
        ("serial", "<u8", 80),  # grows with each that is written after a sync
        ("gone", "<u4", 88),  # 1 where the writer keeps gone.json
        ("crc", "<u4", 92),  # of the 92 bytes before it
    ],
)

WATERMARK_MAGIC = b"ipcbuswm"

WATERMARK_AT = (0, 512, 1024)
"""Where the three stand in their file: no two in one sector, which a disk writes as a whole."""

NAME = _struct(
    12,
    [
        ("number", "<u4", 0),
        ("kind", "<u4", 4),
        ("length", "<u4", 8),
    ],
)

NAME_TOPIC = 1
NAME_SESSION = 2

STRUCTS = {"Row": ROW}
"""What compiled code writes; `_archive_layout.pxd` is generated from it."""

CONSTANTS = {
    **{f"TYPE_{kind.name}": int(kind) for kind in MessageType},
    "TYPE_LOSS_RECORDER": TYPE_LOSS_RECORDER,
    "SEGMENT_BYTES_MAX": SEGMENT_BYTES_MAX,
    "BATCH_WAIT_BIT": BATCH_WAIT_BIT,
    "BATCH_WAIT_NS": BATCH_WAIT_NS,
}


def formats_read() -> str:
    """Returns the formats that are read, for texts."""
    return f"formats {FORMATS[0]} to {FORMATS[-1]}"


def declarations() -> str:
    """Returns the text of `_archive_layout.pxd`."""
    return codegen.render("ipcbus.archive.archive_layout", STRUCTS, CONSTANTS)


if __name__ == "__main__":
    codegen.main("ipcbus.archive.archive_layout", Path(__file__).with_name("_archive_layout.pxd"), declarations())
