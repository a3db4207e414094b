"""Recorded messages of a topic, from which a recovery takes what the source does not keep any more.

What reads them is handed in from above: this package knows no files. `PastMerger` decides where the next missing
message comes from. A recording is asked first, because it costs the source nothing. What the recording does not have is
asked of the source. What the source does not keep either may still be on its way into the recording, and is waited for.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Protocol

from ipcbus.wire.control_messages import NUMBER_MAX
from ipcbus.wire.wire_layout import RETAINED_HEADER_BYTES

_ENTRY = struct.Struct("<QIIQ")


class OlderPiece(NamedTuple):
    """What a recording has from a number on.

    A recording returns messages only when it has the number; without it, it says where it goes on.
    """

    first: int
    """The first number; NUMBER_MAX: the recording has none yet."""
    last: int
    """The last number of the messages, which follow each other without a missing number; -1 without messages."""
    messages: int
    """How many messages there are."""
    entries: bytes
    """The messages as the entries of a RETRANSMISSION, whose send times are ns since the epoch. A message with several
    numbers has as many fragments."""
    grows: bool
    """Whether the recording is still written, so that later messages may come."""


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

    def read(self, first: int, last: int) -> OlderPiece | None:
        """Returns what the recording has from a number on, which is not below those of earlier calls.

        Args:
            first: the number.
            last: messages that end behind this number are not returned.

        Returns:
            Some messages, or None while they are searched: call it again at once.
        """


class History(Protocol):
    """A recording of many topics."""

    def of(self, topic: str, source: str, number: int) -> OlderMessages:
        """Returns the recorded messages of a topic, which has a number in the session with this source string."""


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

    def __init__(self, older: OlderMessages, timeout_ns: int) -> None:
        """Begins without a question.

        Args:
            older: the recording.
            timeout_ns: how long messages are waited for that only the recording can bring.
        """
        self._older, self._timeout_ns = older, timeout_ns
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
        found = self._older.read(first, last)
        self.reading = found is None
        if found is None:
            return None
        begin = found.first
        self.recorded_from = begin
        if begin == first:
            self._waits_until_ns = None
            if found.messages:
                self.reading = True  # most likely it has the next ones too
                self.messages += found.messages
                return Piece(first, found.last, found.entries)
            # A message that is missing in part only: its fragments come from the source, or are lost.
            begin = self.recorded_from = last + 1
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
