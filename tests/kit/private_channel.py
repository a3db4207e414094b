"""A ring of this process only, for simulations and tests without shared objects."""

from __future__ import annotations

import os

from ringbuf import layout
from ringbuf.channel import Shape, fill
from ringbuf.memory import Mapping
from ringbuf.ring import RingReader, RingWriter
from ringbuf.slots import Identity, SlotTable


class PrivateChannel:
    """Ring and control block in anonymous memory, with one reader that has joined at the beginning."""

    def __init__(self, shape: Shape) -> None:
        """Makes ring and control block.

        Raises:
            OSError: there is not enough memory.
        """
        data = layout.data_offset(shape.ring_user)
        self.ring = _anonymous("ring", data + layout.ring_capacity(shape.window), data)
        self.control = _anonymous("control", layout.control_bytes(shape.slots_max, shape.control_user), 0)
        fill(self.ring, self.control, shape)
        self.writer = RingWriter(self.ring, self.control)
        lock = os.memfd_create("ipcbus slots", os.MFD_CLOEXEC)
        try:
            table = SlotTable(self.control, lock)
            index = table.claim(Identity(os.getpid(), os.geteuid(), 0, ""), 0)
            self.reader = RingReader(self.ring, self.control, index)
            table.join(index, self.reader)
        finally:
            os.close(lock)


def _anonymous(name: str, size: int, twice_from: int) -> Mapping:
    fd = os.memfd_create(f"ipcbus {name}", os.MFD_CLOEXEC)
    try:
        os.posix_fallocate(fd, 0, size)
        return Mapping(fd, size, True, twice_from)
    finally:
        os.close(fd)
