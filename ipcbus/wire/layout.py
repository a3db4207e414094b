"""Every shared byte that knows about topics, described once.

A datagram is one ring record's body: messages one after the other, each on an 8-byte boundary::

     0               4               8                              16
    +---------------+---------------+------------------------------+-------------------+
    | length        | topic         | sequence                     | payload, padded   |
    +---------------+---------------+------------------------------+-------------------+

`topic` holds the session's number of the topic in its low 24 bits and the flags in its high 8. A topic's number
modulo `topics_max` is its line; the number itself is never given twice, so that messages of a deleted topic cannot be
taken for those of a later one on the same line.

A message larger than a datagram is sent as fragments, each a message with a number of its own and FLAG_FRAGMENT, whose
payload begins with a fragment header::

    0                              8               12             16
    +------------------------------+---------------+---------------+-------------------+
    | first number of the message  | offset        | total length  | piece, padded     |
    +------------------------------+---------------+---------------+-------------------+

Its numbers follow one another, and every piece but the last has the same length; so one fragment tells which numbers
the message spans, and which bytes each of them carries. FLAG_TSNI marks topic sequence number info: no payload, and
in `sequence` the number that the topic's next message will have.

The ring's user area holds one TopicLine a topic, written by the source. The control block's user area holds one
64-bit word a topic: bit i is set while the context in slot i receives the topic.

A context's registry object says what it publishes and receives::

    +-------------------+ 0
    | RegistryHeader    |
    +-------------------+ REGISTRY_HEADER.itemsize
    | RegistryEntry ... |  `entries` of them; the object grows in place
    +-------------------+

`version` is odd while the owner changes an entry; a reader copies, and copies again if it was odd or has changed.

Run `python -m ipcbus.wire.layout` after a change (`--check` only compares).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ringbuf import codegen, layout
from ringbuf.layout import CACHE_LINE, struct

MESSAGE_HEADER_BYTES = 16
TOPIC_BITS = 24
TOPIC_MASK = (1 << TOPIC_BITS) - 1

FLAG_START_BATCH = 0x1
FLAG_END_BATCH = 0x2
FLAG_FRAGMENT = 0x4
FLAG_TSNI = 0x8

FRAGMENT_HEADER_BYTES = 16
MESSAGE_MAX = 2**31 - 1
"""Longest message in bytes, fragmented or not."""

TOPIC_NAME_MAX = 255
"""Longest topic name in bytes of UTF-8, as in Ultra Messaging (topic < 256)."""

ENTRY_FREE = 0
ENTRY_SESSION = 1
ENTRY_SOURCE = 2
ENTRY_RECEIVER = 3
ENTRY_WILDCARD = 4

TRANSPORT_LBTIPC = 1
TRANSPORT_LBTSMX = 2
TRANSPORT_LBTRU = 3
TRANSPORT_LBTRM = 4

KIND_REGISTRY = 3

MESSAGE_HEADER = struct(MESSAGE_HEADER_BYTES, [("length", "<u4", 0), ("topic", "<u4", 4), ("sequence", "<u8", 8)])

FRAGMENT_HEADER = struct(FRAGMENT_HEADER_BYTES, [("first", "<u8", 0), ("offset", "<u4", 8), ("total", "<u4", 12)])

TOPIC_LINE = struct(
    CACHE_LINE,
    [
        ("sequence_next", "<u8", 0),
        ("published", "<u8", 8),
        ("bytes_sent", "<u8", 16),
        ("topic", "<u4", 24),
        ("live", "<u4", 28),
        ("send_blocked", "<u8", 32),
        ("send_would_block", "<u8", 40),
    ],
)

REGISTRY_HEADER = struct(
    4 * CACHE_LINE,
    [
        ("magic", "<u8", 0),
        ("layout_id", "<u4", 8),
        ("kind", "<u4", 12),
        ("context_id", "<u8", 16),
        ("pid", "<u4", 24),
        ("uid", "<u4", 28),
        ("start_ns", "<u8", 32),
        ("context_name", "S32", 40),
        ("domain", "S64", 72),
        ("release", "S16", 136),
        ("version", "<u8", 192),
        ("entries", "<u4", 200),
    ],
)

REGISTRY_ENTRY = struct(
    6 * CACHE_LINE,
    [
        ("state", "<u4", 0),
        ("transport", "<u4", 4),
        ("session_id", "<u4", 8),
        ("transport_id", "<u4", 12),
        ("local", "<u4", 16),
        ("topic", "<u4", 20),
        ("window", "<u8", 24),
        ("pacing", "<u4", 32),
        ("topics_max", "<u4", 36),
        ("since_ns", "<u8", 40),
        ("name", "S256", 64),
        # a receiver's counters, written by its context while messages flow
        ("lbm_msgs_rcved", "<u8", 320),
        ("bytes_rcved", "<u8", 328),
        ("lost", "<u8", 336),
        ("events", "<u8", 344),
        ("callback_errors", "<u8", 352),
    ],
)

STRUCTS = {
    "MessageHeader": MESSAGE_HEADER,
    "FragmentHeader": FRAGMENT_HEADER,
    "TopicLine": TOPIC_LINE,
    "RegistryHeader": REGISTRY_HEADER,
    "RegistryEntry": REGISTRY_ENTRY,
}

CONSTANTS = {
    name: globals()[name]
    for name in [
        "MESSAGE_HEADER_BYTES",
        "TOPIC_BITS",
        "TOPIC_MASK",
        "FLAG_START_BATCH",
        "FLAG_END_BATCH",
        "FLAG_FRAGMENT",
        "FLAG_TSNI",
        "FRAGMENT_HEADER_BYTES",
        "MESSAGE_MAX",
        "ENTRY_FREE",
        "ENTRY_SESSION",
        "ENTRY_SOURCE",
        "ENTRY_RECEIVER",
        "ENTRY_WILDCARD",
    ]
}

LAYOUT_ID = codegen.layout_id({**layout.STRUCTS, **STRUCTS}, {**layout.CONSTANTS, **CONSTANTS})
"""Stands in every registry; covers the ring's layout too, so that a mismatch is told before a ring is opened."""


def registry_view(buffer: memoryview) -> np.ndarray[tuple[()], np.dtype[np.void]]:
    """The header of a mapped registry as a 0-d structured array, without a copy."""
    return np.frombuffer(buffer, REGISTRY_HEADER, 1).reshape(())


def registry_bytes(entries: int) -> int:
    """Size in bytes of a registry with so many entries, a multiple of the page."""
    return layout.round_up(REGISTRY_HEADER.itemsize + entries * REGISTRY_ENTRY.itemsize, layout.PAGE)


if __name__ == "__main__":
    codegen.main(
        "ipcbus.wire.layout",
        Path(__file__).with_name("_layout.pxd"),
        codegen.render("ipcbus.wire.layout", STRUCTS, CONSTANTS),
    )
