"""The one description of all shared bytes that concern topics.

A datagram is the body of one ring record: messages one after the other, each on an 8-byte boundary::

     0               4               8                              16
    +---------------+---------------+------------------------------+-------------------+
    | length        | topic         | sequence                     | payload, padded   |
    +---------------+---------------+------------------------------+-------------------+

The low 24 bits of `topic` are the session's number of the topic, the high 8 bits are flags. A topic's number modulo
`topics_max` is the index of its line. A session never reuses a number, so that messages of a deleted topic cannot look
like those of a later topic on the same line.

A message that is larger than a datagram is sent as fragments. A fragment is a message with its own number and
FLAG_FRAGMENT, whose payload begins with a fragment header::

    0                              8               12             16
    +------------------------------+---------------+---------------+-------------------+
    | first number of the message  | offset        | total length  | piece, padded     |
    +------------------------------+---------------+---------------+-------------------+

The numbers of the fragments of a message follow one another, and all pieces except the last have the same length. So
one fragment tells which numbers the message spans, and which bytes each fragment carries. A source cuts a message into
as few pieces as its datagrams allow; their length is that of the message divided by their number, rounded up to a
multiple of 8. FLAG_TSNI marks topic sequence number info: it has no payload, and `sequence` is the number that the
topic's next message will have.

FLAG_PROPERTIES marks a message with headers: its bytes are a header block (see `wire.properties`), then its value. The
pieces of a message in fragments contain both, each fragment has the flag, and `total length` and `offset` count both.

FLAG_REQUEST marks a request: its bytes are a request header, which is the number of the request (64 bits), then the
header block if it has one, then its value. Pieces, `total length` and `offset` contain all of them, as with headers.
The sending context gives each request another number, and a response carries the number back over the control channel
of the session.

FLAG_GUARANTEED marks a guaranteed message: its bytes are a guaranteed header, then the header block if it has one, then
its value. The guaranteed header is the message's GMD number (64 bits), which counts the guaranteed messages of the
source from 1 on, one for each message, whatever its fragments. Pieces, `total length` and `offset` contain it, as with
requests; behind a request header it would come second::

    0                              8
    +------------------------------+--------------------------+-------------+
    | GMD number                   | header block, if any     | value       |
    +------------------------------+--------------------------+-------------+

FLAG_STAMPED marks a message with a stamp: 4 bytes behind its payload, which `length` does not count. A stamp is a time
since the begin of the datagram, in units of STAMP_NS, or the highest number for a longer time. The stamp of the first
message in a datagram says when the datagram was published; without a stamp it was published when it was begun. The
stamp of any other message says when the message was sent; without a stamp it was sent when the datagram was begun.
Messages have no stamps where each message is a datagram (LBT-SMX).

A source retains messages for receivers that come later, and sends them again, as entries one after the other::

     0                              8                                              24
    +------------------------------+----------------------------------------------+-------------------+
    | send time in ticks           | message header, without FLAG_STAMPED         | payload, padded   |
    +------------------------------+----------------------------------------------+-------------------+

The user area of the ring has one TopicLine for each topic, which the source writes. The user area of the control block
has one 64-bit word for each topic: bit i is set while the context in slot i receives the topic.
The last word on each topic stands at the end of the control block: 0, or, once the source has found its memory cut
short, one more than the number of the message that the topic would have sent next.

In a TopicLine `sequence_next` and `published` are a pair: the source copies the first to the second when it publishes
the datagram. `continued_next` and `continued` are such a pair, too. They count the fragments that are not the last one
of their message, so that `published - continued` is the number of whole messages that were published;
`continued_next + msgs_fragmented` is the number of fragments.

A session that also sends over UDP has a block behind its topic lines, for statistics, which it writes several times a
second at most::

    +-------------------+
    | UplinkBoard       |
    | ClientLine ...    |  CLIENTS_SHOWN lines
    | 64-bit words      |  one a topic: bit i is set while the client of line i receives it
    +-------------------+

A receiving context puts datagrams from UDP into a ring that has a ReceptionBoard in its user area. `version` of a
board is odd while the board is written, and 0 before it was written for the first time.

A context's registry object says what it publishes and receives::

    +-------------------+ 0
    | RegistryHeader    |
    +-------------------+ REGISTRY_HEADER.itemsize
    | RegistryEntry ... |  `entries` entries; the object grows in place
    +-------------------+

The entry of a recorder is a RecorderEntry, which has `state`, `since_ns` and `name` at the offsets of a RegistryEntry,
and numbers that the recorder writes several times a second.

`version` is odd while the owner changes an entry; a reader copies the registry again if `version` was odd or changed.

Run `python -m ipcbus.wire.wire_layout` after a change (`--check` only compares).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ipcbus.wire import transport_names
from ipcbus.wire.transport_names import OVER_UDP as OVER_UDP
from ipcbus.wire.transport_names import TRANSPORT_LBTIPC as TRANSPORT_LBTIPC
from ipcbus.wire.transport_names import TRANSPORT_LBTRM as TRANSPORT_LBTRM
from ipcbus.wire.transport_names import TRANSPORT_LBTRU as TRANSPORT_LBTRU
from ipcbus.wire.transport_names import TRANSPORT_LBTSMX as TRANSPORT_LBTSMX
from ipcbus.wire.transport_names import TRANSPORT_LBTTCP as TRANSPORT_LBTTCP
from ringbuf import codegen, layout
from ringbuf.layout import CACHE_LINE, struct

MESSAGE_HEADER_BYTES = 16
TOPIC_BITS = 24
TOPIC_MASK = (1 << TOPIC_BITS) - 1

FLAG_START_BATCH = 0x1
FLAG_END_BATCH = 0x2
FLAG_FRAGMENT = 0x4
FLAG_TSNI = 0x8
FLAG_PROPERTIES = 0x10
FLAG_STAMPED = 0x20
FLAG_REQUEST = 0x40
FLAG_GUARANTEED = 0x80

STAMP_BYTES = 4
STAMP_NS = 8
"""Unit of a stamp; the longest time of a stamp is 34 s."""

FRAGMENT_HEADER_BYTES = 16
REQUEST_HEADER_BYTES = 8
GUARANTEED_HEADER_BYTES = 8
RETAINED_HEADER_BYTES = 8 + MESSAGE_HEADER_BYTES
"""Bytes of a retained message before its payload."""

MESSAGE_MAX = 2**31 - 1
"""Longest message in bytes, fragmented or not."""

TOPIC_NAME_MAX = 255
"""Longest topic name in bytes of UTF-8, as in Ultra Messaging (topic < 256)."""

ENTRY_FREE = 0
ENTRY_SESSION = 1
ENTRY_SOURCE = 2
ENTRY_RECEIVER = 3
ENTRY_WILDCARD = 4
ENTRY_RECEPTION = 5
"""A session that the context receives over UDP: `local` belongs to the context's own ring, `context_id` and
`session_id` to the session, and `name` is its source string."""
ENTRY_RECORDER = 6
"""A recorder of the context, a RecorderEntry: `name` is the path of its log, or the end of a long path."""

CLIENTS_SHOWN = 64
"""Most clients of a session that its ring shows, for statistics."""

UPLINK = 0xFFFFFFFFFFFFFFFF
"""Context id in the slot of the reader that sends a session over UDP; not the id of a context."""

KIND_REGISTRY = 3

MESSAGE_HEADER = struct(MESSAGE_HEADER_BYTES, [("length", "<u4", 0), ("topic", "<u4", 4), ("sequence", "<u8", 8)])

FRAGMENT_HEADER = struct(FRAGMENT_HEADER_BYTES, [("first", "<u8", 0), ("offset", "<u4", 8), ("total", "<u4", 12)])

RETAINED_HEADER = struct(
    RETAINED_HEADER_BYTES,
    [("send_ticks", "<u8", 0), ("length", "<u4", 8), ("topic", "<u4", 12), ("sequence", "<u8", 16)],
)

TOPIC_LINE = struct(
    CACHE_LINE,
    [
        ("sequence_next", "<u8", 0),
        ("published", "<u8", 8),
        ("bytes_sent", "<u8", 16),
        ("topic", "<u4", 24),
        ("msgs_fragmented", "<u4", 28),
        ("send_blocked", "<u8", 32),
        ("send_would_block", "<u8", 40),
        ("continued_next", "<u8", 48),
        ("continued", "<u8", 56),
    ],
)

RESOLUTION_COUNTERS = (
    "tr_dgrams_sent",
    "tr_bytes_sent",
    "tr_dgrams_rcved",
    "tr_bytes_rcved",
    "tr_dgrams_dropped_ver",
    "tr_dgrams_dropped_type",
    "tr_dgrams_dropped_malformed",
    "tr_dgrams_send_failed",
    "tr_src_topics",
    "tr_rcv_topics",
    "tr_rcv_unresolved_topics",
    "dgrams_dropped_address",
    "dgrams_dropped_old",
    "dgrams_other_domain",
    "adverts_refused",
    "dgrams_dropped_seal",
)


REQUEST_COUNTERS = (
    "reqs_sent",
    "reqs_pending",
    "resps_rcved",
    "resps_late",
    "resps_unknown",
    "resps_sent",
    "resp_blocked",
    "resp_would_block",
    "resps_lost",
)

RECOVERY_COUNTERS = (
    "retained_bytes",
    "retransmissions_sent",
    "retransmission_bytes_sent",
    "retransmissions_rcved",
    "recoveries_running",
    "retransmissions_missing",
    "archived_rcved",
    "archive_faults",
)

GMD_COUNTERS = (
    "gmd_pending",
    "gmd_oldest_ns",
    "gmd_area_bytes",
    "gmd_acks_rcved",
    "gmd_failures",
)


def _words(offset: int, *names: str) -> list[tuple[str, str | tuple[Any, ...], int]]:
    """64-bit words, one after the other."""
    return [(name, "<u8", offset + 8 * place) for place, name in enumerate(names)]


REGISTRY_HEADER = struct(
    9 * CACHE_LINE,
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
        ("busy_wait", "<u4", 204),
        # the context's counters of topic resolution over the network, and of its seals, written once a second
        *_words(256, *RESOLUTION_COUNTERS),
        # its counters of requests and responses, of late join and off-transport recovery, and of guaranteed sources,
        # written once a second
        *_words(384, *REQUEST_COUNTERS, *RECOVERY_COUNTERS, *GMD_COUNTERS),
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
        ("context_id", "<u8", 48),
        ("retains", "<u4", 56),  # of a source: 1 where it keeps what it sent, so that receivers may ask for it
        ("name", "S256", 64),
        # a receiver's counters, written by its context while messages flow
        ("lbm_msgs_rcved", "<u8", 320),
        ("bytes_rcved", "<u8", 328),
        ("lost", "<u8", 336),
        ("events", "<u8", 344),
        ("callback_errors", "<u8", 352),
        ("fragments_rcved", "<u8", 360),
        ("gmd_identity", "<u8", 368),  # of a receiver with a gmd_name: a hash of the name; else 0
    ],
)

RECORDER_ENTRY = struct(
    REGISTRY_ENTRY.itemsize,
    [
        ("state", "<u4", 0),
        ("failing", "<u4", 4),  # 1 while writing to the disk fails
        ("shown_ns", "<u8", 8),  # monotonic clock: when the recorder wrote the numbers
        ("errors", "<u8", 16),
        ("buffer_bytes", "<u8", 24),
        ("missed", "<u8", 32),
        ("since_ns", "<u8", 40),
        ("name", "S256", 64),
        ("messages", "<u8", 320),
        ("bytes", "<u8", 328),
        ("losses", "<u8", 336),
        ("lost", "<u8", 344),
        ("dropped", "<u8", 352),
        ("buffered_bytes", "<u8", 360),
        ("behind_ns", "<u8", 368),
        ("next_offset", "<u8", 376),
    ],
)

_FRAMES = ("frames_sent", "frames_retransmitted", "frames_rcved")

_SOCKET = (
    "socket_dgrams_sent",
    "socket_bytes_sent",
    "socket_dgrams_rcved",
    "socket_bytes_rcved",
    "socket_send_blocked",
    "socket_send_refused",
    "socket_send_too_large",
    "socket_dgrams_truncated",
    "socket_dgrams_lost",
    "socket_dgrams_overrun",
    "socket_tls_failed",
    "unknown_msgs_rcved",
)


UPLINK_BOARD = struct(
    8 * CACHE_LINE,
    [
        ("version", "<u8", 0),
        ("transport", "<u4", 8),
        ("active", "<u4", 12),
        ("clients_max", "<u8", 16),
        ("data_rate", "<u8", 24),
        ("retransmit_rate", "<u8", 32),
        ("limited_since", "<u8", 40),
        ("source_paced", "<u4", 48),
        ("slowest", "<u8", 56),
        *_words(
            CACHE_LINE,
            *("num_clients", "clients_silent", "clients_refused", "clients_evicted", "lead", "trail", "txw_msgs"),
            "txw_bytes",
            *("rctlr_data_msgs", "rctlr_rx_msgs", "rate_limited_ns", "msgs_sent", "bytes_sent", "rxs_sent"),
            *("rx_bytes_sent", "nak_pckts_rcved", "naks_rcved", "naks_ignored", "naks_shed", "naks_rx_delay_ignored"),
            *("naks_too_old", "ncfs_sent", "sms_sent", "dgrams_dropped_malformed", "dgrams_dropped_sid"),
            *("dgrams_dropped_unproven", "dgrams_filtered", *_FRAMES, "links_refused", *_SOCKET, "bytes_buffered"),
        ),
    ],
)

CLIENT_LINE = struct(
    2 * CACHE_LINE,
    [
        ("context_id", "<u8", 0),
        ("since_ns", "<u8", 8),
        ("behind", "<u8", 16),
        ("pid", "<u4", 24),
        ("used", "<u4", 28),
        ("context_name", "S32", 32),
        ("address", "S64", 64),
    ],
)

RECEPTION_BOARD = struct(
    17 * CACHE_LINE,
    [
        ("version", "<u8", 0),
        ("transport", "<u4", 8),
        ("state", "S16", 16),
        *_words(
            CACHE_LINE,
            *("lead", "missing", "msgs_rcved", "bytes_rcved", "lost", "nak_pckts_sent", "naks_sent", "ncfs_ignored"),
            *("ncfs_shed", "ncfs_rx_delay", "ncfs_unknown", "nak_stm_min", "nak_stm_mean", "nak_stm_max"),
            *("nak_tx_min", "nak_tx_mean", "nak_tx_max", "duplicate_data", "out_of_order", "late"),
            *("unrecovered_txw", "unrecovered_tmo"),
            *("unrecovered_full", "dgrams_shed", "dgrams_dropped_size", "dgrams_dropped_type"),
            *("dgrams_dropped_version", "dgrams_dropped_hdr", "dgrams_dropped_sid", "dgrams_dropped_other"),
            *("connects_sent", "acks_sent", "resets_rcved", "dgrams_filtered", *_FRAMES, *_SOCKET),
            "evictions_rcved",
        ),
        ("address", "S64", 8 * CACHE_LINE),
        ("reason", "S512", 9 * CACHE_LINE),
    ],
)

STRUCTS = {
    "MessageHeader": MESSAGE_HEADER,
    "FragmentHeader": FRAGMENT_HEADER,
    "RetainedHeader": RETAINED_HEADER,
    "TopicLine": TOPIC_LINE,
    "RegistryHeader": REGISTRY_HEADER,
    "RegistryEntry": REGISTRY_ENTRY,
    "RecorderEntry": RECORDER_ENTRY,
    "UplinkBoard": UPLINK_BOARD,
    "ClientLine": CLIENT_LINE,
    "ReceptionBoard": RECEPTION_BOARD,
}

CONSTANTS = codegen.constants(
    globals(), without=(*vars(transport_names), "CACHE_LINE", "TOPIC_NAME_MAX", "UPLINK", "KIND_REGISTRY")
)

LAYOUT_ID = codegen.layout_id({**layout.STRUCTS, **STRUCTS}, {**layout.CONSTANTS, **CONSTANTS})
"""The layout id in each registry; it covers the ring's layout, so that a mismatch shows before a ring is opened."""


def uplink_bytes(topics_max: int) -> int:
    """Returns the size in bytes of the block behind the topic lines of a session that sends over UDP."""
    return UPLINK_BOARD.itemsize + CLIENTS_SHOWN * CLIENT_LINE.itemsize + 8 * topics_max


def registry_view(buffer: memoryview) -> np.ndarray[tuple[()], np.dtype[np.void]]:
    """Returns the header of a mapped registry as a 0-d structured array, without a copy."""
    return np.frombuffer(buffer, REGISTRY_HEADER, 1).reshape(())


def registry_bytes(entries: int) -> int:
    """Returns the size of a registry in bytes, a multiple of the page."""
    return layout.round_up(REGISTRY_HEADER.itemsize + entries * REGISTRY_ENTRY.itemsize, layout.PAGE)


if __name__ == "__main__":
    declarations = codegen.render("ipcbus.wire.wire_layout", STRUCTS, CONSTANTS)
    codegen.main("ipcbus.wire.wire_layout", {Path(__file__).with_name("_wire_layout.pxd"): declarations})
