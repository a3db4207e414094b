"""Senders' areas in files, for tests."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

from ipcbus.gmd.area_identity import AreaIdentity
from ipcbus.gmd.delivery_modes import ALL
from ipcbus.gmd.file_area import FileArea
from tests.kit.disks import FaultyDisk

if TYPE_CHECKING:
    from ipcbus.storage.files import Files

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
    return {message.number: message.data for message in area.load_range(1, 1 << 62, 1 << 40)}
