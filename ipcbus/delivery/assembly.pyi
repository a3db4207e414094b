"""The bytes of a message that comes in fragments, put together without a further copy."""

import builtins
from typing import Any

class Assembly:
    """The memory of one message; each of its bytes has to be put exactly once."""

    total: int
    filled: int
    """Bytes put so far."""

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
