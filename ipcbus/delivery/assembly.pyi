"""The bytes of a message that comes in fragments, put together without a further copy."""

from typing import Any

class Assembly:
    """Room for one message; each of its bytes is to be put exactly once."""

    total: int
    filled: int
    """Bytes put so far."""

    def __init__(self, total: int) -> None:
        """Room for `total` bytes.

        Raises:
            MemoryError: there is none.
        """

    def put(self, offset: int, piece: Any) -> None:  # noqa: ANN401 - any bytes-like
        """Copies a piece to its place.

        Raises:
            ValueError: it would lie outside of the message.
        """

    def bytes(self) -> bytes:
        """The message.

        Raises:
            ValueError: not all of it was put; what is missing was never written.
        """
