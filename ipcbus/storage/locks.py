"""Locks of open file descriptions (fcntl(2)): the system releases them with their process, however that ends."""

from __future__ import annotations

import os
import socket
import weakref
from typing import Final

from ringbuf import liveness

_BYTE: Final = 0
_HOLDER_MAX: Final = 200


class FileLock:
    """A lock that this process holds; made by `take`."""

    _held: Final[weakref.WeakSet[FileLock]] = weakref.WeakSet()

    def __init__(self, fd: int) -> None:
        """Takes the descriptor over."""
        self._fd = fd
        self._held.add(self)

    def release(self) -> None:
        """Gives it back; again does nothing."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    @classmethod
    def close_all(cls) -> None:
        """Closes them in the child after a fork: it would keep the lock when the parent has gone."""
        for lock in list(cls._held):
            lock.release()


os.register_at_fork(after_in_child=FileLock.close_all)


def take(fd: int) -> FileLock | None:
    """Takes the lock of a file and writes into it who holds it; None when it is taken, and `fd` is closed then.

    Args:
        fd: open for writing; the lock takes it over.

    Raises:
        OSError: the system refuses; `fd` is closed.
    """
    try:
        if not liveness.take(fd, _BYTE):
            os.close(fd)
            return None
        told_by = f"pid {os.getpid()} on {socket.gethostname()}\n".encode()
        os.ftruncate(fd, 0)
        os.pwrite(fd, told_by, 0)
    except OSError:
        os.close(fd)
        raise
    return FileLock(fd)


def holder(fd: int) -> str | None:
    """What the holder of a file's lock wrote of himself; None when nobody but this description holds it.

    Args:
        fd: open for reading at least.

    Raises:
        OSError: the system refuses.
    """
    if not liveness.held_by_other(fd, _BYTE):
        return None
    text = os.pread(fd, _HOLDER_MAX, 0).decode(errors="replace")
    return "".join(c for c in text if c.isprintable()) or "somebody"
