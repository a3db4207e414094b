"""A sender's GMD area in memory: it ends with its process."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from ipcbus.errors import GmdAreaFull, GmdError
from ipcbus.gmd.sender_area import Recovered, SavedMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Buffer

_HEAD_BYTES = 48


class MemoryArea:
    """A `SenderArea` in memory."""

    def __init__(self, sender: str, topic: str, incarnation: int, max_size: int = 0) -> None:
        """Makes an empty area; see `SenderArea` for the arguments."""
        self.sender = sender
        self.topic = topic
        self.incarnation = incarnation
        self.max_size = max_size
        self.checkpoint: Callable[[], list[bytes]] = list
        self.last_number = 0
        self.size = 0
        self._saved: dict[int, SavedMessage] = {}
        self._unsavable = 0
        self._closed = False

    @property
    def durable_number(self) -> int:
        """See `SenderArea`; memory has no further durability."""
        return self.last_number

    def save(self, mode: int, timeout_ns: int, send_time_ns: int, block: Buffer, data: Buffer) -> int:
        """See `SenderArea`."""
        if self._closed:
            raise GmdError(f"the GMD area of {self.sender} for topic {self.topic} is closed; make a new source")
        number = self.last_number + 1
        message = SavedMessage(number, mode, timeout_ns, send_time_ns, bytes(block), bytes(data))
        need = _bytes_of(message)
        if self.max_size and self.size + need > self.max_size:
            raise GmdAreaFull(
                f"the GMD area of {self.sender} for topic {self.topic} holds {self.size} bytes, and a message of "
                f"{need} bytes would exceed its maximum of {self.max_size}; let receivers acknowledge messages, or "
                "raise the maximum (gmd_set_max_size)"
            )
        self._saved[number] = message
        self.size += need
        self.last_number = self._unsavable = number
        return number

    def unsave(self, number: int) -> None:
        """See `SenderArea`."""
        if number != self._unsavable:
            raise GmdError(f"GMD message {number} was not saved by the last call, so it cannot be taken back")
        self._unsavable = 0
        self.size -= _bytes_of(self._saved.pop(number))
        self.last_number -= 1

    def load(self, number: int) -> SavedMessage | None:
        """See `SenderArea`."""
        return self._saved.get(number)

    def load_range(self, first: int, last: int, bytes_max: int) -> list[SavedMessage]:
        """See `SenderArea`."""
        found: list[SavedMessage] = []
        for number in self._numbers(first, last):
            message = self._saved[number]
            bytes_max -= len(message.block) + len(message.data)
            if bytes_max < 0 and found:
                break
            found.append(message)
        return found

    def release(self, first: int, last: int) -> None:
        """See `SenderArea`."""
        self._unsavable = 0
        for number in list(self._numbers(first, last)):
            self.size -= _bytes_of(self._saved.pop(number))

    def note(self, payload: bytes) -> None:
        """See `SenderArea`; no later process could read a note."""
        self._unsavable = 0

    def recovered(self) -> Recovered:
        """See `SenderArea`; an area in memory is always new."""
        return Recovered([], [], [], [])

    def sync(self) -> None:
        """See `SenderArea`."""

    def close(self) -> None:
        """See `SenderArea`."""
        self._closed = True
        self._saved.clear()

    def _numbers(self, first: int, last: int) -> Iterable[int]:
        """Returns the unreleased numbers of a range, in order."""
        if last - first < len(self._saved):
            return (number for number in range(first, last + 1) if number in self._saved)
        return takewhile(lambda number: number <= last, (number for number in self._saved if number >= first))


def _bytes_of(message: SavedMessage) -> int:
    return _HEAD_BYTES + (len(message.block) + len(message.data) + 7 & ~7)
