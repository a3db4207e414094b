"""What fragments say, messages that have not come in full, and what they consist of (the bytes: `wire.layout`)."""

from __future__ import annotations

from typing import NamedTuple

from ipcbus.delivery.assembly import Assembly
from ipcbus.wire.properties import block_length
from ipcbus.wire.wire_layout import FLAG_PROPERTIES, FRAGMENT_HEADER, FRAGMENT_HEADER_BYTES, MESSAGE_MAX

Parts = tuple[bytes | None, bytes]
"""Header block, None without one, and value of a message."""

_FIRST, _OFFSET = (slice(FRAGMENT_HEADER.fields[name][1], None) for name in ("first", "offset"))  # type: ignore[index]


class Fragment(NamedTuple):
    """A piece of a message, checked: its number, offset and length fit one another and the message."""

    first: int
    last: int
    offset: int
    total: int
    piece_bytes: int
    """Length of every piece but the last."""
    piece: memoryview

    def same_message(self, other: Fragment) -> bool:
        """Returns whether both can be of one message."""
        return self.first == other.first and self.total == other.total and self.piece_bytes == other.piece_bytes

    def overlaps(self, other: Fragment) -> bool:
        """Returns whether a number would be of both messages."""
        return self.first <= other.last and self.last >= other.first


def read_fragment(sequence: int, payload: memoryview) -> Fragment | None:
    """Reads a fragment; None when it contradicts itself.

    Args:
        sequence: the fragment's number.
        payload: fragment header and piece.
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
    # The first piece tells the length of the others itself, later ones by where they lie.
    piece_bytes = offset // index if index else length
    if piece_bytes == 0 or offset != index * piece_bytes:
        return None
    if length > piece_bytes or (length < piece_bytes and offset + length < total):
        return None
    count = -(-total // piece_bytes)
    return Fragment(first, first + count - 1, offset, total, piece_bytes, payload[FRAGMENT_HEADER_BYTES:])


def parts_of(own: bytes, flags: int) -> Parts | None:
    """What the bytes of a message consist of; None when its header block contradicts itself."""
    if not flags & FLAG_PROPERTIES:
        return None, own
    block = block_length(own)
    return (own[:block], own[block:]) if block else None


class Partial:
    """A message of which some fragments have come, each once."""

    def __init__(self, fragment: Fragment, send_ticks: int) -> None:
        """Without any bytes yet; `put` the fragment too.

        Raises:
            MemoryError: there is no memory for it.
        """
        self.like = fragment._replace(piece=memoryview(b""))
        self.send_ticks = send_ticks
        self.flags = 0
        self._assembly = Assembly(fragment.total)

    def put(self, fragment: Fragment, flags: int, send_ticks: int) -> bool:
        """Adds a fragment; says whether the message is whole now."""
        if fragment.offset == 0:
            self.send_ticks = send_ticks
        self._assembly.put(fragment.offset, fragment.piece)
        self.flags |= flags
        return self._assembly.filled == self._assembly.total

    def parts(self) -> Parts | None:
        """Returns the message, which is whole; None when its header block contradicts itself."""
        return self._assembly.parts() if self.flags & FLAG_PROPERTIES else (None, self._assembly.bytes())
