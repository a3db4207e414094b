"""Records with what stands in their headers, for who carries them to another medium and back into a ring."""

from ringbuf.ring import RingReader, RingWriter

def take(reader: RingReader) -> tuple[bytes, int, int] | None:
    """Returns the next record: a copy of its body, its messages, and when it was sent in ns since the Unix epoch.

    None when there is none now. `reader.show` has to follow, after one or after many.
    """

def put(writer: RingWriter, packet: bytes, start: int, messages: int, send_time_ns: int) -> int:
    """Writes and publishes a record.

    Args:
        writer: of the ring.
        packet: its body is in there, up to the end.
        start: where the body begins.
        messages: how many are in it.
        send_time_ns: when it was sent, ns since the Unix epoch, by the clock of whoever sent it.

    Returns:
        The mask of readers that sleep and have to be woken; -1 when the ring is full.

    Raises:
        ValueError: the body exceeds the ring's record maximum, or a record is open.
    """
