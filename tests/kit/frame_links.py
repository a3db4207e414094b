"""Frame links for tests: a pair in memory that is bounded as the real ones are."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sized


class MemoryLink:
    """One end of a link in memory (recovery.frame_link.FrameLink); `frames` are those that came and were not taken."""

    def __init__(self, frame_max: int, room: int) -> None:
        """Not connected yet.

        Args:
            frame_max: the longest frame in bytes.
            room: most bytes that may wait at the other end; at least one frame fits always.
        """
        self.frame_max, self._room = frame_max, room
        self.frames: deque[bytes] = deque()
        self.broken = ""
        self.other = self
        self._lock = threading.Lock()

    def put(self, frame: bytes) -> bool:
        """As in the protocol."""
        if not 0 < len(frame) <= self.frame_max:
            raise ValueError(f"a frame of {len(frame)} bytes, but the link takes 1 to {self.frame_max}")
        # Two threads may use the two ends.
        with self.other._lock:
            waiting = self.other.frames
            if self.broken or (waiting and sum(map(len, waiting)) + len(frame) > self._room):
                return False
            waiting.append(frame)
            return True

    def put_alone(self, frame: bytes, waiting: Sized) -> bool:
        """As in the protocol."""
        return not waiting and self.put(frame)

    def push(self) -> None:
        """As in the protocol; the frames are there already."""

    def take(self) -> bytes | None:
        """As in the protocol."""
        with self._lock:
            return self.frames.popleft() if self.frames and not self.broken else None

    def close(self) -> None:
        """As in the protocol."""
        for end in (self, self.other):
            end.broken = end.broken or "the link is closed"


def memory_links(frame_max: int = 64, room: int = 1024) -> tuple[MemoryLink, MemoryLink]:
    """The two ends of one link."""
    one, other = MemoryLink(frame_max, room), MemoryLink(frame_max, room)
    one.other, other.other = other, one
    return one, other
