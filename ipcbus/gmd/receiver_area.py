"""The GMD area of a receiver: which messages it has acknowledged, for each sender and incarnation."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Acknowledged(NamedTuple):
    """The messages of a stream that a receiver has acknowledged."""

    floor: int
    """All messages up to this number are acknowledged; 0: none."""
    ranges: list[tuple[int, int]]
    """First and last number of each run of acknowledged messages above the floor, in order."""


class ReceiverArea(Protocol):
    """The acknowledgements of a named receiver of a topic. One thread at a time calls an area."""

    def known(self, sender: str, incarnation: int) -> Acknowledged:
        """Returns what is acknowledged of a stream; floor 0 without ranges for an unknown stream."""

    def record(self, sender: str, incarnation: int, floor: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Records what is acknowledged of a stream, in place of what was recorded before.

        Raises:
            GmdError: the area failed or is closed, or the disk has no room.
        """

    def streams(self) -> list[tuple[str, int]]:
        """Returns sender and incarnation of each stream that the area knows."""

    def forget(self, sender: str, incarnation: int) -> None:
        """Forgets a stream; its messages would be delivered again."""

    def sync(self) -> None:
        """Waits until what is recorded will survive a power loss.

        Raises:
            GmdError: the system refuses; the area failed for good.
        """

    def check(self) -> None:
        """Looks whether the files of the area are still there; called from time to time.

        Raises:
            GmdError: they were removed; the area failed for good, and each later `record` raises this error.
        """

    def close(self) -> None:
        """Closes the area; a second call does nothing."""


class MemoryReceiverArea:
    """A `ReceiverArea` that ends with its process."""

    def __init__(self) -> None:
        """Makes an area that knows no stream."""
        self._streams: dict[tuple[str, int], Acknowledged] = {}

    def known(self, sender: str, incarnation: int) -> Acknowledged:
        """See `ReceiverArea`."""
        found = self._streams.get((sender, incarnation))
        return Acknowledged(found.floor, list(found.ranges)) if found else Acknowledged(0, [])

    def record(self, sender: str, incarnation: int, floor: int, ranges: Sequence[tuple[int, int]]) -> None:
        """See `ReceiverArea`."""
        self._streams[sender, incarnation] = Acknowledged(floor, list(ranges))

    def streams(self) -> list[tuple[str, int]]:
        """See `ReceiverArea`."""
        return list(self._streams)

    def forget(self, sender: str, incarnation: int) -> None:
        """See `ReceiverArea`."""
        self._streams.pop((sender, incarnation), None)

    def sync(self) -> None:
        """See `ReceiverArea`."""

    def check(self) -> None:
        """See `ReceiverArea`."""

    def close(self) -> None:
        """See `ReceiverArea`."""
