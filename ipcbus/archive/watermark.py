"""The watermark of a log: up to where it is published, and which offsets may have been given."""

from __future__ import annotations

import dataclasses
import zlib
from typing import TYPE_CHECKING, Final

import numpy as np

from ipcbus.archive.archive_layout import (
    FORMAT,
    FORMATS,
    OFFSET_END,
    WATERMARK,
    WATERMARK_AT,
    WATERMARK_MAGIC,
    formats_read,
)
from ipcbus.errors import ArchiveDamaged

if TYPE_CHECKING:
    from ipcbus.embedding import File

NAME: Final = "watermark"
"""Name of the file in the log's directory."""

_SIZE: Final = WATERMARK.itemsize
_CHECKED: Final = _SIZE - 4
_FIELDS: Final = WATERMARK.names or ()
_TRIES: Final = 100  # a writer needs less than a microsecond to write one


@dataclasses.dataclass(frozen=True, slots=True)
class Watermark:
    """What a writer publishes after each block; see `ipcbus.archive.archive_layout`."""

    next_offset: int = 0
    """The offset after the last published row."""
    limit: int = 0
    """No row had an offset from here on before this watermark was on the disk."""
    base: int = 0
    """First offset of the segment that is written; `next_offset` while the segment has no row."""
    data_bytes: int = 0
    """Published bytes of that segment's data."""
    blocks: int = 0
    """Published blocks of that segment."""
    names: int = 0
    """The highest number that a name has."""
    time_ns: int = 0
    """Time of writing, in ns since the epoch."""
    boot: bytes = bytes(16)
    """`Files.boot_id` of the writer."""
    serial: int = 0
    """Grows with each watermark that is written after a sync."""
    gone: bool = False
    """Whether the writer keeps `gone.json` (`ipcbus.archive.removed_offsets`); older releases do not."""
    closed: bool = False
    """Whether the writer ended in order; then all rows are synced."""

    def pack(self) -> bytes:
        record = np.zeros(1, WATERMARK)
        record["magic"] = WATERMARK_MAGIC
        record["format"] = FORMAT
        for field, stored in _STORED.items():
            record[stored] = getattr(self, field)
        record["boot"] = np.void(self.boot)
        data = record.tobytes()[:_CHECKED]
        return data + zlib.crc32(data).to_bytes(4, "little")


_STORED: Final = {
    field.name: {"data_bytes": "bytes"}.get(field.name, field.name)
    for field in dataclasses.fields(Watermark)
    if field.name != "boot"
}
"""Field of a watermark -> its field in the file."""


def unpack(data: bytes) -> Watermark | None:
    """Returns a watermark from its bytes; None when they are torn or not a watermark.

    Raises:
        ArchiveDamaged: the watermark is whole, but of another format.
    """
    if len(data) < _SIZE or zlib.crc32(data[:_CHECKED]) != int.from_bytes(data[_CHECKED:_SIZE], "little"):
        return None
    record = dict(zip(_FIELDS, np.frombuffer(data, WATERMARK, 1).item(), strict=True))
    if record["magic"] != WATERMARK_MAGIC:
        return None
    if record["format"] not in FORMATS:
        raise ArchiveDamaged(
            f"the watermark has format {record['format']}, but this release reads {formats_read()}: use the release of "
            "ipcbus that wrote the archive"
        )
    numbers = {field: record[stored] for field, stored in _STORED.items()}
    flags = {"gone": record["gone"] == 1, "closed": bool(record["closed"])}
    found = Watermark(**numbers | flags, boot=bytes(record["boot"]))
    return found if found.base <= found.next_offset <= found.limit < OFFSET_END else None


def published(file: File) -> Watermark | None:
    """Returns the watermark for readers: the first copy, or the synced one where a power loss tore the first."""
    for _ in range(_TRIES):
        found = unpack(file.read_at(WATERMARK_AT[0], _SIZE))
        if found is not None:
            return found
    return synced(file)


def live(file: File) -> Watermark | None:
    """Returns the first copy; None where it is damaged. The caller holds the lock, so no process writes the copy."""
    return unpack(file.read_at(WATERMARK_AT[0], _SIZE))


def synced(file: File) -> Watermark | None:
    """Returns the newer of the two synced copies; None where both are damaged."""
    return max((mark for mark in _both(file) if mark is not None), key=lambda mark: mark.serial, default=None)


def damaged(file: File) -> list[int]:
    """Returns the places of damaged copies."""
    return [at for at in WATERMARK_AT if unpack(file.read_at(at, _SIZE)) is None]


def place_for_next(file: File) -> int:
    """Returns the place for the next synced copy: that of the older or damaged one."""
    first, other = (None if mark is None else mark.serial for mark in _both(file))
    return WATERMARK_AT[1] if first is None or (other is not None and first < other) else WATERMARK_AT[2]


def _both(file: File) -> list[Watermark | None]:
    return [unpack(file.read_at(at, _SIZE)) for at in WATERMARK_AT[1:]]
