"""GMD areas for tests of the protocol: their content outlives them, as files outlive a process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipcbus.errors import GmdAreaDamaged, GmdAreaFull, GmdError
from ipcbus.gmd.receiver_area import Acknowledged
from ipcbus.gmd.sender_area import Recovered, SavedMessage
from ipcbus.wire import gmd_messages
from ipcbus.wire.number_ranges import NumberRanges

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

    from ipcbus.gmd.sender_area import PlaceRun


@dataclass
class SenderDisk:
    """What is left of a sender's area when its process ends."""

    sender: str = "gateway"
    topic: str = "orders"
    incarnation: int = 77
    last_number: int = 0
    saved: dict[int, SavedMessage] = field(default_factory=dict)
    notes: list[bytes] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    damaged: set[int] = field(default_factory=set)


class ModelSenderArea:
    """A `SenderArea` over a `SenderDisk`."""

    def __init__(self, disk: SenderDisk, *, segment: int = 0, max_size: int = 0) -> None:
        """Opens the area.

        Args:
            disk: what it has.
            segment: records after which a new segment begins with a checkpoint; 0: never.
            max_size: most bytes of data.
        """
        self.disk, self.max_size, self._segment, self._records = disk, max_size, segment, 0
        self.sender, self.topic, self.incarnation = disk.sender, disk.topic, disk.incarnation
        self.checkpoint: Callable[[], list[bytes]] = list
        self.refuses_notes = False
        self.size = sum(len(each.data) for each in disk.saved.values())

    @property
    def last_number(self) -> int:
        """See `SenderArea`."""
        return self.disk.last_number

    @property
    def durable_number(self) -> int:
        """See `SenderArea`."""
        return self.disk.last_number

    def _write(self) -> None:
        self._records += 1
        if self._segment and self._records > self._segment:
            self._records = 0
            self.disk.notes = self.checkpoint()

    def save(self, mode: int, place: int, send_time_ns: int, block: Buffer, data: Buffer) -> int:
        """See `SenderArea`."""
        if self.max_size and self.size + len(bytes(data)) > self.max_size:
            raise GmdAreaFull("full")
        self._write()
        self.disk.last_number += 1
        number = self.disk.last_number
        self.disk.saved[number] = SavedMessage(number, mode, place, send_time_ns, bytes(block), bytes(data))
        self.size += len(bytes(data))
        return number

    def unsave(self, number: int) -> None:
        """See `SenderArea`."""
        assert number == self.disk.last_number
        self.size -= len(self.disk.saved.pop(number).data)
        self.disk.last_number -= 1

    def load(self, number: int) -> SavedMessage | None:
        """See `SenderArea`."""
        if number in self.disk.damaged:
            raise GmdAreaDamaged("damaged")
        return self.disk.saved.get(number)

    def entries(self, first: int, last: int, bytes_max: int, place_run: PlaceRun) -> tuple[list[bytes], int, int, int]:
        """See `SenderArea`."""
        found: list[bytes] = []
        size = 0
        for number in sorted(each for each in self.disk.saved if first <= each <= last):
            if number in self.disk.damaged and found:
                return found, len(found), size, number
            message = self.load(number)
            assert message is not None
            opening, place, _ = place_run(number)
            place = message.place if place is None else place
            entry = gmd_messages.entry(number, message.send_time_ns, opening, place, message.block, message.data)
            if found and size + len(entry) > bytes_max:
                return found, len(found), size, number
            found.append(entry)
            size += len(entry)
        return found, len(found), size, last + 1

    def release(self, first: int, last: int) -> None:
        """See `SenderArea`."""
        self._write()
        for number in [each for each in self.disk.saved if first <= each <= last]:
            self.size -= len(self.disk.saved.pop(number).data)

    def note(self, payload: bytes) -> None:
        """See `SenderArea`."""
        if self.refuses_notes:
            raise GmdError("the area failed")
        self._write()
        self.disk.notes.append(payload)

    def recovered(self) -> Recovered:
        """See `SenderArea`."""
        disk, modes = self.disk, list[tuple[int, int]]()
        for number, message in sorted(disk.saved.items()):
            if not modes or modes[-1][1] != message.mode:
                modes.append((number, message.mode))
        unreleased = list(NumberRanges((number, number) for number in disk.saved))
        return Recovered(list(disk.notes), unreleased, modes, list(disk.lost))

    def sync(self) -> None:
        """See `SenderArea`."""

    def check(self) -> None:
        """See `SenderArea`."""

    def close(self) -> None:
        """See `SenderArea`."""


class ModelReceiverArea:
    """A `ReceiverArea` whose content is `recorded`."""

    def __init__(self, recorded: dict[tuple[str, int], Acknowledged] | None = None) -> None:
        """Opens the area."""
        self.recorded = {} if recorded is None else recorded
        self.fails = False
        self.records = 0

    def known(self, sender: str, incarnation: int) -> Acknowledged:
        """See `ReceiverArea`."""
        return self.recorded.get((sender, incarnation), Acknowledged(0, []))

    def record(self, sender: str, incarnation: int, floor: int, ranges: Sequence[tuple[int, int]]) -> None:
        """See `ReceiverArea`."""
        if self.fails:
            raise GmdError("the disk is full")
        self.records += 1
        self.recorded[sender, incarnation] = Acknowledged(floor, list(ranges))

    def streams(self) -> list[tuple[str, int]]:
        """See `ReceiverArea`."""
        return list(self.recorded)

    def forget(self, sender: str, incarnation: int) -> None:
        """See `ReceiverArea`."""
        self.recorded.pop((sender, incarnation), None)

    def sync(self) -> None:
        """See `ReceiverArea`."""

    def check(self) -> None:
        """See `ReceiverArea`."""

    def close(self) -> None:
        """See `ReceiverArea`."""
