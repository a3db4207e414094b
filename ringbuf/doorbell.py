"""A named FIFO that wakes a sleeping context.

Each context has one in the directory of the shared objects, with mode 0600. A FIFO can be polled together with sockets
and timers, and it has the permissions of a file. The ringing side opens it for reading too: so it always has a reader,
and ringing the doorbell of a dead process does not raise SIGPIPE.
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

FRAMES = b"f"
"""A slot wants a control channel, or its pipe has frames for the source."""


class Doorbell:
    """The owner's end: creates the FIFO, reads it, removes it."""

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
        """Reads and returns all bytes that were written to the FIFO."""
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
    """The ringing end of another context's doorbell."""

    def __init__(self, name: str) -> None:
        """Opens the FIFO.

        Raises:
            FileNotFoundError: its owner has ended.
            ringbuf.ring_errors.SegmentRefused: this user may not open it, or it is not a FIFO.
        """
        segment.check_name(name)
        try:
            self.fd = os.open(segment.ROOT / name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.ELOOP):
                raise SegmentRefused(f"no permission to wake through {name}; run both sides as one user") from error
            if error.errno in (errno.EISDIR, errno.ENXIO):
                raise SegmentRefused(_not_a_fifo(name)) from error
            raise
        if not stat.S_ISFIFO(os.fstat(self.fd).st_mode):
            self.close()
            raise SegmentRefused(_not_a_fifo(name))

    def ring(self, what: bytes) -> None:
        """Wakes the owner. If the FIFO is full, the owner is being woken already."""
        # No context manager: a sleeping receiver waits for this call.
        try:
            os.write(self.fd, what)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Closes the descriptor."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def ring_once(name: str, what: bytes) -> None:
    """Wakes the owner of a doorbell, if it exists and this user may open it."""
    with contextlib.suppress(OSError, RingError):
        ringer = DoorbellRinger(name)
        try:
            ringer.ring(what)
        finally:
            ringer.close()


def _not_a_fifo(name: str) -> str:
    return f"{name} is not a FIFO; another program took its name: remove the file and restart its context"
