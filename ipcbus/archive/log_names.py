"""The names of a log: the texts behind the numbers of topics and sessions in its rows."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

import numpy as np

from ipcbus.archive.archive_layout import NAME, NAME_SESSION, NAME_TOPIC
from ipcbus.embedding import frame, scan
from ipcbus.errors import ArchiveDamaged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipcbus.embedding import File, Scan

NAME_OF_FILE: Final = "names"
SIZE_MAX: Final = 1 << 26
"""Longest file of names in bytes, enough for a million topics; a longer file is damage."""
NUMBER_MAX: Final = 1 << 24
TEXT_MAX: Final = 1 << 16

_HEAD: Final = NAME.itemsize


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A name and its number."""

    number: int
    kind: int
    text: str


@dataclasses.dataclass(slots=True)
class LogNames:
    """The topics and the sessions of a log, by number."""

    topics: dict[int, str] = dataclasses.field(default_factory=dict)
    sessions: dict[int, str] = dataclasses.field(default_factory=dict)
    highest: int = 0
    """The highest number so far."""

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            (self.topics if entry.kind == NAME_TOPIC else self.sessions)[entry.number] = entry.text
            self.highest = max(self.highest, entry.number)

    def kinds(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """Returns what each number up to the highest names, as bits; 0 for unused numbers. Number 0 counts as both."""
        found = np.zeros(self.highest + 1, np.uint8)
        found[0] = NAME_TOPIC | NAME_SESSION
        found[list(self.topics)] |= NAME_TOPIC
        found[list(self.sessions)] |= NAME_SESSION
        return found


def pack(entries: Iterable[Entry]) -> bytes:
    """Returns the record of names that were added in one go.

    Raises:
        ValueError: a name is too long, or cannot be encoded in UTF-8.
    """
    parts = []
    for entry in entries:
        text = entry.text.encode()
        if len(text) > TEXT_MAX:
            raise ValueError(f"a name of {len(text)} bytes is longer than {TEXT_MAX}")
        head = np.array([(entry.number, entry.kind, len(text))], NAME)
        parts += [head.tobytes(), text]
    return frame(b"".join(parts))


def unpack(payload: bytes) -> list[Entry] | str:
    """Returns the names of a record's payload, or what is wrong with it."""
    entries, at = [], 0
    while at < len(payload):
        if len(payload) - at < _HEAD:
            return "a name is cut off"
        number, kind, length = np.frombuffer(payload, NAME, 1, at)[0].tolist()
        at += _HEAD
        if not 0 < number <= NUMBER_MAX or kind not in (NAME_TOPIC, NAME_SESSION) or length > len(payload) - at:
            return f"number {number}, kind {kind} and length {length} are not those of a name"
        try:
            entries.append(Entry(number, kind, payload[at : at + length].decode()))
        except UnicodeDecodeError:
            return f"the text of name {number} is not UTF-8"
        at += length
    return entries


def read(file: File) -> bytes:
    """Returns all bytes of a file of names.

    Raises:
        ArchiveDamaged: the file is too long.
        StorageError: the system refuses.
    """
    size = file.size()
    if size > SIZE_MAX:
        raise ArchiveDamaged(
            f"{file.path}: {size} bytes are too long for a list of names; restore it from a copy, or remove it and run "
            "'ipcbus archive repair'"
        )
    return file.read_at(0, size)


def load(data: bytes) -> tuple[LogNames, Scan, str]:
    """Returns the names up to the first bad record, the scan of the records, and what is wrong there."""
    found, names = scan(data), LogNames()
    for at, payload in found.records:
        entries = unpack(payload)
        if isinstance(entries, str):
            return names, found, f"at {at}: {entries}"
        names.add(entries)
    return names, found, f"at {found.good_end}: {found.damage}" if found.damage else ""
