"""Every byte of an archive, described once; numbers are little-endian.

An archive is a directory, with a log for each stream that is recorded into it::

    archive.json                            id and format of the archive
    consumers/<group>.json                  cursors: up to where each consumer has read
    partitions/<partition>                  the name of the stream whose log has this number
    <stream>/lock                           locked by the one process that writes the log of the stream
    <stream>/recording.json                 the topics that this process records (`ipcbus.archive.recorded_topics`)
    <stream>/<partition>/                   the log
        names                               checksummed records: number and name of each topic and session
        gone.json                           which offsets the log lost, and why (`ipcbus.archive.removed_offsets`)
        watermark                           Watermark: the offset that follows the last published row
        <base offset, 20 digits>.dat        a segment: the bytes of the messages, one after the other
        <base offset, 20 digits>.idx        the rows of the segment, one after the other
        <base offset, 20 digits>.blk        the records of its blocks (a block is written in one go), with checksums

The row of offset `o` stands in the segment of the highest base up to `o`, at row `o - base`. Each row has the offset of
the row before it plus one, and no offset is given twice. Where a segment does not begin at the end of the segment
before it, the offsets between are lost, and readers get an error or a callback: gone.json names the holes that power
losses left; in every other gap a segment was removed by hand or by a fault. A segment exists while its `.blk` exists:
that file is made last and removed first.

A row is a message, or a loss (LOSS_TYPES). A message's bytes are its header block (`headers` bytes, as
`wire.properties` describes them, often 0) and then its value (`length` bytes); they begin at `position` of the
segment's data and end where the bytes of the next row of the block begin. A loss has no bytes::

     0          4          8          12         16         20      22     23     24
    +----------+----------+----------+----------+----------+-------+------+------+
    | position | length   | topic    | session  | numbers  |headers| flags| type |
    +----------+----------+----------+----------+----------+-------+------+------+----------+
    | sequence                       | send_ns                     | receive_ns             |
    +--------------------------------+-----------------------------+------------------------+ 48

`flags` are the low eight bits of `Message.flags`: batch marks, late join (0x8), fragment with headers. A row does not
say whether off-transport recovery or guaranteed delivery brought its message. A request is a row of type DATA with flag
0x40: for a reader of the archive it is a message like any other, with its value. The number that a response to it would
carry is not recorded.

`sequence` is `Message.sequence_number`, the last sequence number that the row spans, and `numbers` says how many the
row spans: one for a message, more for a message that came in fragments, all lost ones for a loss, and 0 for a BOS or
EOS. A BOS row has -2 minus the number of the topic in its session as `sequence`, so that a topic which began again in
the session differs from the one before; -1 stands for an unknown number, and an EOS row has -1. The messages and losses
of a topic name and a session are of the topic number of the last BOS row before them: a recorder writes that row again
where they come in another order than the beginnings. An EOS row may stand anywhere. Where a message
has one sequence number, bit BATCH_WAIT of `numbers` says that the wait in the batch is known, and the 31 bits below are
that wait in units of BATCH_WAIT_NS: the time from the send to the publication of the datagram. `topic` and `session`
are numbers of the log's names; topics and sessions share one numbering, and 0 stands for no name. Times are ns since
the epoch; `send_ns` is 0 where the send time is not known.

A block covers `rows` rows from `first_offset` on, and `bytes` bytes of data from `position` on; blocks follow each
other without a gap in offsets, and without overlap in bytes::

     0              8      12         16      20         24          28       32
    +--------------+------+----------+-------+----------+-----------+--------+
    | first_offset | rows | position | bytes | rows_crc | bytes_crc | losses |
    +--------------+------+----------+-------+----------+-----------+--------+--------+-----+
    | lost         | first_receive_ns        | last_receive_ns                | format | crc |
    +--------------+-------------------------+--------------------------------+--------+-----+ 64

Checksums are CRC-32 as zlib computes it. The watermark file holds three copies of the Watermark, at WATERMARK_AT.
Readers read the first copy, which is written after each block. The other two are written in turns after a sync, and say
what was synced: at least one of them survives a power loss.

A record of `names` (`storage.records`) holds the names that were added in one go, each as NAME and its text in UTF-8.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ipcbus.message import MessageType
from ringbuf import codegen

FORMAT = 2
"""The version of this layout that is written; readers refuse versions that are not among FORMATS."""

FORMATS = (1, 2)
"""Versions that can be read. Format 1 has no waits in the batch, and is otherwise like format 2."""

SEGMENT_BYTES_MAX = 2**31 - 2**16
"""Arrow's offsets are 32 bits wide, so a segment's data never grows to 2 GiB."""

REQUEST_FLAG = 0x40
"""Flag of a message that was sent as a request."""

OFFSET_END = 2**62
"""All offsets are below this; a larger one is damage."""

BLOCK_BYTES_MAX = 2**26
"""Limit of the bytes of rows and of messages in one block, which a reader holds in memory; one message may exceed
it."""

TYPE_LOSS_RECORDER = 255
"""`type` of a loss by the recorder: it had no memory, or did not run. The other types are those of `MessageType`."""

TYPE_LOSS_DAMAGE = 254
"""`type` of a loss that a repair of the archive wrote, of unknown topic (topic 0, session 0).

It stands in place of a message that spans `numbers` sequence numbers, or, with `numbers` 1, of a row that could not be
read.
"""

LOSS_TYPES = (
    int(MessageType.UNRECOVERABLE_LOSS),
    int(MessageType.UNRECOVERABLE_LOSS_BURST),
    TYPE_LOSS_DAMAGE,
    TYPE_LOSS_RECORDER,
)
"""Types of the rows that are losses."""


BATCH_WAIT_BIT = 31

BATCH_WAIT = 1 << BATCH_WAIT_BIT
"""Bit of `numbers`: the message has one sequence number, and the lower bits are its wait in the batch."""

BATCH_WAIT_NS = 16
"""Unit of that wait in ns. The longest wait is 34 s, as in stamps; a longer wait shows as 34 s."""

AGAIN_NS = 10_000_000
"""A topic began again in its session if a number that is not higher was sent this much later."""

CLOCK_SKEW_MAX_NS = 1_000_000_000
"""The most by which the clocks of two hosts are taken to differ."""


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
        ("first_receive_ns", "<i8", 40),  # the least receive time of its rows
        ("last_receive_ns", "<i8", 48),  # the greatest receive time
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
        ("limit", "<u8", 24),  # no offset from here on was given before this was on the disk
        ("base", "<u8", 32),  # of the segment that is written; next_offset when it has no row yet
        ("bytes", "<u8", 40),  # published bytes of its data
        ("blocks", "<u4", 48),  # published blocks in it
        ("names", "<u4", 52),  # the highest number of a name
        ("time_ns", "<u8", 56),  # when it was written
        ("boot", "V16", 64),  # Files.boot_id of the writer: it changes with each power loss
        ("serial", "<u8", 80),  # grows with each copy that is written after a sync
        ("gone", "<u4", 88),  # 1 where the writer keeps gone.json
        ("crc", "<u4", 92),  # of the 92 bytes before it
    ],
)

WATERMARK_MAGIC = b"ipcbuswm"

WATERMARK_AT = (0, 512, 1024)
"""Places of the three copies in their file: no two in one sector, which a disk writes as a whole."""

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
"""The structs that compiled code writes; `_archive_layout.pxd` is generated from them."""

CONSTANTS = {
    **{f"TYPE_{kind.name}": int(kind) for kind in MessageType},
    "TYPE_LOSS_RECORDER": TYPE_LOSS_RECORDER,
    "REQUEST_FLAG": REQUEST_FLAG,
    "SEGMENT_BYTES_MAX": SEGMENT_BYTES_MAX,
    "BATCH_WAIT_BIT": BATCH_WAIT_BIT,
    "BATCH_WAIT_NS": BATCH_WAIT_NS,
    "AGAIN_NS": AGAIN_NS,
    "CLOCK_SKEW_MAX_NS": CLOCK_SKEW_MAX_NS,
}


def formats_read() -> str:
    """Returns the formats that can be read, for error texts."""
    return f"formats {FORMATS[0]} to {FORMATS[-1]}"


def declarations() -> str:
    """Returns the text of `_archive_layout.pxd`."""
    return codegen.render("ipcbus.archive.archive_layout", STRUCTS, CONSTANTS)


if __name__ == "__main__":
    codegen.main("ipcbus.archive.archive_layout", {Path(__file__).with_name("_archive_layout.pxd"): declarations()})
