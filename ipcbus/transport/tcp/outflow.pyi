"""Packets for connections, made from the records of a ring with one copy."""

from _thread import RLock
from collections.abc import Callable
from threading import Lock
from typing import Any

from ringbuf.answer_wait import AnswerWait
from ringbuf.ring import RingReader

def take_packet(reader: RingReader, session_id: int, number: int) -> bytes | None:
    """Returns the DATA packet of the next record; None when there is no record now.

    Call `reader.show` after one or several records.

    Args:
        reader: the reader of the session's ring.
        session_id: the session.
        number: the number of the datagram, which is the oldest one that the connection still brings.
    """

def send_records(
    reader: RingReader, numbers: list[int], session_id: int, number: int
) -> tuple[list[bytes], bool, bool, list[int], list[bytes]]:
    """Sends records as packets over connections that have sent all they have, until all are sent or one is full.

    The system copies the bodies from the ring; only then are they copied into the packets, which are kept. Where the
    reader of the ring copies each record, they are copied first.

    Args:
        reader: the reader of the session's ring.
        numbers: the descriptors of the connections, at least one; each gets all packets.
        session_id: the session.
        number: the number of the first datagram.

    Returns:
        The packets; whether the ring's writer waits for an event; whether nothing more waits in the ring. Where a
        connection was full or has ended: how many bytes each connection has taken of the last packets, each behind its
        length, -1 where it has ended; and these packets.
    """

class RecordStream:
    """Sends records over connections as `send_records`; once started, by itself for each record that is published.

    It sends by itself until something else of its session is looked at (`settle`), or a connection changes (`stop`).
    """

    ready: bool
    """Whether it sends by itself; set it to False to end that."""

    def __init__(self, reader: RingReader, session_id: int) -> None:
        """Begins without connections.

        Args:
            reader: the reader of the session's ring.
            session_id: the session.
        """

    def allow(
        self,
        mask: int,
        lock: RLock,
        published: Callable[[int], object],
        on_room: Callable[[], object],
        answers: AnswerWait | None = None,
    ) -> None:
        """Sets what calls need.

        Args:
            mask: the slots of a call that this object serves alone.
            lock: what all that changes the session holds.
            published: called with the mask where this object does not send, or has not sent all.
            on_room: called when the ring's writer waits for an event.
            answers: learns of each call that this object serves alone.
        """

    def aim(
        self,
        socket_lock: Lock,
        keep: Callable[[tuple[Any, ...], list[bytes], list[int]], object],
        connections: tuple[Any, ...],
        numbers: list[int],
    ) -> None:
        """Sets where packets go; with `socket_lock` held.

        Args:
            socket_lock: what all that changes the connections holds.
            keep: takes the connections, the last packets, and how many bytes of them each connection has taken, as
                `send_records` returns them, where one was full or has ended; called with `socket_lock` held.
            connections: the connections, of any type.
            numbers: their descriptors.
        """

    def send(self, number: int) -> tuple[list[bytes], bool, bool]:
        """Sends what waits; with both locks held.

        Args:
            number: the number of the first datagram.

        Returns:
            The packets, whether the ring's writer waits for an event, and whether nothing more waits in the ring.
        """

    def start(self, number: int) -> None:
        """Lets calls send by themselves from a number on; not if a connection has changed since `aim`."""

    def stop(self) -> None:
        """Ends that, as a connection changes; with `socket_lock` held."""

    def __call__(self, mask: int) -> None:
        """Sends what was published for readers in these slots; any thread may call this."""

    def settle(self) -> tuple[list[bytes], int, int]:
        """Ends that calls send by themselves; returns the packets sent, to how many connections, and when last."""

    @property
    def unsettled(self) -> bool:
        """Whether `settle` has anything to do."""
