"""Repairs an archive: afterwards every row can be read, and what is lost is counted.

A block with wrong checksums becomes as many rows of `TYPE_LOSS_DAMAGE`, in place: every other row keeps its offset, the
log does not get shorter, and a reader that reads meanwhile gets the damage or the loss. Where the rows are good and
only the bytes of the messages are damaged, rows without bytes stay, such as the begin of a session, and the losses
count the numbers of the messages. What a crash left is mended as each writer does it (`ipcbus.archive.recovery`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from typing import TYPE_CHECKING, Final

import numpy as np

from ipcbus.archive import blocks, json_files, recovery, removed_offsets
from ipcbus.archive import log_names as naming
from ipcbus.archive import watermark as marks
from ipcbus.archive.archive import IDENTITY, NAME, OR_REPAIR, PARTITIONS, SIZE_MAX, Archive
from ipcbus.archive.archive_layout import (
    BATCH_WAIT,
    BLOCK,
    BLOCK_BYTES_MAX,
    NAME_SESSION,
    NAME_TOPIC,
    ROW,
    TYPE_LOSS_DAMAGE,
)
from ipcbus.archive.blocks import ROW_SIZE
from ipcbus.archive.cursors import FOLDER
from ipcbus.archive.log_limits import Limits
from ipcbus.archive.log_names import Entry
from ipcbus.archive.log_writer import LogWriter
from ipcbus.archive.segments import SUFFIXES, Damage, OpenSegment, bases, file_of, orphans
from ipcbus.archive.verify import check_partition, identity_fault, survey
from ipcbus.archive.watermark import Watermark
from ipcbus.embedding import FileMissing, salvage
from ipcbus.errors import ArchiveDamaged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from ipcbus.archive.blocks import Block
    from ipcbus.archive.log import Log
    from ipcbus.embedding import File

_ROWS_MAX: Final = BLOCK_BYTES_MAX // ROW_SIZE  # rows of one block


@dataclasses.dataclass(frozen=True, slots=True)
class Repair:
    """One thing that was mended.

    Attributes:
        file: the file, relative to the archive.
        log: key of the log; empty where the file is not part of one.
        what: what was done.
        lost: rows that this lost.
    """

    file: str
    log: str
    what: str
    lost: int = 0


def repair(archive: Archive) -> list[Repair]:
    """Mends all that `verify` finds, except files that belong to another archive.

    Raises:
        ArchiveLocked: a process writes a log; nothing was changed.
        ArchiveDamaged: two logs have the same partition, or `archive.json` has more damage than one flipped bit.
        StorageError: the system refuses.
    """
    done: list[Repair] = []
    with contextlib.ExitStack() as locks:
        logs = archive.logs()
        for stream in sorted({log.stream for log in logs}):
            locks.callback(archive.lock(stream).release)
        done += _identity(archive)
        for group in archive.cursors.damaged():
            archive.cursors.remove(group)
            done.append(Repair(f"{FOLDER}/{group}.json", "", "removed the damaged cursor; it no longer held rows"))
        for log in logs:
            for finding in check_partition(archive, log):
                # Overwrites any content: no other log has this number, or `logs` would have raised.
                archive.files.make_dir(archive.path / PARTITIONS)
                archive.files.replace(archive.path / finding.file, f"{log.stream}\n".encode())
                done.append(Repair(finding.file, log.key, "noted whose partition this is"))
            done += _LogRepair(archive, log).all()
    return done


def refusal(archive: Archive) -> str:
    """Returns why `repair` would refuse an archive that no recorder writes, and what helps; empty if it would not.

    Raises:
        StorageError: the system refuses to list the archive.
    """
    try:
        archive.logs()
        _mended_identity(archive)
    except ArchiveDamaged as error:
        return str(error)
    return ""


def _mended_identity(archive: Archive) -> bytes:
    """Returns what `archive.json` must become, as no other file has the id of the archive; empty if it is good.

    Raises:
        ArchiveDamaged: this cannot be known.
    """
    if not identity_fault(archive):
        return b""
    path = archive.path / NAME
    data = json_files.read_bytes(archive.files, path, SIZE_MAX)
    found = json_files.corrected(data)
    if found is None and archive.damage:
        raise ArchiveDamaged(archive.damage.replace(OR_REPAIR, ""))
    if found is None:  # without a checksum, and edited by hand
        found = json_files.pack({key: value for key, value in json_files.unpack(data).items() if key in IDENTITY})
    return found


def _identity(archive: Archive) -> list[Repair]:
    """Mends `archive.json`."""
    found = _mended_identity(archive)
    if not found:
        return []
    archive.files.replace(archive.path / NAME, found)
    archive.id, archive.damage = Archive(archive.path, files=archive.files).id, ""
    return [Repair(NAME, "", "restored its content")]


class _ForeignLock:
    """A lock that the caller holds and releases."""

    def has_name(self) -> bool:
        """Returns True: the caller looks."""
        return True

    def release(self) -> None:
        """Does nothing; the caller releases the lock."""


class _LogRepair:
    """Mends one log, whose lock is held."""

    def __init__(self, archive: Archive, log: Log) -> None:
        self._archive = archive
        self._files = archive.files
        self._log = log
        self._folder = log.folder
        self._done: list[Repair] = []

    def all(self) -> list[Repair]:
        """Mends the log; returns what was done."""
        numbers = self._watermark()
        self._names(numbers)
        next_offset = self._recover()
        found = [base for base in bases(self._files.names(self._folder)) if base < next_offset]
        for base, limit in itertools.pairwise([*found, next_offset]):
            self._segment(base, limit)
        for first, end in self._archive.log(self._log.key).missing():
            self._missing(first, end)
        for suffix, base in orphans(self._files.names(self._folder), next_offset):
            self._files.remove(file_of(self._folder, base, suffix))
            self._report(file_of(self._folder, base, suffix), "removed the file; it no longer belonged to a segment")
        return self._done

    def _report(self, path: Path, what: str, lost: int = 0) -> None:
        self._done.append(Repair(str(path.relative_to(self._archive.path)), self._log.key, what, lost))

    # --------------------------------------------------------------------------- watermark and names

    def _watermark(self) -> int:
        """Makes a watermark where all copies are damaged; returns the highest number of a name that it knows."""
        path = self._folder / marks.NAME
        try:
            with contextlib.closing(self._files.open(path)) as file:
                known = [mark for mark in (marks.live(file), marks.synced(file)) if mark is not None]
        except FileMissing:
            known = []
        if known:
            return max(mark.names for mark in known)
        next_offset = self._unused_offset()
        kept = removed_offsets.load(self._files, self._folder)
        if kept is not None:
            end = next_offset - recovery.RESERVE_MAX if bases(self._files.names(self._folder)) else 0
            removed_offsets.save(self._files, self._folder, kept.with_holes([(end, next_offset)]))
        highest = self._highest()
        recovery.start(
            self._files,
            self._folder,
            Watermark(
                next_offset=next_offset,
                limit=next_offset,
                base=next_offset,
                names=highest,
                boot=self._files.boot_id(),
                gone=kept is not None,
                closed=True,
            ),
        )
        self._report(path, f"made a new watermark; the next row gets offset {next_offset}, which no row had before")
        return highest

    def _unused_offset(self) -> int:
        """Returns an offset that was never given, as far as the segments show."""
        found = bases(self._files.names(self._folder))
        if not found:
            # No segment shows the last offset. No recorder wrote a row each microsecond since 1970.
            return time.time_ns() // 1000
        try:
            with OpenSegment(self._files, self._folder, found[-1]) as opened:
                end = max(opened.end(), opened.base + opened.idx.size() // ROW_SIZE)
        except FileMissing:
            end = found[-1]
        return end + recovery.RESERVE_MAX

    def _highest(self) -> int:
        """Returns the highest number of a name in good rows."""
        highest = 0
        for base in bases(self._files.names(self._folder)):
            with contextlib.suppress(FileMissing), OpenSegment(self._files, self._folder, base) as opened:
                for piece in opened.walk(base, opened.end()):
                    if isinstance(piece, Damage) or opened.fault(piece) is not None:
                        continue
                    rows = np.frombuffer(opened.read_block(piece)[0], ROW)
                    highest = max(highest, int(rows["topic"].max()), int(rows["session"].max()))
        return highest

    def _names(self, highest: int) -> None:
        """Writes the names again where some are damaged; lost names get placeholders."""
        path = self._folder / naming.NAME_OF_FILE
        try:
            with contextlib.closing(self._files.open(path)) as file:
                data = naming.read(file)
        except FileMissing:
            data = b""
        found, scanned, damage = naming.load(data)
        if found.highest >= highest and (not damage or (scanned.damage and not scanned.good_follow)):
            return  # recovery cuts a torn tail
        found = naming.LogNames()
        for payload in salvage(data):
            entries = naming.unpack(payload)
            if not isinstance(entries, str):
                found.add(entries)
        lost = [
            number
            for number in range(1, max(highest, found.highest) + 1)
            if number not in found.topics and number not in found.sessions
        ]
        both = [Entry(number, kind, f"lost name {number}") for number in lost for kind in (NAME_TOPIC, NAME_SESSION)]
        kept = [
            Entry(number, kind, text)
            for kind, texts in ((NAME_TOPIC, found.topics), (NAME_SESSION, found.sessions))
            for number, text in texts.items()
        ]
        entries = sorted([*kept, *both], key=lambda entry: entry.number)
        parts = [naming.pack(entries[at : at + 1000]) for at in range(0, len(entries), 1000)]
        self._files.replace(path, b"".join(parts))
        self._report(path, f"wrote {len(kept)} names again; {len(lost)} are lost and now called 'lost name N'")

    def _recover(self) -> int:
        """Does what each writer does first; returns the offset of the next row."""
        mark = self._log.watermark()
        if mark.gone and self._log.removed_offsets(mark) is None:
            what = "wrote a new list; offsets that no segment holds count as lost in a power loss"
            self._report(self._folder / removed_offsets.NAME, what)
        with LogWriter(self._log, Limits(), self._archive.cursors, self._files, _ForeignLock()) as writer:
            found = writer.recovered
        if found.cut_bytes:
            self._report(self._folder, f"cut {found.cut_bytes} bytes that were unpublished or torn by a power loss")
        if found.hole:
            first = found.next_offset - found.hole
            self._report(
                self._folder,
                f"offsets {first} to {found.next_offset - 1} may have been given before a power loss; now a hole",
            )
        return found.next_offset

    # ---------------------------------------------------------------------------------------- segments

    def _missing(self, first: int, end: int) -> None:
        """Writes losses for offsets whose segment is missing."""
        if end - first <= blocks.ROWS_MAX:
            self._segment(first, end, is_missing=True)
            return
        kept = (
            removed_offsets.load(self._files, self._folder) or removed_offsets.RemovedOffsets()
        )  # more than a segment holds: the offsets were never given
        removed_offsets.save(self._files, self._folder, kept.with_holes([(first, end)]))
        self._report(self._folder, f"offsets {first} to {end - 1} are in no segment; they are a hole now", end - first)

    def _segment(self, base: int, limit: int, *, is_missing: bool = False) -> None:
        """Turns damage in a segment into losses, and cuts what follows its last block."""
        for suffix in SUFFIXES:
            path = file_of(self._folder, base, suffix)
            try:
                self._files.open(path).close()
            except FileMissing:
                self._files.open(path, write=True, create=True).close()
                self._report(path, "made an empty file in place of the missing one")
        kinds = self._log.names().kinds()
        with OpenSegment(self._files, self._folder, base) as opened:
            end = limit if is_missing else min(limit, opened.end())
            pieces: list[Block | Damage] = (
                [Damage(base, limit, "blk", 0, "is missing")] if is_missing else list(survey(opened, end, kinds))
            )
            if any(isinstance(piece, Damage) for piece in pieces):
                good = self._rewrite(opened, pieces, kinds)
            else:
                good = [piece for piece in pieces if not isinstance(piece, Damage)]
        if good and good[-1].end == end:
            self._cut_tail(base, good)

    def _rewrite(self, opened: OpenSegment, pieces: list[Block | Damage], kinds: NDArray[np.uint8]) -> list[Block]:
        """Writes losses over damaged rows, and then all records of blocks again."""
        good: list[Block] = []
        path = file_of(self._folder, opened.base, "idx")
        with contextlib.closing(self._files.open(path, write=True)) as idx:
            at = opened.base
            for piece in [*pieces, None]:
                if isinstance(piece, Damage):
                    continue
                end = pieces[-1].end if piece is None else piece.first_offset
                for block in self._recovered_blocks(opened, at, end, kinds):
                    good.append(block)
                    at = block.end
                known = list(self._known_rows(opened, at, end, kinds))
                good += self._write_losses(idx, opened.base, good, at, end, known)
                if piece is not None:
                    good.append(piece)
                    at = piece.end
            idx.sync()
        records = np.array([tuple(block) for block in good], BLOCK)
        self._files.replace(file_of(self._folder, opened.base, "blk"), records.tobytes())
        return good

    def _recovered_blocks(self, opened: OpenSegment, first: int, end: int, kinds: NDArray[np.uint8]) -> list[Block]:
        """Returns blocks of which only the record is damaged: their rows and messages agree with what it says."""
        found: list[Block] = []
        table = opened.table(0, opened.count)
        while first < end:
            tried = (blocks.Block(*fields) for fields in table[table["first_offset"] == first].tolist())
            good = (block for block in tried if blocks.fits(block, opened.base) and first < block.end <= end)
            block = next((block for block in good if opened.fault(block, kinds) is None), None)
            if block is None:
                break
            raw, data = opened.read_block(block)
            record = blocks.describe(first, np.frombuffer(raw, ROW), block.position, data)
            found += [each for each in blocks.parse(record, opened.base) if each is not None]
            first = block.end
        if found:
            count = sum(block.rows for block in found)
            self._report(
                file_of(self._folder, opened.base, "blk"), f"wrote the block records of {count} good rows again"
            )
        return found

    def _known_rows(
        self, opened: OpenSegment, first: int, end: int, kinds: NDArray[np.uint8]
    ) -> Iterator[tuple[int, NDArray[np.void]]]:
        """Yields the rows of blocks of which only the messages are damaged, with the offset of the first row."""
        for records in opened.all_records():
            for block in records:
                if block is None or not first <= block.first_offset < block.end <= end:
                    continue
                raw, _ = opened.read_block(block)
                if blocks.fault(block, opened.base, raw, None) is not None:
                    continue
                rows = np.frombuffer(raw, ROW)
                if not blocks.contradiction(rows, block.position, block.bytes, kinds):
                    yield block.first_offset, rows

    def _write_losses(
        self,
        idx: File,
        base: int,
        good: list[Block],
        first: int,
        end: int,
        known: list[tuple[int, NDArray[np.void]]],
    ) -> list[Block]:
        """Writes losses for the offsets from `first` to `end`, and returns their blocks.

        Args:
            idx: the file of rows.
            base: the first offset of the segment.
            good: the good blocks before.
            first: the first offset.
            end: the offset after the last.
            known: rows of these offsets that can be read, though the messages cannot.
        """
        made, kept = [], 0
        position = good[-1].position + good[-1].bytes if good else 0
        time_ns = good[-1].last_receive_ns if good else 0
        for start in range(first, end, _ROWS_MAX):
            rows = np.zeros(min(_ROWS_MAX, end - start), ROW)
            rows["type"], rows["numbers"], rows["receive_ns"] = TYPE_LOSS_DAMAGE, 1, time_ns
            for offset, found in known:
                begin, last = max(offset, start), min(offset + len(found), start + len(rows))
                if begin < last:
                    kept += _keep(rows[begin - start : last - start], found[begin - offset : last - offset])
            rows["position"] = position
            idx.write_at((start - base) * ROW_SIZE, rows.view(np.uint8).data)
            made += [block for block in blocks.parse(blocks.describe(start, rows, position, b""), base) if block]
        if made:
            but = f", except {kept} rows without messages" if kept else ""
            what = f"offsets {first} to {end - 1} could not be read; they are losses now{but}"
            self._report(idx.path, what, end - first - kept)
        return made

    def _cut_tail(self, base: int, good: list[Block]) -> None:
        """Cuts what follows the last block, which was never published."""
        last = good[-1]
        sizes = {
            "dat": max(block.position + block.bytes for block in good),
            "idx": (last.end - base) * ROW_SIZE,
            "blk": len(good) * blocks.SIZE,
        }
        for suffix, size in sizes.items():
            path = file_of(self._folder, base, suffix)
            with contextlib.closing(self._files.open(path, write=True)) as file:
                have = file.size()
                if have > size:
                    file.truncate(size)
                    file.sync()
                    self._report(path, f"cut {have - size} bytes after its last block")


def _keep(rows: NDArray[np.void], known: NDArray[np.void]) -> int:
    """Puts into losses what is known of the rows in whose place they are; returns how many rows stay as they are."""
    empty = (known["length"] == 0) & (known["headers"] == 0)
    numbers = known["numbers"]
    rows["numbers"] = np.where(numbers & BATCH_WAIT, 1, np.maximum(numbers, 1))
    rows["receive_ns"] = known["receive_ns"]
    rows[empty] = known[empty]
    return int(np.count_nonzero(empty))
