"""What a source retains, said naively: a list of messages, and no thought of speed. And how its entries are read."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from ipcbus.wire.wire_layout import FLAG_FRAGMENT, RETAINED_HEADER_BYTES, TOPIC_BITS, TOPIC_MASK

_HEADER = struct.Struct("<IIQ")
_ENTRY = struct.Struct("<QIIQ")
_FRAGMENT = struct.Struct("<QII")


def padded(length: int) -> int:
    """Bytes up to the next boundary."""
    return length + -length % 8


def message(sequence: int, payload: bytes, flags: int = 0, topic: int = 1) -> bytes:
    """A message as it stands in the ring."""
    return _HEADER.pack(len(payload), topic | flags << TOPIC_BITS, sequence) + payload


def fragments(sequence: int, data: bytes, piece: int) -> list[bytes]:
    """The fragments of a message as they stand in the ring."""
    offsets = range(0, len(data), piece)
    return [
        message(sequence + i, _FRAGMENT.pack(sequence, at, len(data)) + data[at : at + piece], FLAG_FRAGMENT)
        for i, at in enumerate(offsets)
    ]


@dataclass(frozen=True)
class Kept:
    """A retained message."""

    send_ticks: int
    topic: int
    flags: int
    sequence: int
    payload: bytes

    @property
    def size(self) -> int:
        """Bytes of its entry."""
        return RETAINED_HEADER_BYTES + padded(len(self.payload))

    @property
    def begins(self) -> bool:
        """Whether it is not a later fragment of its message."""
        return not self.flags & FLAG_FRAGMENT or bool(_FRAGMENT.unpack_from(self.payload)[0] == self.sequence)

    @property
    def message_size(self) -> int:
        """Bytes of all entries of its message, of which it is the first."""
        if not self.flags & FLAG_FRAGMENT:
            return self.size
        total: int = _FRAGMENT.unpack_from(self.payload)[2]
        piece = len(self.payload) - _FRAGMENT.size
        pieces = -(-total // piece)
        last = _FRAGMENT.size + total - (pieces - 1) * piece
        return (pieces - 1) * self.size + RETAINED_HEADER_BYTES + padded(last)


def kept(entries: bytes | memoryview) -> list[Kept]:
    """Entries as values; the padding is zeros."""
    found = []
    at = 0
    while at < len(entries):
        ticks, length, word, sequence = _ENTRY.unpack_from(entries, at)
        end = at + RETAINED_HEADER_BYTES + length
        payload = bytes(entries[at + RETAINED_HEADER_BYTES : end])
        at += RETAINED_HEADER_BYTES + padded(length)
        assert not any(entries[end:at])
        found.append(Kept(ticks, word & TOPIC_MASK, word >> TOPIC_BITS, sequence, payload))
    assert at == len(entries)
    return found


@dataclass
class NaiveRetention:
    """What `Retention` has to do."""

    size_threshold: int
    age_threshold_ns: int
    size_limit: int
    next: int = 0
    held: list[Kept] = field(default_factory=list)

    @property
    def low(self) -> int:
        """The lowest number."""
        return self.next - len(self.held)

    @property
    def retained_bytes(self) -> int:
        """Bytes of all entries."""
        return sum(each.size for each in self.held)

    def put(self, send_ticks: int, raw: bytes) -> None:
        """One more message."""
        length, word, sequence = _HEADER.unpack_from(raw)
        new = Kept(send_ticks, word & TOPIC_MASK, word >> TOPIC_BITS, sequence, raw[_HEADER.size :])
        assert len(new.payload) == length
        if sequence != self.next or new.size > self.size_limit:
            self.held = []
        while self.held and self.retained_bytes + new.size > self.size_limit:
            self.drop()
        self.next = sequence + 1
        if new.size <= self.size_limit and (self.held or new.begins):
            self.held.append(new)
        self.expire(send_ticks)

    def drop(self) -> None:
        """The oldest message leaves whole."""
        del self.held[0]
        while self.held and not self.held[0].begins:
            del self.held[0]

    def expire(self, now: int) -> None:
        """What the thresholds let go leaves."""
        while (
            self.held
            and (self.size_threshold or self.age_threshold_ns)
            and (not self.age_threshold_ns or now - self.held[0].send_ticks > self.age_threshold_ns)
            and (not self.size_threshold or self.retained_bytes - self.held[0].message_size >= self.size_threshold)
        ):
            self.drop()

    def read(self, first: int, last: int, published: int, bytes_max: int) -> list[Kept]:
        """What it holds of a range."""
        found: list[Kept] = []
        for each in self.held:
            if first <= each.sequence <= last and each.sequence < published:
                if found and sum(one.size for one in found) + each.size > bytes_max:
                    break
                found.append(each)
        return found


def entry(sequence: int, payload: bytes, flags: int = 0, topic: int = 1, send_ticks: int = 7) -> bytes:
    """An entry, as a source sends it again."""
    return _ENTRY.pack(send_ticks, len(payload), topic | flags << TOPIC_BITS, sequence) + payload.ljust(
        padded(len(payload)), b"\0"
    )
