"""The layout of sealed packets; `wire.seal` makes and opens them.

A sealed packet is a head, the packet, and a tag of 16 bytes; numbers are in network byte order::

    +-----------+---------+-----------------+---------------+-------------+--------------------------+
    | mark 0xff | form u8 | key number u16  | salt 16 bytes | counter u32 | time u64 (ns since epoch)|
    +-----------+---------+-----------------+---------------+-------------+--------------------------+

The mark stands in the place of a version and is not a version, so that contexts without a key drop sealed packets.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Final

MARK: Final = 0xFF
AUTHENTICATED: Final = 1
"""Form: AES-256-GCM with the head and the packet as associated data; the packet is readable."""
ENCRYPTED: Final = 2
"""Form: AES-256-GCM with the head as associated data; the packet is encrypted."""

FRONT: Final = struct.Struct("!BBH16s")
"""Mark, form, number of the key, salt: equal in all packets that one derived key seals."""
BACK: Final = struct.Struct("!IQ")
"""Counter and time."""
NONCE: Final = struct.Struct("!8xI")
"""The counter as the nonce of AES-GCM; 96 bits."""
HEAD_BYTES: Final = FRONT.size + BACK.size
TAG_BYTES: Final = 16
SEAL_BYTES: Final = HEAD_BYTES + TAG_BYTES
"""Bytes that a seal adds to a packet."""
SALT_BYTES: Final = 16
COUNTER_MAX: Final = (1 << 32) - 1
"""Most packets for one salt."""


class Purpose(Enum):
    """The purpose of a packet; it opens only for the purpose that it was sealed for."""

    DATA = b"data"
    """From a source to its receivers."""
    CONTROL = b"control"
    """From receivers to a source."""
    RESOLUTION = b"resolution"
    """From each context to all others."""
