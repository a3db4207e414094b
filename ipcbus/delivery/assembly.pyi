"""The bytes of a message that comes in fragments, put together without a further copy."""

import builtins
from typing import Any

class MemoryBudget:
    """The limit on the memory of incomplete messages, which several controllers share."""

    bytes: int
    """The memory of incomplete messages now."""

    def __init__(self, bytes_max: int) -> None:
        """Begins with nothing in use."""

    def reserve(self, message_bytes: int) -> bool:
        """Reserves memory for a message; returns False when it would exceed the limit."""

    def release(self, message_bytes: int) -> None:
        """Returns the memory of a message to the budget."""

class Assembly:
    """The memory of one message; each of its bytes has to be put exactly once."""

    total: int
    filled: int
    """Bytes put so far."""
    first: int
    """The number of the first fragment, where the demux puts fragments in order; so are the next three."""
    piece_bytes: int
    """The length of every fragment but the last, in bytes."""
    send_ticks: int
    """When the first fragment was sent."""
    flags: int
    """The flags of all fragments so far."""

    def __init__(self, total: int) -> None:
        """Allocates `total` bytes.

        Raises:
            MemoryError: there is not enough memory.
        """

    def put(self, offset: int, piece: Any) -> None:  # noqa: ANN401 - any bytes-like
        """Copies a fragment's bytes to their place.

        Raises:
            ValueError: they would lie outside of the message.
        """

    def bytes(self) -> bytes:
        """Returns the message.

        Raises:
            ValueError: bytes are missing.
        """

    def parts(self, flags: int) -> tuple[int | None, int, builtins.bytes | None, builtins.bytes] | None:
        """Splits a message as its flags say; the message is gone afterwards if a part stands before its value.

        The value stays in the same memory, so that a long message does not take twice its size.

        Returns:
            The number of a request, else None; the GMD number, 0 for other messages; the header block, None without
            headers; the value. None when they are not whole.

        Raises:
            ValueError: as `bytes`.
        """
