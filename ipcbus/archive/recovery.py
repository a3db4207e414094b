"""The first step of a writer: finds the good part of a log, cuts what a crash left after it, and finds the next offset.

While the watermark says that no power was lost since it was written (the log was closed in order, or `Files.boot_id`
has not changed), it is exact: no reader saw the rows beyond it, so they are cut.

After a power loss the watermark may be newer or older than the rows on the disk. The rows up to the synced watermark
(`watermark.synced`) are kept. The blocks after it are checked, and a segment is cut at its first bad block. New rows
begin at the limit, which was on the disk before any offset up to it was given, so no offset is given twice; the offsets
between are a hole, whether or not a reader saw rows there.

After a second crash in between, all of it is done again from the start: only the last step, the new watermark, changes
what it starts from.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from typing import TYPE_CHECKING, Final

from ipcbus.archive import blocks
from ipcbus.archive import log_names as naming
from ipcbus.archive import watermark as marks
from ipcbus.archive.archive_layout import WATERMARK, WATERMARK_AT
from ipcbus.archive.blocks import ROW_SIZE
from ipcbus.archive.segments import SUFFIXES, OpenSegment, bases, file_of, leftovers
from ipcbus.archive.watermark import Watermark
from ipcbus.embedding import FileMissing
from ipcbus.errors import ArchiveDamaged

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus.embedding import File, Files

RESERVE_MAX: Final = 1 << 24
"""Most offsets that are given between two syncs."""

_REPAIR: Final = "run 'ipcbus archive repair'"


@dataclasses.dataclass(frozen=True, slots=True)
class Recovered:
    """The result of a recovery."""

    next_offset: int
    lost_power: bool
    """Whether power may have been lost while the log was open."""
    hole: int
    """Number of offsets before `next_offset` that were given, or may have been, and are lost."""
    safe: int
    """Offsets below this were synced; no power loss removed them."""
    cut_bytes: int
    """Bytes that were cut or removed because they were unpublished or damaged."""


def begin(files: Files, folder: Path) -> None:
    """Makes the files of a log that has none.

    Raises:
        ArchiveDamaged: the watermark is missing, but the log has other files.
        StorageError: the system refuses.
    """
    there = files.names(folder)
    if marks.NAME in there:
        return
    if bases(there) or naming.NAME_OF_FILE in there:  # these are made after the watermark
        raise ArchiveDamaged(f"{folder / marks.NAME}: is missing, but the log is not new; {_REPAIR}")
    start(files, folder, Watermark(boot=files.boot_id()))


def start(files: Files, folder: Path, mark: Watermark) -> None:
    """Writes a watermark file with three equal copies."""
    data = bytearray(WATERMARK_AT[-1] + WATERMARK.itemsize)
    for at in WATERMARK_AT:
        data[at : at + WATERMARK.itemsize] = mark.pack()
    files.replace(folder / marks.NAME, data)


def recover(files: Files, folder: Path, file: File) -> Recovered:
    """Mends a log; idempotent. The caller holds the lock, and afterwards writes a new watermark and syncs it.

    Args:
        files: the storage.
        folder: the directory of the log.
        file: the watermark file.

    Raises:
        ArchiveDamaged: the damage cannot come from a crash.
        StorageError: the system refuses.
    """
    live, synced = marks.live(file), marks.synced(file)
    known = [mark for mark in (live, synced) if mark is not None]
    if not known:
        raise ArchiveDamaged(f"{file.path}: all watermarks are damaged; {_REPAIR}")
    exact = None
    if synced is not None and synced.closed:  # written after everything was synced; the next writer replaces it first
        exact = synced
    elif live is not None and live.boot == files.boot_id():
        # A writer that was killed between the two writes had synced rows before it published them. Cutting these rows
        # would leave a watermark that says they are safe.
        ahead = synced is not None and synced.boot == live.boot and synced.next_offset > live.next_offset
        exact = synced if ahead else live
    recover_names(files, folder, max(mark.names for mark in known))
    if exact is not None:
        return Recovered(exact.next_offset, False, 0, exact.next_offset, _cut_unpublished(files, folder, exact))
    safe = 0 if synced is None else synced.next_offset
    end, cut = _cut_bad(files, folder, safe)
    # With both synced copies damaged, the last reservation is unknown, but it was at most RESERVE_MAX.
    limit = max(mark.limit for mark in known) + (RESERVE_MAX if synced is None else 0)
    next_offset = max(limit, end)
    return Recovered(next_offset, True, next_offset - max(end, safe), safe, cut)


def recover_names(files: Files, folder: Path, highest: int) -> None:
    """Cuts what a crash left at the end of the names.

    Names are synced before rows that use them are published, so no row uses what is cut.

    Raises:
        ArchiveDamaged: names that rows use are damaged.
    """
    try:
        file = files.open(folder / naming.NAME_OF_FILE, write=True)
    except FileMissing:
        if highest:
            raise ArchiveDamaged(f"{folder / naming.NAME_OF_FILE}: is missing; {_REPAIR}") from None
        return
    with contextlib.closing(file):
        found, scanned, damage = naming.load(naming.read(file))
        if damage and (scanned.good_follow or not scanned.damage or found.highest < highest):
            raise ArchiveDamaged(f"{file.path}: {damage}; {_REPAIR}")
        if found.highest < highest:
            raise ArchiveDamaged(f"{file.path}: names from {found.highest + 1} to {highest} are missing; {_REPAIR}")
        if damage:
            file.truncate(scanned.good_end)
        file.sync()  # the writer may have been killed before its sync


def _cut_unpublished(files: Files, folder: Path, mark: Watermark) -> int:
    """Cuts a log at its watermark; returns the bytes that this freed.

    Syncs the segment that was written, because its writer may have been killed before the sync; earlier segments were
    synced when they were closed.
    """
    cut = 0
    if mark.base < mark.next_offset:
        rows = (mark.next_offset - mark.base) * ROW_SIZE
        sizes = {"blk": mark.blocks * blocks.SIZE, "idx": rows, "dat": mark.data_bytes}
        cut = _cut(files, folder, mark.base, sizes)
    return cut + _remove_leftovers(files, folder, mark.next_offset)


def _cut_bad(files: Files, folder: Path, safe: int) -> tuple[int, int]:
    """Cuts each segment that has rows after `safe` at the first bad block there; returns the end and the bytes."""
    end = cut = 0
    found = bases(files.names(folder))
    for base, follows in zip(found, [*found[1:], None], strict=False):
        if follows is not None and follows <= safe:
            continue
        try:
            with OpenSegment(files, folder, base) as opened:
                good = _good_end(opened, safe)
        except FileMissing:
            good = (base, {}) if base >= safe else None
        if good is None:
            continue
        if good[0] == base:
            cut += _remove(files, folder, [base])
            continue
        cut += _cut(files, folder, base, good[1])
        end = max(end, good[0])
    return end, cut + _remove_leftovers(files, folder, max(safe, end))


def _good_end(opened: OpenSegment, safe: int) -> tuple[int, dict[str, int]] | None:
    """Returns the end of a segment's good rows and its sizes there; None to leave the segment as it is.

    Rows before `safe` were synced and are not checked. Damage among them is not from a crash, and a repair can still
    save the rows around it.
    """
    safe = max(safe, opened.base)
    end, data, count = opened.base, 0, 0
    for number, block in enumerate(itertools.chain.from_iterable(opened.all_records()), 1):
        if block is None and end < safe:
            continue
        if block is None or (
            block.end > safe and (block.first_offset != max(end, safe) or block.position < data or opened.fault(block))
        ):
            return None if end < safe else (end, _sizes(opened.base, end, data, count))
        end, data, count = block.end, block.position + block.bytes, number
    return None if end < safe else (end, _sizes(opened.base, end, data, count))


def _sizes(base: int, end: int, data: int, count: int) -> dict[str, int]:
    return {"blk": count * blocks.SIZE, "idx": (end - base) * ROW_SIZE, "dat": data}


def _cut(files: Files, folder: Path, base: int, sizes: dict[str, int]) -> int:
    """Cuts the files of a segment and syncs the rest; returns the bytes that this freed."""
    freed = 0
    for suffix in reversed(SUFFIXES):  # records of blocks first, so that each record has its rows
        path = file_of(folder, base, suffix)
        with contextlib.suppress(FileMissing), contextlib.closing(files.open(path, write=True)) as file:
            have = file.size()
            if have > sizes[suffix]:
                file.truncate(sizes[suffix])
                freed += have - sizes[suffix]
            file.sync()
    files.sync_dir(folder)
    return freed


def _remove(files: Files, folder: Path, removed: list[int]) -> int:
    """Removes segments; returns the bytes that this freed."""
    return sum(_remove_file(files, file_of(folder, base, suffix)) for base in removed for suffix in reversed(SUFFIXES))


def _remove_leftovers(files: Files, folder: Path, next_offset: int) -> int:
    """Removes files of segments that were being made or removed; returns the bytes that this freed."""
    found = leftovers(files.names(folder), next_offset)
    freed = sum(_remove_file(files, file_of(folder, base, suffix)) for suffix, base in found)
    files.sync_dir(folder)
    return freed


def _remove_file(files: Files, path: Path) -> int:
    try:
        with contextlib.closing(files.open(path)) as file:
            size = file.size()
    except FileMissing:
        return 0
    files.remove(path)
    return size
