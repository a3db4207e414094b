"""Looks at the directory of a sender's area before it is opened: whose it is, and whether its journal is whole."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from ipcbus.errors import GmdAreaDamaged, GmdError, StorageFull
from ipcbus.gmd import area_identity as identities
from ipcbus.gmd.area_yielding import WANTED, yield_if_wanted
from ipcbus.gmd.journal_recovery import Recovery, incarnation_of, recover
from ipcbus.gmd.journal_segments import SPARE, name_of, serials, text_of

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus.gmd.area_identity import AreaIdentity
    from ipcbus.storage.files import Files


class Opened(NamedTuple):
    """The content of an area's directory."""

    identity: AreaIdentity
    stored: AreaIdentity | None
    """The identity in the files; None if it is missing or damaged."""
    recovery: Recovery
    is_new: bool


def read(files: Files, folder: Path, wanted: AreaIdentity, *, repair: bool) -> Opened:
    """Reads an area for its sender.

    Args:
        files: the storage.
        folder: the directory.
        wanted: who the sender is; its incarnation is used if the area is new.
        repair: whether damage is accepted, as long as the area has a segment.

    Raises:
        GmdAreaDamaged: the area is damaged, and `repair` is not set or cannot help.
        GmdAreaLocked: this process is the agent of the directory, and the owner of one of its areas has returned.
        GmdError: the area belongs to another sender.
        StorageError: the system refuses.
    """
    names = files.names(folder)
    there = serials(names)
    if not there and identities.NAME in names:
        raise GmdAreaDamaged(all_missing(folder))
    stored = identities.stored_identity(files, folder, wanted, repair=repair)
    if stored is not None and (stored.name, stored.topic, stored.domain) != (wanted.name, wanted.topic, wanted.domain):
        raise GmdError(
            f"{folder}: the area belongs to sender {stored.name} of topic {stored.topic} in domain {stored.domain}, "
            f"not to {wanted.name} of topic {wanted.topic} in domain {wanted.domain}; use another directory "
            "(ipc_gmd_directory) for each domain"
        )
    if not there:
        return Opened(wanted, None, Recovery(incarnation=wanted.incarnation), True)
    incarnation = stored.incarnation if stored is not None else incarnation_of(files, folder)
    recovery = recover(
        files,
        folder,
        wanted.incarnation if incarnation is None else incarnation,
        before_each=lambda: yield_if_wanted(files, folder),
    )
    unfinished = there == [1] and not (recovery.damage or recovery.numbers_known or recovery.notes)
    if stored is None and unfinished:  # the file `area` is written last
        files.remove(folder / name_of(1))
        return Opened(wanted, None, Recovery(incarnation=wanted.incarnation), True)
    if stored is None and not repair:
        cure = identities.new_file_text(folder, wanted)
        raise GmdAreaDamaged(f"{folder / identities.NAME}: the file is missing; {cure}")
    check(folder, recovery, repair=repair)
    identity = dataclasses.replace(wanted, incarnation=recovery.incarnation)
    return Opened(identity, stored, recovery, False)


def all_missing(folder: Path) -> str:
    """Returns the text for an area without segments: a repair would give its numbers to other messages."""
    return (
        f"{folder}: all segments of the area are missing; restore the directory, or start afresh (gmd_fresh, or "
        "'ipcbus gmd purge') and give up what was pending"
    )


def check(folder: Path, recovery: Recovery, *, repair: bool) -> None:
    """Raises an error if a journal is damaged.

    Raises:
        GmdAreaDamaged: it is, and `repair` is not set.
    """
    faults = recovery.faults
    if faults and not repair:
        first = faults[0]
        more = f", and at {len(faults) - 1} more places" if len(faults) > 1 else ""
        missing = [f"messages {text_of(recovery.missing)}"] if recovery.missing else []
        if recovery.is_cut:
            missing.append(f"all messages after number {recovery.numbers_known}")
        lost = f"missing: {' and '.join(missing)}" if missing else "no message is missing"
        raise GmdAreaDamaged(
            f"{first.path}: damaged at offset {first.offset}, {first.length} bytes: {first.text}{more}; {lost}; "
            f"restore {folder} from a backup, or run 'ipcbus gmd repair', which keeps all good messages and names the "
            "missing ones"
        )


def write_identity(files: Files, folder: Path, opened: Opened) -> None:
    """Writes whose area a directory is; a full disk keeps the options that the owner had before, for agents.

    Raises:
        StorageError: the system refuses.
    """
    try:
        files.replace(folder / identities.NAME, opened.identity.pack())
    except StorageFull:
        if opened.stored is None:
            raise


def remove_files(files: Files, folder: Path) -> None:
    """Removes all files of an area but its lock.

    The file `area` goes last: whatever a crash leaves is either the whole area, or is seen as damaged.

    Raises:
        StorageError: the system refuses.
    """
    for serial in serials(files.names(folder)):
        files.remove(folder / name_of(serial))
    for name in (SPARE, WANTED, identities.NAME):
        files.remove(folder / name)
    files.sync_dir(folder)
