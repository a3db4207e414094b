"""The segments of a journal: their names, their heads, and the checkpoint at the begin of each."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ipcbus.gmd import journal_layout as layout
from ipcbus.gmd.journal_records import checksum

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Run = tuple[int, int]
"""First and last number of some messages that follow each other."""

SPARE: Final = "spare"
_NAME: Final = re.compile(r"[0-9a-f]{16}\.gmd")
_HEAD: Final = layout.SEGMENT_HEAD
_CRC_AT: Final = 60


def name_of(serial: int) -> str:
    """Returns the name of a segment's file."""
    return f"{serial:016x}.gmd"


def serials(names: Iterable[str]) -> list[int]:
    """Returns the serials of the segments among some files, in order."""
    return sorted(int(name[:16], 16) for name in names if _NAME.fullmatch(name))


@dataclasses.dataclass(slots=True)
class Segment:
    """A segment that is not written any more."""

    serial: int
    end: int
    """Where its records end."""
    synced: int
    """Its bytes before this offset were synced."""


class SegmentHead(NamedTuple):
    """The head of a segment; `journal_layout` describes its fields."""

    incarnation: int
    serial: int
    base: int
    boot: bytes
    checkpoint_end: int
    capacity: int
    version: int = layout.VERSION
    """Of the layout."""

    def pack(self) -> bytes:
        """Returns the bytes of the head."""
        head = np.zeros(1, _HEAD)
        fields = self._asdict() | {"boot": np.void(self.boot)}
        head["magic"] = layout.SEGMENT_MAGIC + b"%d" % fields.pop("version")
        for name, value in fields.items():
            head[name] = value
        data = head.tobytes()[:_CRC_AT]
        return data + checksum(data).to_bytes(4, "little")

    @classmethod
    def unpack(cls, data: bytes) -> SegmentHead | None:
        """Returns the head of a segment, of any version; None if it is damaged."""
        if len(data) < _HEAD.itemsize or checksum(data[:_CRC_AT]) != int.from_bytes(data[_CRC_AT:64], "little"):
            return None
        head = np.frombuffer(data, _HEAD, 1)[0]
        magic = bytes(head["magic"])
        if magic[:-1] != layout.SEGMENT_MAGIC or not magic[-1:].isdigit():
            return None
        incarnation, serial, base, end, capacity = (
            int(head[name]) for name in ("incarnation", "serial", "base", "checkpoint_end", "capacity")
        )
        return cls(incarnation, serial, base, bytes(head["boot"]), end, capacity, int(magic[-1:]))

    @property
    def numbers_end(self) -> int:
        """No number from here on was given before a later segment was made."""
        return self.base + self.capacity // layout.HEAD_BYTES + 1


class Checkpoint(NamedTuple):
    """The state of an area when a segment began, but for the notes."""

    last_number: int
    older: list[Segment]
    """The older segments that are still needed, in order."""
    unreleased: list[Run]
    missing: list[Run]

    def pack(self) -> bytes:
        """Returns the body of the record."""
        head = np.zeros(1, layout.CHECKPOINT_HEAD)
        head["last_number"] = self.last_number
        head["older"], head["unreleased"] = len(self.older), len(self.unreleased)
        head["missing"] = len(self.missing)
        older = np.array([dataclasses.astuple(segment) for segment in self.older], layout.OLDER_SEGMENT)
        return b"".join((head.tobytes(), older.tobytes(), _packed(self.unreleased), _packed(self.missing)))

    @classmethod
    def unpack(cls, body: bytes) -> Checkpoint | None:
        """Returns the content of a record's body; None if it cannot be right."""
        head_size = layout.CHECKPOINT_HEAD.itemsize
        if len(body) < head_size:
            return None
        head = np.frombuffer(body, layout.CHECKPOINT_HEAD, 1)[0]
        counts = [int(head[name]) for name in ("older", "unreleased", "missing")]
        sizes = [layout.OLDER_SEGMENT.itemsize, layout.RUN.itemsize, layout.RUN.itemsize]
        if len(body) != head_size + sum(count * size for count, size in zip(counts, sizes, strict=True)):
            return None
        runs_at = head_size + counts[0] * sizes[0]
        older = [Segment(*each) for each in np.frombuffer(body, layout.OLDER_SEGMENT, counts[0], head_size).tolist()]
        unreleased = _unpacked(body, runs_at, counts[1])
        missing = _unpacked(body, runs_at + counts[1] * sizes[1], counts[2])
        last = int(head["last_number"])
        if not (_in_order(unreleased, last) and _in_order(missing, last)):
            return None
        return cls(last, older, unreleased, missing)


def count(runs: Iterable[Run]) -> int:
    """Returns how many numbers some runs have."""
    return sum(last - first + 1 for first, last in runs)


def joined(runs: Iterable[Run]) -> list[Run]:
    """Returns the runs in order, and those that touch or overlap as one."""
    found: list[Run] = []
    for first, last in sorted(runs):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def text_of(runs: Sequence[Run], most: int = 20) -> str:
    """Returns runs for people: `5, 7 to 9`."""
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in runs[:most]]
    return ", ".join(texts) + (f" and {len(runs) - most} more ranges" if len(runs) > most else "")


def _packed(runs: list[Run]) -> bytes:
    return np.array(runs, "<u8").tobytes()


def _unpacked(body: bytes, at: int, number: int) -> list[Run]:
    return [(first, last) for first, last in np.frombuffer(body, "<u8", 2 * number, at).reshape(-1, 2).tolist()]


def _in_order(runs: list[Run], last_number: int) -> bool:
    before = 0
    for first, last in runs:
        if not before < first <= last <= last_number:
            return False
        before = last
    return True
