"""Locks that show which processes live: write locks on single bytes, owned by an open file description.

Such a lock ends when the last descriptor of its description is closed, so at the latest when its process ends,
however it ends. It does not end when the process is stopped, when the object's name is removed, or when another part of
the process uses the same file. (fcntl(2), "Open file description locks".)

A child inherits descriptors and with them the locks; so a process that holds locks closes them in a child after a fork.
"""

from __future__ import annotations

import errno
import fcntl
import struct

_FLOCK = "hhqqi4x"


def _request(kind: int, byte: int) -> bytes:
    return struct.pack(_FLOCK, kind, 0, byte, 1, 0)


def take(fd: int, byte: int) -> bool:
    """Takes the lock of a byte without waiting; returns whether it did.

    Args:
        fd: descriptor open for writing.
        byte: offset of the byte; it may lie outside of the object.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _request(fcntl.F_WRLCK, byte))
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


def release(fd: int, byte: int) -> None:
    """Gives the lock of a byte back."""
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _request(fcntl.F_UNLCK, byte))


def held_by_other(fd: int, byte: int) -> bool:
    """Returns whether another open file description holds the lock; a descriptor for reading is enough."""
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _request(fcntl.F_WRLCK, byte))
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
