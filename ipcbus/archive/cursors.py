"""Cursors: how far each consumer of an archive is; what they still need is held while the hard cap allows it.

A cursor is a file of JSON with a checksum, `consumers/<group>.json`, replaced as a whole. One that is damaged holds
nothing: which rows it means is not known, and holding them all would fill the disk for a consumer that may be gone. It
is listed by `damaged` (`ipcbus archive info` and `verify` show it), and the next commit of its group mends it.
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
    """How far a consumer is."""

    offsets: dict[str, int]
    """By key of the log: the first offset that it still needs."""
    time_ns: int
    """When it was committed, in ns since the epoch."""
    partitions: tuple[int, ...] | None = None
    """The partitions that it reads; None: all of them, also those that come later."""

    def needs(self, key: str, partition: int) -> int | None:
        """The first offset that it needs of a log; None for none. One that it does not name it has not seen yet."""
        if key in self.offsets:
            return self.offsets[key]
        return 0 if self.partitions is None or partition in self.partitions else None


class Cursors:
    """The cursors of an archive."""

    def __init__(self, root: Path, files: Files) -> None:
        """Those of the archive at `root`."""
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
        """Writes a cursor, in place of the one that the group had.

        Args:
            group: name of the consumer: letters, digits, `.`, `_` and `-`, 100 at most.
            offsets: by key of the log, the first offset that it still needs; of a log that is not named, everything.
            time_ns: when, in ns since the epoch; None: now.
            partitions: the consumer reads only these; None: all logs, also those that come later.

        Raises:
            ConfigError: the name cannot be one, or an offset is no number from 0 on.
            StorageError: the system refuses.
        """
        path = self._path(group)
        plain = {str(key): int(offset) for key, offset in offsets.items()}
        for key, offset in plain.items():
            if not 0 <= offset <= json_files.WHOLE_MAX:
                raise ConfigError(f"consumer {group}: offset {offset} of log {key} is none; give a number from 0 on")
        when = time.time_ns() if time_ns is None else time_ns
        found: dict[str, object] = {"format": FORMAT, "group": group, "offsets": plain, "time_ns": when}
        if partitions is not None:
            found["partitions"] = sorted(map(int, partitions))
        self._files.make_dir(self._folder)
        self._files.replace(path, json_files.pack(found))

    def all(self) -> dict[str, Cursor]:
        """Returns the good ones, by group."""
        return {group: found for group in self._groups() if isinstance(found := self._read(group), Cursor)}

    def damaged(self) -> dict[str, str]:
        """What is wrong with the damaged ones, by group."""
        return {group: found for group in self._groups() if isinstance(found := self._read(group), str)}

    def remove(self, group: str) -> None:
        """Forgets a group; nothing where it has no cursor.

        Raises:
            ConfigError: the name cannot be one.
            StorageError: the system refuses.
        """
        self._files.remove(self._path(group))

    def _path(self, group: str) -> Path:
        if not is_name(group):
            raise ConfigError(
                f"consumer {group!r} is no name of a file; give 1 to 100 letters, digits, '.', '_' or '-', the first "
                "of them a letter, a digit or '_'"
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
        """Returns a cursor, what is wrong with it, or None when it is gone."""
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
            return f"is no cursor of format {FORMAT}"
        for key, offset in offsets.items():
            if not json_files.is_whole(offset):
                return f"offset {offset!r} of log {key!a} is no whole number from 0 on"
        partitions = found.get("partitions")
        if partitions is None:
            return Cursor(offsets, when)
        if not isinstance(partitions, list) or not all(map(json_files.is_whole, partitions)):
            return f"partitions {str(partitions)[:100]!a} are no list of whole numbers from 0 on"
        return Cursor(offsets, when, tuple(partitions))

    def _there(self, path: Path) -> bool:
        return path.name in self._files.names(self._folder)
