"""Recorded messages of a topic, from which a recovery takes what the source does not keep any more.

What reads them is handed in from above: this package knows no files. `PastMerger` decides where the next missing
message comes from. A recording is asked first, because it costs the source nothing. What the recording does not have is
asked of the source. What the source does not keep either may still be on its way into the recording, and is waited for.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ipcbus.wire.control_messages import NUMBER_MAX
from ipcbus.wire.wire_layout import (
    FLAG_END_BATCH,
    FLAG_FRAGMENT,
    FLAG_PROPERTIES,
    FLAG_START_BATCH,
    RETAINED_HEADER_BYTES,
    TOPIC_BITS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ENTRY = struct.Struct("<QIIQ")
_FRAGMENT = struct.Struct("<QII")
_ALIGNED = 8


class OlderMessage(NamedTuple):
    """A recorded message."""

    first: int
    """The number of its first fragment; that of the message if it has no fragments."""
    last: int
    flags: int
    """Flags of `Message.flags`."""
    has_headers: bool
    data: bytes
    """Its header block, if it has one, and its value."""
    send_ns: int
    """When it was sent, in ns since the epoch."""


@dataclass(frozen=True, slots=True)
class OlderPiece:
    """What a recording has from a number on.

    Attributes:
        messages: the next messages, ascending; empty: the recording has none yet.
        grows: whether the recording is still written, so that later messages may come.
    """

    messages: list[OlderMessage]
    grows: bool


class OlderMessages(Protocol):
    """The recorded messages of one topic of one session. Each call takes a bounded time, and raises no error."""

    faults: int
    """How often rows could not be read."""

    def begin(self, next_sequence: int, wanted: int) -> int | None:
        """Returns the first number that the recording has; None while it is searched: call it again soon.

        Args:
            next_sequence: the next number of the source, as of after the object was made. A recording with this number
                or a higher one is of another source of the same name; it has nothing then, and NUMBER_MAX is returned.
            wanted: messages below this number are not needed.
        """

    def read(self, first: int) -> OlderPiece | None:
        """Returns what the recording has from a number on, which is not below those of earlier calls.

        Returns:
            Some messages, or None while they are searched: call it again soon.
        """


class History(Protocol):
    """A recording of many topics."""

    def of(self, topic: str, source: str) -> OlderMessages:
        """Returns the recorded messages of a topic of the session with this source string."""


def entries_of(topic: int, messages: Iterable[OlderMessage]) -> bytes:
    """Returns messages as the entries of a RETRANSMISSION; a message with several numbers goes in as many fragments."""
    return b"".join(entry for message in messages for entry in _entries(topic, message))


def _entries(topic: int, message: OlderMessage) -> Iterator[bytes]:
    first, last, flags, has_headers, data, send_ns = message
    flags = flags & (FLAG_START_BATCH | FLAG_END_BATCH) | FLAG_PROPERTIES * has_headers
    if first == last:
        yield _entry(topic, first, flags, data, send_ns)
        return
    # The fragments need not have their old length, but there are as many of them.
    piece = -(-len(data) // (last - first + 1))
    for number in range(first, last + 1):
        offset = (number - first) * piece
        payload = _FRAGMENT.pack(first, offset, len(data)) + data[offset : offset + piece]
        yield _entry(topic, number, flags | FLAG_FRAGMENT, payload, send_ns)


def _entry(topic: int, number: int, flags: int, payload: bytes, send_ns: int) -> bytes:
    header = _ENTRY.pack(send_ns, len(payload), topic | flags << TOPIC_BITS, number)
    return header + payload + bytes(-len(payload) % _ALIGNED)


def first_number(entries: memoryview) -> int | None:
    """Returns the number of the first entry; None without a whole one."""
    return _ENTRY.unpack_from(entries)[3] if len(entries) >= RETAINED_HEADER_BYTES else None


class Piece(NamedTuple):
    """Numbers that are settled: those with an entry are delivered, the others are lost."""

    first: int
    last: int
    entries: bytes


class PastMerger:
    """Merges a recording with what the source keeps. It has no clock: the time is passed in."""

    def __init__(self, topic: int, older: OlderMessages, timeout_ns: int) -> None:
        """Begins without a question.

        Args:
            topic: the session's number of the topic.
            older: the recording.
            timeout_ns: how long messages are waited for that only the recording can bring.
        """
        self._topic, self._older, self._timeout_ns = topic, older, timeout_ns
        self._waits_until_ns: int | None = None
        self.gone_below = 0
        """The source does not keep messages below this number."""
        self.recorded_from = NUMBER_MAX
        """The recording has the message with this number, so the source is not asked for it and later ones."""
        self.reading = False
        """Whether the recording may have the next missing message, so that the source is not asked for any."""
        self.messages = 0
        """Messages that it brought."""

    @property
    def faults(self) -> int:
        """How often rows of the recording could not be read."""
        return self._older.faults

    def begin(self, low: int, next_sequence: int, before: int, most: int | None) -> int | None:
        """Returns the first number that receivers get; None while the recording is searched: call it again soon.

        Args:
            low: the first number that the source keeps, of those that are wanted of it.
            next_sequence: the next number of the source.
            before: the messages below this number were sent before the receivers joined.
            most: how many of these messages they want at most; None for all.
        """
        self.gone_below = max(self.gone_below, low)
        wanted = 0 if most is None else before - most
        if low <= wanted:
            return low
        found = self._older.begin(next_sequence, max(0, wanted))
        self.reading = found is None
        return None if found is None else min(low, max(found, wanted))

    def gone(self, below: int) -> None:
        """Takes note that the source does not keep messages below a number."""
        self.gone_below = max(self.gone_below, below)

    def rest(self) -> Piece | None:
        """Takes note that nothing is missing; returns None."""
        self.reading, self._waits_until_ns = False, None
        self.recorded_from = NUMBER_MAX
        return None

    @property
    def waits(self) -> bool:
        """Whether messages are missing that only the recording may bring."""
        return self.reading or self._waits_until_ns is not None

    def take(self, first: int, last: int, now_ns: int) -> Piece | None:
        """Returns the next messages that the recording has, or numbers that are lost.

        Args:
            first: the first missing number.
            last: the last one of the range that begins there.
            now_ns: the time.

        Returns:
            None when the source has to bring the first missing message, or when it is too early to say (`waits`).
        """
        found = self._older.read(first)
        self.reading = found is None
        if found is None:
            return None
        begin = found.messages[0].first if found.messages else NUMBER_MAX
        self.recorded_from = begin
        if begin == first:
            self._waits_until_ns = None
            messages = [message for message in found.messages if message.last <= last]
            if messages:
                return self._piece(messages)
            begin = last + 1  # a message that is missing in part only: its fragments come from the source, or are lost
        only_recorded = min(last + 1, begin, self.gone_below)
        if first >= only_recorded:
            self._waits_until_ns = None
            return None
        if begin == NUMBER_MAX and found.grows:
            if self._waits_until_ns is None:
                self._waits_until_ns = now_ns + self._timeout_ns
            if now_ns < self._waits_until_ns:
                return None
        self._waits_until_ns = None
        return Piece(first, only_recorded - 1, b"")

    def _piece(self, messages: list[OlderMessage]) -> Piece:
        # Behind a hole, or a message of which fragments are missing, another piece begins.
        count = 1
        while count < len(messages) and messages[count].first == messages[count - 1].last + 1:
            count += 1
        messages = messages[:count]
        self.messages += count
        return Piece(messages[0].first, messages[-1].last, entries_of(self._topic, messages))
