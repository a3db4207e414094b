"""The notes of a sender's machine in its area: conversion from bytes to values and back, safe for any bytes.

A note, little endian::

     0        1        2                4                8
    +--------+--------+----------------+----------------+---------
    | kind   | zero   | error u16      | name id u32    | ...
    +--------+--------+----------------+----------------+---------

    BEGIN    a checkpoint begins: what was noted before is void
    NAME     disconnect mode u64, name in UTF-8: this id means this name from now on
    EXPECT   ranges: the name is to acknowledge these messages; the last number may be NUMBER_MAX, without end
    ACK      ranges: the name has acknowledged these messages
    FAIL     ranges: these messages failed for the name, with this error number
    CLOSE    first u64: the name does not have to acknowledge messages from this number on
    FORGET   the name is forgotten
    TIMEOUT  first u64, ns u64: messages from this number on have this delivery timeout
    OPENING  first u64, opening u64: this opening of the area sent the messages from this number on
    PLACE    number u64, place u64 (`wire.topic_places`): where the message stood in its topic, unlike in its record
    SKIP     ranges: the name does not have to acknowledge these messages; another name may

Name id 0 stands for "no receiver is expected": its messages wait for the first name. A range is first u64, last u64.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ipcbus.wire.control_messages import NUMBER_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BEGIN, NAME, EXPECT, ACK, FAIL, CLOSE, FORGET, TIMEOUT, OPENING, PLACE, SKIP = range(1, 12)

PAIRS = (TIMEOUT, OPENING, PLACE)
"""Notes with a number and what belongs to it."""

RANGES_MAX: Final = 1000
"""Most ranges of one note."""

_HEAD = struct.Struct("<BBHI")
_NUMBER = struct.Struct("<Q")
_RANGE = struct.Struct("<QQ")


class Note(NamedTuple):
    """A note; what its kind does not have is empty."""

    kind: int
    name_id: int = 0
    error: int = 0
    ranges: tuple[tuple[int, int], ...] = ()
    """First and last numbers; for CLOSE the number twice, for TIMEOUT, OPENING and PLACE the pair."""
    name: str = ""
    disconnect_mode: int = 0


def encode(note: Note) -> bytes:
    """Returns a note as bytes; it has at most RANGES_MAX ranges."""
    head = _HEAD.pack(note.kind, 0, note.error, note.name_id)
    if note.kind == NAME:
        return head + _NUMBER.pack(note.disconnect_mode) + note.name.encode()
    return head + b"".join([_RANGE.pack(*each) for each in note.ranges])


def encode_ranges(kind: int, name_id: int, ranges: Iterable[tuple[int, int]], error: int = 0) -> Iterator[bytes]:
    """Yields the notes of one kind for any number of ranges."""
    left = tuple(ranges)
    while left:
        yield encode(Note(kind, name_id, error, left[:RANGES_MAX]))
        left = left[RANGES_MAX:]


def decode(payload: bytes) -> Note | None:
    """Returns the values of a note; None when its bytes are invalid."""
    if len(payload) < _HEAD.size:
        return None
    kind, zero, error, name_id = _HEAD.unpack_from(payload)
    rest = payload[_HEAD.size :]
    if zero or not BEGIN <= kind <= SKIP:
        return None
    if kind == NAME:
        if len(rest) <= _NUMBER.size:
            return None
        try:
            name = rest[_NUMBER.size :].decode()
        except UnicodeDecodeError:
            return None
        return Note(kind, name_id, error, (), name, _NUMBER.unpack_from(rest)[0])
    if len(rest) % _RANGE.size:
        return None
    ranges = tuple(_RANGE.iter_unpack(rest))
    if kind in (CLOSE, *PAIRS) and len(ranges) != 1:
        return None
    if kind not in PAIRS and not all(0 < first <= last <= NUMBER_MAX for first, last in ranges):
        return None
    return Note(kind, name_id, error, ranges)
