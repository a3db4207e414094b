"""The packets between a context and a resolver daemon: bytes to values and back, whatever the bytes are.

Numbers are in the order of the network::

     0         1      2        4                       12
    +---------+------+--------+-----------------------+--------
    | version | type | zeros  | cookie u64            | ...
    +---------+------+--------+-----------------------+--------

    KEEPALIVE from a context: it is there; with cookie 0 it asks for one
    ANSWER    from a daemon: as long as the question, with the cookie that proves where the context receives
    RELAY     a packet of topic resolution; to a daemon with the context's cookie, and from it with that of who gets it
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

VERSION: Final = 1
KEEPALIVE, ANSWER, RELAY = range(0x51, 0x54)

_HEAD = struct.Struct("!BBHQ")

HEAD_BYTES: Final = _HEAD.size
"""Size of a KEEPALIVE and of an ANSWER, and how much longer a RELAY is than what it holds."""


class Packet(NamedTuple):
    """One of them.

    Attributes:
        type: which.
        cookie: a proof; 0 is none.
        inner: what a RELAY holds; of the others nothing.
    """

    type: int
    cookie: int
    inner: bytes


def parse(packet: bytes) -> Packet | None:
    """The values of a packet; None when it is none, of another version, or contradicts itself."""
    if len(packet) < _HEAD.size:
        return None
    version, kind, zeros, cookie = _HEAD.unpack_from(packet)
    if version != VERSION or zeros or kind not in (KEEPALIVE, ANSWER, RELAY):
        return None
    if (kind == RELAY) != (len(packet) > _HEAD.size):
        return None
    return Packet(kind, cookie, packet[_HEAD.size :])


def keepalive(cookie: int) -> bytes:
    """A KEEPALIVE."""
    return _HEAD.pack(VERSION, KEEPALIVE, 0, cookie)


def answer(cookie: int) -> bytes:
    """What answers it."""
    return _HEAD.pack(VERSION, ANSWER, 0, cookie)


def relay(cookie: int, inner: bytes) -> bytes:
    """A RELAY."""
    return _HEAD.pack(VERSION, RELAY, 0, cookie) + inner
