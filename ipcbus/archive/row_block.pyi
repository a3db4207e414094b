"""Rows and values that are written in one go; a record buffer makes, fills and reuses them."""

import numpy as np
from numpy.typing import NDArray

class RowBlock:
    """Rows and values that are written in one go.

    Values grow up from the beginning of the memory and rows down from its end, so that all of it can be used, however
    long messages are.
    """

    size: int
    """Bytes of memory."""
    messages: int
    bytes: int
    """Bytes of the messages, headers included."""

    @property
    def rows(self) -> NDArray[np.void]:
        """A copy of the rows (`archive_layout.ROW`), oldest first, with numbers of the record buffer."""

    @property
    def data(self) -> NDArray[np.uint8]:
        """The bytes of the messages, in which `position` of the rows counts; valid until the block is given back."""

    @property
    def first_ns(self) -> int:
        """Receive time of the first row; 0 without rows."""
