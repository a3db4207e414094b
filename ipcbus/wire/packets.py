"""The packets of LBT-RU and LBT-RM: bytes to values and back, whatever the bytes are.

Each packet begins with eight bytes; numbers are in the order of the network::

     0         1        2                 4                                8
    +---------+--------+-----------------+--------------------------------+
    | version | type   | flags           | session id                     |
    +---------+--------+-----------------+--------------------------------+

    DATA     number u64, distance to the trail u32, messages u32, sending time u64 (ns since the epoch), datagram
    SM       lead u64, trail u64, cookie u64
    NAK      first number u64, then distances from it u32 each
    NCF      first number u64, reason u32, then distances from it u32 each
    CONNECT  cookie u64, and zeros up to the size of the answer
    ACK      cookie u64, highest number u64
    RESET    cookie u64

Datagrams have 64-bit numbers, which never begin anew.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION: Final = 1

DATA, SM, NAK, NCF, CONNECT, ACK, RESET = range(1, 8)

AGAIN: Final = 0x1
"""Flag of DATA: it was sent before."""
WELCOME: Final = 0x2
"""Flag of SM: it answers a CONNECT."""
FINAL: Final = 0x4
"""Flag of SM: nothing comes after `lead`."""

NCF_NO_RETRY, NCF_IGNORED, NCF_RX_DELAY, NCF_SHED = range(4)

NUMBER_MAX: Final = (1 << 62) - 1
"""Highest number of a datagram; more would not be reached in ten thousand years."""

_HEAD = struct.Struct("!BBHI")
_DATA = struct.Struct("!QIIQ")
_SM = struct.Struct("!QQQ")
_NAK = struct.Struct("!Q")
_NCF = struct.Struct("!QI")
_CONNECT = struct.Struct("!Q")
_ACK = struct.Struct("!QQ")

DATA_HEADER: Final = _HEAD.size + _DATA.size
"""Bytes before the datagram in a DATA packet."""
CONNECT_BYTES: Final = _HEAD.size + _SM.size
"""Size of a CONNECT: that of the answer, so that a forged sender makes nobody send more than was sent to him."""


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet of a type that has no fields of its own here: what all have.

    Attributes:
        type: one of the constants above.
        flags: as it stands there.
        session_id: which session it belongs to.
    """

    type: int
    flags: int
    session_id: int


@dataclass(frozen=True, slots=True)
class Data(Packet):
    """A datagram.

    Attributes:
        number: its own.
        trail: the oldest that its source holds.
        messages: how many messages are in it.
        send_time_ns: when it was sent, ns since the epoch.
        datagram: the rest.
    """

    number: int
    trail: int
    messages: int
    send_time_ns: int
    datagram: memoryview


@dataclass(frozen=True, slots=True)
class SessionMessage(Packet):
    """A sign of life: all numbers below `lead` were sent, those from `trail` on are held.

    Attributes:
        lead: the number that the next datagram has.
        trail: the oldest that is held.
        cookie: of the client whom it welcomes; 0 otherwise.
    """

    lead: int
    trail: int
    cookie: int


@dataclass(frozen=True, slots=True)
class Numbers(Packet):
    """A NAK or an NCF.

    Attributes:
        numbers: which datagrams, the lowest first, each once.
        reason: of an NCF; 0 otherwise.
    """

    numbers: tuple[int, ...]
    reason: int


@dataclass(frozen=True, slots=True)
class Client(Packet):
    """What a client says to a source: CONNECT, ACK; or a source to one that it does not know: RESET.

    Attributes:
        cookie: proof that who sends it receives at his address; 0 before the source has given one.
        number: of an ACK, the highest that has come; 0 otherwise.
    """

    cookie: int
    number: int


def parse(packet: bytes | memoryview) -> Packet | None:
    """The values of a packet; None when it is none, of another version, or contradicts itself."""
    if len(packet) < _HEAD.size:
        return None
    version, kind, flags, session_id = _HEAD.unpack_from(packet)
    rest = memoryview(packet)[_HEAD.size :]
    if version != VERSION:
        return None
    if kind == DATA:
        return _parse_data(rest, flags, session_id)
    if kind == SM:
        return _parse_session_message(rest, flags, session_id)
    if kind == NAK:
        return _parse_numbers(rest, _NAK.size, kind, flags, session_id)
    if kind == NCF:
        return _parse_numbers(rest, _NCF.size, kind, flags, session_id)
    if kind in (CONNECT, RESET) and len(rest) >= _CONNECT.size:
        return Client(kind, flags, session_id, _CONNECT.unpack_from(rest)[0], 0)
    if kind == ACK and len(rest) == _ACK.size:
        return Client(kind, flags, session_id, *_ACK.unpack(rest))
    return None


def _parse_data(rest: memoryview, flags: int, session_id: int) -> Data | None:
    if len(rest) <= _DATA.size:
        return None
    number, back, messages, send_time_ns = _DATA.unpack_from(rest)
    if number > NUMBER_MAX or back > number:
        return None
    return Data(DATA, flags, session_id, number, number - back, messages, send_time_ns, rest[_DATA.size :])


def _parse_session_message(rest: memoryview, flags: int, session_id: int) -> SessionMessage | None:
    if len(rest) != _SM.size:
        return None
    lead, trail, cookie = _SM.unpack(rest)
    return SessionMessage(SM, flags, session_id, lead, trail, cookie) if trail <= lead <= NUMBER_MAX else None


def _parse_numbers(rest: memoryview, fixed: int, kind: int, flags: int, session_id: int) -> Numbers | None:
    if len(rest) < fixed or (len(rest) - fixed) % 4:
        return None
    first = _NAK.unpack_from(rest)[0]
    reason = _NCF.unpack_from(rest)[1] if kind == NCF else 0
    steps = struct.unpack_from(f"!{(len(rest) - fixed) // 4}I", rest, fixed)
    if first > NUMBER_MAX or any(later <= earlier for earlier, later in zip((0, *steps), steps, strict=False)):
        return None
    return Numbers(kind, flags, session_id, (first, *(first + step for step in steps)), reason)


def data(
    session_id: int, number: int, trail: int, messages: int, send_time_ns: int, datagram: bytes, flags: int
) -> bytes:
    """A DATA packet; a trail that is too far back for its field is told as far as it goes."""
    back = min(number - trail, 0xFFFFFFFF)
    return b"".join(
        (_HEAD.pack(VERSION, DATA, flags, session_id), _DATA.pack(number, back, messages, send_time_ns), datagram)
    )


def session_message(session_id: int, lead: int, trail: int, flags: int = 0, cookie: int = 0) -> bytes:
    """An SM packet."""
    return _HEAD.pack(VERSION, SM, flags, session_id) + _SM.pack(lead, trail, cookie)


def naks(session_id: int, numbers: Sequence[int], size_max: int) -> list[bytes]:
    """NAK packets for these numbers, in their order, as few as hold them."""
    head = _HEAD.pack(VERSION, NAK, 0, session_id)
    return [head + _NAK.pack(first) + steps for first, steps in _groups(numbers, size_max - _HEAD.size - _NAK.size)]


def ncfs(session_id: int, reason: int, numbers: Sequence[int], size_max: int) -> list[bytes]:
    """NCF packets for these numbers, in their order, as few as hold them."""
    head = _HEAD.pack(VERSION, NCF, 0, session_id)
    groups = _groups(numbers, size_max - _HEAD.size - _NCF.size)
    return [head + _NCF.pack(first, reason) + steps for first, steps in groups]


def connect(session_id: int, cookie: int) -> bytes:
    """A CONNECT packet, as long as its answer."""
    return (_HEAD.pack(VERSION, CONNECT, 0, session_id) + _CONNECT.pack(cookie)).ljust(CONNECT_BYTES, b"\0")


def ack(session_id: int, cookie: int, number: int) -> bytes:
    """An ACK packet."""
    return _HEAD.pack(VERSION, ACK, 0, session_id) + _ACK.pack(cookie, number)


def reset(session_id: int, cookie: int) -> bytes:
    """A RESET packet."""
    return _HEAD.pack(VERSION, RESET, 0, session_id) + _CONNECT.pack(cookie)


def _groups(numbers: Sequence[int], room: int) -> list[tuple[int, bytes]]:
    """First numbers, each with the distances of those that fit behind it into so many bytes and into their field."""
    found: list[tuple[int, list[int]]] = []
    for number in numbers:
        if not found or number - found[-1][0] > 0xFFFFFFFF or 4 * len(found[-1][1]) + 4 > room:
            found.append((number, []))
        else:
            found[-1][1].append(number - found[-1][0])
    return [(first, struct.pack(f"!{len(steps)}I", *steps)) for first, steps in found]
