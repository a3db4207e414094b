"""Readers that sleep and the writer that wakes them, as `ipcbus` does it: arm, barrier, a last look, a doorbell."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

from ringbuf import wake
from ringbuf.doorbell import DATA, Doorbell, DoorbellRinger
from ringbuf.shared_words import SharedWords
from tests.rings.channels import PARKED

if TYPE_CHECKING:
    from ringbuf.channel import JoinedChannel, OwnedChannel

MASK64 = 0xFFFFFFFFFFFFFFFF


class Sleeper:
    """A reader's way to wait: without end, and woken by its doorbell only."""

    def __init__(self, name: str) -> None:
        """Makes the doorbell."""
        self.bell = Doorbell(name)
        self._epoll = select.epoll()
        self._epoll.register(self.bell.fd, select.EPOLLIN)

    def sleep(self, channel: JoinedChannel) -> bool:
        """Waits until the reader has something to do; whether it really slept."""
        reader = channel.reader
        reader.arm(True)
        wake.barrier()  # SYNC park
        slept = not reader.ready()
        if slept:
            self.wait()
        reader.arm(False)
        return slept

    def wait(self) -> None:
        """Sleeps until the bell is rung."""
        self._epoll.poll()
        self.bell.drain()

    def close(self) -> None:
        """Removes the doorbell."""
        self._epoll.close()
        self.bell.close()


class Waker:
    """The writer's end of all doorbells."""

    def __init__(self, channel: OwnedChannel, domain: str, slice_ns: int = -1) -> None:
        """Over a ring whose readers have the bells `bell_name(domain, <their context id>)`.

        Args:
            channel: the ring.
            domain: names the bells.
            slice_ns: longest sleep without room. By default it has no end: what a reader frees has to be told. Only a
                reader that is stopped or killed just when it wants to tell needs more.
        """
        self._slice_ns = slice_ns
        self._channel, self._domain = channel, domain
        self._words = SharedWords(channel.control)
        self._doorbells: dict[int, DoorbellRinger] = {}

    def wake(self, mask: int) -> None:
        """Rings for each sleeping reader in the mask."""
        was = self._words.and64(PARKED, ~mask & MASK64) & mask
        for slot in range(was.bit_length()):
            if was >> slot & 1:
                self._rope(self._channel.slots.identity(slot).context_id).ring(DATA)

    def publish(self, body: bytes) -> None:
        """Writes a record, however long that takes, and wakes who sleeps."""
        writer = self._channel.writer
        while (place := writer.claim(len(body))) is None:
            writer.wait_room(len(body), 100, self._slice_ns)
        place[:] = body
        if mask := writer.commit():
            self.wake(mask)

    def close(self) -> None:
        """Ends the session, wakes who sleeps, lets go of the bells."""
        self._channel.close()
        self.wake(self._words.load64(PARKED))
        for rope in self._doorbells.values():
            rope.close()

    def _rope(self, context_id: int) -> DoorbellRinger:
        if context_id not in self._doorbells:
            self._doorbells[context_id] = DoorbellRinger(bell_name(self._domain, context_id))
        return self._doorbells[context_id]


def bell_name(domain: str, context_id: int) -> str:
    """Name of a reader's doorbell."""
    return f"ipcbus.{domain}.b{context_id}"
