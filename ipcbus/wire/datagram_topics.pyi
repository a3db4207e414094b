"""The topics of a datagram."""

def topics_of(datagram: bytes, start: int = 0) -> set[int] | None:
    """Returns the numbers of the topics whose messages or infos a datagram has; None when it is malformed.

    Args:
        datagram: its bytes, after `start` others.
        start: number of bytes before the datagram.
    """
