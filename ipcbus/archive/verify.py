"""Verifies an archive: finds everything that contradicts `ipcbus.archive.archive_layout`, checksums included.

It may run while recorders write: what lies above the watermark of a log that is written belongs to its recorder.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

from ipcbus.archive import blocks, json_files, removed_offsets
from ipcbus.archive import log_names as naming
from ipcbus.archive import watermark as marks
from ipcbus.archive.archive import IDENTITY, NAME, PARTITIONS, SIZE_MAX
from ipcbus.archive.blocks import ROW_SIZE
from ipcbus.archive.cursors import FOLDER
from ipcbus.archive.segments import SUFFIXES, Damage, OpenSegment, bases, file_of, leftovers, orphans
from ipcbus.embedding import FileMissing
from ipcbus.errors import ArchiveDamaged, StorageError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from ipcbus.archive.archive import Archive
    from ipcbus.archive.blocks import Block
    from ipcbus.archive.log import Log
    from ipcbus.archive.watermark import Watermark


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """A fault in an archive.

    Attributes:
        file: the file, relative to the archive.
        at: position in the file, in bytes; 0 for the whole file.
        log: key of the log; empty where the file is not part of one.
        first: first offset of the rows that cannot be read; None where no rows are affected.
        end: offset after the last of them.
        what: what is wrong.
    """

    file: str
    at: int
    log: str
    first: int | None
    end: int | None
    what: str


def verify(archive: Archive) -> list[Finding]:
    """Checks every byte of an archive.

    Raises:
        StorageError: the system refuses to list the archive.
    """
    fault = identity_fault(archive)
    found = [Finding(NAME, 0, "", None, None, fault)] if fault else []
    found += [
        Finding(
            f"{FOLDER}/{group}.json", 0, "", None, None, f"{reason}; it holds no rows until its consumer commits again"
        )
        for group, reason in archive.cursors.damaged().items()
    ]
    try:
        logs = archive.logs()
    except ArchiveDamaged as error:
        return [*found, Finding(".", 0, "", None, None, str(error))]
    for log in logs:
        found += check_partition(archive, log)
        found += (dataclasses.replace(each, log=log.key) for each in _Verifier(archive, log).all())
    return found


def identity_fault(archive: Archive) -> str:
    """Returns what is wrong with `archive.json`; empty where it is as it was written."""
    if archive.damage:
        return archive.damage
    data = json_files.read_bytes(archive.files, archive.path / NAME, SIZE_MAX)
    # Older releases wrote exactly these keys in this form, without a checksum.
    if json_files.unpack(data).keys() == IDENTITY and json_files.is_canonical(data):
        return ""
    return "was changed since it was written; its id can still be read"


def check_partition(archive: Archive, log: Log) -> Iterator[Finding]:
    """Yields a finding where the file of a log's partition number does not name the log's stream."""
    path = archive.path / PARTITIONS / str(log.partition)
    what = ""
    try:
        with contextlib.closing(archive.files.open(path)) as file:
            name = file.read_at(0, 200).decode(errors="replace").strip()
        if name != log.stream:
            what = f"names stream {name!a}, but the partition has log {log.key}"
    except FileMissing:
        what = f"is missing: another stream could get the partition of log {log.key}"
    except StorageError as error:
        what = str(error)
    if what:
        yield Finding(f"{PARTITIONS}/{log.partition}", 0, log.key, None, None, what)


class _Verifier:
    """Verifies one log."""

    def __init__(self, archive: Archive, log: Log) -> None:
        self._archive = archive
        self._files = archive.files
        self._log = log
        self._folder = log.folder
        # Asked first: if no process writes now, what lies above the watermark was left by a crash.
        self._is_written = archive.writing(log.stream) is not None

    def all(self) -> Iterator[Finding]:
        """Yields everything that is wrong."""
        mark = self._mark()
        if isinstance(mark, Finding):
            yield mark
            return
        yield from self._synced_marks()
        names = yield from self._names(mark)
        listed = self._files.names(self._folder)
        spans = self._log.spans(mark)
        missing = self._log.missing()
        for first, end in missing:
            what = (
                "is missing, and neither retention nor a power loss removed its segment; restore the segment from a "
                "copy if there is one, because repair turns its rows into losses"
            )
            yield self._finding(file_of(self._folder, first, "blk"), 0, what, (first, end))
        if mark.gone and self._log.removed_offsets(mark) is None:
            yield self._finding(
                self._folder / removed_offsets.NAME,
                0,
                "is missing or damaged: holes cannot be distinguished from damage",
            )
        for base, limit in spans:
            with contextlib.suppress(FileMissing):
                yield from self._segment(base, limit, mark, names.kinds())
        for suffix, base in (*leftovers(listed, mark.next_offset), *orphans(listed, mark.next_offset)):
            if not self._is_written and base not in {first for first, _ in missing}:
                yield self._finding(file_of(self._folder, base, suffix), 0, "does not belong to a published segment")

    def _finding(self, path: Path, at: int, what: str, rows: tuple[int, int] | None = None) -> Finding:
        first, end = rows or (None, None)
        return Finding(str(path.relative_to(self._archive.path)), at, "", first, end, what)

    def _mark(self) -> Watermark | Finding:
        path = self._folder / marks.NAME
        try:
            with contextlib.closing(self._files.open(path)) as file:
                found = marks.published(file)
        except FileMissing:
            return self._finding(path, 0, "is missing")
        except (ArchiveDamaged, StorageError) as error:
            return self._finding(path, 0, str(error))
        return self._finding(path, 0, "all three watermarks in it are damaged") if found is None else found

    def _synced_marks(self) -> Iterator[Finding]:
        """Yields the watermarks that are damaged beside a good one, if no writer may be writing them."""
        path = self._folder / marks.NAME
        if self._is_written:
            return
        with contextlib.closing(self._files.open(path)) as file:
            for at in marks.damaged(file):
                yield self._finding(path, at, "one of its three watermarks is damaged")

    def _names(self, mark: Watermark) -> Generator[Finding, None, naming.LogNames]:
        """Yields findings, and returns the names."""
        path = self._folder / naming.NAME_OF_FILE
        try:
            with contextlib.closing(self._files.open(path)) as file:
                found, scanned, damage = naming.load(naming.read(file))
        except (ArchiveDamaged, StorageError) as error:
            found, scanned, _ = naming.load(b"")
            if mark.names or not isinstance(error, FileMissing):
                yield self._finding(path, 0, str(error))
            return found
        if found.highest < mark.names:
            yield self._finding(
                path, scanned.good_end, f"has names up to {found.highest}, but rows use names up to {mark.names}"
            )
        elif damage and (scanned.good_follow or not self._is_written):
            yield self._finding(path, scanned.good_end, damage)
        return found

    def _segment(self, base: int, limit: int, mark: Watermark, kinds: NDArray[np.uint8]) -> Iterator[Finding]:
        """Verifies one segment, from the sizes of its files to the last checksum."""
        for suffix in SUFFIXES:
            path = file_of(self._folder, base, suffix)
            try:
                self._files.open(path).close()
            except FileMissing:
                if base in bases(self._files.names(self._folder)):  # else retention just removed it
                    yield self._finding(path, 0, "is missing", (base, limit))
                return
            except StorageError as error:
                yield self._finding(path, 0, str(error), (base, limit))
                return
        written = base == mark.base
        with OpenSegment(self._files, self._folder, base, mark.blocks if written else None) as opened:
            last: Block | None = None
            end = mark.next_offset if written else min(limit, opened.end())
            for piece in survey(opened, end, kinds):
                if isinstance(piece, Damage):
                    yield self._damage(base, piece)
                else:
                    last = piece
            if last is not None and last.end == end and not (written and self._is_written):
                yield from self._tail(opened, last)

    def _damage(self, base: int, piece: Damage) -> Finding:
        path = file_of(self._folder, base, piece.suffix)
        return self._finding(path, piece.at, piece.reason, (piece.first, piece.end))

    def _tail(self, opened: OpenSegment, last: Block) -> Iterator[Finding]:
        """Yields a finding for bytes after the last block."""
        sizes = (
            (opened.dat, last.position + last.bytes),
            (opened.idx, (last.end - opened.base) * ROW_SIZE),
            (opened.blk, opened.count * blocks.SIZE),
        )
        for file, expected in sizes:
            have = file.size()
            if have > expected:
                yield self._finding(file.path, expected, f"a torn tail: {have - expected} unpublished bytes")


def survey(opened: OpenSegment, end: int, kinds: NDArray[np.uint8]) -> Iterator[Block | Damage]:
    """Yields the good blocks of a segment up to an offset, and the damage between them."""
    data = 0
    for piece in opened.walk(opened.base, end):
        if isinstance(piece, Damage):
            yield piece
            continue
        found = opened.fault(piece, kinds)
        if found is None and piece.end > end:
            found = blocks.Fault("blk", 0, "its block reaches into the next segment")
        if found is None and piece.position < data:
            found = blocks.Fault("blk", 0, "its messages overlap those of the block before")
        if found is not None:
            yield Damage(piece.first_offset, min(piece.end, end), *found)
        else:
            data = piece.position + piece.bytes
            yield piece
