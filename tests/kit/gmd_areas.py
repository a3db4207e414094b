"""Senders' areas in files, for tests."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

from ipcbus.gmd import journal_layout
from ipcbus.gmd.area_identity import AreaIdentity
from ipcbus.gmd.delivery_modes import ALL
from ipcbus.gmd.file_area import FileArea
from ipcbus.gmd.journal_segments import serials
from ipcbus.wire import gmd_messages
from ipcbus.wire.control_messages import NUMBER_MAX
from tests.kit.disks import FaultyDisk

if TYPE_CHECKING:
    from ipcbus.gmd.sender_area import SenderArea
    from ipcbus.storage.files import Files
    from ipcbus.wire.resent_entries import Entry

INCARNATION = 0x1D2C3B4A59687786
GATEWAY = AreaIdentity("gateway", "orders", "default", INCARNATION)
FOLDER = Path("/gmd/gateway/orders/source")


def disk(seed: int = 1) -> FaultyDisk:
    """An empty simulated disk."""
    return FaultyDisk(random.Random(seed))


def opened(
    files: Files,
    folder: Path = FOLDER,
    *,
    durability: str = "process",
    max_size: int = 0,
    capacity: int = 0,
    repair: bool = False,
) -> FileArea:
    """The sender's area."""
    return FileArea.open(
        files, folder, GATEWAY, durability=durability, max_size=max_size, capacity=capacity, repair=repair
    )


def value(number: int, length: int | None = None) -> bytes:
    """The value that message `number` has in tests: no two are equal."""
    return (
        f"value {number} ".encode() * (1 + number % 5) if length is None else f"{number}".encode().rjust(length, b".")
    )


def save(area: FileArea, number: int, length: int | None = None) -> int:
    """Saves message `number`."""
    return area.save(ALL, number % 3, 1000 + number, b"head" * (number % 2), value(number, length))


def pending(area: FileArea) -> dict[int, bytes]:
    """Numbers and values of all messages that are not released."""
    return {each.number: each.data for each in entries(area)}


def entries(area: SenderArea, first: int = 1, last: int = NUMBER_MAX - 1, bytes_max: int = 1 << 40) -> list[Entry]:
    """The messages of a range that are not released, as a receiver gets them."""
    parts, count, size, following = area.entries(first, last, bytes_max, lambda number: (7, None, number))
    found = gmd_messages.decode(gmd_messages.resent(1, 1, 1, first, following, 0, parts))
    assert isinstance(found, gmd_messages.Resent)
    assert (len(found.entries), sum(map(len, parts))) == (count, size)
    return list(found.entries)


def busy_area(durability: str = "process") -> tuple[FaultyDisk, FileArea]:
    """An area with two segments: old messages in the first one, a state, a copy, a note and messages in the second."""
    files = disk()
    area = opened(files, durability=durability, capacity=1 << 10)
    area.checkpoint = lambda: [b"state"]
    number = 0
    while len(serials(files.names(FOLDER))) < 3:
        number += 1
        save(area, number)
        if number in (2, 3):
            area.release(number, number)
    save(area, number + 1)
    area.note(b"note 1")
    area.release(5, 5)
    save(area, number + 2)
    area.note(b"note 2")
    save(area, number + 3)
    return files, area


def small_area(durability: str = "process") -> tuple[FaultyDisk, dict[int, bytes]]:
    """The disk of a `busy_area`, and what it has."""
    files, area = busy_area(durability)
    return files, pending(area)


def copies(files: FaultyDisk) -> dict[Path, bytes]:
    """The segments and their bytes."""
    return {path: data for path, data in files.content().items() if path.suffix == ".gmd"}


def records_end(data: bytes) -> int:
    """Where the records of a segment end, and its end mark begins."""
    return len(data.rstrip(b"\0")) - journal_layout.END_BYTES


def is_whole(files: FaultyDisk, expected: dict[int, bytes]) -> bool:
    """Whether an area can be opened, and has all messages."""
    area = opened(files)
    there, damage = pending(area), area.recovered().damage
    area.close()
    return there == expected and not damage
