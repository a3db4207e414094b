"""Rows and values as they are written in one go: made, filled and used again by a stage."""

import numpy as np
from numpy.typing import NDArray

class RowBlock:
    """Rows and values as they are written in one go.

    Values grow up from the beginning of its memory and rows down from the end, so that all of it can be used whatever
    the length of messages.
    """

    size: int
    """Bytes of memory."""
    messages: int
    bytes: int
    """Of values and their headers."""

    @property
    def rows(self) -> NDArray[np.void]:
        """Its rows (`layout.ROW`), the oldest first; topic and session are numbers of the stage. A copy."""

    @property
    def data(self) -> NDArray[np.uint8]:
        """What the rows' positions count in; valid until the buffer is given back."""

    @property
    def first_ns(self) -> int:
        """When the first row of it came; 0 without rows."""
