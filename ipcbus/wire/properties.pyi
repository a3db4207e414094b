"""Message headers (Ultra Messaging: message properties) as bytes, and back, whatever the bytes are.

The bytes of a message with FLAG_PROPERTIES begin with a header block; its value follows. Numbers are little-endian::

     0          2         3                        n                n + 2
    +----------+---------+------------------------+----------------+-------------+-----
    | length   | key     | key, UTF-8             | value length   | value       | next key ...
    | of all   | length  |                        |                |             |
    +----------+---------+------------------------+----------------+-------------+-----

`length of all` counts itself. There is one header at least, each key has a byte at least, and what follows the last
value is the message's. So any list of headers has exactly one block, and `pack(unpack(block))` is `block`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

Buffer = Any
"""Bytes, bytearray, memoryview, or an array."""

Headers = Mapping[str, Buffer] | Iterable[tuple[str, Buffer]]

KEY_MAX: int
"""Longest name of a header in bytes of UTF-8."""

def pack(headers: Headers) -> bytes:
    """Returns the header block of a message; empty without headers.

    Args:
        headers: name and value of each, as a mapping or as pairs in their order; a name may come more than once. Names
            are 1 to 255 bytes of UTF-8, values bytes-like.

    Raises:
        TypeError: not such names and values.
        ValueError: a name is empty, too long, or has no form in UTF-8.
        ipcbus.MessageTooLarge: all of it takes more than 65535 bytes.
    """

def unpack(block: bytes) -> tuple[tuple[str, bytes], ...]:
    """Name and value of each header of a block; none of an empty one.

    Raises:
        ValueError: the bytes are not exactly one block.
    """

def block_length(data: Buffer) -> int:
    """How many bytes of a message, from its beginning, are its header block; 0 where they contradict themselves."""
