"""Bits of a ring that change though nobody of ours changed them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.wire.wire_layout import FLAG_STAMPED, MESSAGE_HEADER_BYTES, STAMP_BYTES, TOPIC_BITS, TOPIC_LINE
from ringbuf import layout
from ringbuf.shared_words import SharedWords

if TYPE_CHECKING:
    from ipcbus import Source

FRAME, LENGTH, TOPIC, SEQUENCE = "frame", "length", "topic", "sequence"
_OFFSETS = {LENGTH: 0, TOPIC: 4, SEQUENCE: 8}


class Memory:
    """The ring that a source sends on, from its beginning; nothing may have been overwritten."""

    def __init__(self, source: Source) -> None:
        self._ring = source._session.channel.ring
        header, _ = layout.ring_view(self._ring.view())
        self.words = SharedWords(self._ring)
        self.data = int(header["data_offset"])
        self.tail = int(header["tail"])
        self.lines = int(header["user_offset"])
        self.trailer = layout.RECORD_TRAILER * int(header["checksums"])

    def record(self, number: int) -> int:
        """Where a record is."""
        at = self.data
        for _ in range(number):
            at += (self.words.load32(at) + 7) & ~7
        return at

    def message(self, number: int) -> int:
        """Where the header of a message is, of all records."""
        at, record = self.data, 0
        while True:
            end = at + self.words.load32(at) - self.trailer
            at += layout.RECORD_HEADER
            while at < end:
                if number == 0:
                    return at
                number -= 1
                stamp = STAMP_BYTES if self.words.load32(at + 4) >> TOPIC_BITS & FLAG_STAMPED else 0
                at += MESSAGE_HEADER_BYTES + ((self.words.load32(at) + stamp + 7) & ~7)
            record += 1
            at = self.record(record)

    def flip(self, message: int, field: str, bit: int) -> None:
        """Changes a bit of a message's header, or of the length of the record that it is the first one of."""
        at = self.message(message) - layout.RECORD_HEADER if field == FRAME else self.message(message) + _OFFSETS[field]
        self.flip_at(at, bit)

    def flip_at(self, at: int, bit: int) -> None:
        """Changes a bit anywhere."""
        self.words.store32(at + bit // 32 * 4, self.words.load32(at + bit // 32 * 4) ^ 1 << bit % 32)

    def line(self, field: str) -> int:
        """Where a word of the first topic's line is."""
        return self.lines + int(TOPIC_LINE.fields[field][1])  # type: ignore[index]
