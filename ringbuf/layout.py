"""The layout of all bytes that processes share through a ring.

A transport session is two shared objects::

    ring      the owner writes it, all others map it read-only
    +----------------------+ 0
    | RingHeader           |  constants; the writer's words, in cache lines by use
    +----------------------+ user_offset
    | user area            |  for the layer above (one line a topic)
    +----------------------+ data_offset (a multiple of the page size)
    | data, `capacity`     |  records; mapped twice in a row, so a record never wraps
    +----------------------+

    control   the owner and the receivers write it
    +----------------------+ 0
    | ControlHeader        |  constants; parked readers; whether the writer waits
    +----------------------+ user_offset
    | user area            |  for the layer above: 64-bit words, bit i of each belongs to slot i
    +----------------------+ slots_offset
    | Slot 0 .. slots_max  |  one for each reader: state, position, counters, latency histogram
    +----------------------+
    | extra words          |  for the layer above, up to the end of the object
    +----------------------+

A position is the number of bytes since the session began and is never reset. `position & (capacity - 1)` is its offset.

A record::

     0               4               8                              16
    +---------------+---------------+------------------------------+---------
    | frame         | messages      | send_ticks                   | body ...
    +---------------+---------------+------------------------------+---------

`frame` is the record's length in bytes, header included. It is also the commit stamp: it is 0 until the record is
published. Before the writer publishes a record, it writes 0 where the frame of the next record will be. So a reader at
the end always finds 0 there, never old bytes.

A record whose `messages` is SKIP is a skip: it has no body, and the next record begins `send_ticks` bytes further. A
writer of long records skips to memory that was read a moment ago, which is still in the processor's caches
(`_skips.pxd`). It publishes the skip after the record that follows it.

If `checksums` is set in the ring header, each record has a trailer on the next 8-byte boundary, which `frame`
includes::

     0               4
    +---------------+---------------+
    | checksum      | length        |
    +---------------+---------------+

`length` is the record's length without padding and trailer. `checksum` is the CRC-32C of `frame`, of all bytes behind
it up to the trailer, and of `length`.

Beside a session there is one object for each receiver that asks its source, or that the source answers::

    pipe      the source's context and one receiving context write it
    +----------------------+ 0
    | PipeHeader           |  constants; the owner, the source's context, writes them once
    +----------------------+ 64
    | PipeQueue            |  positions of the queue from the source to the receiver
    +----------------------+ 192
    | PipeQueue            |  positions of the queue from the receiver to the source
    +----------------------+ 320
    | data, `queue_bytes`  |  frames from the source to the receiver
    +----------------------+
    | data, `queue_bytes`  |  frames from the receiver to the source
    +----------------------+

`written` and `read` count bytes and are never reset; the writer of a queue changes one of them and the reader the other
one. A frame in a queue begins at a multiple of 8: its length (4 bytes), its bytes, which may go on at the beginning of
the queue's data, and padding. The channel word of a slot says how far source and receiver are with their pipe::

     0               8                24              32
    +---------------+----------------+---------------+--------------
    | CHANNEL_*     | number (16 b.) | 0             | generation of the slot (32 b.)
    +---------------+----------------+---------------+--------------

`number` is a part of the pipe's name.

Run `python -m ringbuf.layout` after a change (`--check` only compares).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ringbuf import codegen
from ringbuf.ring_errors import SegmentMismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

CACHE_LINE = 64
PAGE = 4096

MAGIC = 0x3153554243504922
"""The first word of every shared object."""

KIND_RING = 1
KIND_CONTROL = 2
KIND_PIPE = 4

RECEIVER_PACED = 0
SOURCE_PACED = 1
RECEIVER_PACED_EVICTS = 2
"""Receiver-paced, but a reader may lose its slot while it reads, so it reads copies as with SOURCE_PACED."""

SLOT_FREE = 0
SLOT_JOINING = 1
SLOT_ACTIVE = 2
SLOT_EVICTED = 3
"""The reader kept the writer waiting for too long: the slot does not count any more, but stays the reader's."""

WRITER_RUNS = 0
WRITER_SLEEPS = 1
WRITER_WANTS_EVENT = 2

CHANNEL_NONE = 0
CHANNEL_WANTED = 1
"""The receiver asks the source for a pipe."""
CHANNEL_READY = 2
"""The source has made the pipe; its name exists."""
CHANNEL_REFUSED = 3
"""The source cannot make a pipe now."""
CHANNEL_OPEN = 4
"""The receiver has mapped the pipe too, and the source removes its name."""

CHANNEL_NUMBER_SHIFT = 8
CHANNEL_GENERATION_SHIFT = 32

SLOTS_MAX = 64
"""Each slot is a bit of the 64-bit words `parked` and joined."""

RECORD_HEADER = 16
RECORD_ALIGN = 8
RECORD_TRAILER = 8
SKIP = 0xFFFFFFFF
"""The number of messages of a record that only says how many bytes further the next record is."""
SKIPS_KEPT = 4
"""A reader has at most two unread skips. Only a reader that has just joined may have more, for a moment."""

PIPE_ALIGN = 8
PIPE_FRAME_HEADER = 4
PIPE_QUEUE_MAX = 1 << 30
"""The largest queue of a pipe in bytes."""

HISTOGRAM_SUB_BITS = 4
HISTOGRAM_BUCKETS = 560
"""Buckets of the latency histogram: 16 linear ones from 0 ns, then 16 for each octave; the last begins at 275 s."""

VERSION = 4


def struct(size: int, fields: list[tuple[str, str | tuple[Any, ...], int]]) -> np.dtype[np.void]:
    """Returns a structured dtype of `size` bytes from (name, format, offset) rows, with padding between them."""
    return np.dtype(
        {
            "names": [name for name, _, _ in fields],
            "formats": [kind for _, kind, _ in fields],
            "offsets": [offset for _, _, offset in fields],
            "itemsize": size,
        }
    )


def field_offset(kind: np.dtype[np.void], name: str) -> int:
    """Returns the offset of a field in a structured dtype, in bytes."""
    fields: Mapping[str, tuple[Any, ...]] = kind.fields or {}
    return int(fields[name][1])


RING_HEADER = struct(
    8 * CACHE_LINE,
    [
        # line 0: written once
        ("magic", "<u8", 0),
        ("layout_id", "<u4", 8),
        ("kind", "<u4", 12),
        ("total_bytes", "<u8", 16),
        ("capacity", "<u8", 24),
        ("data_offset", "<u4", 32),
        ("user_offset", "<u4", 36),
        ("user_bytes", "<u4", 40),
        ("pacing", "<u4", 44),
        ("record_max", "<u4", 48),
        ("clock", "<u4", 52),
        ("session_id", "<u4", 56),
        ("version", "<u4", 60),
        # line 1: the writer changes these words with each record; joining readers and statistics read them
        ("tail", "<u8", 64),
        ("msgs_sent", "<u8", 72),
        ("bytes_sent", "<u8", 80),
        ("lbm_msgs_sent", "<u8", 88),
        ("fragments_sent", "<u8", 96),
        # line 2: the writer writes no byte from this position on; source-paced readers read it after each copy
        ("intent", "<u8", 128),
        # line 3: changes rarely; idle readers read it
        ("closed", "<u4", 192),
        ("activity", "<u4", 196),
        ("batches_timed_out", "<u8", 200),
        # line 4: counters of the writer off the hot path
        ("send_blocked", "<u8", 256),
        ("send_would_block", "<u8", 264),
        ("blocked_ns", "<u8", 272),
        ("wakes_sent", "<u8", 280),
        ("slots_reclaimed", "<u8", 288),
        ("position_errors", "<u8", 296),
        ("receivers_evicted", "<u8", 304),
        ("blocked_since", "<u8", 312),
        # line 5: facts about the owner, written once
        ("pid", "<u4", 320),
        ("uid", "<u4", 324),
        ("start_ns", "<u8", 328),
        ("checksums", "<u4", 336),
        # line 6: counters of batches with several messages
        ("batch_wait_ns", "<u8", 384),
        ("batch_wait_max", "<u8", 392),
        # line 7: where the last skips are, and where they lead
        ("skips_from", ("<u8", (SKIPS_KEPT,)), 448),
        ("skips_to", ("<u8", (SKIPS_KEPT,)), 480),
    ],
)

CONTROL_HEADER = struct(
    4 * CACHE_LINE,
    [
        ("magic", "<u8", 0),
        ("layout_id", "<u4", 8),
        ("kind", "<u4", 12),
        ("total_bytes", "<u8", 16),
        ("slots_max", "<u4", 24),
        ("slots_offset", "<u4", 28),
        ("user_offset", "<u4", 32),
        ("user_bytes", "<u4", 36),
        ("session_id", "<u4", 40),
        ("version", "<u4", 44),
        # line 1: bit i is set while the reader of slot i sleeps or is about to sleep
        ("parked", "<u8", 64),
        # line 2: a futex word with the state of the writer, and the position that it waits for
        ("writer_waits", "<u4", 128),
        ("wanted", "<u8", 136),
        # line 3: bit i: slot i wants a pipe or has put frames into it; and whether the owner's context sleeps
        ("channel_calls", "<u8", 192),
        ("owner_parked", "<u4", 200),
    ],
)

SLOT = struct(
    5 * CACHE_LINE + 8 * HISTOGRAM_BUCKETS,
    [
        # line 0: the writer reads these words
        ("state", "<u4", 0),
        ("generation", "<u4", 4),
        ("position", "<u8", 8),
        # line 1: the reader's identity
        ("pid", "<u4", 64),
        ("uid", "<u4", 68),
        ("context_id", "<u8", 72),
        ("joined_ns", "<u8", 80),
        ("context_name", "S32", 88),
        ("channel", "<u8", 120),
        # line 2: counters, which only the reader writes
        ("msgs_rcved", "<u8", 128),
        ("bytes_rcved", "<u8", 136),
        ("lbm_msgs_rcved", "<u8", 144),
        ("lbm_msgs_no_topic_rcved", "<u8", 152),
        ("lost", "<u8", 160),
        ("overruns", "<u8", 168),
        ("malformed", "<u8", 176),
        ("latency_samples", "<u8", 184),
        # line 3: rarer counters
        ("parks", "<u8", 192),
        ("latency_max", "<u8", 200),
        ("clock_faults", "<u8", 208),
        ("duplicates", "<u8", 216),
        ("msgs_reassembled", "<u8", 224),
        ("reassembly_refused", "<u8", 232),
        ("order_map_entries", "<u8", 240),
        ("reassembly_bytes", "<u8", 248),
        # line 4: the rarest counters
        ("fragments_rcved", "<u8", 256),
        ("views_kept", "<u8", 264),
        ("lbm_reqs_rcved", "<u8", 272),
        ("latency", ("<u8", (HISTOGRAM_BUCKETS,)), 320),
    ],
)

PIPE_HEADER = struct(
    CACHE_LINE,
    [
        ("magic", "<u8", 0),
        ("layout_id", "<u4", 8),
        ("kind", "<u4", 12),
        ("total_bytes", "<u8", 16),
        ("queue_bytes", "<u4", 24),
        ("session_id", "<u4", 28),
        ("slot", "<u4", 32),
        ("generation", "<u4", 36),
        ("version", "<u4", 40),
    ],
)

PIPE_QUEUE = struct(
    2 * CACHE_LINE,
    [
        # line 0: the writer of the queue changes these words
        ("written", "<u8", 0),
        ("closed", "<u4", 8),
        ("waits", "<u4", 12),
        # line 1: the reader of the queue changes this word
        ("read", "<u8", 64),
    ],
)

RECORD = struct(RECORD_HEADER, [("frame", "<u4", 0), ("messages", "<u4", 4), ("send_ticks", "<u8", 8)])
TRAILER = struct(RECORD_TRAILER, [("checksum", "<u4", 0), ("length", "<u4", 4)])

STRUCTS = {
    "RingHeader": RING_HEADER,
    "ControlHeader": CONTROL_HEADER,
    "Slot": SLOT,
    "Record": RECORD,
    "Trailer": TRAILER,
    "PipeHeader": PIPE_HEADER,
    "PipeQueue": PIPE_QUEUE,
}

CONSTANTS = codegen.constants(globals(), without=("CACHE_LINE", "PAGE", "MAGIC"))

LAYOUT_ID = codegen.layout_id(STRUCTS, CONSTANTS)
"""A number in each ring and control block; programs with different layouts have different numbers."""


def bytes_between(header: Mapping[str, Any], begin: int, end: int) -> int:
    """Returns how many bytes lie between two positions, without those that skips pass over; at least 0.

    Args:
        header: a copy of the ring's header, or its row.
        begin: position of a reader.
        end: a later position.
    """
    skips = zip(header["skips_from"], header["skips_to"], strict=True)
    skipped = sum(int(to) - int(at) for at, to in skips if begin <= int(at) < int(to) <= end)
    return max(0, end - begin - skipped)


def control_bytes(slots_max: int, user_bytes: int, extra_bytes: int = 0) -> int:
    """Returns the size of a control block in bytes, a multiple of the page; the extra bytes are at its end."""
    return round_up(slots_offset(user_bytes) + slots_max * SLOT.itemsize + extra_bytes, PAGE)


def slots_offset(user_bytes: int) -> int:
    """Returns the offset of the slots in a control block, in bytes."""
    return round_up(CONTROL_HEADER.itemsize + user_bytes, CACHE_LINE)


def data_offset(user_bytes: int) -> int:
    """Returns the offset of the data in a ring object, in bytes; a multiple of the page."""
    return round_up(RING_HEADER.itemsize + user_bytes, PAGE)


def pipe_bytes(queue_bytes: int) -> int:
    """Returns the size of a pipe with two queues of `queue_bytes` each, in bytes; a multiple of the page."""
    return round_up(PIPE_HEADER.itemsize + 2 * PIPE_QUEUE.itemsize + 2 * queue_bytes, PAGE)


def round_up(value: int, step: int) -> int:
    """Returns the smallest multiple of `step` (a power of two) that is not below `value`."""
    return (value + step - 1) & ~(step - 1)


def ring_capacity(window_bytes: int) -> int:
    """Returns the data size of a ring for a window: the next power of two, at least a page.

    The data are mapped twice in a row, which needs whole pages. With a power of two, one AND turns a position into an
    offset.
    """
    return max(PAGE, 1 << (window_bytes - 1).bit_length())


def ring_view(buffer: memoryview) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Returns arrays that show a mapped ring object without a copy.

    Args:
        buffer: the whole object, at least `RING_HEADER.itemsize` bytes.

    Returns:
        The header as a 0-d structured array, and the user area as a 1-D uint8 array.
    """
    header = np.frombuffer(buffer, RING_HEADER, 1)[0:1].reshape(())
    user = np.frombuffer(buffer, np.uint8, int(header["user_bytes"]), int(header["user_offset"]))
    return header, user


def control_view(
    buffer: memoryview,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Returns arrays that show a mapped control block without a copy.

    Returns:
        The header as a 0-d structured array, the user area as 1-D uint8, the slots as a 1-D array of `SLOT`.

    Raises:
        SegmentMismatch: by its header one of them would lie outside of the control block.
    """
    header = np.frombuffer(buffer, CONTROL_HEADER, 1)[0:1].reshape(())
    try:
        user = np.frombuffer(buffer, np.uint8, int(header["user_bytes"]), int(header["user_offset"]))
        slots = np.frombuffer(buffer, SLOT, int(header["slots_max"]), int(header["slots_offset"]))
    except ValueError as error:
        raise SegmentMismatch(
            f"the control block's header is damaged: its sizes do not fit the block ({error}); restart its source"
        ) from None
    return header, user, slots


def other_layout(name: str, layout_id: int, version: int) -> SegmentMismatch:
    """Returns the error for an object that a program with another layout made."""
    return SegmentMismatch(
        f"{name} was made by layout {layout_id:#010x} version {version}, this program has {LAYOUT_ID:#010x} version "
        f"{VERSION}; run the same release of ipcbus on both sides"
    )


def bucket_edges() -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Returns the lower edge of each latency bucket in ns; shape `(HISTOGRAM_BUCKETS,)`, uint64."""
    index = np.arange(HISTOGRAM_BUCKETS, dtype=np.uint64)
    sub = np.uint64(1 << HISTOGRAM_SUB_BITS)
    octave = np.maximum(index // sub, 1) - np.uint64(1)
    edges = np.where(index < sub, index, (sub + index % sub) << octave)
    return edges.astype(np.uint64)


if __name__ == "__main__":
    declarations = codegen.render("ringbuf.layout", STRUCTS, CONSTANTS)
    codegen.main("ringbuf.layout", {Path(__file__).with_name("_layout.pxd"): declarations})
