"""The layout of the memory of an item ring, a queue of items with many producers and many consumers.

The memory has no name: a descriptor leads to it, which child processes inherit. It is a sparse file, of which only the
chunks in use have pages::

    +----------------------+ 0
    | ItemHeader           |  constants
    +----------------------+ 64
    | ItemSide             |  lock and words of the producers
    +----------------------+ 320
    | ItemSide             |  lock and words of the consumers
    +----------------------+ ITEM_MAP_OFFSET
    | map, `map_size` words|  number of the piece of memory that holds a chunk, at `chunk & (map_size - 1)`
    +----------------------+
    | spare, as many words |  numbers of pieces that were given back to the system, a stack
    +----------------------+ data_offset
    | pieces of ITEM_CHUNK |
    +----------------------+

A position is the number of bytes since the ring was made and is never reset; `position / ITEM_CHUNK` is its chunk. An
item is a header, the tag if it is signed, its bytes and padding to 8; it may span chunks::

     0                              8               12              16
    +------------------------------+---------------+---------------+---------------
    | length of the bytes          | kind          | ITEM_* flags  | tag, bytes ...
    +------------------------------+---------------+---------------+---------------

`tag` is a BLAKE2b with the queue's key (RFC 7693) over the item's number, its kind, its length and its bytes; of more
than 1 KiB, over the BLAKE2b of the bytes.

Everything that a side changes counts from one store on: that of `count`. The state that belongs to a count is at the
index `count & 1` of `position`, `mapped`, `pieces` and `made`; the next state is written at the other index before
`count` is raised. So a process may be killed at any step, and the next holder of the lock finds the state as it was
before the item or after it, never between.

Run `python -m ringbuf.item_layout` after a change (`--check` only compares).
"""

from __future__ import annotations

from pathlib import Path

from ringbuf import codegen
from ringbuf.layout import CACHE_LINE, PAGE, round_up, struct

ITEM_CHUNK = 1 << 16
"""Bytes of a chunk."""

ITEM_CHUNKS_MAX = 1 << 20
"""Most chunks of a ring."""

ITEM_KEEP = 64
"""Free pieces that a ring keeps for the next items; more are given back to the system."""

ITEM_MAP_OFFSET = PAGE

ITEM_SIGNED = 1
"""Flag: the item has a tag, and is handed out only if the tag is right."""

ITEM_WRITABLE = 2
"""Flag: the item is handed out as a bytearray."""

ITEM_HEADER_BYTES = 16
ITEM_TAG_BYTES = 32
ITEM_ALIGN = 8

ITEM_HEADER = struct(
    CACHE_LINE,
    [
        ("map_size", "<u4", 0),
        ("chunks_max", "<u4", 4),
        ("items_max", "<u8", 8),
        ("data_offset", "<u8", 16),
        ("uid", "<u4", 24),
    ],
)
"""Written once."""

ITEM_SIDE = struct(
    4 * CACHE_LINE,
    [
        # line 0: a mutex of the C library, robust and shared by processes
        ("lock", ("u1", (CACHE_LINE,)), 0),
        # line 1: the holder of the lock changes these words
        ("count", "<u8", 64),
        ("begun", "<u8", 72),
        ("cut", "<u8", 80),
        ("refused", "<u8", 88),
        ("position", ("<u8", (2,)), 96),
        # of producers alone: chunks that have had a piece; pieces in use; pieces in use or spare
        ("mapped", ("<u8", (2,)), 112),
        ("pieces", ("<u4", (2,)), 128),
        ("made", ("<u4", (2,)), 136),
        # line 3: what a process has seen of `count`, and 1, before it slept until that changes; 0 while none sleeps
        ("parked", "<u8", 192),
        ("wake_all", "<u4", 200),
    ],
)
"""The words of the producers, and of the consumers."""

STRUCTS = {"ItemHeader": ITEM_HEADER, "ItemSide": ITEM_SIDE}
CONSTANTS = codegen.constants(globals(), without=("CACHE_LINE", "PAGE"))


def map_size(chunks: int) -> int:
    """Returns the words of the map for a number of chunks: the next power of two."""
    return 1 << (chunks - 1).bit_length()


def data_offset(words: int) -> int:
    """Returns the offset of the pieces, in bytes, for a map of this many words."""
    return round_up(ITEM_MAP_OFFSET + 2 * 4 * words, ITEM_CHUNK)


if __name__ == "__main__":
    declarations = codegen.render("ringbuf.item_layout", STRUCTS, CONSTANTS)
    codegen.main("ringbuf.item_layout", {Path(__file__).with_name("_item_layout.pxd"): declarations})
