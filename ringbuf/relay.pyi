"""Reads and writes records with their headers, for transports that carry them over another medium."""

from ringbuf.ring import RingReader, RingWriter

def take(reader: RingReader) -> tuple[bytes, int, int] | None:
    """Returns a copy of the next record's body, its number of messages, and its send time in ns since the Unix epoch.

    It returns None when there is no record now. Call `reader.show` after one or several records.
    """

def put(writer: RingWriter, packet: bytes, start: int, messages: int, send_time_ns: int) -> int:
    """Writes and publishes a record.

    Args:
        writer: the writer of the ring.
        packet: bytes that end with the body.
        start: offset of the body in the packet.
        messages: number of messages in the record.
        send_time_ns: its send time in ns since the Unix epoch, by the clock of its source.

    Returns:
        The mask of sleeping readers to wake; -1 when the ring is full.

    Raises:
        ValueError: the body exceeds the ring's record maximum, or a record is open.
    """
