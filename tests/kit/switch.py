"""A switch between network namespaces in user space: it loses, delays and queues packets as a network does.

Each host has a TUN interface; the switch reads and writes their packets in a thread.
"""

from __future__ import annotations

import fcntl
import heapq
import itertools
import os
import select
import struct
import threading
import time
from collections import deque
from random import Random
from typing import TYPE_CHECKING

from tests.kit.network import enter

if TYPE_CHECKING:
    from collections.abc import Callable

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_PACKET_MAX = 65536
NAME = "tun0"
"""The name of the interface in each namespace."""


class Switch:
    """Hosts by number; host 0 sends through a link that may be slow."""

    def __init__(
        self, seed: int, *, loss: float = 0, delay: float = 0, jitter: float = 0, rate: int = 0, queue: int = 64
    ) -> None:
        """Starts without hosts.

        Args:
            seed: what is lost follows from it.
            loss: the part of the packets that is lost, in each direction.
            delay: seconds in each direction.
            jitter: seconds that a packet may need longer, each its own time, so that packets overtake each other.
            rate: bits a second that leave host 0; 0 means no limit.
            queue: packets that may wait for that.
        """
        self._random = Random(seed)
        self.lossy: dict[int, float] = {}
        """The part of the packets that is lost on the way to and from single hosts, besides `loss`."""
        self.watches: Callable[[int, bytes], None] = lambda place, packet: None
        """Is called with each packet that reaches a host."""
        self.loss, self.delay, self.jitter, self.rate, self.queue = loss, delay, jitter, rate, queue
        self.is_cut = False
        """Whether nothing passes."""
        self.passed = self.dropped = 0
        """Packets to and beyond host 0's link, and those that found no room there."""
        self._tuns: list[int] = []
        self._places: dict[bytes, int] = {}
        self._leaves: deque[float] = deque()
        self._due: list[tuple[float, int, int, bytes]] = []
        self._order = itertools.count()
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._run, name="switch")

    def add(self, pid: int, address: str) -> None:
        """Gives the network namespace of a process an interface, and makes it the next host."""
        made: list[int] = []

        def make() -> None:
            namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                enter(namespace)
            finally:
                os.close(namespace)
            made.append(os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
            fcntl.ioctl(made[0], _TUNSETIFF, struct.pack("16sH22x", NAME.encode(), _IFF_TUN | _IFF_NO_PI))

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        self._places[bytes(int(part) for part in address.split("."))] = len(self._tuns)
        self._tuns += made

    def start(self) -> None:
        """Begins to pass packets on."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        os.write(self._wake_write, b"x")
        self._thread.join()
        for each in (*self._tuns, self._wake_read, self._wake_write):
            os.close(each)

    def _run(self) -> None:
        while True:
            wait = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
            readable, _, _ = select.select([*self._tuns, self._wake_read], [], [], wait)
            if self._wake_read in readable:
                return
            for tun in readable:
                while (packet := self._read(tun)) is not None:
                    self._take(self._tuns.index(tun), packet)
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                _, _, place, packet = heapq.heappop(self._due)
                self.watches(place, packet)
                os.write(self._tuns[place], packet)

    def _read(self, tun: int) -> bytes | None:
        try:
            return os.read(tun, _PACKET_MAX)
        except BlockingIOError:
            return None

    def _take(self, place: int, packet: bytes) -> None:
        now = time.monotonic()
        through = now
        if place == 0 and self.rate and not self.is_cut:
            while self._leaves and self._leaves[0] <= now:
                self._leaves.popleft()
            if len(self._leaves) > self.queue:
                self.dropped += 1
                return
            through = max(now, self._leaves[-1] if self._leaves else now) + len(packet) * 8 / self.rate
            self._leaves.append(through)
            self.passed += 1
        if len(packet) < 20 or packet[0] >> 4 != 4:
            return
        to = self._places.get(packet[16:20])
        group = 224 <= packet[16] < 240
        for other in range(len(self._tuns)) if group else () if to is None else (to,):
            if other != place and not self.is_cut and not self._is_lost(place, other):
                late = self.delay + self.jitter * self._random.random()
                heapq.heappush(self._due, (through + late, next(self._order), other, packet))

    def _is_lost(self, *places: int) -> bool:
        return any(self._random.random() < loss for loss in (self.loss, *map(self.lossy.get, places)) if loss)
