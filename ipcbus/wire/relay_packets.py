"""The packets between a context and a resolver daemon: bytes to values and back, whatever the bytes are.

Numbers are in the order of the network::

     0         1      2        4                       12
    +---------+------+--------+-----------------------+--------
    | version | type | zeros  | cookie u64            | ...
    +---------+------+--------+-----------------------+--------

    KEEPALIVE nonce u64; from a context: it is there. With cookie 0 it asks for a cookie
    ANSWER    nonce u64; from a daemon, as long as the question: its nonce, and the cookie to be used from now on
    RELAY     a packet of topic resolution; to a daemon with the context's cookie, and from it with that of who gets it

The cookie proves to the daemon that the context receives at its address; the nonce, and the cookie in what is relayed,
prove to the context that it hears the daemon.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

VERSION: Final = 1
KEEPALIVE, ANSWER, RELAY = range(0x51, 0x54)

_HEAD = struct.Struct("!BBHQ")
_WHOLE = struct.Struct("!BBHQQ")

RELAY_HEADER: Final = _HEAD.size
"""How much longer a RELAY is than what it holds."""


class Packet(NamedTuple):
    """One of them.

    Attributes:
        type: which.
        cookie: a proof; 0 is none.
        nonce: of a question and its answer; 0 otherwise.
        inner: what a RELAY holds; of the others nothing.
    """

    type: int
    cookie: int
    nonce: int
    inner: bytes


def parse(packet: bytes) -> Packet | None:
    """Returns the values of a packet; None when it is none, of another version, or contradicts itself."""
    if len(packet) <= _HEAD.size:
        return None
    version, kind, zeros, cookie = _HEAD.unpack_from(packet)
    if version != VERSION or zeros:
        return None
    if kind == RELAY:
        return Packet(RELAY, cookie, 0, packet[_HEAD.size :])
    if kind not in (KEEPALIVE, ANSWER) or len(packet) != _WHOLE.size:
        return None
    return Packet(kind, cookie, _WHOLE.unpack(packet)[4], b"")


def keepalive(cookie: int, nonce: int) -> bytes:
    """Returns a KEEPALIVE."""
    return _WHOLE.pack(VERSION, KEEPALIVE, 0, cookie, nonce)


def answer(cookie: int, nonce: int) -> bytes:
    """What answers it."""
    return _WHOLE.pack(VERSION, ANSWER, 0, cookie, nonce)


def relay(cookie: int, inner: bytes) -> bytes:
    """Returns a RELAY."""
    return _HEAD.pack(VERSION, RELAY, 0, cookie) + inner
