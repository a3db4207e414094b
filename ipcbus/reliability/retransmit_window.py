"""The retransmit window: the datagrams that a source can send again."""

from __future__ import annotations


class RetransmitWindow:
    """The latest datagrams of a session: as many as the limits allow, and at least one."""

    OVERHEAD = 120
    """Bytes of memory that a datagram takes beside its own bytes."""

    def __init__(self, size: int, limit: int, prefix: int = 0) -> None:
        """Starts empty.

        Args:
            size: `transmission_window_size`: largest number of bytes of datagrams.
            limit: `transmission_window_limit`: largest number of bytes with `OVERHEAD` for each datagram; 0 means no
                limit.
            prefix: number of bytes before each datagram that are held with it and not counted.
        """
        self._size, self._limit, self._prefix = size, limit, prefix
        self._held: dict[int, bytes] = {}
        self.lead = 0
        """The number that the next datagram gets."""
        self.trail = 0
        """The oldest number that is held; equal to `lead` when the window is empty."""
        self.bytes = 0
        """Bytes of the datagrams that are held."""

    def __len__(self) -> int:
        """Returns the number of datagrams that are held."""
        return len(self._held)

    def add(self, datagram: bytes) -> int:
        """Adds a datagram, removes the oldest ones above the limits, and returns the number of the new one."""
        number = self.lead
        self.lead = number + 1
        self._held[number] = datagram
        self.bytes += len(datagram) - self._prefix
        while self.bytes > self._size or (self._limit and self._with_overhead() > self._limit):
            if self.trail == number:
                break
            self.bytes -= len(self._held.pop(self.trail)) - self._prefix
            self.trail += 1
        return number

    def get(self, number: int) -> bytes | None:
        """Returns a datagram; None when it is not held."""
        return self._held.get(number)

    def clear(self) -> None:
        """Removes all datagrams; the numbers go on."""
        self._held.clear()
        self.bytes = 0
        self.trail = self.lead

    def _with_overhead(self) -> int:
        return self.bytes + self.OVERHEAD * len(self._held)
