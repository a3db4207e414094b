"""Recorded messages, said naively, and as the entries of a RETRANSMISSION."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from ipcbus.recovery.older_messages import OlderPiece
from ipcbus.wire.control_messages import NUMBER_MAX
from ipcbus.wire.wire_layout import (
    FLAG_END_BATCH,
    FLAG_FRAGMENT,
    FLAG_PROPERTIES,
    FLAG_START_BATCH,
    TOPIC_BITS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ENTRY = struct.Struct("<QIIQ")
_FRAGMENT = struct.Struct("<QII")


class OlderMessage(NamedTuple):
    """A recorded message."""

    first: int
    """The number of its first fragment; that of the message if it has no fragments."""
    last: int
    flags: int
    has_headers: bool
    data: bytes
    """Its header block, if it has one, and its value."""
    send_ns: int


def entries_of(topic: int, messages: Iterable[OlderMessage]) -> bytes:
    """Messages as entries; a message with several numbers goes in as many fragments."""
    return b"".join(entry for message in messages for entry in _entries(topic, message))


def piece_of(
    topic: int, messages: Iterable[OlderMessage], first: int, last: int, most: int, *, grows: bool = False
) -> OlderPiece:
    """What a recording with these messages, ascending, has from a number on."""
    left = [each for each in messages if each.first >= first]
    begin = left[0].first if left else NUMBER_MAX
    taken: list[OlderMessage] = []
    while begin == first and len(taken) < min(most, len(left)):
        each = left[len(taken)]
        if each.last > last or (taken and each.first != taken[-1].last + 1):
            break
        taken.append(each)
    return OlderPiece(begin, taken[-1].last if taken else -1, len(taken), entries_of(topic, taken), grows)


def _entries(topic: int, message: OlderMessage) -> Iterator[bytes]:
    first, last, flags, has_headers, data, send_ns = message
    flags = flags & (FLAG_START_BATCH | FLAG_END_BATCH) | FLAG_PROPERTIES * has_headers
    if first == last:
        yield _entry(topic, first, flags, data, send_ns)
        return
    piece = -(-len(data) // (last - first + 1))
    for number in range(first, last + 1):
        begin = (number - first) * piece
        payload = _FRAGMENT.pack(first, begin, len(data)) + data[begin : begin + piece]
        yield _entry(topic, number, flags | FLAG_FRAGMENT, payload, send_ns)


def _entry(topic: int, number: int, flags: int, payload: bytes, send_ns: int) -> bytes:
    header = _ENTRY.pack(send_ns, len(payload), topic | flags << TOPIC_BITS, number)
    return header + payload + bytes(-len(payload) % 8)
