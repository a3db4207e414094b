"""Writes snapshots into a file, one line of JSON each, and reads them; a crash damages one line at most."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import sys
from typing import TYPE_CHECKING, Any, Final

from ipcbus_tools.common import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Self

    from ipcbus.stats import DomainSnapshot

LINE_MAX: Final = 1 << 28
"""Most bytes of a line; a longer line is passed over, so that it does not fill the memory of its reader."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class SnapshotLog:
    """A file that grows by one record at a time.

    Attributes:
        records: number of records that were appended.
        written: bytes of these records.
    """

    def __init__(self, path: str) -> None:
        """Opens no file yet; the path `-` is stdout."""
        self.records = self.written = 0
        self._path = path
        self._fd = -1

    def __enter__(self) -> Self:
        """Opens the file, so that a file that cannot be written is reported at once.

        Raises:
            Failure: the file cannot be opened.
        """
        self._opened()
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the file."""
        self._close()

    def append(self, record: dict[str, Any]) -> None:
        """Appends a record as one line, with one write call if the system allows it.

        Raises:
            Failure: the system refused the write, or the disk is full; a part that was written is cut off again.
            BrokenPipeError: the reader of the pipe has gone.
        """
        line = json.dumps(record).encode() + b"\n"
        fd = self._opened()
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(fd, rest) :]
        except BrokenPipeError:
            raise
        except OSError as error:
            _cut_off(fd, len(line) - len(rest))
            cure = "; make room on the disk and start again" if error.errno in _FULL else ""
            raise Failure(f"{self._path} cannot be written: {error.strerror}{cure}") from error
        self.records += 1
        self.written += len(line)

    def _opened(self) -> int:
        """Returns the descriptor of the file that has the path now."""
        if self._path == "-":
            return sys.stdout.fileno()
        if self._fd < 0 or not self._is_current():
            self._close()
            try:
                self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
                self._mend()
            except OSError as error:
                raise Failure(f"{self._path} cannot be opened: {error.strerror}; name another --log") from error
        return self._fd

    def _is_current(self) -> bool:
        """Returns whether the path still names the open file."""
        try:
            named, opened = os.stat(self._path), os.fstat(self._fd)
        except FileNotFoundError:
            return False
        return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)

    def _mend(self) -> None:
        """Adds a line end behind an unfinished line, so that the next record begins a line."""
        found = os.fstat(self._fd)
        if stat.S_ISREG(found.st_mode) and found.st_size and os.pread(self._fd, 1, found.st_size - 1) != b"\n":
            os.write(self._fd, b"\n")

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _cut_off(fd: int, length: int) -> None:
    """Removes the bytes that were written last; not from a pipe, nor where another process has written behind them."""
    with contextlib.suppress(OSError):
        found, end = os.fstat(fd), os.lseek(fd, 0, os.SEEK_CUR)
        if length and stat.S_ISREG(found.st_mode) and found.st_size == end:
            os.ftruncate(fd, end - length)


class Recording:
    """The snapshots that `ipcbus monitor` has written to a file; iterate over it.

    Attributes:
        damaged: number of lines, so far, that do not hold a snapshot and were passed over.
        reason: what was wrong with the first of these lines.
    """

    def __init__(self, path: Path) -> None:
        self.damaged = 0
        self.reason = ""
        self._path = path

    def __iter__(self) -> Iterator[DomainSnapshot]:
        """Yields the snapshots from the beginning.

        Raises:
            OSError: the file cannot be read.
        """
        from ipcbus.stats import DomainSnapshot

        self.damaged, self.reason = 0, ""
        number, cut = 0, False
        with self._path.open("rb") as file:
            while line := file.readline(LINE_MAX):
                rest, cut = cut, not line.endswith(b"\n")
                if rest or not line.strip():
                    continue
                number += 1
                try:
                    found = DomainSnapshot.from_dict(json.loads(line))
                except (ValueError, RecursionError) as error:
                    self.damaged += 1
                    self.reason = self.reason or f"snapshot {number} of {self._path}: {error}"
                else:
                    yield found
