"""The list of offsets that a log lost, and why: what retention removed, and the holes that power losses left.

The list is `gone.json` in the directory of the log. It is replaced before retention removes a segment, and before a
writer goes on after a hole. So an offset that no segment holds and that is not in the list was lost by damage: a file
was deleted, or a disk lost it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final, Literal

from ipcbus.archive import json_files
from ipcbus.archive.archive_layout import FORMAT, FORMATS
from ipcbus.embedding import FileMissing
from ipcbus.errors import ArchiveDamaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ipcbus.embedding import Files

    Why = Literal["retention", "hole", "damage"]
    Span = tuple[int, int]

NAME: Final = "gone.json"
"""Name of the file in the log's directory."""

_SIZE_MAX: Final = 1 << 22


@dataclasses.dataclass(frozen=True, slots=True)
class RemovedOffsets:
    """The offsets that a log lost."""

    first: int = 0
    """Retention may have removed any offset before this one."""
    holes: tuple[Span, ...] = ()
    """First offset and end of each hole, sorted; holes do not touch."""

    @classmethod
    def of(cls, gaps: Iterable[Span]) -> RemovedOffsets:
        """Makes the first list of a log from the ranges that its segments do not hold."""
        spans = list(gaps)
        first = spans[0][1] if spans and spans[0][0] == 0 else 0
        return cls(first).with_holes(spans)

    def with_holes(self, more: Iterable[Span]) -> RemovedOffsets:
        """Returns a copy with more holes."""
        merged: list[Span] = []
        for begin, end in sorted([*self.holes, *more]):
            begin = max(begin, self.first)
            if begin >= end:
                continue
            if merged and begin <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        return dataclasses.replace(self, holes=tuple(merged))

    def removed(self, first: int) -> RemovedOffsets:
        """Returns a copy for a log from which retention removed the offsets before `first`."""
        return RemovedOffsets(max(first, self.first), self.holes).with_holes(())

    @property
    def kept(self) -> int:
        """The first offset that is neither removed nor part of a hole right after the removed ones."""
        return next((end for begin, end in self.holes if begin == self.first), self.first)

    def why(self, begin: int, end: int) -> Iterator[tuple[int, int, Why]]:
        """Divides offsets that no segment holds by the reason of their loss."""
        if begin < self.first:
            yield begin, min(end, self.first), "retention"
        at = max(begin, self.first)
        for low, high in self.holes:
            if high <= at or low >= end:
                continue
            if at < low:
                yield at, low, "damage"
            yield max(at, low), min(end, high), "hole"
            at = high
        if at < end:
            yield at, end, "damage"


def load(files: Files, folder: Path) -> RemovedOffsets | None:
    """Returns the list of the log in a directory; None where the log keeps no list, or the list is damaged.

    Raises:
        StorageError: the system refuses.
    """
    try:
        found = json_files.read(files, folder / NAME, _SIZE_MAX, older=False)
    except (FileMissing, ArchiveDamaged):
        return None
    first, holes = found.get("first"), found.get("holes")
    if found.get("format") not in FORMATS or not json_files.is_whole(first) or not isinstance(holes, list):
        return None
    spans = [tuple(hole) for hole in holes if isinstance(hole, list)]
    if len(spans) < len(holes) or not all(len(span) == 2 and all(map(json_files.is_whole, span)) for span in spans):
        return None
    return RemovedOffsets(first).with_holes(spans)


def save(files: Files, folder: Path, gone: RemovedOffsets) -> None:
    """Writes the list and syncs it.

    Raises:
        StorageFull: the disk is full; the list is unchanged.
        StorageError: the system refuses.
    """
    holes = [list(span) for span in gone.holes]
    files.replace(folder / NAME, json_files.pack({"first": gone.first, "format": FORMAT, "holes": holes}))
