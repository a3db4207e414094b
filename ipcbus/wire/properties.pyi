"""Message headers (Ultra Messaging: message properties): conversion to bytes and back, safe for any bytes.

The bytes of a message with FLAG_PROPERTIES are a header block, then the value. Numbers are little-endian::

     0          2         3                        n                n + 2
    +----------+---------+------------------------+----------------+-------------+-----
    | length   | key     | key, UTF-8             | value length   | value       | next key ...
    | of all   | length  |                        |                |             |
    +----------+---------+------------------------+----------------+-------------+-----

`length of all` counts its own bytes, too. A block has at least one header, each key has at least one byte, and the
block ends with its last value. So each list of headers has exactly one block, and `pack(unpack(block))` is `block`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from typing_extensions import Buffer as HasBuffer

# numpy's types name their buffers from Python 3.12 on only.
Buffer = HasBuffer | np.ndarray[Any, Any] | np.generic
"""Bytes, bytearray, memoryview, or an array: anything with a contiguous buffer, so not a text."""

Headers = Mapping[str, Buffer] | Iterable[tuple[str, Buffer]]

KEY_MAX: int
"""Longest name of a header in bytes of UTF-8."""

def pack(headers: Headers) -> bytes:
    """Returns the header block of a message; empty without headers.

    Args:
        headers: names and values, as a mapping or as pairs in their order; a name may occur more than once. A name has
            1 to 255 bytes of UTF-8, a value is bytes-like.

    Raises:
        TypeError: a name or value has the wrong type.
        ValueError: a name is empty, too long, or cannot be encoded as UTF-8.
        ipcbus.MessageTooLarge: the block has more than 65535 bytes.
    """

def unpack(block: bytes) -> tuple[tuple[str, bytes], ...]:
    """Returns name and value of each header of a block; an empty tuple for empty bytes.

    Raises:
        ValueError: the bytes are not exactly one block.
    """

def block_length(data: Buffer) -> int:
    """Returns the length in bytes of the header block at the beginning of a message; 0 if the block is invalid."""
