"""Checked fragments, and messages of which some fragments are missing (their bytes: `wire.wire_layout`)."""

from __future__ import annotations

from typing import NamedTuple

from ipcbus.delivery.assembly import Assembly
from ipcbus.wire.properties import block_length
from ipcbus.wire.wire_layout import (
    FLAG_GUARANTEED,
    FLAG_PROPERTIES,
    FLAG_REQUEST,
    FRAGMENT_HEADER,
    FRAGMENT_HEADER_BYTES,
    GUARANTEED_HEADER_BYTES,
    MESSAGE_MAX,
    REQUEST_HEADER_BYTES,
)
from ringbuf.layout import field_offset

Parts = tuple[int | None, int, bytes | None, bytes]
"""The number of a request (None for other messages), the GMD number (0 for other messages), the header block (None
without headers) and the value."""

_FIRST, _OFFSET = (slice(field_offset(FRAGMENT_HEADER, name), None) for name in ("first", "offset"))


class Fragment(NamedTuple):
    """A checked fragment: its number, offset and length fit each other and the message."""

    first: int
    last: int
    offset: int
    total: int
    piece_bytes: int
    """The length of every fragment but the last, in bytes."""
    piece: memoryview

    def same_message(self, other: Fragment) -> bool:
        """Returns whether both fragments can belong to one message."""
        return self.first == other.first and self.total == other.total and self.piece_bytes == other.piece_bytes

    def overlaps(self, other: Fragment) -> bool:
        """Returns whether the messages of both fragments would share a number."""
        return self.first <= other.last and self.last >= other.first


def read_fragment(sequence: int, payload: memoryview) -> Fragment | None:
    """Reads a fragment; returns None when it contradicts itself.

    Args:
        sequence: the fragment's number.
        payload: the fragment header and the bytes behind it.
    """
    length = len(payload) - FRAGMENT_HEADER_BYTES
    if length <= 0:
        return None
    first = int.from_bytes(payload[0:8], "little")
    offset = int.from_bytes(payload[8:12], "little")
    total = int.from_bytes(payload[12:16], "little")
    index = sequence - first
    if index < 0 or total > MESSAGE_MAX or length >= total or offset + length > total:
        return None
    # The first fragment has the length of the others; the offset of a later one shows it.
    piece_bytes = offset // index if index else length
    if piece_bytes == 0 or offset != index * piece_bytes:
        return None
    if length > piece_bytes or (length < piece_bytes and offset + length < total):
        return None
    count = -(-total // piece_bytes)
    return Fragment(first, first + count - 1, offset, total, piece_bytes, payload[FRAGMENT_HEADER_BYTES:])


def parts_of(own: bytes, flags: int) -> Parts | None:
    """Splits a message into its parts; returns None when they are not whole."""
    request, gmd_number = None, 0
    if flags & FLAG_REQUEST:
        if len(own) < REQUEST_HEADER_BYTES:
            return None
        request, own = int.from_bytes(own[:REQUEST_HEADER_BYTES], "little"), own[REQUEST_HEADER_BYTES:]
    if flags & FLAG_GUARANTEED:
        gmd_number = int.from_bytes(own[:GUARANTEED_HEADER_BYTES], "little")
        if len(own) < GUARANTEED_HEADER_BYTES or not gmd_number:
            return None
        own = own[GUARANTEED_HEADER_BYTES:]
    if not flags & FLAG_PROPERTIES:
        return request, gmd_number, None, own
    block = block_length(own)
    return (request, gmd_number, own[:block], own[block:]) if block else None


class Partial:
    """A message of which some fragments have arrived, each of them once."""

    def __init__(self, fragment: Fragment, send_ticks: int) -> None:
        """Reserves the memory of the message; `put` has to add the fragment too.

        Raises:
            MemoryError: there is not enough memory.
        """
        self.span = fragment._replace(piece=memoryview(b""))
        self.send_ticks = send_ticks
        self.flags = 0
        self._assembly = Assembly(fragment.total)

    @classmethod
    def from_assembly(cls, assembly: Assembly) -> Partial:
        """Returns the message whose first fragments compiled code has put in order."""
        partial = cls.__new__(cls)
        last = assembly.first - 1 - -assembly.total // assembly.piece_bytes
        partial.span = Fragment(assembly.first, last, 0, assembly.total, assembly.piece_bytes, memoryview(b""))
        partial.send_ticks, partial.flags, partial._assembly = assembly.send_ticks, assembly.flags, assembly
        return partial

    def put(self, fragment: Fragment, flags: int, send_ticks: int) -> bool:
        """Adds a fragment; returns whether the message is complete now."""
        if fragment.offset == 0:
            self.send_ticks = send_ticks
        self._assembly.put(fragment.offset, fragment.piece)
        self.flags |= flags
        return self._assembly.filled == self._assembly.total

    def parts(self) -> Parts | None:
        """Returns the complete message; None when its parts are not whole."""
        return self._assembly.parts(self.flags)
