"""Packets for connections, made from the records of a ring with one copy."""

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
