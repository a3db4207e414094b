"""A sender's GMD area in memory: it ends with its process."""

from typing_extensions import Buffer

from ipcbus.gmd.copy_area import CopyArea
from ipcbus.gmd.sender_area import Recovered

class MemoryArea(CopyArea):
    """A `SenderArea` in memory; see there."""

    def __init__(self, sender: str, topic: str, incarnation: int, max_size: int = 0) -> None:
        """Makes an empty area; see `SenderArea` for the arguments."""

    @property
    def durable_number(self) -> int:
        """The number of the last message: memory has no further durability."""

    def save(self, mode: int, place: int, send_time_ns: int, block: Buffer, data: Buffer) -> int:
        """See `SenderArea`."""

    def unsave(self, number: int) -> None:
        """See `SenderArea`."""

    def release(self, first: int, last: int) -> None:
        """See `SenderArea`."""

    @property
    def has_unwritten_releases(self) -> bool:
        """See `SenderArea`; nothing is written."""

    def write_releases(self) -> None:
        """See `SenderArea`."""

    def note(self, payload: bytes) -> None:
        """See `SenderArea`; no later process could read a note."""

    def recovered(self) -> Recovered:
        """See `SenderArea`; an area in memory is always new."""

    def sync(self) -> None:
        """See `SenderArea`."""

    def check(self) -> None:
        """See `SenderArea`."""

    def close(self) -> None:
        """Closes the area, and gives up its messages."""
