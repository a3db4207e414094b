"""Messages that know who they are, and the ledger of a receiver: what came, what was reported lost, what was wrong."""

from __future__ import annotations

import struct
import zlib
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from ipcbus import MessageType

if TYPE_CHECKING:
    from ipcbus import Message

_HEAD = struct.Struct("<IIQ")
SMALLEST = _HEAD.size

LOSSES = (MessageType.UNRECOVERABLE_LOSS, MessageType.UNRECOVERABLE_LOSS_BURST)


def body(number: int, size: int = 64, sender: int = 0) -> bytes:
    """A message of `size` bytes, 16 at least, that holds its number, its sender and a checksum over all of it."""
    rest = _HEAD.pack(0, sender, number)[4:] + bytes([number & 0xFF]) * (size - SMALLEST)
    return zlib.crc32(rest).to_bytes(4, "little") + rest


def number_of(data: bytes) -> int:
    """The number in a message; -1 when it is torn."""
    if len(data) < SMALLEST or zlib.crc32(data[4:]) != int.from_bytes(data[:4], "little"):
        return -1
    return int(_HEAD.unpack_from(data)[2])


@dataclass
class Ledger:
    """What one receiver got of one source, by topic sequence numbers.

    Attributes:
        first: number of the first message that came or was reported lost; -1 before.
        next: number that has to come next.
        delivered: messages that came; one that was sent in pieces counts as so many.
        lost: messages that were reported lost, in the same way.
        bursts: burst events among these reports.
        wrong: what must not be: torn content, repeated or skipped numbers, data outside of BOS and EOS.
        begun: BOS events.
        ended: EOS events.
        losses: the ranges that were reported lost; those that touch are one.
    """

    first: int = -1
    next: int = -1
    delivered: int = 0
    lost: int = 0
    bursts: int = 0
    begun: int = 0
    ended: int = 0
    wrong: list[str] = field(default_factory=list)
    losses: list[list[int]] = field(default_factory=list)

    def enter(self, message: Message) -> None:
        """Enters a message or event."""
        if message.type is MessageType.DATA:
            first = message.first_sequence_number
            self._step(first, message.sequence_number)
            self.delivered += message.sequence_number - first + 1
            if number_of(message.data) != first:
                self._blame(f"message {first} holds {number_of(message.data)}")
            if self.begun != self.ended + 1:
                self._blame(f"message {message.sequence_number} outside of BOS and EOS")
        elif message.type in LOSSES:
            self._step(message.first_sequence_number, message.sequence_number)
            self.lost += message.sequence_number - message.first_sequence_number + 1
            if not self.losses or self.losses[-1][1] + 1 != message.first_sequence_number:
                self.losses.append([message.first_sequence_number, message.sequence_number])
            self.losses[-1][1] = message.sequence_number
            self.bursts += message.type is MessageType.UNRECOVERABLE_LOSS_BURST
        elif message.type is MessageType.BOS:
            self.begun += 1
        elif message.type is MessageType.EOS:
            self.ended += 1

    def _step(self, first: int, last: int) -> None:
        if self.first < 0:
            self.first = self.next = first
        if first != self.next or last < first:
            self._blame(f"numbers {first} to {last} came, {self.next} was next")
        self.next = last + 1

    def _blame(self, what: str) -> None:
        if len(self.wrong) < 10:
            self.wrong.append(what)

    def as_dict(self) -> dict[str, object]:
        """For another process."""
        return asdict(self)


class Books:
    """The ledgers of one receiver, one a source string."""

    def __init__(self) -> None:
        self.ledgers: dict[str, Ledger] = {}

    def enter(self, message: Message) -> None:
        """Enters a message or event; a receiver's callback."""
        self.ledgers.setdefault(message.source, Ledger()).enter(message)

    @property
    def delivered(self) -> int:
        """Messages of all sources."""
        return sum(ledger.delivered for ledger in self.ledgers.values())

    @property
    def accounted(self) -> int:
        """Messages of all sources that came or were reported lost."""
        return sum(ledger.delivered + ledger.lost for ledger in self.ledgers.values())

    @property
    def ended(self) -> int:
        """EOS events of all sources."""
        return sum(ledger.ended for ledger in self.ledgers.values())


def balanced(ledger: Ledger, sent: int, *, first: int = 0, joins: int = 1) -> None:
    """Asserts that every message from number `first` on, of `sent` in all, came in order or was reported lost.

    Args:
        ledger: of the receiver.
        sent: how many were sent.
        first: number of the first one that the receiver has to account for.
        joins: how often the session began for the receiver.
    """
    assert ledger.wrong == []
    assert ledger.delivered + ledger.lost == sent - first
    if sent > first:
        assert (ledger.first, ledger.next) == (first, sent)
        assert ledger.begun == joins
