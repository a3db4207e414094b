"""The bytes of a message that comes in fragments, put together without a further copy."""

import builtins
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
        """Returns the message.

        Raises:
            ValueError: not all of it was put; what is missing was never written.
        """

    def parts(self) -> tuple[builtins.bytes, builtins.bytes] | None:
        """Returns the header block and the value of a message that has headers, which this gives away.

        The value stays in the same memory, so that a long one does not take it twice.

        Returns:
            Both; None when the header block contradicts itself.

        Raises:
            ValueError: as `bytes`.
        """
