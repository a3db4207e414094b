"""Reads messages of a topic from a ring without a slot: the source does not notice the reader and never waits for it.

Each read copies the records since the last one, then checks the copy: it is dropped if the writer may have overwritten
it meanwhile. When there are more records than can be copied, only some of them are read, and the others are skipped.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.registry import PeerRegistry
from ipcbus.stats.shared_copies import SharedObject
from ipcbus.wire import wire_layout as wire
from ringbuf import clock, layout
from ringbuf.ring_errors import SegmentGone

if TYPE_CHECKING:
    from collections.abc import Iterator

SHOWN_MAX: Final = 512
"""Most bytes of a message that are kept."""
_COPY_MAX: Final = 1 << 18
_TRIES: Final = 200
"""How often the writer's position is read until it moves; this takes less than a millisecond."""
_RECORD: Final = struct.Struct("<IIQ")
_MESSAGE: Final = struct.Struct("<IIQ")
_WORD: Final = struct.Struct("<Q")
_TAIL, _INTENT = (layout.field_offset(layout.RING_HEADER, name) for name in ("tail", "intent"))


@dataclass(frozen=True, slots=True)
class Peeked:
    """A message, or a fragment of a message.

    Attributes:
        sequence_number: its sequence number.
        send_time_ns: when it was sent, ns since the epoch; 0 if the session does not use this host's clock.
        length: its length in bytes, headers included.
        data: its first `SHOWN_MAX` bytes.
        fragment: whether it is a fragment.
        headers: whether it begins with a header block.
        request: whether it is a request; its header is left out of `data` and `length`, except in a fragment.
    """

    sequence_number: int
    send_time_ns: int
    length: int
    data: bytes
    fragment: bool
    headers: bool
    request: bool


class Peek:
    """A reader of one topic of one session, without a slot."""

    def __init__(self, domain: str, context_id: int, source: str, number: int) -> None:
        """Begins with the next message.

        Args:
            domain: name of the domain.
            context_id: the context that sends.
            source: source string of the session.
            number: the session's number of the topic.

        Raises:
            ringbuf.ring_errors.RingError: the session has ended, has no ring, or may not be read.
        """
        self._number = number
        registry = PeerRegistry(object_names.registry(domain, context_id))
        try:
            found = registry.read(receivers=False)
        finally:
            registry.close()
        adverts = found[1].sessions if found is not None else ()
        advert = next((each for each in adverts if each.source_string == source), None)
        if advert is None:
            raise SegmentGone(f"session {source} has ended")
        if advert.over_udp:
            raise SegmentGone(f"session {source} is sent over UDP and has no ring to read; use 'ipcbus echo'")
        self._ring = SharedObject(object_names.ring(domain, context_id, advert.local))
        try:
            header = self._ring.header(layout.RING_HEADER, layout.KIND_RING, advert.session_id, "ring")
            self._capacity, self._data = header["capacity"], header["data_offset"]
            self._record_max, self._same_clock = header["record_max"], header["clock"] == clock.kind()
            self._trailer = layout.RECORD_TRAILER if header["checksums"] else 0
            self._position = self._tail()
        except BaseException:
            self.close()
            raise
        self.skipped = False
        """Whether the last `look` has skipped messages."""

    def close(self) -> None:
        """Closes the ring."""
        self._ring.__exit__()

    def look(self) -> list[Peeked]:
        """Returns the messages of the topic since the last call, or some of them.

        Raises:
            ringbuf.ring_errors.RingError: the ring was truncated.
        """
        room = min(_COPY_MAX, self._capacity // 4)
        begin, end = self._position, self._tail()
        self.skipped = not 0 <= end - begin <= room
        if self.skipped:
            # Too much: reads only the next records, which are few, because nothing is done in between.
            begin = end
            end = next((tail for _ in range(_TRIES) if (tail := self._tail()) != begin), begin)
        self._position = end
        if not 0 < end - begin <= room:
            return []
        place = begin & (self._capacity - 1)
        first = min(end - begin, self._capacity - place)
        data = self._ring.read(self._data + place, first)
        if first < end - begin:
            data += self._ring.read(self._data, end - begin - first)
        # A writer that overwrites or goes back writes up to its intent at most; others write up to the longest record
        # and the next frame behind their tail.
        ahead = max(self._word(_INTENT), self._tail() + self._record_max + layout.RECORD_HEADER)
        if ahead - begin > self._capacity:
            self.skipped = True
            return []
        return list(self._messages(data))

    def _messages(self, data: bytes) -> Iterator[Peeked]:
        at = 0
        while at + _RECORD.size <= len(data):
            frame, messages, ticks = _RECORD.unpack_from(data, at)
            if frame == _RECORD.size and messages == layout.SKIP:
                if ticks < _RECORD.size or ticks % layout.RECORD_ALIGN:
                    return  # damaged
                at += ticks
                continue
            if frame < _RECORD.size or at + frame > len(data):
                return  # damaged
            yield from self._of_record(data, at + _RECORD.size, at + frame - self._trailer, ticks)
            at += -(-frame // layout.RECORD_ALIGN) * layout.RECORD_ALIGN

    def _of_record(self, data: bytes, at: int, end: int, ticks: int) -> Iterator[Peeked]:
        sent = clock.ticks_to_epoch_ns(ticks) if self._same_clock else 0
        first = at
        while at + _MESSAGE.size <= end:
            length, topic, sequence = _MESSAGE.unpack_from(data, at)
            body = at + _MESSAGE.size
            flags = topic >> wire.TOPIC_BITS
            stamp = wire.STAMP_BYTES if flags & wire.FLAG_STAMPED else 0
            if length + stamp > end - body:
                return
            own = sent
            if stamp and sent and at != first:  # the first stamp says when the datagram was published
                own += int.from_bytes(data[body + length : body + length + stamp], "little") * wire.STAMP_NS
            if topic & wire.TOPIC_MASK == self._number & wire.TOPIC_MASK and not flags & wire.FLAG_TSNI:
                fragment, request = bool(flags & wire.FLAG_FRAGMENT), bool(flags & wire.FLAG_REQUEST)
                front = wire.REQUEST_HEADER_BYTES * request
                front += wire.GUARANTEED_HEADER_BYTES * bool(flags & wire.FLAG_GUARANTEED)
                front = wire.FRAGMENT_HEADER_BYTES if fragment else front
                begin = min(body + front, body + length)
                yield Peeked(
                    *(sequence, own, body + length - begin, data[begin : min(body + length, begin + SHOWN_MAX)]),
                    fragment=fragment,
                    headers=bool(flags & wire.FLAG_PROPERTIES),
                    request=request,
                )
            at = body + -(-(length + stamp) // layout.RECORD_ALIGN) * layout.RECORD_ALIGN

    def _tail(self) -> int:
        return self._word(_TAIL)

    def _word(self, offset: int) -> int:
        found: int = _WORD.unpack(self._ring.read(offset, _WORD.size))[0]
        return found
