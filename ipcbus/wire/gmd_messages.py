"""The messages of guaranteed delivery on a control channel: conversion from bytes to values and back.

They stand beside the messages of `control_messages`, and begin as they do; their kinds begin at 32. Numbers are little
endian and stand on their own boundaries::

     0        1        2              4                8              16
    +--------+--------+--------------+----------------+--------------+-------
    | kind   | detail | zeros        | topic u32      | instance u64 | ...
    +--------+--------+--------------+----------------+--------------+-------

`topic` is the session's number of the topic. `instance` is a random number that a receiver draws when it starts: it
tells the named receivers of one context apart, and a restarted receiver from the one before. From receiver to source:

    GMD_REGISTER        name length u16, name; detail: disconnect mode
    GMD_RESEND_REQUEST  incarnation u64, first u64, last u64, bytes u64: asks for these messages, and for about
                        this number of bytes of them; last is all ones for the newest one
    GMD_ACK             incarnation u64, ranges
    GMD_NACK            incarnation u64, number u64, error u64: the receiver gives up a message
    GMD_LEAVE           nothing: the receiver is closed

and from source to receiver:

    GMD_REGISTERED      incarnation u64, opening u64, low u64, next u64, name length u16, name of the sender; detail: 0,
                        or the reason of a refusal (then the numbers are 0)
    GMD_RESENT          incarnation u64, first u64, next u64, entries; detail: 1 if it ends an answer, 2 if its numbers
                        may come later, so that the receiver does not wait for them
    GMD_DELETE          incarnation u64, ranges: the application deleted these messages
    GMD_NEXT            incarnation u64, low u64, next u64: how far the numbers are now

`low` is the lowest number that the source keeps, `next` the number after the highest one that it has given. `opening`
stands for the source that has opened the area (`opening_of`): a source that is made again has another one. A
GMD_REGISTERED makes the receiver ask again for all that it has not acknowledged, a GMD_NEXT for what may come later. A
range is first u64, last u64. An entry of a GMD_RESENT, padded to 8 bytes::

     0            8                16              24             32                36               40
    +------------+----------------+---------------+--------------+-----------------+----------------+---------
    | number u64 | send time i64  | opening       | place        | header block    | value          | block,
    |            | ns since epoch | u64           | u64          | length u32      | length u32     | value
    +------------+----------------+---------------+--------------+-----------------+----------------+---------

The place (`topic_places`) has the topic numbers that the message had when this opening of the area sent it; 0 when they
are not known. Entries come in the order of their numbers; every number of first..next-1 without an entry is not for
this receiver.
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

(
    GMD_REGISTER,
    GMD_RESEND_REQUEST,
    GMD_ACK,
    GMD_NACK,
    GMD_LEAVE,
    GMD_REGISTERED,
    GMD_RESENT,
    GMD_DELETE,
    GMD_NEXT,
) = range(32, 41)

ACCEPTED, NAME_IN_USE, NOT_GUARANTEED, UNREGISTERED, TOO_MANY_NAMES, AREA_FAILED = range(6)
"""Reasons of a GMD_REGISTERED: the receiver is registered; a live receiver has the name; the source guarantees nothing;
the source does not know the receiver (any more), so it registers again; the source has too many names; its area cannot
record the name."""

WARM, GMD_FAILURE, GMD_SUCCESS = range(3)
"""Disconnect modes: what becomes of the messages that a receiver has not acknowledged when it goes away. They wait for
its return; they fail at once; they count as acknowledged."""

END_OF_ANSWER, MAY_COME_LATER = 1, 2
"""Bits in the detail of a GMD_RESENT."""

NAME_MAX: Final = 255
"""Longest name in bytes of UTF-8."""
RANGES_MAX: Final = 1024
"""Most ranges in one message."""

_HEAD = struct.Struct("<BBHIQ")
_NAME_LENGTH = struct.Struct("<H")
_THREE = struct.Struct("<QQQ")
_FOUR = struct.Struct("<QQQQ")
_RANGE = struct.Struct("<QQ")
_INCARNATION = struct.Struct("<Q")
_ENTRY = struct.Struct("<QqQQII")
_ONES = (1 << 64) - 1
_REFUSED = _FOUR.pack(0, 0, 0, 0) + _NAME_LENGTH.pack(0)

RESENT_HEADER: Final = _HEAD.size + _THREE.size
"""Bytes of a GMD_RESENT before its entries."""
ENTRY_HEADER: Final = _ENTRY.size
"""Bytes of an entry before its header block."""
RESENT_OVERHEAD: Final = RESENT_HEADER + ENTRY_HEADER + 8
"""Most bytes of a GMD_RESENT with one message beside the message: the headers, and zeros up to a multiple of 8."""


@dataclass(frozen=True, slots=True)
class Register:
    """A receiver gives its name: GMD_REGISTER.

    Attributes:
        topic: the session's number of the topic, as in all messages.
        instance: the random number of this start of the receiver, as in all messages.
        disconnect_mode: `WARM`, `GMD_FAILURE` or `GMD_SUCCESS`.
        name: the `gmd_name` of the receiver.
    """

    topic: int
    instance: int
    disconnect_mode: int
    name: str


@dataclass(frozen=True, slots=True)
class Registered:
    """The answer to a `Register`: GMD_REGISTERED.

    Attributes:
        refusal: `ACCEPTED`, or the reason of the refusal; then the other attributes mean nothing.
        incarnation: the random number of the sender's area.
        opening: stands for the source that has opened the area.
        low: the lowest number that the source keeps; `next` without one.
        next: the number after the highest one that was given when the receiver was registered.
        sender: the `gmd_name` of the source.
    """

    topic: int
    instance: int
    refusal: int
    incarnation: int
    opening: int
    low: int
    next: int
    sender: str


@dataclass(frozen=True, slots=True)
class ResendRequest:
    """A request for messages: GMD_RESEND_REQUEST; it replaces the request before.

    Attributes:
        last: None for the newest message.
        bytes_max: about this number of bytes of messages is wanted; the answer has at least one message.
    """

    topic: int
    instance: int
    incarnation: int
    first: int
    last: int | None
    bytes_max: int


@dataclass(frozen=True, slots=True)
class Ack:
    """Messages that a receiver has acknowledged: GMD_ACK."""

    topic: int
    instance: int
    incarnation: int
    ranges: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Nack:
    """A message that a receiver gives up: GMD_NACK; `error` is an error number of a GMD_FAILURE."""

    topic: int
    instance: int
    incarnation: int
    number: int
    error: int


@dataclass(frozen=True, slots=True)
class Leave:
    """A receiver is closed: GMD_LEAVE."""

    topic: int
    instance: int


@dataclass(frozen=True, slots=True)
class Resent:
    """Messages that a source sends again: GMD_RESENT.

    Attributes:
        first: the first number that it answers for.
        next: the number after the last one.
        ends: whether it ends an answer.
        may_come_later: whether its numbers may come later; then it has no entries.
        entries: the messages; the other numbers are not for this receiver.
    """

    topic: int
    instance: int
    incarnation: int
    first: int
    next: int
    ends: bool
    may_come_later: bool
    entries: ResentEntries


@dataclass(frozen=True, slots=True)
class Delete:
    """Messages that the application of the source deleted: GMD_DELETE."""

    topic: int
    instance: int
    incarnation: int
    ranges: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Next:
    """How far the numbers of a source are: GMD_NEXT; see `Registered`."""

    topic: int
    instance: int
    incarnation: int
    low: int
    next: int


GmdMessage = Register | ResendRequest | Ack | Nack | Leave | Registered | Resent | Delete | Next
GmdRequest = Register | ResendRequest | Ack | Nack | Leave
"""What goes from a receiver to a source."""
GmdAnswer = Registered | Resent | Delete | Next
"""What goes from a source to a receiver."""


def opening_of(session_id: int, topic: int) -> int:
    """Returns what stands for the source of a topic of a session, as the one that has opened its area.

    A receiver knows it from the session, also if the source ends before it has registered the receiver.
    """
    return session_id << 32 | topic


def is_gmd(message: bytes | memoryview) -> bool:
    """Returns whether a message of a control channel has a kind of guaranteed delivery, so that `decode` reads it."""
    return len(message) > 0 and GMD_REGISTER <= message[0] <= GMD_NEXT


def decode(message: bytes | memoryview) -> GmdMessage | None:
    """Returns the values of a message; None when its bytes are invalid or its kind is unknown."""
    if len(message) < _HEAD.size:
        return None
    kind, detail, zeros, topic, instance = _HEAD.unpack_from(message)
    if zeros or topic > TOPIC_MASK:
        return None
    rest = memoryview(message)[_HEAD.size :]
    if kind == GMD_ACK and not detail:
        found = _decode_ranges(rest)
        return Ack(topic, instance, *found) if found else None
    if kind == GMD_RESENT:
        return _decode_resent(topic, instance, detail, bytes(message))
    if kind == GMD_REGISTERED:
        return _decode_registered(topic, instance, detail, rest)
    if kind == GMD_REGISTER and detail <= GMD_SUCCESS:
        name = _decode_name(rest)
        return Register(topic, instance, detail, name) if name else None
    return None if detail else _decode_short(kind, topic, instance, rest)


def _decode_short(kind: int, topic: int, instance: int, rest: memoryview) -> GmdMessage | None:
    if kind == GMD_RESEND_REQUEST and len(rest) == _FOUR.size:
        incarnation, first, last, bytes_max = _FOUR.unpack(rest)
        limit = None if last == _ONES else last
        is_range = 0 < first <= (NUMBER_MAX if limit is None else limit) <= NUMBER_MAX
        return ResendRequest(topic, instance, incarnation, first, limit, bytes_max) if is_range else None
    if kind == GMD_DELETE:
        found = _decode_ranges(rest)
        return Delete(topic, instance, *found) if found else None
    if kind == GMD_NEXT and len(rest) == _THREE.size:
        incarnation, low, following = _THREE.unpack(rest)
        return Next(topic, instance, incarnation, low, following) if 0 < low <= following <= NUMBER_MAX else None
    if kind == GMD_NACK and len(rest) == _THREE.size:
        incarnation, number, error = _THREE.unpack(rest)
        return Nack(topic, instance, incarnation, number, error) if 0 < number <= NUMBER_MAX else None
    return Leave(topic, instance) if kind == GMD_LEAVE and not rest else None


def _decode_ranges(rest: memoryview) -> tuple[int, list[tuple[int, int]]] | None:
    """Returns incarnation and ranges; None unless the ranges are sorted and do not touch."""
    length = len(rest) - _INCARNATION.size
    if not _RANGE.size <= length <= RANGES_MAX * _RANGE.size or length % _RANGE.size:
        return None
    ranges = list(_RANGE.iter_unpack(rest[_INCARNATION.size :]))
    before = -1
    for first, last in ranges:
        if not before + 1 < first <= last:
            return None
        before = last
    return None if before > NUMBER_MAX else (_INCARNATION.unpack_from(rest)[0], ranges)


def _decode_name(rest: memoryview) -> str:
    """Returns a name; an empty one if the bytes are invalid."""
    if len(rest) < _NAME_LENGTH.size:
        return ""
    length = _NAME_LENGTH.unpack_from(rest)[0]
    if length > NAME_MAX or len(rest) != _NAME_LENGTH.size + length:
        return ""
    try:
        return str(rest[_NAME_LENGTH.size :], "utf-8")
    except UnicodeDecodeError:
        return ""


def _decode_registered(topic: int, instance: int, refusal: int, rest: memoryview) -> Registered | None:
    if len(rest) < _FOUR.size or refusal > AREA_FAILED:
        return None
    if refusal:
        return Registered(topic, instance, refusal, 0, 0, 0, 0, "") if rest == _REFUSED else None
    incarnation, opening, low, following = _FOUR.unpack_from(rest)
    sender = _decode_name(rest[_FOUR.size :])
    is_possible = sender and incarnation and 0 < low <= following <= NUMBER_MAX
    return Registered(topic, instance, refusal, incarnation, opening, low, following, sender) if is_possible else None


def _decode_resent(topic: int, instance: int, detail: int, message: bytes) -> Resent | None:
    if len(message) < RESENT_HEADER or detail > (END_OF_ANSWER | MAY_COME_LATER):
        return None
    incarnation, first, following = _THREE.unpack_from(message, _HEAD.size)
    entries = resent_entries.checked(message, RESENT_HEADER, first, following)
    later = bool(detail & MAY_COME_LATER)
    if entries is None or not 0 < first <= following <= NUMBER_MAX or (later and entries):
        return None
    return Resent(topic, instance, incarnation, first, following, bool(detail & END_OF_ANSWER), later, entries)


def _head(kind: int, topic: int, instance: int, detail: int = 0) -> bytes:
    return _HEAD.pack(kind, detail, 0, topic, instance)


def _name(name: str) -> bytes:
    encoded = name.encode()
    return _NAME_LENGTH.pack(len(encoded)) + encoded


def _ranges(incarnation: int, ranges: Iterable[tuple[int, int]]) -> bytes:
    return _INCARNATION.pack(incarnation) + b"".join([_RANGE.pack(*each) for each in ranges])


def register(topic: int, instance: int, disconnect_mode: int, name: str) -> bytes:
    """Returns a GMD_REGISTER as bytes."""
    return _head(GMD_REGISTER, topic, instance, disconnect_mode) + _name(name)


def registered(
    topic: int, instance: int, incarnation: int, opening: int, low: int, following: int, sender: str
) -> bytes:
    """Returns a GMD_REGISTERED as bytes; `following` is its `next`."""
    return _head(GMD_REGISTERED, topic, instance) + _FOUR.pack(incarnation, opening, low, following) + _name(sender)


def refused(topic: int, instance: int, refusal: int) -> bytes:
    """Returns a GMD_REGISTERED that refuses a receiver; `refusal` is a reason."""
    return _head(GMD_REGISTERED, topic, instance, refusal) + _REFUSED


def resend_request(topic: int, instance: int, incarnation: int, first: int, last: int | None, bytes_max: int) -> bytes:
    """Returns a GMD_RESEND_REQUEST as bytes."""
    limit = _ONES if last is None else last
    return _head(GMD_RESEND_REQUEST, topic, instance) + _FOUR.pack(incarnation, first, limit, bytes_max)


def ack(topic: int, instance: int, incarnation: int, ranges: Iterable[tuple[int, int]]) -> bytes:
    """Returns a GMD_ACK as bytes; at most RANGES_MAX sorted ranges, no two of which touch."""
    return _head(GMD_ACK, topic, instance) + _ranges(incarnation, ranges)


def nack(topic: int, instance: int, incarnation: int, number: int, error: int) -> bytes:
    """Returns a GMD_NACK as bytes."""
    return _head(GMD_NACK, topic, instance) + _THREE.pack(incarnation, number, error)


def leave(topic: int, instance: int) -> bytes:
    """Returns a GMD_LEAVE as bytes."""
    return _head(GMD_LEAVE, topic, instance)


def entry(number: int, send_time_ns: int, opening: int, place: int, block: bytes, data: bytes) -> bytes:
    """Returns an entry of a GMD_RESENT as bytes."""
    head = _ENTRY.pack(number, send_time_ns, opening, place, len(block), len(data))
    return b"".join((head, block, data, bytes(-(len(head) + len(block) + len(data)) % 8)))


def resent(
    topic: int, instance: int, incarnation: int, first: int, following: int, detail: int, entries: Iterable[bytes]
) -> bytes:
    """Returns a GMD_RESENT as bytes; `following` is its `next`, `detail` has the bits of its detail."""
    numbers = _THREE.pack(incarnation, first, following)
    return b"".join((_head(GMD_RESENT, topic, instance, detail), numbers, *entries))


def delete(topic: int, instance: int, incarnation: int, ranges: Iterable[tuple[int, int]]) -> bytes:
    """Returns a GMD_DELETE as bytes; see `ack` for the ranges."""
    return _head(GMD_DELETE, topic, instance) + _ranges(incarnation, ranges)


def upcoming(topic: int, instance: int, incarnation: int, low: int, following: int) -> bytes:
    """Returns a GMD_NEXT as bytes; `following` is its `next`."""
    return _head(GMD_NEXT, topic, instance) + _THREE.pack(incarnation, low, following)
