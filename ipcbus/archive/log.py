"""Reading a log: cheap, and safe while its writer writes, in this process or in another one."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from ipcbus.archive import log_names as naming
from ipcbus.archive import removed_offsets
from ipcbus.archive import watermark as marks
from ipcbus.archive.archive_layout import ROW, SEGMENT_BYTES_MAX
from ipcbus.archive.segments import Chunk, ChunkLimits, Damage, OpenSegment, Segment, bases, file_of, summary
from ipcbus.embedding import FileMissing
from ipcbus.errors import ArchiveDamaged, OffsetsExpired, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ipcbus.archive.blocks import Block
    from ipcbus.archive.removed_offsets import RemovedOffsets
    from ipcbus.archive.watermark import Watermark
    from ipcbus.embedding import Files

_RECORDS_AT_ONCE: Final = 1 << 16  # records of blocks that are searched at once
_REPAIR: Final = "'ipcbus archive verify' lists all damage, and 'ipcbus archive repair' turns it into losses"

_SEGMENT_MISSING: Final = "their segment is missing, and neither retention nor a power loss removed it"
_HOLE_REASONS: Final = {
    "hole": "power was lost before they were on the disk",
    "retention": "retention removed them",
    "unknown": "power was lost, or their segment was removed (this log has no list that says which)",
}

_Piece = TypeVar("_Piece")


class Log:
    """A log of an archive, for reading; holds no file open between calls.

    One thread at a time may use it. `Archive.log` and `Archive.logs` make it.
    """

    def __init__(self, root: Path, stream: str, partition: int, files: Files) -> None:
        """Opens the log of a partition in the archive at `root`."""
        self.stream = stream
        self.partition = partition
        self._files = files
        self.folder = root / stream / str(partition)
        self._names = naming.LogNames()
        self._names_size = -1
        self._ends: dict[int, int] = {}  # of closed segments, by base
        self._segments: dict[int, Segment] = {}

    @property
    def key(self) -> str:
        """`"<stream>/<partition>"`."""
        return f"{self.stream}/{self.partition}"

    def bounds(self) -> tuple[int, int]:
        """Returns the first offset that the log keeps, and the offset after the last published one.

        Raises:
            ArchiveDamaged: the watermark is damaged.
            StorageError: the system refuses.
        """
        mark = self.watermark()
        found = self._bases(mark)
        return self._first(found, mark, self.removed_offsets(mark)), mark.next_offset

    def watermark(self) -> Watermark:
        """Returns the watermark, which says up to where the log is published.

        Raises:
            ArchiveDamaged: all of its copies are damaged.
        """
        path = self.folder / marks.NAME
        try:
            with contextlib.closing(self._files.open(path)) as file:
                found = marks.published(file)
        except FileMissing:
            return marks.Watermark()  # a log that is being made
        if found is None:
            raise ArchiveDamaged(f"{path}: the watermark of log {self.key} is damaged; {_REPAIR}")
        return found

    def removed_offsets(self, mark: Watermark) -> RemovedOffsets | None:
        """Returns what the log lost, and why; None where it keeps no list of that, or the list is damaged.

        Call it after listing the directory, because retention writes the list before it removes a segment.

        Raises:
            StorageError: the system refuses.
        """
        return removed_offsets.load(self._files, self.folder) if mark.gone else None

    def missing(self) -> list[tuple[int, int]]:
        """Returns first offset and end of each range that was lost by damage, not by retention or a power loss.

        Raises:
            ArchiveDamaged: the watermark is damaged.
            StorageError: the system refuses.
        """
        mark = self.watermark()
        gaps = self.gaps(mark)
        known = self.removed_offsets(mark)
        if known is None:
            return []
        return [(begin, end) for gap in gaps for begin, end, why in known.why(*gap) if why == "damage"]

    def gaps(self, mark: Watermark) -> list[tuple[int, int]]:
        """Returns first offset and end of each range, from 0 to a watermark, that no segment holds.

        Raises:
            StorageError: the system refuses.
        """
        found, at = [], 0
        for base, limit in self.spans(mark):
            if base > at:
                found.append((at, base))
            try:
                with self._open(base, mark) as opened:
                    at = self._end(opened, mark, limit)
            except StorageError:
                at = limit  # readers of the segment report the damage, or retention just removed it
        if at < mark.next_offset:
            found.append((at, mark.next_offset))
        return found

    def topics(self) -> dict[int, str]:
        """Returns topics by their numbers in the rows.

        Raises:
            ArchiveDamaged: the file of names is damaged.
        """
        return dict(self.names().topics)

    def sessions(self) -> dict[int, str]:
        """Returns source strings of transport sessions by their numbers in the rows.

        Raises:
            ArchiveDamaged: the file of names is damaged.
        """
        return dict(self.names().sessions)

    def segments(self, *, closed: bool = False) -> list[Segment]:
        """Returns all segments, oldest first.

        Args:
            closed: leave out the segment that is written, whose summary takes longer the more blocks it has.

        Raises:
            ArchiveDamaged: the watermark is damaged.
            StorageError: the system refuses.
        """
        mark = self.watermark()
        found: list[Segment] = []
        spans = self.spans(mark)
        known = self.removed_offsets(mark)
        for base, limit in spans:
            if closed and base == mark.base:
                continue
            before = found[-1].end if found else base
            segment = self._segments.get(base)
            if segment is None:
                try:
                    with self._open(base, mark) as opened:
                        segment = summary(opened, mark, limit)
                except FileMissing:
                    continue  # retention just removed it
                if segment.closed:
                    self._segments[base] = segment
            hole = max(0, base - before)
            if hole and known is not None:
                hole = sum(end - begin for begin, end, why in known.why(before, base) if why != "damage")
            found.append(dataclasses.replace(segment, hole=hole))
        return found

    def offset_at(self, time_ns: int) -> int:
        """Returns the first offset whose receive time is `time_ns` or later; the end of the log when none is.

        Args:
            time_ns: ns since the epoch.

        Raises:
            ArchiveDamaged: the watermark is damaged.
            StorageError: the system refuses.
        """
        mark = self.watermark()
        for base, _ in self.spans(mark):
            known = self._segments.get(base)
            if known is not None and not known.damaged and known.last_receive_ns < time_ns:
                continue
            try:
                with self._open(base, mark) as opened:
                    offset = _first_at(opened, time_ns)
            except FileMissing:
                continue
            if offset is not None:
                return offset
        return mark.next_offset

    def read(
        self,
        start: int,
        end: int,
        *,
        max_rows: int = 65536,
        max_bytes: int = 32 << 20,
        verify: bool = True,
        messages: bool = True,
        wants: Callable[[Block], bool] | None = None,
        on_damage: Callable[[int, int, str], None] | None = None,
        on_hole: Callable[[int, int], None] | None = None,
    ) -> Iterator[Chunk]:
        """Reads the rows of offsets from `start` up to, without, `end`.

        Args:
            start: the first offset.
            end: the offset after the last.
            max_rows: most rows of a chunk.
            max_bytes: most bytes of a chunk's messages; a longer message is a chunk of its own.
            verify: whether checksums are checked. Positions, lengths and numbers of names always are.
            messages: whether the bytes of messages are read; if not, a chunk's `data` is empty, and `max_bytes` has no
                effect.
            wants: says, from the record of a block, whether the caller needs any of its rows; other blocks are not
                read, nor checked for damage. None: all are read.
            on_damage: called with first offset, end and reason instead of raising `ArchiveDamaged`; those rows are left
                out.
            on_hole: called with first offset and end instead of raising `OffsetsExpired` for a hole; see
                `Segment.hole`.

        Raises:
            OffsetsExpired: the log no longer has all of these offsets, or a power loss removed some.
            ArchiveDamaged: bytes contradict their checksums, or a segment is missing.
            StorageError: the system refuses.
            ValueError: `start`, `end` or a limit is out of range.
        """
        if not 0 <= start <= end or max_rows < 1 or max_bytes < 1:
            raise ValueError(
                f"log {self.key}: start = {start}, end = {end}, max_rows = {max_rows}, max_bytes = {max_bytes}, but "
                "start must be from 0 to end, and the limits at least 1"
            )
        mark = self.watermark()
        spans = self.spans(mark)
        known = self.removed_offsets(mark)
        first = self._first([base for base, _ in spans], mark, known)
        if start < end and (start < first or end > mark.next_offset):
            raise self._expired(start, end, first, mark.next_offset)
        limits = ChunkLimits(max_rows, max_bytes if messages else SEGMENT_BYTES_MAX, verify, messages, wants)
        reporter = _GapReporter(self, known, on_damage, on_hole)

        def chunks(opened: OpenSegment, low: int, high: int) -> Iterator[Chunk | Damage]:
            return opened.chunks(low, high, limits, self.names().kinds())

        return self._read(start, end, mark, spans, chunks, reporter)

    def blocks(
        self, start: int, end: int, most: int, on_damage: Callable[[int, int, str], None]
    ) -> list[tuple[int, Block]]:
        """Returns the base of the segment and the record of each block that holds offsets from `start` up to `end`.

        Args:
            start: the first offset; those that retention removed are left out.
            end: the offset after the last; it must be published.
            most: the most blocks that are returned.
            on_damage: called with first offset, end and reason for rows whose blocks are not found.

        Raises:
            ArchiveDamaged: the watermark is damaged.
            StorageError: the system refuses.
        """
        mark = self.watermark()
        spans = self.spans(mark)
        known = self.removed_offsets(mark)
        start = max(start, self._first([base for base, _ in spans], mark, known))

        def located(opened: OpenSegment, low: int, high: int) -> Iterator[tuple[int, Block] | Damage]:
            for piece in opened.walk(low, high, most):
                yield piece if isinstance(piece, Damage) else (opened.base, piece)

        reporter = _GapReporter(self, known, on_damage, leave_out)
        return list(itertools.islice(self._read(start, max(start, end), mark, spans, located, reporter), most))

    def read_bytes(self, base: int, suffix: str, at: int, length: int) -> bytes:
        """Returns bytes of a file of the segment with this base; fewer where the file ends before.

        Raises:
            FileMissing: the segment does not exist, or no longer.
            StorageError: the system refuses.
        """
        with contextlib.closing(self._files.open(file_of(self.folder, base, suffix))) as file:
            return file.read_at(at, length)

    def size(self, start: int, end: int) -> int:
        """Returns the bytes of the messages from offset `start` up to `end`, with headers, unchecked.

        Offsets that the log no longer has, or not yet, count 0.

        Raises:
            ArchiveDamaged: the watermark is damaged.
            StorageError: the system refuses.
        """
        return sum(
            max(0, opened.position(high) - opened.position(low)) for opened, low, high in self._within(start, end)
        )

    def reach(self, start: int, end: int, size: int) -> int:
        """Returns the largest offset up to `end` such that the messages from `start` to it have at most `size` bytes.

        Raises:
            ArchiveDamaged: the watermark is damaged.
            StorageError: the system refuses.
        """
        for opened, low, high in self._within(start, end):
            begin = opened.position(low)
            if opened.position(high) - begin > size:
                most = begin + size
                return low + bisect_right(range(low + 1, high + 1), most, key=opened.position)
            size -= max(0, opened.position(high) - begin)
        return end

    def _within(self, start: int, end: int) -> Iterator[tuple[OpenSegment, int, int]]:
        """Yields the segments that hold offsets from `start` to `end`, each with the part that it holds."""
        mark = self.watermark()
        for base, limit in self.spans(mark):
            if limit <= start or base >= end:
                continue
            try:
                with self._open(base, mark) as opened:
                    yield opened, max(start, base), min(end, self._end(opened, mark, limit))
            except FileMissing:
                continue

    def _read(
        self,
        start: int,
        end: int,
        mark: Watermark,
        spans: list[tuple[int, int]],
        pieces: Callable[[OpenSegment, int, int], Iterator[_Piece | Damage]],
        reporter: _GapReporter,
    ) -> Iterator[_Piece]:
        reporter.gap(start, min(end, spans[0][0] if spans else mark.next_offset))
        for base, limit in spans:
            if limit <= start or base >= end:
                continue
            try:
                opened = self._open(base, mark)
            except FileMissing as missing:
                if base not in self._bases(mark):
                    raise self._expired(start, end, *self.bounds()) from None
                # Retention removes the records of blocks first, so this is damage.
                lost = Damage(max(start, base), min(end, limit), "blk", 0, str(missing))
                reporter.damage(lost, f"segment {base:020d}")
                continue
            with opened:
                last = self._end(opened, mark, limit)
                for piece in pieces(opened, max(start, base), min(end, last)):
                    if isinstance(piece, Damage):
                        reporter.damage(piece, f"segment {base:020d}")
                    else:
                        yield piece
            reporter.gap(max(start, last), min(end, limit))

    def _first(self, found: list[int], mark: Watermark, known: RemovedOffsets | None) -> int:
        """Returns the first offset that the log keeps, or should keep."""
        there = found[0] if found else mark.next_offset
        return there if known is None else min(there, known.kept)

    def _expired(self, start: int, end: int, first: int, next_offset: int) -> OffsetsExpired:
        return OffsetsExpired(
            f"log {self.key} in {self.folder.parents[1]} has offsets {first} to {next_offset - 1}, but not "
            f"all of {start} to {end - 1}; start from {first}, keep data longer (retain_bytes, retain_seconds), or "
            "give the consumer a cursor"
        )

    def _open(self, base: int, mark: Watermark) -> OpenSegment:
        return OpenSegment(self._files, self.folder, base, mark.blocks if base == mark.base else None)

    def _bases(self, mark: Watermark) -> list[int]:
        """Returns the base offsets of the segments that have published rows."""
        return [base for base in bases(self._files.names(self.folder)) if base < mark.next_offset]

    def spans(self, mark: Watermark) -> list[tuple[int, int]]:
        """Returns each segment's base, and the base of the next segment."""
        return list(itertools.pairwise([*self._bases(mark), mark.next_offset]))

    def _end(self, opened: OpenSegment, mark: Watermark, limit: int) -> int:
        """Returns the offset after the last published row of a segment."""
        if opened.base == mark.base:
            return mark.next_offset
        if opened.base not in self._ends:
            self._ends[opened.base] = min(opened.end(), limit)
        return self._ends[opened.base]

    def names(self) -> naming.LogNames:
        """Returns all names of topics and sessions.

        Raises:
            ArchiveDamaged: the file of names is damaged.
        """
        path = self.folder / naming.NAME_OF_FILE
        used = self.watermark().names  # read before the file, which had all of these names then
        with contextlib.suppress(FileMissing), contextlib.closing(self._files.open(path)) as file:
            size = file.size()
            if size != self._names_size:
                # A torn end is being written; no published row uses its names.
                found, scanned, damage = naming.load(naming.read(file))
                if damage and (scanned.good_follow or not scanned.damage):
                    raise ArchiveDamaged(f"{path}: {damage}; {_REPAIR}")
                self._names, self._names_size = found, size
        if self._names.highest < used:
            raise ArchiveDamaged(
                f"{path}: has names up to {self._names.highest}, but rows use names up to {used}; {_REPAIR}"
            )
        return self._names


class _GapReporter:
    """Reports rows that cannot be read: to the reader's callbacks, or as an error."""

    def __init__(
        self,
        log: Log,
        known: RemovedOffsets | None,
        on_damage: Callable[[int, int, str], None] | None,
        on_hole: Callable[[int, int], None] | None,
    ) -> None:
        self._name = f"log {log.key} in {log.folder.parents[1]}"
        self._known = known
        self._on_damage = on_damage
        self._on_hole = on_hole

    def damage(self, damage: Damage, where: str) -> None:
        """Reports damaged rows."""
        if self._on_damage is not None:
            self._on_damage(damage.first, damage.end, damage.reason)
            return
        raise ArchiveDamaged(
            f"{self._name}: rows {damage.first} to {damage.end - 1} in {where} cannot be read: {damage.reason}; "
            f"{_REPAIR}"
        )

    def gap(self, begin: int, end: int) -> None:
        """Reports offsets that no segment holds; does nothing where `begin` is not before `end`."""
        if begin >= end:
            return
        for first, after, why in [(begin, end, "unknown")] if self._known is None else self._known.why(begin, end):
            if why == "damage":
                self.damage(Damage(first, after, "blk", 0, _SEGMENT_MISSING), "no segment")
            elif self._on_hole is None:
                raise OffsetsExpired(
                    f"{self._name} lost offsets {first} to {after - 1}: {_HOLE_REASONS[why]}; read on from {after}"
                )
            else:
                self._on_hole(first, after)


def leave_out(*_: object) -> None:
    """Ignores what is missing: for `on_damage` and `on_hole` of `Log.read`."""


def _first_at(opened: OpenSegment, time_ns: int) -> int | None:
    """Returns the first offset of a segment with this receive time or a later one; for a damaged block its first."""
    for start in range(0, opened.count, _RECORDS_AT_ONCE):
        late = np.flatnonzero(opened.table(start, _RECORDS_AT_ONCE)["last_receive_ns"] >= time_ns)
        for block in (each for index in late.tolist() for each in opened.records(start + index, 1)):
            if block is None:
                continue
            raw = opened.idx.read_at((block.first_offset - opened.base) * ROW.itemsize, block.rows * ROW.itemsize)
            rows = np.frombuffer(raw, ROW, len(raw) // ROW.itemsize)
            hits = np.flatnonzero(rows["receive_ns"] >= time_ns)
            return block.first_offset + (int(hits[0]) if len(hits) else 0)
    return None
