"""An archive: a directory of logs with an id of its own."""

from __future__ import annotations

import itertools
import os
import re
import socket
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ipcbus.archive import cursors, json_files
from ipcbus.archive.archive_layout import FORMAT, FORMATS, formats_read
from ipcbus.archive.cursors import Cursors
from ipcbus.archive.log import Log
from ipcbus.archive.log_limits import Limits
from ipcbus.archive.log_writer import LogWriter
from ipcbus.embedding import Disk, FileMissing, is_name
from ipcbus.errors import ArchiveDamaged, ArchiveLocked, ArchiveMissing, ConfigError

if TYPE_CHECKING:
    from ipcbus.embedding import Files, Lock

NAME: Final = "archive.json"
PARTITIONS: Final = "partitions"
LOCK: Final = "lock"

SIZE_MAX: Final = 1 << 16
"""Longest `archive.json` in bytes."""
OR_REPAIR: Final = ", or run 'ipcbus archive repair', which mends one flipped bit"
"""In the text of a damage of `archive.json`; it does not help where more than one bit is wrong."""
_PARTITION: Final = re.compile(r"0|[1-9]\d{0,8}", re.ASCII)
_ID: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
IDENTITY: Final = {"created_ns", "format", "host", "id"}
"""The keys of `archive.json`, besides its checksum."""
_RESERVED: Final = (NAME, PARTITIONS, cursors.FOLDER)


class Archive:
    """An archive that exists; holds no file open.

    Attributes:
        id: 32 hexadecimal digits that no other archive has.
        damage: what is wrong with `archive.json`, empty without damage; not empty only after `lenient`.
        path: the directory.
        cursors: how far its consumers have read.
        files: the storage of its files.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        expect_id: str | None = None,
        files: Files | None = None,
        lenient: bool = False,
    ) -> None:
        """Opens an archive.

        Args:
            path: the directory of the archive.
            expect_id: the id that the archive must have; None accepts any id.
            files: the storage of its files; None: the disk.
            lenient: open the archive although `archive.json` is damaged, for a check or a repair: `damage` says what is
                wrong, and `id` is empty.

        Raises:
            ArchiveMissing: the directory has no archive, or has one with another id.
            ArchiveDamaged: `archive.json` is damaged, or of another format.
            StorageError: the system refuses.
        """
        self.files = Disk() if files is None else files
        self.path = _absolute(path)
        self.id = self.damage = ""
        try:
            self.id = self._read_id()
        except ArchiveDamaged as error:
            if not lenient:
                raise
            self.damage = str(error)
        self.cursors = Cursors(self.path, self.files)
        if expect_id is not None and expect_id != self.id:
            raise ArchiveMissing(
                f"{self.path} on host {socket.gethostname()} is archive {self.id}, but archive "
                f"{expect_id} was expected; give the directory of that archive, on the host or the shared storage of "
                "its recorder"
            )

    @classmethod
    def create(cls, path: str | os.PathLike[str], *, files: Files | None = None) -> Archive:
        """Makes an archive, or opens the archive that is already there.

        Args:
            path: the directory, made if needed.
            files: the storage of its files; None: the disk.

        Raises:
            ArchiveDamaged: `archive.json` exists, but cannot be read.
            StorageError: the system refuses.
        """
        storage = Disk() if files is None else files
        root = _absolute(path)
        storage.make_dir(root)
        if NAME not in storage.names(root):
            made = {
                "created_ns": time.time_ns(),
                "format": FORMAT,
                "host": socket.gethostname(),
                "id": uuid.uuid4().hex,
            }
            storage.create(root / NAME, json_files.pack(made))
        opened = cls(path, files=storage)
        found = json_files.read_bytes(storage, root / NAME, SIZE_MAX)
        sealed = json_files.pack(json_files.unpack(found))
        if found != sealed:  # written by a release without checksums
            storage.replace(root / NAME, sealed)
        return opened

    def logs(self) -> list[Log]:
        """Returns all logs, sorted by partition.

        Raises:
            ArchiveDamaged: two logs have the same partition number.
            StorageError: the system refuses.
        """
        found = sorted((number, stream) for stream in self._streams() for number in self._partitions(stream))
        for (number, stream), (other, again) in itertools.pairwise(found):
            if number == other:
                raise ArchiveDamaged(
                    f"{self.path}: partition {number} exists twice, as {stream}/{number} and {again}/{number}; move "
                    "the copied log to an archive of its own"
                )
        return [Log(self.path, stream, number, self.files) for number, stream in found]

    def log(self, key: str) -> Log:
        """Returns the log of a key, `"<stream>/<partition>"`.

        Raises:
            ArchiveMissing: the archive has no such log.
        """
        stream, _, number = key.partition("/")
        if _is_stream_name(stream) and _PARTITION.fullmatch(number) and int(number) in self._partitions(stream):
            return Log(self.path, stream, int(number), self.files)
        known = ", ".join(log.key for log in self.logs()) or "none yet"
        raise ArchiveMissing(f"{self.path} on host {socket.gethostname()} has no log {key!r}; its logs: {known}")

    def writer(self, stream: str, *, limits: Limits | None = None) -> LogWriter:
        """Opens the log of a stream for writing, made if needed, and mends it after a crash.

        Args:
            stream: letters, digits, `.`, `_` and `-`, 100 at most.
            limits: sizes, retention and syncs; None: the defaults of `Limits`.

        Raises:
            ArchiveLocked: another live process writes the log.
            ArchiveDamaged: the log has to be repaired first.
            ConfigError: the name of the stream is invalid.
            StorageError: the system refuses.
        """
        if not _is_stream_name(stream):
            raise ConfigError(
                f"stream {stream!r} is not a valid name; give 1 to 100 letters, digits, '.', '_' or '-', of which the "
                f"first is a letter, a digit or '_', but not one of {', '.join(_RESERVED)}"
            )
        self.files.make_dir(self.path / stream)
        lock = self.lock(stream)
        try:
            numbers = self._partitions(stream)
            if len(numbers) > 1:
                raise ArchiveDamaged(
                    f"{self.path / stream}: has partitions {numbers}; move all but one of them to other archives"
                )
            number = numbers[0] if numbers else self._new_partition(stream)
            return LogWriter(
                Log(self.path, stream, number, self.files), limits or Limits(), self.cursors, self.files, lock
            )
        except BaseException:
            lock.release()
            raise

    def lock(self, stream: str) -> Lock:
        """Takes the lock of a stream's log: until its release no other process writes the log.

        Raises:
            ArchiveLocked: another live process holds the lock.
            StorageError: the system refuses.
        """
        lock = self.files.lock(self.path / stream / LOCK)
        if lock is None:
            raise ArchiveLocked(
                f"stream {stream} of {self.path} is written by {self.writing(stream) or 'another process'}; "
                "stop that process, or give this recorder a stream of its own"
            )
        return lock

    def writing(self, stream: str) -> str | None:
        """Returns what the process that writes a stream's log says of itself; None when no process writes it."""
        return self.files.holder(self.path / stream / LOCK) if _is_stream_name(stream) else None

    def _new_partition(self, stream: str) -> int:
        """Returns a partition number for a stream that has no partition yet, and makes its directory."""
        folder = self.path / PARTITIONS
        self.files.make_dir(folder)
        taken = [int(name) for name in self.files.names(folder) if _PARTITION.fullmatch(name)]
        number = max(taken, default=-1) + 1
        # The process that makes the file owns the number, also when several try at once.
        while not self.files.create(folder / str(number), f"{stream}\n".encode()):
            number += 1
        self.files.make_dir(self.path / stream / str(number))
        return number

    def _streams(self) -> list[str]:
        return [name for name in self.files.names(self.path) if _is_stream_name(name)]

    def _partitions(self, stream: str) -> list[int]:
        return sorted(int(name) for name in self.files.names(self.path / stream) if _PARTITION.fullmatch(name))

    def _read_id(self) -> str:
        path = self.path / NAME
        try:
            found = json_files.read(self.files, path, SIZE_MAX)
        except FileMissing as error:
            raise ArchiveMissing(
                f"{self.path} on host {socket.gethostname()} is not an archive; give the directory that "
                "'ipcbus record --to' wrote, on the host or the shared storage of its recorder"
            ) from error
        except ArchiveDamaged as error:
            raise ArchiveDamaged(
                f"{error}{OR_REPAIR}; if you remove the "
                "file, the next 'ipcbus record' gives the archive a new id, and consumers have to start again"
            ) from error
        if found.get("format") not in FORMATS:
            raise ArchiveDamaged(
                f"{path}: format {found.get('format')!r}, this release reads {formats_read()}; use the release that "
                "wrote it"
            )
        name = found.get("id")
        if not isinstance(name, str) or not _ID.fullmatch(name):
            raise ArchiveDamaged(f"{path}: {name!r} is not an archive id; restore the file from a copy")
        return name


def _absolute(path: str | os.PathLike[str]) -> Path:
    # Not `Path.resolve`, which raises for a link to itself; here opening the path raises.
    return Path(os.path.realpath(path))


def _is_stream_name(stream: str) -> bool:
    return is_name(stream) and stream not in _RESERVED
