"""The packets of topic resolution between contexts: conversion from bytes to values and back, safe for any bytes.

Each packet begins with a head; numbers are in network byte order::

     0         1      2         4         8                16               24
    +---------+------+---------+---------+----------------+----------------+---------------+-----------+------
    | version | type | ttl u16 | pid u32 | context id u64 | number u64     | domain, 8     | length u8 | name
    +---------+------+---------+---------+----------------+----------------+---------------+-----------+------

    ADVERT    groups: a session, a count u16, and the topics: number u32, length u8, name;
              the highest bit of a number is set where the source keeps what it sent
    QUERY     a count u16, and the topics: length u8, name
    WILDCARD  a count u16, and prefixes of topics: length u8, text
    FINAL     groups: session id u32, a count u16, and topic numbers u32; a group without numbers means the whole
              session, and a packet without groups the whole context

A session is: transport u8, source-paced u8, topics_max u32, session id u32, local u32, transport id u32, window u64,
port u16, group port u16, then the address and the group's address: family u8 (4, 6; 0 for no address) and its bytes.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ipcbus.wire import wire_layout

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

VERSION: Final = 2
ADVERT, QUERY, WILDCARD, FINAL = range(1, 5)

NAME_MAX: Final = 31
"""Longest context name in bytes of UTF-8, as in the registry."""
TTL_MAX: Final = 0xFFFF
"""Longest time for which an advert holds, in seconds."""
CONTEXT_MAX: Final = (1 << 32) - 1
"""Highest id of a context, which is a part of the names of shared objects."""
NUMBER_MAX: Final = (1 << 62) - 1
"""Highest number of a packet."""

FINAL_GROUP_BYTES: Final = 6
"""Bytes of a session in a FINAL."""
NUMBER_BYTES: Final = 4
"""Bytes of a topic number in a FINAL."""

_RETAINS: Final = 1 << 31

_HEAD = struct.Struct("!BBHIQQ8s")
_SESSION = struct.Struct("!BBIIIIQHH")
_TCP_TWIN = 2
_COUNT = struct.Struct("!H")
_NUMBER = struct.Struct("!I")

_RINGS = (wire_layout.TRANSPORT_LBTIPC, wire_layout.TRANSPORT_LBTSMX)
_WITH_GROUP: Final = (wire_layout.TRANSPORT_LBTRM,)
_WITHOUT_GROUP: Final = (wire_layout.TRANSPORT_LBTRU, wire_layout.TRANSPORT_LBTTCP)
_ADDRESS_BYTES = {4: 4, 6: 16}


@dataclass(frozen=True, slots=True)
class Head:
    """The sender and the number of a packet.

    Attributes:
        context_id: the context that sends the packet; from 1 to CONTEXT_MAX.
        pid: its process, on its host.
        name: its name; may be empty.
        tag: tag of its domain: one to eight characters of ASCII.
        number: number of the packet, which the context counts from 1; a packet is old if a higher number has arrived.
    """

    context_id: int
    pid: int
    name: str
    tag: str
    number: int


@dataclass(frozen=True, slots=True)
class Session:
    """A session over UDP, or over a ring with a UDP twin; the fields are those of `SessionAdvert` and `Endpoint`."""

    transport: int
    source_paced: bool
    topics_max: int
    session_id: int
    local: int
    transport_id: int
    window: int
    host: str
    port: int
    group: str = ""
    group_port: int = 0
    tcp: bool = False


@dataclass(frozen=True, slots=True)
class Packet:
    """The part that all packets have."""

    head: Head


@dataclass(frozen=True, slots=True)
class Advert(Packet):
    """Topics that the context publishes.

    Attributes:
        ttl: for how many seconds the advert holds, unless another one follows.
        groups: sessions, each with its topics by number.
        retaining: session id and topic number of each topic whose source keeps what it sent.
    """

    ttl: int
    groups: tuple[tuple[Session, Mapping[int, str]], ...]
    retaining: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class Query(Packet):
    """Topics that the context looks for."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WildcardQuery(Packet):
    """Prefixes of the topics that the context looks for.

    The pattern itself is not sent, because a context must not match regular expressions of strangers.
    """

    prefixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FinalAdvert(Packet):
    """Topics that the context no longer publishes.

    Attributes:
        groups: session ids, each with topic numbers; a group without numbers means the whole session, and an empty
            tuple the whole context.
    """

    groups: tuple[tuple[int, tuple[int, ...]], ...]


class _InvalidPacketError(Exception):
    """The bytes are not a packet."""


def parse(packet: bytes) -> Packet | None:
    """Returns the values of a packet; None when the bytes are invalid or have another version or type."""
    if fault_of_head(packet):
        return None
    try:
        return _parse(_Reader(packet))
    except _InvalidPacketError:
        return None


def fault_of_head(packet: bytes) -> str:
    """Returns "ver" for another version, "type" for an unknown type, "malformed", or an empty text."""
    if packet[:1] != bytes((VERSION,)):
        return "ver" if packet else "malformed"
    return "" if packet[1:2] in (b"\1", b"\2", b"\3", b"\4") else "type" if len(packet) > 1 else "malformed"


def _parse(reader: _Reader) -> Packet:
    _, kind, ttl, pid, context_id, number, padded = reader.unpack(_HEAD)
    tag = padded.rstrip(b"\0")
    if not tag.isascii() or not tag or b"\0" in tag or not 0 < context_id <= CONTEXT_MAX or number > NUMBER_MAX:
        raise _InvalidPacketError
    head = Head(context_id, pid, reader.text(0, NAME_MAX), tag.decode(), number)
    if kind == ADVERT:
        groups = []
        retaining: set[tuple[int, int]] = set()
        while reader.remaining:
            session = reader.session()
            topics, retained = reader.topics()
            groups.append((session, topics))
            retaining.update((session.session_id, number) for number in retained)
        if not groups or not ttl:
            raise _InvalidPacketError
        return Advert(head, ttl, tuple(groups), frozenset(retaining))
    if kind == FINAL:
        finals = []
        while reader.remaining:
            finals.append((reader.number(), tuple(reader.number() for _ in range(reader.count(_NUMBER.size)))))
        return FinalAdvert(head, tuple(finals))
    shortest = 1 if kind == QUERY else 0
    texts = tuple(reader.text(shortest, wire_layout.TOPIC_NAME_MAX) for _ in range(reader.count(1)))
    if not texts or reader.remaining:
        raise _InvalidPacketError
    return Query(head, texts) if kind == QUERY else WildcardQuery(head, texts)


class _Reader:
    """Reads values from the front of a packet; raises `_InvalidPacketError` if a value is missing or invalid."""

    __slots__ = ("_at", "_packet")

    def __init__(self, packet: bytes) -> None:
        self._packet = packet
        self._at = 0

    @property
    def remaining(self) -> int:
        return len(self._packet) - self._at

    def bytes(self, size: int) -> bytes:
        if size > self.remaining:
            raise _InvalidPacketError
        self._at += size
        return self._packet[self._at - size : self._at]

    def unpack(self, what: struct.Struct) -> tuple:  # type: ignore[type-arg]
        return what.unpack(self.bytes(what.size))

    def number(self) -> int:
        return int.from_bytes(self.bytes(_NUMBER.size), "big")

    def count(self, each: int) -> int:
        """Reads the number of values that follow; each of them has `each` bytes or more."""
        found = int.from_bytes(self.bytes(_COUNT.size), "big")
        if found * each > self.remaining:
            raise _InvalidPacketError
        return found

    def text(self, shortest: int, longest: int) -> str:
        size = self.bytes(1)[0]
        raw = self.bytes(size)
        if not shortest <= size <= longest or b"\0" in raw:
            raise _InvalidPacketError
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise _InvalidPacketError from None

    def topics(self) -> tuple[dict[int, str], list[int]]:
        """Returns topics by their numbers, and the numbers of those whose sources keep what they sent."""
        found, retained = {}, []
        for _ in range(self.count(_NUMBER.size + 1)):
            word = self.number()
            number = word & ~_RETAINS
            if number > wire_layout.TOPIC_MASK:
                raise _InvalidPacketError
            if word & _RETAINS:
                retained.append(number)
            found[number] = self.text(1, wire_layout.TOPIC_NAME_MAX)
        if not found:
            raise _InvalidPacketError
        return found, retained

    def address(self, *, group: bool) -> str:
        family = self.bytes(1)[0]
        if group and family == 0:
            return ""
        if family not in _ADDRESS_BYTES:
            raise _InvalidPacketError
        found = ipaddress.ip_address(self.bytes(_ADDRESS_BYTES[family]))
        if found.is_unspecified or found.is_multicast != group:
            raise _InvalidPacketError
        return str(found)

    def session(self) -> Session:
        transport, pacing, topics_max, session_id, local, transport_id, window, port, group_port = self.unpack(_SESSION)
        host, group = self.address(group=False), self.address(group=True)
        if (
            not port
            or bool(group) != bool(group_port)
            or pacing > (_TCP_TWIN | 1 if transport in _RINGS and not group else 1)
            or not 1 <= topics_max <= wire_layout.TOPIC_MASK + 1
            or not session_id
            # A ring may have a twin of either kind; a session over UDP is of one kind.
            or transport not in (*_RINGS, *(_WITH_GROUP if group else _WITHOUT_GROUP))
        ):
            raise _InvalidPacketError
        return Session(
            transport,
            bool(pacing & 1),
            topics_max,
            session_id,
            local,
            transport_id,
            window,
            host,
            port,
            group,
            group_port,
            tcp=bool(pacing & _TCP_TWIN),
        )


def advert(
    head: Head,
    ttl: int,
    groups: Iterable[tuple[Session, Mapping[int, str]]],
    retaining: Collection[tuple[int, int]] = (),
) -> bytes:
    """Returns an ADVERT packet as bytes; the arguments are those of `Advert`."""
    parts = [_head(ADVERT, head, min(ttl, TTL_MAX))]
    for session, topics in groups:
        parts += [_session(session), _COUNT.pack(len(topics))]
        for number, topic in topics.items():
            retains = (session.session_id, number) in retaining
            parts += [_NUMBER.pack(number | _RETAINS * retains), _text(topic)]
    return b"".join(parts)


def query(head: Head, topics: Iterable[str]) -> bytes:
    """Returns a QUERY packet as bytes."""
    return _texts(QUERY, head, topics)


def wildcard_query(head: Head, prefixes: Iterable[str]) -> bytes:
    """Returns a WILDCARD packet as bytes."""
    return _texts(WILDCARD, head, prefixes)


def final(head: Head, groups: Iterable[tuple[int, Iterable[int]]]) -> bytes:
    """Returns a FINAL packet as bytes."""
    parts = [_head(FINAL, head)]
    for session_id, numbers in groups:
        listed = list(numbers)
        parts += [_NUMBER.pack(session_id), _COUNT.pack(len(listed)), struct.pack(f"!{len(listed)}I", *listed)]
    return b"".join(parts)


def head_size(name: str) -> int:
    """Returns the size in bytes of the head of a context with this name, and of the count behind it in a query."""
    return _HEAD.size + text_size(name) + _COUNT.size


def session_size(session: Session) -> int:
    """Returns the size in bytes of a session and the count of its topics in an ADVERT."""
    return len(_session(session)) + _COUNT.size


def topic_size(topic: str) -> int:
    """Returns the size in bytes of a topic in an ADVERT."""
    return _NUMBER.size + text_size(topic)


def text_size(text: str) -> int:
    """Returns the size in bytes of a text in a query."""
    return 1 + len(text.encode())


def _head(kind: int, head: Head, ttl: int = 0) -> bytes:
    fixed = _HEAD.pack(VERSION, kind, ttl, head.pid, head.context_id, head.number, head.tag.encode())
    return fixed + _text(head.name)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return bytes((len(encoded),)) + encoded


def _texts(kind: int, head: Head, texts: Iterable[str]) -> bytes:
    listed = [_text(text) for text in texts]
    return _head(kind, head) + _COUNT.pack(len(listed)) + b"".join(listed)


def _session(session: Session) -> bytes:
    fixed = _SESSION.pack(
        session.transport,
        session.source_paced | _TCP_TWIN * session.tcp,
        session.topics_max,
        session.session_id,
        session.local,
        session.transport_id,
        session.window,
        session.port,
        session.group_port,
    )
    return fixed + _address(session.host) + _address(session.group)


def _address(host: str) -> bytes:
    if not host:
        return b"\0"
    found = ipaddress.ip_address(host)
    return bytes((found.version,)) + found.packed
