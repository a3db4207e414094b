"""Who is alive: write locks on single bytes, owned by an open file description.

Such a lock goes when the last descriptor of its description is closed, so at the latest when its process ends,
however it ends. It does not go when the process is stopped, when the object's name is removed, or by anything that
another part of the process does with the same file. (fcntl(2), "Open file description locks".)

A child inherits descriptors and with them the lock; who holds locks therefore closes them in a child after a fork.
"""

from __future__ import annotations

import errno
import fcntl
import struct

_FLOCK = "hhqqi4x"


def _request(kind: int, byte: int) -> bytes:
    return struct.pack(_FLOCK, kind, 0, byte, 1, 0)


def take(fd: int, byte: int) -> bool:
    """Takes the lock of a byte without waiting; says whether it did.

    Args:
        fd: descriptor open for writing.
        byte: which one; need not lie inside the object.
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
    """Returns whether anybody but this open file description holds the lock; a descriptor for reading is enough."""
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _request(fcntl.F_WRLCK, byte))
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
