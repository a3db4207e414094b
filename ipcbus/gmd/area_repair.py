"""Repairs and removes areas that no process uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ipcbus.errors import GmdError
from ipcbus.gmd import acknowledgement_file, area_opening
from ipcbus.gmd.acknowledgement_file import FileReceiverArea
from ipcbus.gmd.area_identity import gmd_errors, lock_area
from ipcbus.gmd.area_inspection import inspect, require_area
from ipcbus.gmd.file_area import FileArea

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus.gmd.journal_segments import Run
    from ipcbus.storage.files import Files


class Repaired(NamedTuple):
    """What a repair did."""

    repaired: int
    """Damaged parts that are gone."""
    pending: int
    missing: list[Run]


def repair_area(files: Files, folder: Path) -> Repaired:
    """Repairs an area.

    Raises:
        GmdAreaLocked: a process uses it.
        GmdError: there is no area, it cannot be repaired, or the system refuses.
    """
    found = inspect(files, folder)
    identity = found.identity
    if identity is None:
        raise GmdError(
            f"{folder / 'area'}: the owner of the area is unknown, because the file is damaged or missing; restore it "
            "from a backup, or remove the area with 'ipcbus gmd purge'"
        )
    if found.streams is not None:
        FileReceiverArea.open(files, folder, identity, repair=True).close()
        return Repaired(len(found.faults), 0, [])
    area = FileArea.open(files, folder, identity, repair=True)
    try:
        return Repaired(len(found.faults), area.pending, area.recovered().damage)
    finally:
        area.close()


def purge_area(files: Files, folder: Path) -> None:
    """Removes all files of an area but its lock; after that, there is no area any more.

    The lock stays, as an owner may have opened its file already, to take the lock next: if the file were removed, that
    owner would have a lock without a name, and another owner could make the area at the same time.

    Raises:
        GmdAreaLocked: a process uses it.
        GmdError: there is no area, or the system refuses.
    """
    with gmd_errors():
        require_area(files, folder)
    lock = lock_area(files, folder)
    try:
        with gmd_errors():
            require_area(files, folder)  # another process may have removed it before the lock was free
            files.remove(folder / acknowledgement_file.NAME)
            area_opening.remove_files(files, folder)
    finally:
        lock.release()
