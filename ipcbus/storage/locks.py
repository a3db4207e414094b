"""Locks of open file descriptions (fcntl(2)): the system releases a lock when its process ends, however it ends."""

from __future__ import annotations

import errno
import os
import socket
import weakref
from typing import Final

from ipcbus.storage import file_calls
from ringbuf import liveness

_BYTE: Final = 0
_HOLDER_MAX: Final = 200
UNKNOWN: Final = "an unknown process"
"""What `holder` returns for a holder that has not written its text yet, or had no room for it."""
FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors that say that the disk has no room."""


class FileLock:
    """A lock that this process holds; made by `take`."""

    _held: Final[weakref.WeakSet[FileLock]] = weakref.WeakSet()

    def __init__(self, fd: int) -> None:
        """Takes ownership of the descriptor."""
        self._fd = fd
        self._held.add(self)

    def has_name(self) -> bool:
        """Returns whether the locked file still has a name; False when it, or its directory, was removed."""
        return file_calls.links(self._fd) > 0

    def release(self) -> None:
        """Releases the lock; a second call does nothing."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    @classmethod
    def close_all(cls) -> None:
        """Closes all locks in the child after a fork, where they would outlive the parent."""
        for lock in list(cls._held):
            lock.release()


os.register_at_fork(after_in_child=FileLock.close_all)


def take(fd: int) -> FileLock | None:
    """Takes the lock of a file, and writes pid and host of this process into the file, if the disk has room for that.

    Args:
        fd: open for writing; the lock takes ownership of it.

    Returns:
        The lock; None if another holder has it, and `fd` is closed then.

    Raises:
        OSError: the system refuses; `fd` is closed.
    """
    try:
        if not liveness.take(fd, _BYTE):
            os.close(fd)
            return None
        this_process = f"pid {os.getpid()} on {socket.gethostname()}\n".encode()
        try:
            os.pwrite(fd, this_process, 0)  # over the text of the holder before, which has its room
            os.ftruncate(fd, len(this_process))
        except OSError as error:
            if error.errno not in FULL:
                raise
            os.ftruncate(fd, 0)
    except OSError:
        os.close(fd)
        raise
    return FileLock(fd)


def holder(fd: int) -> str | None:
    """Returns the text that the holder of a file's lock wrote into it; None if no other file description holds it.

    Args:
        fd: open for reading at least.

    Raises:
        OSError: the system refuses.
    """
    if not liveness.held_by_other(fd, _BYTE):
        return None
    text = os.pread(fd, _HOLDER_MAX, 0).partition(b"\n")[0].decode(errors="replace")
    return "".join(c for c in text if c.isprintable()) or UNKNOWN
