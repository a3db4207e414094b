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

    def parts(self) -> tuple[builtins.bytes, builtins.bytes] | None:
        """Splits a message that has headers into header block and value; the message is gone afterwards.

        The value stays in the same memory, so that a long message does not take twice its size.

        Returns:
            Header block and value; None when the header block contradicts itself.

        Raises:
            ValueError: as `bytes`.
        """
