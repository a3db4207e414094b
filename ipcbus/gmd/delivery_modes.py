"""The delivery modes whose messages are kept in the GMD area until receivers have acknowledged them."""

from __future__ import annotations

from typing import Final

SOME: Final = 1
"""The copy is kept until one expected receiver has acknowledged the message."""

ALL: Final = 2
"""The copy is kept until every expected receiver has acknowledged the message."""
