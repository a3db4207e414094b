"""The packets of LBT-RU and LBT-RM: conversion from bytes to values and back, safe for any bytes.

Each packet begins with eight bytes; numbers are in network byte order::

     0         1        2                 4                                8
    +---------+--------+-----------------+--------------------------------+
    | version | type   | flags           | session id                     |
    +---------+--------+-----------------+--------------------------------+

    DATA     number u64, distance to the trail u32, messages u32, sending time u64 (ns since the epoch), datagram
    SM       lead u64, trail u64, cookie u64, nonce u64
    NAK      cookie u64, first number u64, then distances from it u32 each
    NCF      first number u64, reason u32, then distances from it u32 each
    CONNECT  cookie u64, nonce u64, then zeros up to the size of the answer
    ACK      cookie u64, lead u64, next u64, context id u64, revision u64, room u32, pid u32, page u16, pages u16,
             length of the name u8, name in UTF-8, then topic numbers u32 each; with 0 pages none
    RESET    cookie u64, or the nonce in an answer to a CONNECT
    LEAVE    cookie u64
    TOPICS   cookie u64, lead u64, then for each topic its number u32, its first number for the client u64, messages
             published u64
    FRAME      cookie u64, epoch of the addressee u32, epoch of the sender u32, number u64, frame
    FRAME_ACK  cookie u64, epochs as in FRAME, next number u64, limit u64, bits of the frames after the next one u64
    PASSED   cookie u64, then ranges of numbers: first number u64, count u32 each

Datagrams have 64-bit numbers, which never wrap.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

VERSION: Final = 7

DATA, SM, NAK, NCF, CONNECT, ACK, RESET, LEAVE, TOPICS, FRAME, FRAME_ACK, PASSED = range(1, 13)

AGAIN: Final = 0x1
"""Flag of DATA: a retransmission."""
PASSED_SHIFT: Final = 4
"""Flags of DATA from this bit on: the number of datagrams just before it that are not for the client (see PASSED)."""
PASSED_MAX: Final = (1 << 16 - PASSED_SHIFT) - 1
"""The largest such number."""
WELCOME: Final = 0x2
"""Flag of SM: the answer to a CONNECT."""
FINAL: Final = 0x4
"""Flag of SM: the session ends at `lead`."""
ADMITTED: Final = 0x8
"""Flag of SM: the client that sent the CONNECT is registered."""
GONE: Final = 0x10
"""Flag of RESET: the session does not exist (any more)."""
ASKS: Final = 0x20
"""Flag of ACK: the client asks for TOPICS about the topics of the ACK. Flag of FRAME_ACK: the sender asks for one."""
ENDED: Final = 0x40
"""Flag of FRAME_ACK: the sender has no such channel (any more)."""

WAITS: Final = 0x80
"""Flag of SM: the source waits for room at the client that gets it, which answers with an ACK."""

EVICTED: Final = 0x100
"""Flag of SM: the source does not wait for the client that gets it, which had kept it waiting for too long."""

FILTERS: Final = 0x200
"""Flag of SM with ADMITTED: the source leaves out datagrams of which the client receives no topic (PASSED_SHIFT)."""

BEHIND: Final = 0x400
"""Flag of SM with ADMITTED: more was published when the question came; it waits with the source, behind `lead`."""

NCF_NO_RETRY, NCF_IGNORED, NCF_RX_DELAY, NCF_SHED = range(4)

NUMBER_MAX: Final = (1 << 62) - 1
"""Highest number of a datagram, which no session reaches in ten thousand years."""

ROOM_MAX: Final = (1 << 32) - 1
"""Highest room in an ACK: no limit."""
CHARGE: Final = 512
"""Bytes that a datagram takes of the room in an ACK, beside its own: no kernel and no ring takes more for it."""

HEAD: Final = struct.Struct("!BBHI")
DATA_HEAD: Final = struct.Struct("!BBHIQIIQ")
"""The header before the datagram in a DATA packet."""
DATA_FRONT: Final = struct.Struct("!BBHIQI")
DATA_BODY: Final = struct.Struct("!IQ")
"""The two parts of this header: fields that a retransmission changes, and fields that stay."""
_SM = struct.Struct("!QQQQ")
_NAK = struct.Struct("!QQ")
_NCF = struct.Struct("!QI")
_CONNECT = struct.Struct("!QQ")
_COOKIE = struct.Struct("!Q")
_ACK = struct.Struct("!QQQQQIIHHB")
_TOPICS = struct.Struct("!QQ")
_TOPIC = struct.Struct("!IQQ")
_RANGE = struct.Struct("!QI")
_FRAME = struct.Struct("!QIIQ")
_FRAME_ACK = struct.Struct("!QIIQQQ")

_ACK_TYPE = bytes([ACK])
_Sender = TypeVar("_Sender", bound="Hashable")

DATA_HEADER: Final = DATA_HEAD.size
"""Size in bytes of the header before the datagram in a DATA packet."""
ACK_LEAD: Final = HEAD.size + struct.calcsize("!Q")
"""The place in an ACK of `lead`, and behind it of `next`."""
ACK_ROOM: Final = HEAD.size + struct.calcsize("!QQQQQ")
"""The place in an ACK of `room`."""
CONNECT_BYTES: Final = HEAD.size + _SM.size
"""Size of a CONNECT: that of its answer, so that the answer to a forged sender is not longer than the question."""
CONTROL_BYTES: Final = 1400
"""Most bytes of a packet other than DATA, so that networks need not split it, even when it is sealed."""
LONG_CONTROL_BYTES: Final = 16_384
"""Most bytes of a FRAME between two processes of one host, where no network splits it."""
FRAME_BYTES: Final = CONTROL_BYTES - HEAD.size - _FRAME.size
"""Most bytes of a frame of a control channel."""
LONG_FRAME_BYTES: Final = LONG_CONTROL_BYTES - HEAD.size - _FRAME.size
"""As `FRAME_BYTES`, between two processes of one host."""
NAME_BYTES: Final = 31
"""Most bytes of a context's name."""
PAGE_TOPICS: Final = 256
"""Most topic numbers in an ACK."""
NO_TOPIC: Final = (1 << 64) - 1
"""In TOPICS: the session does not carry this topic (any more)."""


@dataclass(frozen=True, slots=True)
class Packet:
    """The fields that all packets have.

    Attributes:
        type: one of the constants above.
        flags: the flags of the type, as bits.
        session_id: the session of the packet.
    """

    type: int
    flags: int
    session_id: int


@dataclass(frozen=True, slots=True)
class Data(Packet):
    """A datagram with its header: DATA.

    Attributes:
        number: the number of the datagram.
        trail: the number of the oldest datagram that the source can send again.
        messages: the number of messages in the datagram.
        send_time_ns: when the datagram was sent, ns since the epoch.
        datagram: its bytes.
    """

    number: int
    trail: int
    messages: int
    send_time_ns: int
    datagram: memoryview


@dataclass(frozen=True, slots=True)
class SessionMessage(Packet):
    """A sign of life of a source: SM.

    Attributes:
        lead: the number that the next datagram will have.
        trail: the number of the oldest datagram that the source can send again.
        cookie: the cookie of the client that gets it; 0 when it goes to a group.
        nonce: the nonce of the CONNECT that it answers; 0 otherwise.
    """

    lead: int
    trail: int
    cookie: int
    nonce: int


@dataclass(frozen=True, slots=True)
class Numbers(Packet):
    """A NAK or an NCF.

    Attributes:
        numbers: the numbers of the datagrams, in increasing order.
        reason: the reason of an NCF; 0 in a NAK.
        cookie: the client's cookie in a NAK; 0 in an NCF.
    """

    numbers: tuple[int, ...]
    reason: int
    cookie: int


@dataclass(frozen=True, slots=True)
class Connect(Packet):
    """The request of a client to be registered: CONNECT.

    Attributes:
        cookie: proof that the client receives at its address; 0 before the source has sent one.
        nonce: a number by which the client recognizes the answer.
    """

    cookie: int
    nonce: int


@dataclass(frozen=True, slots=True)
class Client(Packet):
    """A LEAVE of a client, or a RESET to a client that the source does not know.

    Attributes:
        cookie: the client's; in a RESET the cookie or nonce of the packet that it answers.
    """

    cookie: int


@dataclass(frozen=True, slots=True)
class Ack(Packet):
    """The sign of life of a registered client: ACK.

    Attributes:
        cookie: the client's.
        lead: the number after the highest one that the client knows of.
        next: the number of the first datagram that has not come to it, or `lead`.
        context_id: id of the client's context.
        revision: revision of its list of topics; a later list has a higher one.
        room: bytes that it can take from the datagram `next` on, each with CHARGE.
        pid: its process.
        page: number of this page of the list, from 0.
        pages: number of pages; 0 in an ACK that says nothing of the topics.
        name: name of the client's context.
        topics: numbers of the topics that it receives, those on this page.
    """

    cookie: int
    lead: int
    next: int
    context_id: int
    revision: int
    room: int
    pid: int
    page: int
    pages: int
    name: str
    topics: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topics(Packet):
    """The state of the topics of a client: TOPICS.

    Attributes:
        cookie: the client's.
        lead: a number below which lie the datagrams of all messages that are published by this packet; NO_TOPIC while
            some of them have no number yet, as they wait with the source.
        topics: for each topic its number, the number of its first message since the source knows that the client
            receives it, and a number below which all its messages are published; or twice NO_TOPIC. NO_TOPIC in the
            place of the last one only: that number follows behind the datagrams that are still to come.
    """

    cookie: int
    lead: int
    topics: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Passed(Packet):
    """The datagrams that a source does not send to a client, since it receives none of their topics: PASSED.

    Attributes:
        cookie: the client's.
        ranges: the number of the first datagram, and how many there are, of each range.
    """

    cookie: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Frame(Packet):
    """A frame of a control channel: FRAME.

    Attributes:
        cookie: the client's.
        to: the epoch of the side that gets it; 0 when the sender does not know it.
        sender: the epoch of the side that sends it.
        number: the number of the frame, from 0.
        frame: its bytes.
    """

    cookie: int
    to: int
    sender: int
    number: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class FrameAck(Packet):
    """The acknowledgement of frames: FRAME_ACK.

    Attributes:
        cookie: the client's.
        to: see `Frame`.
        sender: see `Frame`.
        next: the number of the first frame that has not come.
        limit: the number of the first frame for which there is no room.
        arrived: the frames after `next` that have come, the first of them as the lowest bit.
    """

    cookie: int
    to: int
    sender: int
    next: int
    limit: int
    arrived: int


def parse(packet: bytes | memoryview) -> Packet | None:
    """Returns the values of a packet; None when the bytes are invalid or have another version."""
    if len(packet) < HEAD.size:
        return None
    version, kind, flags, session_id = HEAD.unpack_from(packet)
    if version != VERSION:
        return None
    if kind == DATA:
        return _parse_data(packet)
    if len(packet) > (LONG_CONTROL_BYTES if kind == FRAME else CONTROL_BYTES):
        return None
    rest = memoryview(packet)[HEAD.size :]
    if kind == SM:
        return _parse_session_message(rest, flags, session_id)
    if kind in (NAK, NCF):
        return _parse_numbers(rest, kind, flags, session_id)
    if kind == CONNECT and len(packet) == CONNECT_BYTES:
        return Connect(kind, flags, session_id, *_CONNECT.unpack_from(rest))
    if kind in (RESET, LEAVE) and len(rest) == _COOKIE.size:
        return Client(kind, flags, session_id, *_COOKIE.unpack(rest))
    if kind == ACK and len(rest) >= _ACK.size:
        return _parse_ack(rest, flags, session_id)
    if kind == TOPICS and len(rest) >= _TOPICS.size and not (len(rest) - _TOPICS.size) % _TOPIC.size:
        listed = tuple(_TOPIC.iter_unpack(rest[_TOPICS.size :]))
        cookie, lead = _TOPICS.unpack_from(rest)
        return Topics(kind, flags, session_id, cookie, lead, listed)
    if kind == PASSED and len(rest) >= _COOKIE.size and not (len(rest) - _COOKIE.size) % _RANGE.size:
        ranges = tuple(_RANGE.iter_unpack(rest[_COOKIE.size :]))
        if all(count and first + count <= NUMBER_MAX for first, count in ranges):
            return Passed(kind, flags, session_id, _COOKIE.unpack_from(rest)[0], ranges)
    if kind in (FRAME, FRAME_ACK):
        return _parse_frame(rest, kind, flags, session_id)
    return None


def fault(packet: bytes | memoryview) -> str:
    """Returns why `parse` refuses a packet: `size`, `version`, `type` or `hdr`, as Ultra Messaging names them."""
    if len(packet) < HEAD.size:
        return "size"
    if packet[0] != VERSION:
        return "version"
    return "hdr" if DATA <= packet[1] <= PASSED else "type"


def _parse_data(packet: bytes | memoryview) -> Data | None:
    if len(packet) <= DATA_HEADER:
        return None
    _, _, flags, session_id, number, back, messages, send_time_ns = DATA_HEAD.unpack_from(packet)
    if number > NUMBER_MAX or back > number:
        return None
    datagram = memoryview(packet)[DATA_HEADER:]
    return Data(DATA, flags, session_id, number, number - back, messages, send_time_ns, datagram)


def _parse_session_message(rest: memoryview, flags: int, session_id: int) -> SessionMessage | None:
    if len(rest) != _SM.size:
        return None
    lead, trail, cookie, nonce = _SM.unpack(rest)
    if trail > lead or lead > NUMBER_MAX:
        return None
    return SessionMessage(SM, flags, session_id, lead, trail, cookie, nonce)


def _parse_numbers(rest: memoryview, kind: int, flags: int, session_id: int) -> Numbers | None:
    fixed = _NAK if kind == NAK else _NCF
    if len(rest) < fixed.size or (len(rest) - fixed.size) % 4:
        return None
    one, other = fixed.unpack_from(rest)
    (first, reason, cookie) = (other, 0, one) if kind == NAK else (one, other, 0)
    steps = struct.unpack_from(f"!{(len(rest) - fixed.size) // 4}I", rest, fixed.size)
    if first > NUMBER_MAX or any(later <= earlier for earlier, later in zip((0, *steps), steps, strict=False)):
        return None
    return Numbers(kind, flags, session_id, (first, *(first + step for step in steps)), reason, cookie)


def _parse_ack(rest: memoryview, flags: int, session_id: int) -> Ack | None:
    cookie, lead, following, context_id, revision, room, pid, page, pages, length = _ACK.unpack_from(rest)
    at = _ACK.size + length
    listed = len(rest) - at
    if length > NAME_BYTES or listed < 0 or listed % 4 or listed > 4 * PAGE_TOPICS:
        return None
    if page >= pages and (page or pages or listed):
        return None
    try:
        name = str(rest[_ACK.size : at], "utf-8")
    except UnicodeDecodeError:
        return None
    if not following <= lead <= NUMBER_MAX or not name.isprintable():
        return None
    topics = struct.unpack_from(f"!{listed // 4}I", rest, at)
    place = cookie, lead, following, context_id, revision, room
    return Ack(ACK, flags, session_id, *place, pid, page, pages, name, topics)


def _parse_frame(rest: memoryview, kind: int, flags: int, session_id: int) -> Frame | FrameAck | None:
    if kind == FRAME and len(rest) > _FRAME.size:
        cookie, to, sender, number = _FRAME.unpack_from(rest)
        if number <= NUMBER_MAX:
            return Frame(kind, flags, session_id, cookie, to, sender, number, bytes(rest[_FRAME.size :]))
    elif kind == FRAME_ACK and len(rest) == _FRAME_ACK.size:
        found = FrameAck(kind, flags, session_id, *_FRAME_ACK.unpack(rest))
        if found.next <= found.limit <= NUMBER_MAX:
            return found
    return None


def data(
    session_id: int, number: int, trail: int, messages: int, send_time_ns: int, datagram: bytes, flags: int
) -> bytes:
    """Returns a DATA packet as bytes."""
    return data_front(session_id, number, trail, flags) + DATA_BODY.pack(messages, send_time_ns) + datagram


def data_front(session_id: int, number: int, trail: int, flags: int) -> bytes:
    """Returns the part of the header that a retransmission changes; it limits the distance to the trail to 32 bits."""
    back = number - trail
    return DATA_FRONT.pack(VERSION, DATA, flags, session_id, number, back if back < 0xFFFFFFFF else 0xFFFFFFFF)


def session_message(session_id: int, lead: int, trail: int, flags: int = 0, cookie: int = 0, nonce: int = 0) -> bytes:
    """Returns an SM packet as bytes."""
    return HEAD.pack(VERSION, SM, flags, session_id) + _SM.pack(lead, trail, cookie, nonce)


def naks(session_id: int, cookie: int, numbers: Sequence[int], size_max: int = CONTROL_BYTES) -> list[bytes]:
    """Returns as few NAK packets as possible for these numbers, in their order."""
    head = HEAD.pack(VERSION, NAK, 0, session_id)
    groups = _groups(numbers, size_max - HEAD.size - _NAK.size)
    return [head + _NAK.pack(cookie, first) + steps for first, steps in groups]


def ncfs(session_id: int, reason: int, numbers: Sequence[int], size_max: int = CONTROL_BYTES) -> list[bytes]:
    """Returns as few NCF packets as possible for these numbers, in their order."""
    head = HEAD.pack(VERSION, NCF, 0, session_id)
    groups = _groups(numbers, size_max - HEAD.size - _NCF.size)
    return [head + _NCF.pack(first, reason) + steps for first, steps in groups]


def connect(session_id: int, cookie: int, nonce: int) -> bytes:
    """Returns a CONNECT packet, as long as its answer."""
    return (HEAD.pack(VERSION, CONNECT, 0, session_id) + _CONNECT.pack(cookie, nonce)).ljust(CONNECT_BYTES, b"\0")


def acks(
    session_id: int,
    cookie: int,
    lead: int,
    context: tuple[int, int, str],
    revision: int,
    topics: Sequence[int] | None,
    flags: int = 0,
    room: tuple[int, int] | None = None,
) -> list[bytes]:
    """Returns the ACK packets for a list of topics.

    Args:
        session_id: the session's.
        cookie: the client's.
        lead: the number after the highest one that the client knows of.
        context: id, pid and name of its context; the name is cut, and `?` replaces characters that are not printable.
        revision: revision of the list of topics.
        topics: the list; None for an ACK that says nothing of it.
        flags: ASKS or 0.
        room: next and room as in `Ack`; None for a client that has all, and takes any amount.
    """
    following, room_bytes = room or (lead, ROOM_MAX)
    context_id, pid, name = context
    printable = "".join(letter if letter.isprintable() else "?" for letter in name).encode(errors="replace")
    printable = printable[:NAME_BYTES].decode(errors="ignore").encode()
    pages = max(1, -(-len(topics) // PAGE_TOPICS)) if topics is not None else 0
    place = cookie, lead, following, context_id, revision, min(room_bytes, ROOM_MAX)
    found = []
    for page in range(max(1, pages)):
        part = topics[page * PAGE_TOPICS : (page + 1) * PAGE_TOPICS] if topics is not None else ()
        fixed = _ACK.pack(*place, pid, page, pages, len(printable))
        numbers = struct.pack(f"!{len(part)}I", *part)
        found.append(HEAD.pack(VERSION, ACK, flags, session_id) + fixed + printable + numbers)
    return found


def is_ack(packet: bytes) -> bool:
    """Returns whether a packet has the type of an ACK; it need not be valid."""
    return packet[1:2] == _ACK_TYPE


def newest_acks(packets: Sequence[tuple[bytes, _Sender]]) -> list[tuple[bytes, _Sender]]:
    """Leaves out each ACK of which another one, of the same client, says as much with higher numbers.

    Args:
        packets: packets with their senders, valid or not, in any order.
    """
    newest: dict[tuple[_Sender, bytes, bytes], int] = {}
    for at, (packet, sender) in enumerate(packets):
        if is_ack(packet):
            key = sender, packet[:ACK_LEAD], packet[ACK_ROOM + 4 :]
            # Numbers have the highest byte first, so they compare as the bytes do.
            if packets[newest.setdefault(key, at)][0] < packet:
                newest[key] = at
    kept = set(newest.values())
    return [pair for at, pair in enumerate(packets) if at in kept or not is_ack(pair[0])]


def reset(session_id: int, cookie: int, flags: int = 0) -> bytes:
    """Returns a RESET packet as bytes."""
    return HEAD.pack(VERSION, RESET, flags, session_id) + _COOKIE.pack(cookie)


def leave(session_id: int, cookie: int) -> bytes:
    """Returns a LEAVE packet as bytes."""
    return HEAD.pack(VERSION, LEAVE, 0, session_id) + _COOKIE.pack(cookie)


def topics(session_id: int, cookie: int, lead: int, listed: Sequence[tuple[int, int, int]]) -> list[bytes]:
    """Returns the TOPICS packets for these topics; `lead` and `listed` are as in `Topics`."""
    head = HEAD.pack(VERSION, TOPICS, 0, session_id) + _TOPICS.pack(cookie, lead)
    most = (CONTROL_BYTES - len(head)) // _TOPIC.size
    parts = (listed[at : at + most] for at in range(0, len(listed), most))
    return [head + b"".join(_TOPIC.pack(*each) for each in part) for part in parts]


def passed(session_id: int, cookie: int, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """Returns the PASSED packets for these ranges; `ranges` is as in `Passed`."""
    head = HEAD.pack(VERSION, PASSED, 0, session_id) + _COOKIE.pack(cookie)
    most = (CONTROL_BYTES - len(head)) // _RANGE.size
    parts = (ranges[at : at + most] for at in range(0, len(ranges), most))
    return [head + b"".join(_RANGE.pack(*each) for each in part) for part in parts]


def frame(session_id: int, cookie: int, to: int, sender: int, number: int, content: bytes) -> bytes:
    """Returns a FRAME packet as bytes; the arguments are as in `Frame`."""
    return HEAD.pack(VERSION, FRAME, 0, session_id) + _FRAME.pack(cookie, to, sender, number) + content


def frame_ack(session_id: int, cookie: int, to: int, sender: int, place: tuple[int, int, int], flags: int = 0) -> bytes:
    """Returns a FRAME_ACK packet as bytes; `place` is next, limit and arrived, as in `FrameAck`."""
    return HEAD.pack(VERSION, FRAME_ACK, flags, session_id) + _FRAME_ACK.pack(cookie, to, sender, *place)


def _groups(numbers: Sequence[int], room: int) -> list[tuple[int, bytes]]:
    """Groups numbers: the first number of each group, and the distances of the others, `room` bytes of them at most."""
    found: list[tuple[int, list[int]]] = []
    for number in numbers:
        if not found or number - found[-1][0] > 0xFFFFFFFF or 4 * len(found[-1][1]) + 4 > room:
            found.append((number, []))
        else:
            found[-1][1].append(number - found[-1][0])
    return [(first, struct.pack(f"!{len(steps)}I", *steps)) for first, steps in found]
