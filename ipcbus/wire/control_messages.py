"""The messages of a control channel: conversion from bytes to values and back, safe for any bytes.

Numbers are little endian, as in shared memory, and stand on their own boundaries::

     0        1              4                8
    +--------+--------------+----------------+--------
    | kind   | zeros        | topic u32      | ...
    +--------+--------------+----------------+--------

    INFO_REQUEST    request u64, history u64, before u64: asks what the source retains of the topic, or of its last
                    `history` messages below number `before`; all ones mean no limit
    INFO            low u64, next u64, request u64: the source retains low..next-1 of what it has published; `request`
                    is that of the INFO_REQUEST
    RANGE_REQUEST   first u64, last u64: asks for these numbers
    RETRANSMISSION  first u64, last u64, entries: every number of first..last that is retained is among the entries,
                    the others are gone; `last` may be above the last number that was asked for, if all of
                    them are gone; `wire_layout` has the picture of an entry
    RESPONSE        request u64, data; its topic is 0
    TSNI_REQUEST    asks for topic sequence number info
    RESENT          link u64, frame u64, message: a RESPONSE, or a RESENT, that went over another link over UDP, and
                    may have come. The link is known by the epoch of its opener. If it has brought the frame with this
                    number, the message is dropped. The topic is 0

The numbers are sequence numbers of the topic, one for each fragment. The receiver checks each entry.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from ipcbus.wire.wire_layout import RETAINED_HEADER_BYTES, TOPIC_MASK

INFO_REQUEST, INFO, RANGE_REQUEST, RETRANSMISSION, RESPONSE, TSNI_REQUEST, RESENT = range(1, 8)

NUMBER_MAX: Final = (1 << 62) - 1
"""Highest sequence number, which no topic reaches."""

_HEAD = struct.Struct("<B3sI")
_RANGE = struct.Struct("<QQ")
_REQUEST = struct.Struct("<Q")
_INFO = struct.Struct("<QQQ")
_ZEROS = bytes(3)
_ALL = (1 << 64) - 1
_RESPONSE = _HEAD.pack(RESPONSE, _ZEROS, 0)
_RESENT = _HEAD.pack(RESENT, _ZEROS, 0)
_RESENT_MOST = 16

RETRANSMISSION_HEADER: Final = _HEAD.size + _RANGE.size
"""Bytes of a RETRANSMISSION before its entries."""
RESPONSE_HEADER: Final = _HEAD.size + _REQUEST.size
"""Bytes of a RESPONSE before its data."""
RESENT_MAX: Final = _RESENT_MOST * (_HEAD.size + _RANGE.size)
"""Most bytes before a message that was sent again; it is refused after 16 times."""


@dataclass(frozen=True, slots=True)
class InfoRequest:
    """The question what a source retains of a topic: INFO_REQUEST.

    Attributes:
        topic: the session's number of the topic.
        history: how many of the last messages the receiver wants; None for all. A fragmented message counts once.
        before: the receiver counts messages below this number; None for all that are published.
        request: a number of the receiver's choice, which the answer repeats.
    """

    topic: int
    history: int | None = None
    before: int | None = None
    request: int = 0


@dataclass(frozen=True, slots=True)
class Info:
    """What a source retains of a topic: INFO.

    Attributes:
        topic: the session's number of the topic.
        low: the lowest number that it retains.
        next: the number after the highest one that it has published; equal to `low` if it retains nothing.
        request: the number in the INFO_REQUEST.
    """

    topic: int
    low: int
    next: int
    request: int = 0


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """A request for retained messages: RANGE_REQUEST.

    Attributes:
        topic: the session's number of the topic.
        first: the first number.
        last: the last number.
    """

    topic: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Retransmission:
    """Retained messages: RETRANSMISSION.

    Attributes:
        topic: the session's number of the topic.
        first: the first number that it answers for.
        last: the last number.
        entries: the messages of these numbers that the source retains; the others are gone.
    """

    topic: int
    first: int
    last: int
    entries: memoryview


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to a request: RESPONSE.

    Attributes:
        request: the number of the request.
        data: the bytes of the answer.
    """

    request: int
    data: memoryview


@dataclass(frozen=True, slots=True)
class TsniRequest:
    """A request for topic sequence number info: TSNI_REQUEST.

    Attributes:
        topic: the session's number of the topic.
    """

    topic: int


ControlMessage = InfoRequest | Info | RangeRequest | Retransmission | Response | TsniRequest


def decode_response(message: bytes) -> tuple[int, memoryview] | None:
    """Returns number and data of a RESPONSE, as `decode`, which takes longer; None for every other message."""
    if len(message) < RESPONSE_HEADER or message[: _HEAD.size] != _RESPONSE:
        return None
    return _REQUEST.unpack_from(message, _HEAD.size)[0], memoryview(message)[RESPONSE_HEADER:]


def is_response(message: bytes) -> bool:
    """Returns whether a message is a RESPONSE, or a RESENT, which holds one."""
    return message[: _HEAD.size] in (_RESPONSE, _RESENT)


def decode_resent(message: bytes) -> tuple[list[tuple[int, int]], bytes] | None:
    """Returns links and frames of a RESENT, the latest first, and the message in it; None for every other message."""
    places: list[tuple[int, int]] = []
    begin, size = 0, _HEAD.size + _RANGE.size
    while message[begin : begin + _HEAD.size] == _RESENT and len(message) >= begin + size:
        if len(places) == _RESENT_MOST:
            return None
        places.append(_RANGE.unpack_from(message, begin + _HEAD.size))
        begin += size
    return (places, message[begin:]) if places else None


def is_sent_too_often(message: bytes) -> bool:
    """Returns whether a message is a RESENT that the other side refuses."""
    return message[: _HEAD.size] == _RESENT and decode_resent(message) is None


def decode(message: bytes | memoryview) -> ControlMessage | None:
    """Returns the values of a message; None when its bytes are invalid or its kind is unknown.

    `entries` and `data` are views of `message`, not copies.
    """
    if len(message) < _HEAD.size:
        return None
    kind, zeros, topic = _HEAD.unpack_from(message)
    if zeros != _ZEROS or topic > TOPIC_MASK:
        return None
    rest = memoryview(message)[_HEAD.size :]
    if kind == INFO_REQUEST and len(rest) == _INFO.size:
        request, history, before = _INFO.unpack(rest)
        return InfoRequest(topic, None if history == _ALL else history, None if before == _ALL else before, request)
    if kind == INFO and len(rest) == _INFO.size:
        low, following, request = _INFO.unpack(rest)
        return Info(topic, low, following, request) if low <= following <= NUMBER_MAX else None
    if kind == TSNI_REQUEST and not rest:
        return TsniRequest(topic)
    if kind == RESPONSE and not topic and len(rest) >= _REQUEST.size:
        return Response(_REQUEST.unpack_from(rest)[0], rest[_REQUEST.size :])
    if kind in (RANGE_REQUEST, RETRANSMISSION) and len(rest) >= _RANGE.size:
        return _decode_range(kind, topic, rest)
    return None


def _decode_range(kind: int, topic: int, rest: memoryview) -> ControlMessage | None:
    low, high = _RANGE.unpack_from(rest)
    entries = rest[_RANGE.size :]
    if low > high or high > NUMBER_MAX:
        return None
    if kind == RETRANSMISSION:
        is_possible = not len(entries) % 8 and (not entries or len(entries) >= RETAINED_HEADER_BYTES)
        return Retransmission(topic, low, high, entries) if is_possible else None
    return None if entries else RangeRequest(topic, low, high)


def info_request(topic: int, history: int | None = None, before: int | None = None, request: int = 0) -> bytes:
    """Returns an INFO_REQUEST as bytes."""
    limits = (_ALL if each is None else each for each in (history, before))
    return _HEAD.pack(INFO_REQUEST, _ZEROS, topic) + _INFO.pack(request, *limits)


def info(topic: int, low: int, following: int, request: int = 0) -> bytes:
    """Returns an INFO as bytes; `following` is its `next`."""
    return _HEAD.pack(INFO, _ZEROS, topic) + _INFO.pack(low, following, request)


def range_request(topic: int, first: int, last: int) -> bytes:
    """Returns a RANGE_REQUEST as bytes."""
    return _HEAD.pack(RANGE_REQUEST, _ZEROS, topic) + _RANGE.pack(first, last)


def retransmission(topic: int, first: int, last: int, entries: bytes) -> bytes:
    """Returns a RETRANSMISSION as bytes."""
    return _HEAD.pack(RETRANSMISSION, _ZEROS, topic) + _RANGE.pack(first, last) + entries


def response(request: int, data: bytes | bytearray | memoryview) -> bytes:
    """Returns a RESPONSE as bytes."""
    return _RESPONSE + _REQUEST.pack(request) + bytes(data)


def resent(link: int, frame: int, message: bytes) -> bytes:
    """Returns a RESENT as bytes.

    Args:
        link: the epoch of the opener of the link over which the message went.
        frame: the number of its last frame.
        message: a RESPONSE or a RESENT.
    """
    return _RESENT + _RANGE.pack(link, frame) + message


def tsni_request(topic: int) -> bytes:
    """Returns a TSNI_REQUEST as bytes."""
    return _HEAD.pack(TSNI_REQUEST, _ZEROS, topic)
