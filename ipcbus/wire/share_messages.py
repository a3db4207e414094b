"""The messages of shares on a control channel: conversion from bytes to values and back, safe for any bytes.

They stand beside the messages of `control_messages`, and begin as those of `gmd_messages`; their kinds begin at 48.
Numbers are little endian and stand on their own boundaries::

     0        1        2              4                8              16
    +--------+--------+--------------+----------------+--------------+-------
    | kind   | detail | zeros        | topic u32      | instance u64 | ...
    +--------+--------+--------------+----------------+--------------+-------

`topic` is the session's number of the topic. `instance` is a random number that a member draws when it joins a source:
it tells the members of one context apart. From member to source:

    SHARE_JOIN    context u64, portion u64, name of the share: the member takes `portion` messages at a time
    SHARE_ACK     ranges: the member has worked off the messages with these numbers
    SHARE_NACK    number u64, delay u64: the member gives a message back, to be assigned again after `delay` ns; all
                  ones: after a time that grows with each delivery
    SHARE_LEAVE   nothing: the member is closed

and from source to member:

    SHARE_JOINED  nothing; detail: 0, or the reason of a refusal
    SHARE_WORK    first u64, next u64, entries: messages that are assigned to the member; detail: 1 if they were
                  assigned before, 2 if they are requests

The number of a message is its first topic number plus 1. A range is first u64, last u64. The entries are those of a
GMD_RESENT; their `opening` is the number of the request, or 0.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ipcbus.wire import resent_entries
from ipcbus.wire.control_messages import NUMBER_MAX
from ipcbus.wire.wire_layout import TOPIC_MASK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipcbus.wire.resent_entries import ResentEntries

SHARE_JOIN, SHARE_ACK, SHARE_NACK, SHARE_LEAVE, SHARE_JOINED, SHARE_WORK = range(48, 54)

ACCEPTED, TOO_MANY_SHARES, TOO_MANY_MEMBERS = range(3)
"""Reasons of a SHARE_JOINED: the member is registered; the source has too many shares; the share too many members."""

REASSIGNED, REQUEST = 1, 2
"""Bits in the detail of a SHARE_WORK."""

NAME_MAX: Final = 255
"""Longest name of a share in bytes of UTF-8."""
RANGES_MAX: Final = 1024
"""Most ranges in one message."""

_HEAD = struct.Struct("<BBHIQ")
_PAIR = struct.Struct("<QQ")
_ONES = (1 << 64) - 1

WORK_HEADER: Final = _HEAD.size + _PAIR.size
"""Bytes of a SHARE_WORK before its entries."""


@dataclass(frozen=True, slots=True)
class Join:
    """A member registers: SHARE_JOIN.

    Attributes:
        topic: the session's number of the topic, as in all messages.
        instance: the random number of the member, as in all messages.
        context_id: the id of its context.
        portion: most messages that it has at a time.
        name: the name of the share.
    """

    topic: int
    instance: int
    context_id: int
    portion: int
    name: str


@dataclass(frozen=True, slots=True)
class Ack:
    """Messages that are worked off: SHARE_ACK; `ranges` are pairs of first and last number."""

    topic: int
    instance: int
    ranges: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Nack:
    """A message that is given back: SHARE_NACK; `delay_ns` is None for a time that grows with each delivery."""

    topic: int
    instance: int
    number: int
    delay_ns: int | None


@dataclass(frozen=True, slots=True)
class Leave:
    """A member is closed: SHARE_LEAVE."""

    topic: int
    instance: int


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a `Join`: SHARE_JOINED; `refusal` is `ACCEPTED` or the reason of the refusal."""

    topic: int
    instance: int
    refusal: int


@dataclass(frozen=True, slots=True)
class Work:
    """Messages that are assigned to a member: SHARE_WORK; `detail` has the bits of its detail."""

    topic: int
    instance: int
    detail: int
    entries: ResentEntries


ShareRequest = Join | Ack | Nack | Leave
"""What goes from a member to a source."""
ShareAnswer = Joined | Work
"""What goes from a source to a member."""


def is_share(message: bytes | memoryview) -> bool:
    """Returns whether a message of a control channel has a kind of shares, so that `decode` reads it."""
    return len(message) > 0 and SHARE_JOIN <= message[0] <= SHARE_WORK


def decode(message: bytes) -> ShareRequest | ShareAnswer | None:
    """Returns the values of a message; None when its bytes are invalid or its kind is unknown."""
    if len(message) < _HEAD.size:
        return None
    kind, detail, zeros, topic, instance = _HEAD.unpack_from(message)
    if zeros or topic > TOPIC_MASK:
        return None
    if kind == SHARE_WORK:
        return _decode_work(topic, instance, detail, message)
    rest = message[_HEAD.size :]
    if kind == SHARE_JOINED:
        return None if rest or detail > TOO_MANY_MEMBERS else Joined(topic, instance, detail)
    return None if detail else _decode_request(kind, topic, instance, rest)


def _decode_request(kind: int, topic: int, instance: int, rest: bytes) -> ShareRequest | None:
    if kind == SHARE_ACK and rest and not len(rest) % _PAIR.size and len(rest) <= RANGES_MAX * _PAIR.size:
        ranges = list(_PAIR.iter_unpack(rest))
        return Ack(topic, instance, ranges) if all(0 < low <= high <= NUMBER_MAX for low, high in ranges) else None
    if kind == SHARE_NACK and len(rest) == _PAIR.size:
        number, delay = _PAIR.unpack(rest)
        return Nack(topic, instance, number, None if delay == _ONES else delay) if 0 < number <= NUMBER_MAX else None
    if kind == SHARE_JOIN and len(rest) > _PAIR.size:
        context_id, portion = _PAIR.unpack_from(rest)
        try:
            name = rest[_PAIR.size :].decode()
        except UnicodeDecodeError:
            return None
        is_valid = portion > 0 and len(rest) - _PAIR.size <= NAME_MAX
        return Join(topic, instance, context_id, portion, name) if is_valid else None
    return Leave(topic, instance) if kind == SHARE_LEAVE and not rest else None


def _decode_work(topic: int, instance: int, detail: int, message: bytes) -> Work | None:
    if len(message) < WORK_HEADER or detail > (REASSIGNED | REQUEST):
        return None
    first, following = _PAIR.unpack_from(message, _HEAD.size)
    if not 0 < first < following <= NUMBER_MAX:
        return None
    entries = resent_entries.checked(message, WORK_HEADER, first, following)
    return Work(topic, instance, detail, entries) if entries else None


def join(topic: int, instance: int, context_id: int, portion: int, name: str) -> bytes:
    """Returns a SHARE_JOIN as bytes."""
    return _HEAD.pack(SHARE_JOIN, 0, 0, topic, instance) + _PAIR.pack(context_id, portion) + name.encode()


def ack(topic: int, instance: int, ranges: Iterable[tuple[int, int]]) -> bytes:
    """Returns a SHARE_ACK as bytes, of at most RANGES_MAX ranges."""
    return _HEAD.pack(SHARE_ACK, 0, 0, topic, instance) + b"".join([_PAIR.pack(*each) for each in ranges])


def nack(topic: int, instance: int, number: int, delay_ns: int | None) -> bytes:
    """Returns a SHARE_NACK as bytes."""
    return _HEAD.pack(SHARE_NACK, 0, 0, topic, instance) + _PAIR.pack(number, _ONES if delay_ns is None else delay_ns)


def leave(topic: int, instance: int) -> bytes:
    """Returns a SHARE_LEAVE as bytes."""
    return _HEAD.pack(SHARE_LEAVE, 0, 0, topic, instance)


def joined(topic: int, instance: int, refusal: int = ACCEPTED) -> bytes:
    """Returns a SHARE_JOINED as bytes."""
    return _HEAD.pack(SHARE_JOINED, refusal, 0, topic, instance)


def work(topic: int, instance: int, detail: int, first: int, following: int, entries: Iterable[bytes]) -> bytes:
    """Returns a SHARE_WORK as bytes; `following` is its `next`."""
    return b"".join((_HEAD.pack(SHARE_WORK, detail, 0, topic, instance), _PAIR.pack(first, following), *entries))
