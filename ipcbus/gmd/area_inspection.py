"""Reads a GMD area without its lock, also while its owner writes it; nothing is changed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple

from ipcbus.errors import GmdAreaDamaged, GmdError
from ipcbus.gmd import journal_records, sender_notes
from ipcbus.gmd.acknowledgement_file import NAME as ACKNOWLEDGED
from ipcbus.gmd.acknowledgement_file import read_streams
from ipcbus.gmd.area_folders import RECEIVER
from ipcbus.gmd.area_identity import LOCK, gmd_errors, new_file_text, read_identity
from ipcbus.gmd.area_identity import NAME as IDENTITY
from ipcbus.gmd.area_opening import all_missing
from ipcbus.gmd.delivery_terms import DeliveryTerms
from ipcbus.gmd.expected_names import ExpectedNames
from ipcbus.gmd.journal_recovery import Recovery, incarnation_of, recover
from ipcbus.gmd.journal_segments import name_of, serials
from ipcbus.gmd.sender_area import SavedMessage
from ipcbus.wire.number_ranges import NumberRanges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from ipcbus.gmd.acknowledgement_file import State, Stream
    from ipcbus.gmd.area_identity import AreaIdentity
    from ipcbus.storage.files import Files

_TRIES: Final = 20


class Inspected(NamedTuple):
    """The content of an area at one moment."""

    folder: Path
    identity: AreaIdentity | None
    holder: str
    """The process that uses the area; empty without one."""
    disk_bytes: int
    recovery: Recovery | None
    """The journal of a sender's area."""
    streams: dict[Stream, State] | None
    """The acknowledgements in a receiver's area."""
    faults: list[tuple[str, int, int, str]]
    """File, offset, length and description of each damaged part; the offset is 0 where the whole file counts."""


def inspect(files: Files, folder: Path, *, before_each: Callable[[], object] = lambda: None) -> Inspected:
    """Reads an area.

    Args:
        files: the storage.
        folder: the directory of the area.
        before_each: called before each segment is read; it may raise an error.

    Raises:
        GmdError: there is no area, or the system refuses.
    """
    with gmd_errors():
        names = require_area(files, folder)
        faults: list[tuple[str, int, int, str]] = []
        identity = streams = recovery = None
        try:
            identity = read_identity(files, folder)
            if identity is None:
                raise GmdAreaDamaged(f"{folder / IDENTITY}: the file is missing; {new_file_text(folder)}")
        except GmdAreaDamaged as error:
            faults.append((str(folder / IDENTITY), 0, 0, str(error)))
        if _is_receivers(folder, names, identity):
            try:
                streams = read_streams(files, folder)
            except GmdAreaDamaged as error:
                faults.append((str(folder / ACKNOWLEDGED), 0, 0, str(error)))
                streams = read_streams(files, folder, repair=True)
        else:
            recovery = _recovery(files, folder, identity, before_each)
            faults += [(str(each.path), each.offset, each.length, each.text) for each in recovery.faults]
            if not recovery.segments and not serials(files.names(folder)):
                faults.append((str(folder), 0, 0, all_missing(folder)))
        size = sum(_size(files, folder / name) for name in names)
        return Inspected(folder, identity, files.holder(folder / LOCK) or "", size, recovery, streams, faults)


def is_area(names: Iterable[str]) -> bool:
    """Returns whether one of the files of an area is among the files of a directory.

    The lock does not count: it is what a purge leaves, and what an owner makes before anything else.
    """
    names = set(names)
    return bool({IDENTITY, ACKNOWLEDGED} & names or serials(names))


def _is_receivers(folder: Path, names: Iterable[str], identity: AreaIdentity | None) -> bool:
    """Returns whether an area is that of a receiver, also where files are missing."""
    if ACKNOWLEDGED in names:
        return True
    if identity is not None:
        return not identity.incarnation  # only sources have one
    return folder.name == RECEIVER and not serials(names)


def require_area(files: Files, folder: Path) -> list[str]:
    """Returns the names of the files of an area.

    Raises:
        GmdError: the directory is not an area.
        OSError: the system refuses.
    """
    names = files.names(folder)
    if not is_area(names):
        raise GmdError(f"{folder}: there is no GMD area; 'ipcbus gmd list' shows the areas")
    return names


def saved_messages(files: Files, found: Inspected, *, after: int = 0) -> Iterator[SavedMessage]:
    """Yields the unreleased messages of a sender's area; those that its owner has released meanwhile are left out."""
    recovery = found.recovery
    if recovery is None:
        return
    opened, file = -1, None
    with contextlib.ExitStack() as closing:
        for first, last in recovery.index.unreleased():
            for number in range(max(first, after + 1), last + 1):
                where = recovery.index.where(number)
                if where is None:
                    continue
                serial, offset, length, _ = where
                if serial != opened:
                    closing.close()
                    opened, file = serial, None
                    with contextlib.suppress(GmdError), gmd_errors():
                        file = closing.enter_context(contextlib.closing(files.open(found.folder / name_of(serial))))
                if file is None:
                    continue
                data = b""
                with contextlib.suppress(GmdError), gmd_errors():
                    data = file.read_at(offset, length)
                stamp = journal_records.segment_stamp(recovery.incarnation, serial) ^ offset >> 3
                record = journal_records.read(data, 0, stamp)
                if record is not None:
                    yield SavedMessage(number, record.mode, record.second, record.first, record.block, record.body)


def failed(found: Inspected, names: ExpectedNames) -> int:
    """Returns how many unreleased messages of a sender's area have failed for one of the names."""
    if found.recovery is None:
        return 0
    numbers = NumberRanges(part for name in names.all for ranges in name.failed.values() for part in ranges)
    return sum(numbers.count(first, last) for first, last in found.recovery.index.unreleased())


def names_of(found: Inspected) -> ExpectedNames:
    """Returns the receivers that a sender's area expects, as it has noted them."""
    names = ExpectedNames(lambda _: None)
    for payload in found.recovery.notes if found.recovery is not None else ():
        note = sender_notes.decode(payload)
        if note is not None and note.kind not in sender_notes.PAIRS:
            names.replay(note)
    return names


def terms_of(found: Inspected) -> DeliveryTerms:
    """Returns the delivery timeouts of the messages of a sender's area."""
    notes = [sender_notes.decode(each) for each in found.recovery.notes] if found.recovery is not None else []
    terms = DeliveryTerms()
    terms.recover((), [each.ranges[0] for each in notes if each is not None and each.kind == sender_notes.TIMEOUT])
    return terms


def _recovery(files: Files, folder: Path, identity: AreaIdentity | None, before_each: Callable[[], object]) -> Recovery:
    """Reads the journal, again if its owner has changed segments meanwhile."""
    for _ in range(_TRIES):
        before = serials(files.names(folder))
        incarnation = identity.incarnation if identity is not None else incarnation_of(files, folder)
        found = recover(files, folder, incarnation or 0, before_each=before_each)
        if not found.damage or serials(files.names(folder)) == before:
            return found
    return found


def _size(files: Files, path: Path) -> int:
    with contextlib.suppress(GmdError), gmd_errors(), contextlib.closing(files.open(path)) as file:
        return file.size()
    return 0
