"""Every byte of the journal of a sender's GMD area, described once; numbers are little-endian.

The directory of an area contains::

    lock                     locked by the one process that writes the area, with its pid
    area                     a checksummed record (`ipcbus.storage.records`): who the sender is, in JSON
    <serial, 16 digits>.gmd  the segments; the serial counts from 1 on
    spare                    room on the disk for the next segment

A segment is a head and then records, without a gap, an end mark, and maybe zeros. The part of a segment up to
`checkpoint_end` is written and synced before the segment gets its name::

     0          8             16       24     32        48               56         60    64
    +----------+-------------+--------+------+---------+----------------+----------+-----+
    | magic    | incarnation | serial | base | boot    | checkpoint_end | capacity | crc |
    +----------+-------------+--------+------+---------+----------------+----------+-----+

A record is a head, its body, and zeros up to a multiple of 8 bytes::

     0       4          8          12       16     17     18       20      24       32      40      48
    +-------+----------+----------+--------+------+------+--------+-------+--------+-------+-------+
    | magic | head_crc | body_crc | length | kind | mode | block  | stamp | number | first | second|
    +-------+----------+----------+--------+------+------+--------+-------+--------+-------+-------+
    | body: `length` bytes, then zeros                                                             |
    +----------------------------------------------------------------------------------------------+

An end mark is written with each record, behind it, and the next record overwrites it::

     0       4       8
    +-------+-------+
    | stamp | magic |
    +-------+-------+

Its last byte is not 0, so it shows where the file was written last, and that this was written whole.

`head_crc` covers the head from `body_crc` on, and `body_crc` the body with its zeros; checksums are CRC-32C. `stamp` is
the stamp of the segment, which follows from its incarnation and serial, XOR the offset divided by 8, of a record as of
an end mark. So a
record is valid at one place of one segment of one area only, and the bytes of an earlier use of the disk are not taken
for records. A message has `block` bytes of headers. `number` is the number of the message; in other records it is the
highest number that was given before.

| kind | first | second | body |
|---|---|---|---|
| MESSAGE: a message that was saved | send time, in ns since the epoch | place in its topic | header block, value |
| COPY: a message, copied from an older segment | send time | place | header block, value |
| NOTE: a note of the sender's state machine | 0 | 0 | the note |
| RELEASE: messages that are not needed any more | first number | last number | |
| SYNCED: what was synced before this record was written | offset in this segment | 0 | |
| CHECKPOINT: the state of the area when the segment began | 0 | 0 | see below |

The records up to `checkpoint_end` are CHECKPOINT, the NOTEs of the whole state, COPYs, and the same CHECKPOINT again.
The body of a CHECKPOINT is a CHECKPOINT_HEAD and then three lists: OLDER_SEGMENT for each older segment that is still
needed, RUN for each run of numbers that are not released, and RUN for each run of numbers whose copies are lost, until
the sender's state machine has dealt with them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from ringbuf import codegen


def _struct(size: int, fields: list[tuple[str, str, int]]) -> np.dtype[np.void]:
    names, formats, offsets = zip(*fields, strict=True)
    return np.dtype({"names": list(names), "formats": list(formats), "offsets": list(offsets), "itemsize": size})


SEGMENT_HEAD: Final = _struct(
    64,
    [
        ("magic", "S8", 0),
        ("incarnation", "<u8", 8),
        ("serial", "<u8", 16),
        ("base", "<u8", 24),  # the number of the first message that is saved in this segment
        ("boot", "V16", 32),  # Files.boot_id when the segment was made
        ("checkpoint_end", "<u8", 48),
        ("capacity", "<u4", 56),  # the segment ends before this offset, unless it holds one message only
        ("crc", "<u4", 60),  # of the 60 bytes before it
    ],
)

SEGMENT_MAGIC: Final = b"ipcbgmd"
"""The character that follows is the version of the layout."""
VERSION: Final = 2
"""What is written. Version 1, which is read too, has no end marks, and its files end where the records do."""

RECORD_HEAD: Final = _struct(
    48,
    [
        ("magic", "<u4", 0),
        ("head_crc", "<u4", 4),
        ("body_crc", "<u4", 8),
        ("length", "<u4", 12),
        ("kind", "u1", 16),
        ("mode", "u1", 17),
        ("block", "<u2", 18),
        ("stamp", "<u4", 20),
        ("number", "<u8", 24),
        ("first", "<u8", 32),
        ("second", "<u8", 40),
    ],
)

RECORD_MAGIC: Final = 0x47D3A6C5
HEAD_BYTES: Final = RECORD_HEAD.itemsize
END_MARK: Final = _struct(8, [("stamp", "<u4", 0), ("magic", "<u4", 4)])
END_MAGIC: Final = 0x6D9B3E57
END_BYTES: Final = END_MARK.itemsize
BODY_MAX: Final = 1 << 30
"""Most bytes of a body; a greater length is damage."""

KIND_MESSAGE: Final = 1
KIND_COPY: Final = 2
KIND_NOTE: Final = 3
KIND_RELEASE: Final = 4
KIND_SYNCED: Final = 5
KIND_CHECKPOINT: Final = 6

CHECKPOINT_HEAD: Final = _struct(
    24,
    [
        ("last_number", "<u8", 0),
        ("older", "<u4", 8),  # entries of each list
        ("unreleased", "<u4", 12),
        ("missing", "<u4", 16),
        ("zero", "<u4", 20),
    ],
)

OLDER_SEGMENT: Final = _struct(
    24,
    [
        ("serial", "<u8", 0),
        ("end", "<u8", 8),  # its good records end there
        ("synced", "<u8", 16),  # its bytes before this offset were synced
    ],
)

RUN: Final = _struct(16, [("first", "<u8", 0), ("last", "<u8", 8)])

STRUCTS = {"RecordHead": RECORD_HEAD, "EndMark": END_MARK}
"""The structs that compiled code uses; `_journal_layout.pxd` is generated from them."""

CONSTANTS = {
    "RECORD_MAGIC": RECORD_MAGIC,
    "HEAD_BYTES": HEAD_BYTES,
    "END_MAGIC": END_MAGIC,
    "END_BYTES": END_BYTES,
    "BODY_MAX": BODY_MAX,
    "KIND_MESSAGE": KIND_MESSAGE,
    "KIND_COPY": KIND_COPY,
    "KIND_NOTE": KIND_NOTE,
    "KIND_RELEASE": KIND_RELEASE,
    "KIND_SYNCED": KIND_SYNCED,
    "KIND_CHECKPOINT": KIND_CHECKPOINT,
}


def declarations() -> str:
    """Returns the text of `_journal_layout.pxd`."""
    return codegen.render("ipcbus.gmd.journal_layout", STRUCTS, CONSTANTS)


if __name__ == "__main__":
    codegen.main("ipcbus.gmd.journal_layout", {Path(__file__).with_name("_journal_layout.pxd"): declarations()})
