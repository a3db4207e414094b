"""The packets between a context and a resolver daemon: conversion from bytes to values and back, safe for any bytes.

Numbers are in network byte order::

     0         1      2        4                       12
    +---------+------+--------+-----------------------+--------
    | version | type | zeros  | cookie u64            | ...
    +---------+------+--------+-----------------------+--------

    KEEPALIVE nonce u64; the sign of life of a context. With cookie 0 the context asks for a cookie
    ANSWER    nonce u64; the daemon's answer, as long as the question: its nonce, and the cookie to use from now on
    RELAY     a packet of topic resolution; to a daemon with the sender's cookie, from a daemon with the addressee's

The cookie proves to the daemon that the context receives at its address. The nonce of an ANSWER and the cookie of a
RELAY prove to the context that the packet comes from the daemon.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

VERSION: Final = 1
KEEPALIVE, ANSWER, RELAY = range(0x51, 0x54)

_HEAD = struct.Struct("!BBHQ")
_WHOLE = struct.Struct("!BBHQQ")

RELAY_HEADER: Final = _HEAD.size
"""Size in bytes of the header of a RELAY, before the packet in it."""


class Packet(NamedTuple):
    """A packet between a context and a resolver daemon.

    Attributes:
        type: KEEPALIVE, ANSWER or RELAY.
        cookie: the cookie; 0 in the first KEEPALIVE.
        nonce: the nonce of a KEEPALIVE or ANSWER; 0 in a RELAY.
        inner: the packet in a RELAY; empty in the others.
    """

    type: int
    cookie: int
    nonce: int
    inner: bytes


def parse(packet: bytes) -> Packet | None:
    """Returns the values of a packet; None when the bytes are invalid or have another version."""
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
    """Returns a KEEPALIVE packet as bytes."""
    return _WHOLE.pack(VERSION, KEEPALIVE, 0, cookie, nonce)


def answer(cookie: int, nonce: int) -> bytes:
    """Returns an ANSWER packet as bytes."""
    return _WHOLE.pack(VERSION, ANSWER, 0, cookie, nonce)


def relay(cookie: int, inner: bytes) -> bytes:
    """Returns a RELAY packet as bytes."""
    return _HEAD.pack(VERSION, RELAY, 0, cookie) + inner
