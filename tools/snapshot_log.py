"""Snapshots in a file, one line of JSON each: written so that no crash spoils more than one, and read back."""

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
"""No snapshot is longer; what is cannot fill the memory of whoever reads it."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class SnapshotLog:
    """A file that records are appended to.

    Attributes:
        records: how many were appended.
        written: bytes of them.
    """

    def __init__(self, path: str) -> None:
        """Opens nothing yet; `-` is stdout."""
        self.records = self.written = 0
        self._path = path
        self._fd = -1

    def __enter__(self) -> Self:
        """Opens the file, so that one that cannot be written to is known at once.

        Raises:
            Failure: it cannot be.
        """
        self._opened()
        return self

    def __exit__(self, *_: object) -> None:
        """Closes it."""
        self._close()

    def append(self, record: dict[str, Any]) -> None:
        """Appends a record as one line, in one write if the system takes it so.

        Raises:
            Failure: the system refused, or the disk is full; what it took of the line is cut off again.
            BrokenPipeError: who read it has gone.
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
            cure = "; make room and start again" if error.errno in _FULL else ""
            raise Failure(f"{self._path} cannot be written to: {error.strerror}{cure}") from error
        self.records += 1
        self.written += len(line)

    def _opened(self) -> int:
        """Returns the file that has the name now."""
        if self._path == "-":
            return sys.stdout.fileno()
        if self._fd < 0 or not self._is_current():
            self._close()
            try:
                self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
                self._mend()
            except OSError as error:
                raise Failure(f"{self._path} cannot be opened: {error.strerror}; name another with --log") from error
        return self._fd

    def _is_current(self) -> bool:
        """Returns whether nobody has moved the file away."""
        try:
            named, opened = os.stat(self._path), os.fstat(self._fd)
        except FileNotFoundError:
            return False
        return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)

    def _mend(self) -> None:
        """Ends a line that was cut short, so that the next record has its own."""
        found = os.fstat(self._fd)
        if stat.S_ISREG(found.st_mode) and found.st_size and os.pread(self._fd, 1, found.st_size - 1) != b"\n":
            os.write(self._fd, b"\n")

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _cut_off(fd: int, length: int) -> None:
    """Takes back what was written last; not from a pipe, nor where somebody else has written behind it."""
    with contextlib.suppress(OSError):
        found, end = os.fstat(fd), os.lseek(fd, 0, os.SEEK_CUR)
        if length and stat.S_ISREG(found.st_mode) and found.st_size == end:
            os.ftruncate(fd, end - length)


class Recording:
    """The snapshots that `ipcbus monitor` has written to a file, in their order; iterate over it.

    Attributes:
        damaged: how many lines, so far, were no snapshot and were passed over.
        reason: what was wrong with the first of them.
    """

    def __init__(self, path: Path) -> None:
        """Opens nothing yet."""
        self.damaged = 0
        self.reason = ""
        self._path = path

    def __iter__(self) -> Iterator[DomainSnapshot]:
        """The snapshots from the beginning.

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
