"""What the datagrams in the own ring of a receiver over the network show: whether they are in order, or settled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.reliability.registration import State

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

    from ipcbus.reliability.reliable_receiver import ReliableReceiver
    from ipcbus.reliability.stream_receiver import StreamReceiver
    from ringbuf.ring import RingReader, RingWriter


class RingOrder:
    """Knows whether the datagrams in a ring are in the order of their numbers, though a late one may have come."""

    def __init__(self, reader: RingReader, writer: RingWriter) -> None:
        """Begins with an empty ring."""
        self._reader, self._writer = reader, writer
        self._is_broken = False
        self._from = 0

    def wrote(self, *, misses: bool, waits: bool) -> None:
        """Takes note after datagrams were written.

        Args:
            misses: whether an earlier one is missing still.
            waits: whether some that have come wait for room in the ring.
        """
        was_broken = self._is_broken
        self._is_broken = misses or (was_broken and waits)
        if was_broken or self._is_broken:
            self._from = self._writer.head

    @property
    def holds(self) -> bool:
        """Whether all datagrams before the one that is read now have been read, or will not come."""
        return not self._is_broken and self._reader.position >= self._from


def settling(
    receiver: ReliableReceiver | StreamReceiver, reader: RingReader, writer: RingWriter, backlog: Sized
) -> Callable[[int], bool | None]:
    """Returns a function that says whether the datagrams that are known now have come or are gone, and are read.

    Args:
        receiver: the protocol.
        reader: the reader of the ring.
        writer: the writer of the ring.
        backlog: the datagrams that wait for room in the ring.
    """
    lead = receiver.lead
    known = receiver.state is State.JOINED
    head: int | None = None

    def is_settled(now_ns: int) -> bool | None:
        nonlocal head
        if not known:
            return None
        if head is None and receiver.settled(now_ns) >= lead and not backlog:
            head = writer.head
        if head is None:
            return False if receiver.missing or backlog else None
        return reader.position >= head

    return is_settled
