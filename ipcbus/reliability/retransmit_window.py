"""The datagrams that a source still holds, to send them again to who missed them."""

from __future__ import annotations


class RetransmitWindow:
    """The latest datagrams of a session, as many as its limits allow, but never less than one."""

    OVERHEAD = 120
    """Bytes that holding a datagram takes beside its own: its object and its place."""

    def __init__(self, size: int, limit: int, front: int = 0) -> None:
        """Empty.

        Args:
            size: `transmission_window_size`: most bytes of datagrams.
            limit: `transmission_window_limit`: most bytes with the overhead of each; 0 is none.
            front: bytes before each datagram that are held with it and not counted.
        """
        self._size, self._limit, self._front = size, limit, front
        self._held: dict[int, bytes] = {}
        self.lead = 0
        """The number that the next datagram has."""
        self.trail = 0
        """The oldest number that is held, or the next one when none is."""
        self.bytes = 0
        """Bytes of the datagrams that are held."""

    def __len__(self) -> int:
        """Returns how many are held."""
        return len(self._held)

    def add(self, datagram: bytes) -> int:
        """Holds one more, lets go of the oldest where that takes too much room, and returns its number."""
        number = self.lead
        self.lead = number + 1
        self._held[number] = datagram
        self.bytes += len(datagram) - self._front
        while self.bytes > self._size or (self._limit and self._full() > self._limit):
            if self.trail == number:
                break
            self.bytes -= len(self._held.pop(self.trail)) - self._front
            self.trail += 1
        return number

    def get(self, number: int) -> bytes | None:
        """Returns a datagram; None when it is not held (any more), or was never sent."""
        return self._held.get(number)

    def clear(self) -> None:
        """Lets go of everything; the numbers go on."""
        self._held.clear()
        self.bytes = 0
        self.trail = self.lead

    def _full(self) -> int:
        return self.bytes + self.OVERHEAD * len(self._held)
