"""Repairs and removes areas that no process uses."""

from __future__ import annotations

import dataclasses
import secrets
from typing import TYPE_CHECKING, NamedTuple

from ipcbus.errors import GmdError
from ipcbus.gmd import acknowledgement_file, area_opening
from ipcbus.gmd.acknowledgement_file import FileReceiverArea
from ipcbus.gmd.area_folders import escaped
from ipcbus.gmd.area_identity import NAME as IDENTITY
from ipcbus.gmd.area_identity import gmd_errors, lock_area, new_file_text
from ipcbus.gmd.area_inspection import inspect, require_area
from ipcbus.gmd.file_area import FileArea

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus.gmd.area_identity import AreaIdentity
    from ipcbus.gmd.area_inspection import Inspected
    from ipcbus.gmd.journal_segments import Run
    from ipcbus.storage.files import Files


class Repaired(NamedTuple):
    """What a repair did."""

    repaired: int
    """Damaged parts that are gone."""
    pending: int
    missing: list[Run]


def repair_area(files: Files, folder: Path, owner: AreaIdentity | None = None) -> Repaired:
    """Repairs an area.

    Args:
        files: the storage.
        folder: the directory of the area.
        owner: name, topic and domain of its sender or receiver; needed if the file that says so is damaged or missing.

    Raises:
        GmdAreaLocked: a process uses it.
        GmdError: there is no area, it cannot be repaired, it has another owner, or the system refuses.
    """
    found = inspect(files, folder)
    identity = _identity(found, owner)
    if found.streams is not None:
        FileReceiverArea.open(files, folder, identity, repair=True).close()
        return Repaired(len(found.faults), 0, [])
    # The incarnation is that of the files; this one counts where they do not say it.
    identity = dataclasses.replace(identity, incarnation=secrets.randbits(64) | 1)
    area = FileArea.open(files, folder, identity, repair=True)
    try:
        return Repaired(len(found.faults), area.pending, area.recovered().damage)
    finally:
        area.close()


def _identity(found: Inspected, owner: AreaIdentity | None) -> AreaIdentity:
    """Returns who an area belongs to, as its files or the caller say; `open` compares both.

    Raises:
        GmdError: neither says it, or the directory is that of another owner.
    """
    folder = found.folder
    if owner is None:
        if found.identity is None:
            raise GmdError(
                f"{folder / IDENTITY}: the owner of the area is unknown, because the file is damaged or missing; "
                f"{new_file_text(folder)}"
            )
        return found.identity
    place = (escaped(owner.name), escaped(owner.topic))
    if folder.absolute().parts[-3:-1] != place:
        raise GmdError(
            f"{folder}: this is not the area of {owner.name} for topic {owner.topic}, whose directory ends with "
            f"{'/'.join(place)}/{folder.name}; give the gmd_name and the topic of its owner"
        )
    return dataclasses.replace(found.identity or owner, name=owner.name, topic=owner.topic, domain=owner.domain)


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
