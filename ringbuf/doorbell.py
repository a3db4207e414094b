"""A named FIFO that wakes a sleeping context.

One a context, in the directory of the shared objects, 0600. Pollable together with sockets and timers, and a file with
permissions. The ringing side opens it for reading too: such a FIFO is never without a reader, so ringing a bell whose
owner died is harmless instead of a signal.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from ringbuf import segment
from ringbuf.ring_errors import RingError, SegmentRefused

DATA = b"d"
"""A ring has records, or room again."""
NEWS = b"n"
"""A registry of the domain changed."""
CALL = b"c"
"""A receiver joined, left, or made room that a source waited for."""


class Doorbell:
    """The owner's end: made, listened to, removed."""

    def __init__(self, name: str, *, group: str = "") -> None:
        """Makes the FIFO.

        Raises:
            FileExistsError: the name is taken.
            ringbuf.ring_errors.SegmentRefused: the system or the group does not allow it.
        """
        segment.check_name(name)
        self.name = name
        path = segment.ROOT / name
        self.fd = -1
        os.mkfifo(path, 0o600)
        try:
            self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
            segment.give_to(self.fd, name, group, 0o600)
        except BaseException:
            os.unlink(path)
            self.abandon()
            raise

    def drain(self) -> bytes:
        """Takes everything that was rung."""
        try:
            return os.read(self.fd, 4096)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        """Removes the FIFO."""
        if self.fd >= 0:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(segment.ROOT / self.name)
            self.abandon()

    def abandon(self) -> None:
        """Closes the descriptor only; for a child after a fork."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class DoorbellRinger:
    """The ringing end of somebody's doorbell."""

    def __init__(self, name: str) -> None:
        """Opens the FIFO.

        Raises:
            FileNotFoundError: its owner is gone.
            ringbuf.ring_errors.SegmentRefused: this user may not, or the file is no FIFO.
        """
        segment.check_name(name)
        try:
            self._fd = os.open(segment.ROOT / name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.ELOOP):
                raise SegmentRefused(f"no permission to wake through {name}; run both sides as one user") from error
            if error.errno in (errno.EISDIR, errno.ENXIO):
                raise SegmentRefused(_no_fifo(name)) from error
            raise
        if not stat.S_ISFIFO(os.fstat(self._fd).st_mode):
            self.close()
            raise SegmentRefused(_no_fifo(name))

    def ring(self, what: bytes) -> None:
        """Wakes the owner. A full FIFO means that it is being woken already."""
        # No context manager: this stands between a message and a sleeping receiver.
        try:
            os.write(self._fd, what)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Lets go of it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def ring_once(name: str, what: bytes) -> None:
    """Wakes the owner of a doorbell, if it is there and this user may."""
    with contextlib.suppress(OSError, RingError):
        rope = DoorbellRinger(name)
        try:
            rope.ring(what)
        finally:
            rope.close()


def _no_fifo(name: str) -> str:
    return f"{name} is no FIFO; somebody took its name: remove it and restart its context"
