"""What one receiver of a simulated topic was given, entered against what was sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ipcbus import MessageType

if TYPE_CHECKING:
    from ipcbus import Message


class Sent(NamedTuple):
    """A message as it was sent."""

    first: int
    last: int
    payload: bytes
    block: bytes = b""


@dataclass
class Account:
    """One receiver. Whatever must not be raises AssertionError at once."""

    ordered: int
    sent: dict[int, Sent]
    """By each of its numbers."""
    first: int = -1
    last: int = -1
    lost: int = 0
    begun: bool = False
    ended: bool = False
    joins: int = 1
    """How often the session may begin."""
    _fates: set[int] = field(default_factory=set)

    def enter(self, message: Message) -> None:
        """A message or event was given to the receiver."""
        kind = message.type
        if kind is MessageType.BOS:
            assert self.ended == self.begun, "BOS twice"
            assert not self.ended or self.joins > 1, "BOS after EOS"
            self.joins -= self.ended
            self.begun, self.ended = True, False
            return
        assert not self.ended, f"{message!r} after EOS"
        assert self.begun, f"{message!r} before BOS"
        if kind is MessageType.EOS:
            self.ended = True
        else:
            self._span(message.first_sequence_number, message.sequence_number)
            if kind is MessageType.DATA:
                self._compare(message)
            else:
                assert kind in (MessageType.UNRECOVERABLE_LOSS, MessageType.UNRECOVERABLE_LOSS_BURST)
                self.lost += message.sequence_number - message.first_sequence_number + 1

    def close(self, begins: int | None, upto: int | None) -> None:
        """Nothing comes any more: everything between the ends was delivered or reported.

        Args:
            begins: the number from which on the receiver could know of losses; None when it could not.
            upto: the number that the next message would have; None when the receiver was not told.
        """
        assert self.ended == self.begun, "BOS without EOS"
        count = self.last - self.first + 1 if self._fates else 0
        assert len(self._fates) == count, f"a hole in {self.first} to {self.last}"
        if upto is not None and (self._fates or (begins is not None and begins < upto)):
            assert self.last == upto - 1, f"accounted for up to {self.last} of {upto - 1}"
        if begins is not None and self._fates:
            assert self.first <= begins, f"accounted for from {self.first} on, not {begins}"

    def _span(self, first: int, last: int) -> None:
        assert first <= last
        assert last in self.sent, f"{last} was never sent"
        for number in range(first, last + 1):
            assert number not in self._fates, f"{number} for the second time"
            self._fates.add(number)
        if self.ordered == 1 and self.first >= 0:
            assert first == self.last + 1, f"{first} after {self.last}"
        self.first = first if self.first < 0 else min(first, self.first)
        self.last = max(last, self.last)

    def _compare(self, message: Message) -> None:
        sent = self.sent[message.sequence_number]
        payload, info = message.data, message.fragment_info
        if info is not None:
            assert info.first_sequence_number == sent.first
            assert info.total_length == len(sent.block + sent.payload)
            if self.ordered == 0:
                assert message.first_sequence_number == message.sequence_number
                assert payload == (sent.block + sent.payload)[info.offset : info.offset + len(payload)]
                return
        assert (sent.first, sent.last) == (message.first_sequence_number, message.sequence_number)
        assert (payload, message.properties_block) == (sent.payload, sent.block)
