"""Reads the journal of an area: what is pending, what is torn, what is damaged, and which messages are missing.

The newest segment begins with the whole state, so older segments only supply copies of messages that it names.

After the kill of a process, each segment is whole, but for the last record of the newest one, which may be torn: its
end mark is missing, as zeros follow, or the end of the file. That record is dropped; its `save` never returned.

After a power loss (`Files.boot_id` has changed since the newest segment was made), what was not synced may be whole,
torn or lost, in any order. Whatever is whole counts. New numbers begin behind all those that can have been given, so
that no number means two messages.

Every other difference is damage. It is never skipped silently: each message that should be there and is not is named.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Final

from ipcbus.errors import GmdError
from ipcbus.gmd import journal_layout as layout
from ipcbus.gmd import journal_records as records
from ipcbus.gmd.copy_index import CopyIndex
from ipcbus.gmd.journal_segments import Checkpoint, Segment, SegmentHead, count, joined, name_of, serials
from ipcbus.storage.files import FileMissing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ipcbus.gmd.journal_segments import Run
    from ipcbus.storage.files import File, Files

_HEAD: Final = layout.SEGMENT_HEAD.itemsize
_PIECE: Final = 1 << 16
_NUMBERS_MAX: Final = (1 << 32) // layout.HEAD_BYTES  # the most that one segment gives


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """A part of a file that is not what was written."""

    path: Path
    offset: int
    length: int
    text: str
    by_power_loss: bool
    """Whether a power loss explains it: this part was not synced."""


@dataclasses.dataclass(slots=True)
class Recovery:
    """The content of a journal."""

    index: CopyIndex = dataclasses.field(default_factory=CopyIndex)
    last_number: int = 0
    """The next message gets a greater number."""
    numbers_known: int = 0
    """The highest number that the files show."""
    notes: list[bytes] = dataclasses.field(default_factory=list)
    missing: list[Run] = dataclasses.field(default_factory=list)
    """Messages that should be there and are not."""
    segments: dict[int, Segment] = dataclasses.field(default_factory=dict)
    """The segments that are needed, by serial, in order."""
    spoiled: set[int] = dataclasses.field(default_factory=set)
    """Those with damage."""
    damage: list[Damage] = dataclasses.field(default_factory=list)
    torn: int = 0
    """Bytes at the end of the newest segment that a kill left unfinished."""
    newest: int = 0
    """The highest serial."""
    is_cut: bool = False
    """Whether the newest segment is shorter than its begin: the messages that were saved in it are unknown."""
    lost_power: bool = False
    """Whether power may have been lost while the area was open."""
    incarnation: int = 0

    @property
    def faults(self) -> list[Damage]:
        """The damage that no power loss explains."""
        return [each for each in self.damage if not each.by_power_loss]


class _Source:
    """A segment that is read."""

    def __init__(self, files: Files, folder: Path, serial: int, incarnation: int) -> None:
        self.serial = serial
        self.path = folder / name_of(serial)
        self.data, written = b"", 0
        self.is_there = True
        try:
            with contextlib.closing(files.open(self.path)) as file:
                size = file.size()
                # What a live owner writes while the file is read is left out, or there would be holes before it.
                written = _written(file, size)
                self.data = file.read_at(0, written).ljust(size, b"\0")
        except FileMissing:
            self.is_there = False
        self.stamp = records.segment_stamp(incarnation, serial)
        head = SegmentHead.unpack(self.data[:_HEAD])
        self.head = head if head and (head.incarnation, head.serial) == (incarnation, serial) else None
        if self.head is not None and not 1 <= self.head.version <= layout.VERSION:
            raise GmdError(
                f"{self.path}: this version reads versions 1 to {layout.VERSION} of the journal, not "
                f"{self.head.version}; use the version of ipcbus that wrote the area"
            )
        self.is_whole = self.is_end(written - layout.END_BYTES)
        """Whether an end mark shows that what was written last was written whole."""
        self.end = written - layout.END_BYTES if self.is_whole else written
        """Where that ends; maybe without the zeros at its end if it is not whole."""
        if self.head is not None and self.head.version == 1:
            self.end = len(self.data)

    def is_end(self, at: int) -> bool:
        """Returns whether an end mark stands at an offset."""
        return at >= _HEAD and self.data[at : at + layout.END_BYTES] == records.end_mark(self.stamp, at)

    def checkpoint(self) -> Checkpoint | None:
        """Returns the state when the segment began, from the first good record of the two."""
        at = _HEAD
        while (at := records.find(self.data, at, self.stamp)) >= 0:
            record = records.read(self.data, at, self.stamp)
            if record is None or record.kind == layout.KIND_MESSAGE:
                return None
            if record.kind == layout.KIND_CHECKPOINT:
                return Checkpoint.unpack(record.body)
            at += record.size
        return None


def incarnation_of(files: Files, folder: Path) -> int | None:
    """Returns the incarnation that most segments name; None without a good segment."""
    found: list[int] = []
    for serial in serials(files.names(folder)):
        with contextlib.suppress(FileMissing), contextlib.closing(files.open(folder / name_of(serial))) as file:
            head = SegmentHead.unpack(file.read_at(0, _HEAD))
            if head is not None:
                found.append(head.incarnation)
    return max(set(found), key=found.count) if found else None


def recover(
    files: Files, folder: Path, incarnation: int, *, before_each: Callable[[], object] = lambda: None
) -> Recovery:
    """Reads a journal; changes nothing.

    Args:
        files: the storage.
        folder: the directory of the area.
        incarnation: of the area.
        before_each: called before each segment is read; it may raise an error, as a large area takes long.

    Raises:
        StorageError: the system refuses.
    """
    return _Reader(files, folder, incarnation, before_each).read()


class _Reader:
    """Reads a journal once."""

    def __init__(self, files: Files, folder: Path, incarnation: int, before_each: Callable[[], object]) -> None:
        self._files, self._folder, self._incarnation = files, folder, incarnation
        self._before_each = before_each
        self._found = Recovery(incarnation=incarnation)

    def read(self) -> Recovery:
        found = self._found
        chain, state = self._newest()
        if not chain:
            return found
        newest = chain[-1]
        found.newest = newest.serial
        boot = newest.head.boot if newest.head else None
        found.lost_power = boot != self._files.boot_id()
        found.last_number = state.last_number
        for first, last in state.unreleased:
            found.index.expect(first, last)
        for older in state.older:
            self._read_older(older, boot)
        for source in chain:
            self._read_tail(source, is_newest=source is newest)
        missing = found.index.missing()
        for first, last in missing:
            found.index.release(first, last)
        found.missing = joined([*state.missing, *missing])
        return found

    def _segment(self, serial: int) -> _Source:
        self._before_each()
        return _Source(self._files, self._folder, serial, self._incarnation)

    def _newest(self) -> tuple[list[_Source], Checkpoint]:
        """Returns the newest segment whose state is good, with those after it, and that state."""
        chain: list[_Source] = []
        for serial in reversed(serials(self._files.names(self._folder))):
            source = self._segment(serial)
            chain.insert(0, source)
            state = source.checkpoint()
            if state is not None and count(state.unreleased) <= _records_max(source, state):
                return chain, state
        if not chain:
            return [], Checkpoint(0, [], [], [])
        # The state is lost: each copy that is found counts as unreleased.
        base = chain[0].head.base if chain[0].head else 1
        copies = joined((number, number) for source in chain for number in _numbers(source, layout.KIND_COPY))
        return chain, Checkpoint(max(base - 1, copies[-1][1] if copies else 0), [], copies, [])

    def _read_older(self, older: Segment, boot: bytes | None) -> None:
        """Finds the copies in a segment that is not written any more."""
        found = self._found
        source = self._segment(older.serial)
        found.segments[older.serial] = Segment(older.serial, older.end, older.synced)
        if not source.is_there:
            self._add_damage(source, 0, older.end, "the file is missing", by_power_loss=False)
            return
        made_at_last = source.head is not None and source.head.boot == boot
        loose = older.synced if found.lost_power and made_at_last else older.end
        if source.head is None:
            self._add_damage(source, 0, _HEAD, "the head of the segment is wrong", by_power_loss=False)
        at, stop = _HEAD, min(older.end, len(source.data))
        while True:
            at, _ = records.replay(source.data, at, stop, source.stamp, source.serial, found.index, -1)
            if at >= stop:
                break
            following = records.find(source.data, at + 8, source.stamp)
            following = stop if following < 0 else min(following, stop)
            self._add_damage(source, at, following - at, "the records are wrong", by_power_loss=at >= loose)
            at = following
        if stop < older.end:
            self._add_damage(source, stop, older.end - stop, "the file is too short", by_power_loss=stop >= loose)

    def _read_tail(self, source: _Source, *, is_newest: bool) -> None:
        """Goes on from the state with all records of a segment."""
        found, data = self._found, source.data
        checked, synced = source.head.checkpoint_end if source.head else 0, 0
        end = max(source.end, min(checked, len(data)))
        if source.head is None:
            self._add_damage(source, 0, min(_HEAD, end), "the head of the segment is wrong", by_power_loss=False)
        elif end < checked:
            self._add_damage(source, end, checked - end, "the file is too short", by_power_loss=False)
        limit = source.head.numbers_end if source.head else found.last_number + end // layout.HEAD_BYTES + 1
        holes: list[tuple[int, int]] = []
        closed, at = False, _HEAD
        while at < end:
            at, found.last_number = records.replay(
                data, at, end, source.stamp, source.serial, found.index, found.last_number
            )
            record = records.read(data, at, source.stamp) if at < end else None
            if record is not None and found.last_number <= self._known_before(record) < max(limit, 1):
                self._skip_to(self._known_before(record))
                closed = False
                if record.kind == layout.KIND_NOTE:
                    found.notes.append(record.body)
                elif record.kind == layout.KIND_SYNCED:
                    synced, closed = max(synced, record.first), bool(record.second)
                at += 0 if record.kind in (layout.KIND_MESSAGE, layout.KIND_RELEASE) else record.size
            elif at < end:
                following = records.find(data, at + 8, source.stamp)
                if following < 0 and self._ends(source, at, max(checked, synced), is_newest=is_newest):
                    end = at
                    break
                holes.append((at, (end if following < 0 else following) - at))
                at = end if following < 0 else following
        loose = found.lost_power and is_newest
        for hole, length in holes:
            by_power = loose and hole >= max(checked, synced)
            self._add_damage(source, hole, length, "the records are wrong", by_power_loss=by_power)
            if hole + length == end and not by_power:
                self._guess(source, hole, end, checked)
        end = max(at, end)  # the zeros at the end of the last record
        found.numbers_known = found.last_number
        found.is_cut = end < max(checked, _HEAD)
        if source.head is None and found.is_cut:
            limit = found.last_number + _NUMBERS_MAX
        if found.is_cut or (loose and (holes or not closed)):
            found.last_number = max(found.last_number, limit - 1)
        found.segments[source.serial] = Segment(source.serial, end, max(checked, synced))

    def _known_before(self, record: records.Record) -> int:
        """Returns the highest number that was given before a record."""
        return record.number - 1 if record.kind == layout.KIND_MESSAGE else max(record.number, self._found.last_number)

    def _skip_to(self, number: int) -> None:
        """The messages up to this number were saved in a part that is damaged."""
        if number > self._found.last_number:
            self._found.index.expect(self._found.last_number + 1, number)
            self._found.last_number = number

    def _ends(self, source: _Source, at: int, checked: int, *, is_newest: bool) -> bool:
        """Returns whether the records end here, maybe with one that was not written in full."""
        if not is_newest or at < checked or source.is_whole:
            return False
        if source.is_end(at):
            return True
        left = source.end - at
        claim = records.claim(source.data, at, source.stamp)
        if not (left < layout.HEAD_BYTES or (claim and claim[1] > left)):
            return False
        self._found.torn = left
        return True

    def _guess(self, source: _Source, at: int, end: int, checked: int) -> None:
        """The last records of a segment are damaged: names the messages that can have been there."""
        left = end - at
        claim = records.claim(source.data, at, source.stamp)
        if at < checked or (claim and claim[0] != layout.KIND_MESSAGE):
            return
        length = int.from_bytes(source.data[at + 12 : at + 16], "little")
        most = 1 if layout.HEAD_BYTES + (length + 7 & ~7) == left else left // layout.HEAD_BYTES
        self._skip_to(self._found.last_number + max(most, 1))

    def _add_damage(self, source: _Source, offset: int, length: int, text: str, *, by_power_loss: bool) -> None:
        self._found.damage.append(Damage(source.path, offset, length, text, by_power_loss))
        self._found.spoiled.add(source.serial)


def _written(file: File, size: int) -> int:
    """Returns where the zeros begin that a file ends with."""
    while size:
        begin = (size - 1) // _PIECE * _PIECE
        left = len(file.read_at(begin, size - begin).rstrip(b"\0"))
        if left:
            return begin + left
        size = begin
    return 0


def _records_max(source: _Source, state: Checkpoint) -> int:
    """Returns how many messages there can be: more are damage, and would take memory without limit."""
    return (len(source.data) + sum(older.end for older in state.older)) // layout.HEAD_BYTES


def _numbers(source: _Source, kind: int) -> list[int]:
    """Returns the numbers of the good records of a kind."""
    found, at = [], _HEAD
    while (at := records.find(source.data, at, source.stamp)) >= 0:
        record = records.read(source.data, at, source.stamp)
        if record is None:
            break
        if record.kind == kind:
            found.append(record.number)
        at += record.size
    return found
