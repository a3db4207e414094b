"""Cursors: up to where each consumer of an archive has read. The archive keeps the rest, up to the hard cap.

A cursor is a file of JSON with a checksum, `consumers/<group>.json`, replaced as a whole. A damaged cursor holds no
rows: it does not say which rows its consumer needs, and to hold all rows would fill the disk for a consumer that may no
longer exist. `damaged` lists it (`ipcbus archive info` and `verify` show it), and the group's next commit replaces it.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Final

from ipcbus.archive import json_files
from ipcbus.embedding import is_name
from ipcbus.errors import ArchiveDamaged, ConfigError, StorageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from ipcbus.embedding import Files

FOLDER: Final = "consumers"
FORMAT: Final = 1
SIZE_MAX: Final = 1 << 20

_KEYS: Final = {"format", "group", "offsets", "partitions", "time_ns"}
_SUFFIX: Final = ".json"


@dataclasses.dataclass(frozen=True, slots=True)
class Cursor:
    """The position of a consumer."""

    offsets: dict[str, int]
    """Key of the log -> the first offset that the consumer still needs."""
    time_ns: int
    """When the cursor was committed, in ns since the epoch."""
    partitions: tuple[int, ...] | None = None
    """The partitions that the consumer reads; None: all of them, also later ones."""

    def needs(self, key: str, partition: int) -> int | None:
        """Returns the first offset that the consumer needs of a log; None when it does not read the log."""
        if key in self.offsets:
            return self.offsets[key]
        return 0 if self.partitions is None or partition in self.partitions else None


class Cursors:
    """The cursors of an archive."""

    def __init__(self, root: Path, files: Files) -> None:
        """Takes the directory of the archive."""
        self._folder = root / FOLDER
        self._files = files

    def commit(
        self,
        group: str,
        offsets: Mapping[str, int],
        *,
        time_ns: int | None = None,
        partitions: Collection[int] | None = None,
    ) -> None:
        """Writes the cursor of a group, in place of the one before.

        Args:
            group: name of the consumer: letters, digits, `.`, `_` and `-`, 100 at most.
            offsets: key of the log -> the first offset that the consumer still needs. It needs all of a log that is not
                named.
            time_ns: time of the commit, in ns since the epoch; None: now.
            partitions: the consumer reads only these; None: all logs, also later ones.

        Raises:
            ConfigError: the name is invalid, or an offset is not a number from 0 on.
            StorageError: the system refuses.
        """
        path = self._path(group)
        plain = {str(key): int(offset) for key, offset in offsets.items()}
        for key, offset in plain.items():
            if not 0 <= offset <= json_files.WHOLE_MAX:
                raise ConfigError(f"consumer {group}: offset {offset} of log {key} is invalid; give a number from 0 on")
        when = time.time_ns() if time_ns is None else time_ns
        found: dict[str, object] = {"format": FORMAT, "group": group, "offsets": plain, "time_ns": when}
        if partitions is not None:
            found["partitions"] = sorted(map(int, partitions))
        self._files.make_dir(self._folder)
        self._files.replace(path, json_files.pack(found))

    def all(self) -> dict[str, Cursor]:
        """Returns the cursors that are not damaged, by group."""
        return {group: found for group in self._groups() if isinstance(found := self._read(group), Cursor)}

    def damaged(self) -> dict[str, str]:
        """Returns what is wrong with each damaged cursor, by group."""
        return {group: found for group in self._groups() if isinstance(found := self._read(group), str)}

    def remove(self, group: str) -> None:
        """Removes the cursor of a group; does nothing when the group has no cursor.

        Raises:
            ConfigError: the name is invalid.
            StorageError: the system refuses.
        """
        self._files.remove(self._path(group))

    def _path(self, group: str) -> Path:
        if not is_name(group):
            raise ConfigError(
                f"consumer {group!r} is not a valid name; give 1 to 100 letters, digits, '.', '_' or '-', of which the "
                "first is a letter, a digit or '_'"
            )
        return self._folder / f"{group}{_SUFFIX}"

    def _groups(self) -> list[str]:
        names = self._files.names(self._folder)
        return [
            name.removesuffix(_SUFFIX)
            for name in names
            if name.endswith(_SUFFIX) and is_name(name.removesuffix(_SUFFIX))
        ]

    def _read(self, group: str) -> Cursor | str | None:
        """Returns a cursor, or what is wrong with it, or None when it was removed."""
        path = self._path(group)
        try:
            found = json_files.read(self._files, path, SIZE_MAX)
        except (ArchiveDamaged, StorageError) as error:
            if not self._there(path):
                return None
            damaged = isinstance(error, ArchiveDamaged)
            return "is not the JSON object that was written" if damaged else str(error)
        offsets, when = found.get("offsets"), found.get("time_ns")
        if (
            not found.keys() <= _KEYS
            or found.get("format") != FORMAT
            or not isinstance(offsets, dict)
            or not json_files.is_whole(when)
        ):
            return f"is not a cursor of format {FORMAT}"
        for key, offset in offsets.items():
            if not json_files.is_whole(offset):
                return f"offset {offset!r} of log {key!a} is not a whole number from 0 on"
        partitions = found.get("partitions")
        if partitions is None:
            return Cursor(offsets, when)
        if not isinstance(partitions, list) or not all(map(json_files.is_whole, partitions)):
            return f"partitions {str(partitions)[:100]!a} are not a list of whole numbers from 0 on"
        return Cursor(offsets, when, tuple(partitions))

    def _there(self, path: Path) -> bool:
        return path.name in self._files.names(self._folder)
