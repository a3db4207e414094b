"""Datagrams by hand: what the topic layer writes, read back, and what the demux reads, written."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ipcbus.wire import wire_layout


class Item(NamedTuple):
    """A message in a datagram."""

    topic: int
    sequence: int
    payload: bytes
    flags: int = 0


def parse(datagram: bytes) -> list[Item]:
    """The messages of a datagram."""
    found = []
    at = 0
    while len(datagram) - at >= wire_layout.MESSAGE_HEADER_BYTES:
        header = np.frombuffer(datagram, wire_layout.MESSAGE_HEADER, 1, at)[0]
        at += wire_layout.MESSAGE_HEADER_BYTES
        length, word = int(header["length"]), int(header["topic"])
        payload = datagram[at : at + length]
        assert len(payload) == length
        flags = word >> wire_layout.TOPIC_BITS
        if flags & wire_layout.FLAG_STAMPED:
            length += wire_layout.STAMP_BYTES
        found.append(
            Item(word & wire_layout.TOPIC_MASK, int(header["sequence"]), payload, flags & ~wire_layout.FLAG_STAMPED)
        )
        at += (length + 7) & ~7
    return found


def compose(*items: Item) -> bytes:
    """A datagram of messages."""
    parts = []
    for item in items:
        header = np.zeros(1, wire_layout.MESSAGE_HEADER)
        header["length"] = len(item.payload)
        header["topic"] = item.topic | item.flags << wire_layout.TOPIC_BITS
        header["sequence"] = item.sequence
        parts.append(header.tobytes() + item.payload.ljust((len(item.payload) + 7) & ~7, b"\0"))
    return b"".join(parts)


def fragment(
    sequence: int, first: int, offset: int, total: int, piece: bytes, *, topic: int = 1, flags: int = 0
) -> Item:
    """A fragment that says what it is told to, also what is wrong."""
    header = np.zeros(1, wire_layout.FRAGMENT_HEADER)
    header["first"], header["offset"], header["total"] = first, offset, total
    return Item(topic, sequence, header.tobytes() + piece, flags | wire_layout.FLAG_FRAGMENT)


def fragments(first: int, payload: bytes, size: int, *, topic: int = 1, flags: int = 0) -> list[Item]:
    """A message in pieces of `size` bytes, the first of which has the number `first`."""
    return [
        fragment(first + i, first, at, len(payload), payload[at : at + size], topic=topic, flags=flags)
        for i, at in enumerate(range(0, len(payload), size))
    ]


def info(next_sequence: int, *, topic: int = 1) -> Item:
    """Topic sequence number info."""
    return Item(topic, next_sequence, b"", wire_layout.FLAG_TSNI)
