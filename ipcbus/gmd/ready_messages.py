"""What is in order at a named receiver, and waits until the user of its machine delivers it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ipcbus.gmd.held_messages import LiveMessage, ResentMessage
from ipcbus.wire.resent_entries import ResentEntries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.gmd.held_messages import ReceivedItem
    from ipcbus.gmd.received_stream import ReceivedStream
    from ipcbus.wire.number_ranges import NumberRanges
    from ipcbus.wire.resent_entries import Entry


class ReadyMessages:
    """Messages, runs of messages that came again, losses, and what was given up, in their order."""

    def __init__(self) -> None:
        """Begins empty."""
        self._items: deque[ReceivedItem] = deque()
        self.bytes = 0
        """Bytes of the messages; those of a run count until all of it is taken."""

    def __len__(self) -> int:
        """Returns the number of items; a run is one."""
        return len(self._items)

    def put(self, item: ReceivedItem) -> None:
        """Appends an item."""
        self._items.append(item)
        self.bytes += _size(item)

    def take(self) -> ReceivedItem | None:
        """Returns the front item, and removes it; a run stays until its user has taken all entries of it."""
        while self._items:
            item = self._items[0]
            is_run = isinstance(item, ResentEntries)
            if is_run and item:
                return item
            self._items.popleft()
            self.bytes -= _size(item)
            if not is_run:
                return item
        return None

    def withdraw(self, ranges: NumberRanges, opening: int) -> list[int]:
        """Removes messages that the source has deleted; returns their numbers.

        Args:
            ranges: the numbers that are deleted.
            opening: see `single`.
        """
        found = []
        waiting, self._items, self.bytes = self._items, deque(), 0
        for item in (each for several in waiting for each in _apart(several, opening)):
            if isinstance(item, LiveMessage | ResentMessage) and item.number in ranges:
                found.append(item.number)
            else:
                self.put(item)
        return found

    def go_back(self, stream: ReceivedStream) -> None:
        """Gives guaranteed messages back to their stream: they were not delivered. Everything else stays."""
        waiting, self._items, self.bytes = self._items, deque(), 0
        for item in waiting:
            if isinstance(item, ResentEntries):
                if item:
                    stream.go_back(item.first)
                    item.clear()  # the user may be delivering them
            elif not isinstance(item, LiveMessage | ResentMessage) or not item.number:
                self.put(item)
            elif isinstance(item, ResentMessage) and item.is_late and item.number not in stream.done:
                stream.holes.add(item.number, item.number)
            elif item.number not in stream.done:
                stream.go_back(item.number)


def single(entry: Entry, opening: int, *, is_late: bool = False) -> ResentMessage:
    """Returns an entry as a message.

    Args:
        entry: the entry.
        opening: the opening of the source's area in this session; other ones gave other topic numbers.
        is_late: see `ResentMessage`.
    """
    numbers = entry.topic_numbers if entry.opening == opening else None
    return ResentMessage(entry.number, entry.send_time_ns, numbers, entry.block, entry.data, is_late)


def _apart(item: ReceivedItem, opening: int) -> Iterator[ReceivedItem]:
    """Yields the entries of a run one by one, and anything else as it is."""
    if not isinstance(item, ResentEntries):
        yield item
        return
    while item:  # taken from the run, because the user may be delivering it
        yield single(item.pop(), opening)


def _size(item: ReceivedItem) -> int:
    if isinstance(item, ResentMessage):
        return len(item.block) + len(item.data)
    return item.size if isinstance(item, LiveMessage | ResentEntries) else 0
