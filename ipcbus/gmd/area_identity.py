"""Whose area a directory is: the file `area`, and the errors of storage in the words of guaranteed delivery."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
from typing import TYPE_CHECKING, Final

from ipcbus.errors import GmdAreaDamaged, GmdAreaFull, GmdAreaLocked, GmdError, StorageError, StorageFull
from ipcbus.storage import records
from ipcbus.storage.files import FileMissing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ipcbus.storage.files import File, Files, Lock

NAME: Final = "area"
LOCK: Final = "lock"
_FORMAT: Final = 1
_BYTES_MAX: Final = 1 << 24


@dataclasses.dataclass(frozen=True)
class AreaIdentity:
    """The sender or receiver that an area belongs to."""

    name: str
    """Its `gmd_name`."""
    topic: str
    domain: str
    incarnation: int = 0
    """Of a sender's area: a random number of 64 bits."""
    options: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """Options that an agent needs in order to send in the place of this sender."""

    def pack(self) -> bytes:
        """Returns the content of the file."""
        fields = {"format": _FORMAT, **dataclasses.asdict(self), "incarnation": f"{self.incarnation:016x}"}
        return records.frame(json.dumps(fields, sort_keys=True).encode())


def new_file_text(folder: Path, owner: AreaIdentity | None = None) -> str:
    """Returns how the file of an area comes back that is damaged or missing; `owner` is None where it is unknown."""
    names = "NAME TOPIC DOMAIN" if owner is None else shlex.join((owner.name, owner.topic, owner.domain))
    return (
        f"restore it from a backup, or run 'ipcbus gmd repair {shlex.quote(str(folder))} --owner {names}', which "
        "writes the file again and keeps what else is good in the area"
    )


def read_identity(files: Files, folder: Path, owner: AreaIdentity | None = None) -> AreaIdentity | None:
    """Returns who the area of a directory belongs to; None without the file.

    Args:
        files: the storage.
        folder: the directory.
        owner: who opens the area, for the text of an error; None if that is not its owner.

    Raises:
        GmdAreaDamaged: the file is damaged.
        GmdError: another version of this package wrote it.
    """
    path = folder / NAME
    try:
        with contextlib.closing(files.open(path)) as file:
            scan = records.scan(file.read_at(0, _BYTES_MAX))
    except FileMissing:
        return None
    try:
        if scan.damage or len(scan.records) != 1:
            raise ValueError(scan.damage or f"it has {len(scan.records)} records instead of one")
        fields = json.loads(scan.records[0][1])
        if fields["format"] != _FORMAT:
            raise GmdError(
                f"{path}: this version reads format {_FORMAT}, not {fields['format']}; use the version of "
                "ipcbus that wrote the area"
            )
        name, topic, domain = (str(fields[key]) for key in ("name", "topic", "domain"))
        return AreaIdentity(name, topic, domain, int(fields["incarnation"], 16), dict(fields["options"]))
    except (ValueError, KeyError, TypeError) as error:
        raise GmdAreaDamaged(f"{path}: the file is damaged ({error}); {new_file_text(folder, owner)}") from error


def stored_identity(files: Files, folder: Path, owner: AreaIdentity, *, repair: bool) -> AreaIdentity | None:
    """Returns who the area of a directory belongs to, as `read_identity`; with `repair` also None if it is damaged."""
    try:
        return read_identity(files, folder, owner)
    except GmdAreaDamaged:
        if not repair:
            raise
        return None


def was_removed(*held: File | Lock | None) -> bool:
    """Returns whether one of these files, which an area holds open, was removed."""
    return any(each is not None and not each.has_name() for each in held)


@contextlib.contextmanager
def gmd_errors() -> Iterator[None]:
    """Turns errors of storage into errors of guaranteed delivery.

    Raises:
        GmdAreaFull: the disk has no room.
        GmdError: the system refuses for another reason.
    """
    try:
        yield
    except StorageFull as error:
        raise GmdAreaFull(
            f"GMD area: {error} (ipc_gmd_directory); receivers that acknowledge, and gmd_delete of failed messages, "
            "make room in the area"
        ) from error
    except StorageError as error:
        raise GmdError(f"GMD area: {error}") from error


def lock_area(files: Files, folder: Path) -> Lock:
    """Takes the lock of an area.

    Raises:
        GmdAreaLocked: another process, or another source or receiver of this one, has it.
    """
    with gmd_errors():
        lock = files.lock(folder / LOCK)
        if lock is None:
            holder = files.holder(folder / LOCK) or "a process that has just ended"
            raise GmdAreaLocked(
                f"{folder}: the area is in use by {holder}; close its source or receiver there, or use another "
                "gmd_name or another directory (ipc_gmd_directory)"
            )
    return lock
