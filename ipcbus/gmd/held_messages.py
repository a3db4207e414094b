"""Live messages and losses of a source topic that wait behind messages which the source sends again."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ipcbus.wire.number_ranges import NumberRanges
from ipcbus.wire.resent_entries import ResentEntries

if TYPE_CHECKING:
    from collections.abc import Iterator


class LiveMessage(NamedTuple):
    """A message that came with the live stream."""

    number: int
    """GMD number; 0 for a message without a guarantee."""
    first: int
    """First topic number."""
    last: int
    """Last topic number."""
    size: int
    """Bytes that its copy takes."""
    what: object
    """The copy, which only the user of the machine knows."""


class ResentMessage(NamedTuple):
    """A message that the source sent again to this receiver."""

    number: int
    """GMD number."""
    send_time_ns: int
    """When it was sent for the first time, in ns since the epoch."""
    topic_numbers: tuple[int, int] | None
    """First and last topic number that it had in this session; None if an earlier session sent it."""
    block: bytes
    """The header block; empty without headers."""
    data: bytes
    """The value."""
    is_late: bool
    """Whether messages with higher numbers were delivered before: it was refused, or it had failed."""


class Loss(NamedTuple):
    """Topic numbers that no message will bring."""

    first: int
    last: int


class GaveUp(NamedTuple):
    """GMD numbers that the source's application deleted; copies of them are not to be delivered any more."""

    first: int
    last: int


ReceivedItem = LiveMessage | ResentMessage | ResentEntries | Loss | GaveUp


class HeldMessages:
    """Live messages and losses in their order, within a limit; what does not fit becomes a loss."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        """Begins empty.

        Args:
            messages_max: most messages.
            bytes_max: most bytes of them.
        """
        self._messages_max, self._bytes_max = messages_max, bytes_max
        self._items: deque[LiveMessage | NumberRanges] = deque()
        self._numbers: deque[int] = deque()
        self._covered = NumberRanges()
        self._messages = 0
        self.bytes = 0
        """Bytes of the messages."""
        self.following = 0
        """The topic number after the last one that was held or lost."""

    def __len__(self) -> int:
        """Returns the number of messages and losses."""
        return len(self._items)

    @property
    def first_number(self) -> int:
        """The GMD number of the first message that has one; 0 without one."""
        return self._numbers[0] if self._numbers else 0

    @property
    def front(self) -> LiveMessage | None:
        """The front message; None when a loss is at the front."""
        item = self._items[0]
        return item if isinstance(item, LiveMessage) else None

    def add(self, message: LiveMessage) -> bool:
        """Appends a message; returns False if it did not fit: its topic numbers are a loss unless it comes again."""
        self._covered.drop_below(message.first)
        self.following = message.last + 1
        if self._messages >= self._messages_max or self.bytes + message.size > self._bytes_max:
            self.add_loss(message.first, message.last)
            return False
        self._items.append(message)
        self._messages += 1
        self.bytes += message.size
        if message.number:
            self._numbers.append(message.number)
        return True

    def add_loss(self, first: int, last: int) -> bool:
        """Appends a loss without the topic numbers of messages that came again; returns whether any is left."""
        parts = self._covered.without(first, last)
        self._covered.drop_below(last + 1)
        self.following = last + 1
        loss = self._items[-1] if self._items else None
        if parts and not isinstance(loss, NumberRanges):
            self._items.append(NumberRanges(parts))
        elif isinstance(loss, NumberRanges):
            for part in parts:
                loss.add(*part)
        return bool(parts)

    def cover(self, first: int, last: int) -> None:
        """Takes note that a message which was sent again had these topic numbers: they are not lost."""
        for item in self._items:
            if isinstance(item, NumberRanges):
                item.remove(first, last)
        self._covered.add(first, last)

    def pop(self) -> Iterator[LiveMessage | Loss]:
        """Removes the front item, and gives the message, or the losses that are left of it."""
        item = self._items.popleft()
        if isinstance(item, NumberRanges):
            return (Loss(*part) for part in item)
        self._messages -= 1
        self.bytes -= item.size
        if item.number:
            self._numbers.popleft()
        return iter((item,))
