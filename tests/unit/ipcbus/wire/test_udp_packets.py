from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from ipcbus.wire import udp_packets
from ipcbus.wire.udp_packets import Ack, Client, Connect, Data, Frame, FrameAck, Numbers, Passed, SessionMessage, Topics
from tests.kit.cases import each_of

NUMBERS = st.integers(0, udp_packets.NUMBER_MAX)
SESSIONS = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_packet_or_none(packet: bytes) -> None:
    udp_packets.parse(packet)


@given(st.integers(0, 13), st.binary(max_size=80))
def test_any_bytes_behind_a_head(kind: int, rest: bytes) -> None:
    found = udp_packets.parse(struct.pack("!BBHI", udp_packets.VERSION, kind, 0, 5) + rest)
    if isinstance(found, Data):
        assert 0 <= found.trail <= found.number <= udp_packets.NUMBER_MAX
        assert len(found.datagram) > 0
    elif isinstance(found, SessionMessage):
        assert 0 <= found.trail <= found.lead
    elif isinstance(found, Numbers):
        assert list(found.numbers) == sorted(set(found.numbers))
        assert len(found.numbers) <= len(rest) / 4 + 1
    else:
        assert found is None or isinstance(found, Client | Connect | Ack | Topics | Frame | FrameAck | Passed)


@given(
    SESSIONS, NUMBERS, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.binary(min_size=1), st.integers(0, 3)
)
def test_data(session: int, number: int, back: int, time: int, datagram: bytes, flags: int) -> None:
    trail = max(0, number - back)
    packet = udp_packets.data(session, number, trail, 3, time, datagram, flags)
    assert len(packet) == udp_packets.DATA_HEADER + len(datagram)
    found = udp_packets.parse(packet)
    assert isinstance(found, Data)
    assert (found.session_id, found.number, found.trail, found.messages) == (session, number, trail, 3)
    assert (found.send_time_ns, bytes(found.datagram), found.flags) == (time, datagram, flags)


def test_a_trail_that_is_too_far_back_is_told_as_far_as_it_goes() -> None:
    found = udp_packets.parse(udp_packets.data(1, 2**40, 0, 1, 0, b"x", 0))
    assert isinstance(found, Data)
    assert found.trail == 2**40 - (2**32 - 1)


@given(SESSIONS, U64, st.lists(st.tuples(st.integers(0, 2**61), st.integers(1, 2**32 - 1)), max_size=300))
def test_passed(session: int, cookie: int, ranges: list[tuple[int, int]]) -> None:
    found = [udp_packets.parse(packet) for packet in udp_packets.passed(session, cookie, ranges)]
    assert [pair for each in found if isinstance(each, Passed) for pair in each.ranges] == ranges
    assert all(isinstance(each, Passed) and (each.session_id, each.cookie) == (session, cookie) for each in found)


def test_a_range_of_no_datagram_or_above_all_numbers_is_invalid() -> None:
    for first, count in ((5, 0), (udp_packets.NUMBER_MAX, 1)):
        (packet,) = udp_packets.passed(1, 2, [(3, 1), (first, count)])
        assert (udp_packets.parse(packet), udp_packets.fault(packet)) == (None, "hdr")


@given(SESSIONS, NUMBERS, NUMBERS, U64, U64)
def test_session_message(session: int, one: int, other: int, cookie: int, nonce: int) -> None:
    trail, lead = sorted((one, other))
    found = udp_packets.parse(udp_packets.session_message(session, lead, trail, udp_packets.FINAL, cookie, nonce))
    assert found == SessionMessage(udp_packets.SM, udp_packets.FINAL, session, lead, trail, cookie, nonce)


@given(st.lists(NUMBERS, min_size=1, unique=True), st.integers(28, udp_packets.CONTROL_BYTES), st.booleans())
def test_lists_of_numbers(numbers: list[int], size: int, refused: bool) -> None:
    numbers.sort()
    made = (
        udp_packets.ncfs(7, udp_packets.NCF_SHED, numbers, size) if refused else udp_packets.naks(7, 99, numbers, size)
    )
    assert all(len(packet) <= size for packet in made)
    told: list[int] = []
    for packet in made:
        found = udp_packets.parse(packet)
        assert isinstance(found, Numbers)
        kind = (udp_packets.NCF, udp_packets.NCF_SHED, 0) if refused else (udp_packets.NAK, 0, 99)
        assert (found.type, found.reason, found.cookie) == kind
        told += found.numbers
    assert told == numbers


def test_many_numbers_near_each_other_are_few_packets() -> None:
    assert len(udp_packets.naks(7, 99, range(300))) == 1


def test_clients() -> None:
    assert udp_packets.parse(udp_packets.connect(7, 99, 3)) == Connect(udp_packets.CONNECT, 0, 7, 99, 3)
    assert udp_packets.parse(udp_packets.reset(7, 99, udp_packets.GONE)) == Client(
        udp_packets.RESET, udp_packets.GONE, 7, 99
    )
    assert udp_packets.parse(udp_packets.leave(7, 99)) == Client(udp_packets.LEAVE, 0, 7, 99)
    # A sender that only claims an address gets an answer that is not longer than its packet.
    assert len(udp_packets.session_message(7, 1, 0, udp_packets.WELCOME, 99, 3)) <= len(udp_packets.connect(7, 0, 3))
    shortest = [
        udp_packets.connect(7, 0, 3),
        *udp_packets.acks(7, 9, 0, (1, 2, ""), 0, ()),
        *udp_packets.naks(7, 9, [1]),
    ]
    assert len(udp_packets.reset(7, 99)) <= min(len(packet) for packet in shortest)


@given(st.sets(st.integers(0, 2**32 - 1), max_size=700), st.text(max_size=40), U64)
def test_an_ack_has_as_many_pages_as_its_topics_take(topics: set[int], name: str, revision: int) -> None:
    made = udp_packets.acks(7, 99, 5, (11, 22, name), revision, sorted(topics))
    assert all(len(packet) <= udp_packets.CONTROL_BYTES for packet in made)
    found = [udp_packets.parse(packet) for packet in made]
    told: set[int] = set()
    for page, ack in enumerate(found):
        assert isinstance(ack, Ack)
        assert (ack.cookie, ack.lead, ack.context_id, ack.pid, ack.revision) == (99, 5, 11, 22, revision)
        assert (ack.page, ack.pages) == (page, len(made))
        assert len(ack.name.encode()) <= udp_packets.NAME_BYTES
        told |= set(ack.topics)
    assert told == topics


@given(SESSIONS, SESSIONS, NUMBERS, st.binary(min_size=1, max_size=udp_packets.FRAME_BYTES))
def test_frames(to: int, sender: int, number: int, content: bytes) -> None:
    packet = udp_packets.frame(7, 9, to, sender, number, content)
    assert udp_packets.parse(packet) == udp_packets.Frame(udp_packets.FRAME, 0, 7, 9, to, sender, number, content)
    assert len(packet) <= udp_packets.CONTROL_BYTES
    place = (number, udp_packets.NUMBER_MAX, to)
    acknowledgement = udp_packets.frame_ack(7, 9, to, sender, place, udp_packets.ENDED)
    flags = udp_packets.ENDED
    assert udp_packets.parse(acknowledgement) == udp_packets.FrameAck(
        udp_packets.FRAME_ACK, flags, 7, 9, to, sender, *place
    )
    assert udp_packets.parse(udp_packets.frame_ack(7, 9, to, sender, (number + 1, number, 0))) is None


def test_frames_alone_may_be_long() -> None:
    longest = udp_packets.frame(7, 9, 1, 2, 3, bytes(udp_packets.LONG_FRAME_BYTES))
    assert len(longest) == udp_packets.LONG_CONTROL_BYTES
    assert isinstance(udp_packets.parse(longest), udp_packets.Frame)
    assert udp_packets.parse(longest + b"x") is None
    one, two = (udp_packets.topics(7, 9, 3, [(0, 0, 0)] * count)[0] for count in (1, 2))
    assert udp_packets.parse(two) is not None
    assert udp_packets.parse(one + (two[len(one) :]) * udp_packets.CONTROL_BYTES) is None


def test_a_name_is_kept_as_far_as_it_can_be_shown() -> None:
    for name, told in (("md", "md"), ("\x1b[2J", "?[2J"), ("ä" * 20, "ä" * 15), ("\ud800", "?")):
        (packet,) = udp_packets.acks(7, 99, 5, (1, 2, name), 0, ())
        ack = udp_packets.parse(packet)
        assert isinstance(ack, Ack)
        assert ack.name == told


@each_of(
    ("packet", "why"),
    [
        (b"\1\2", "size"),
        (bytes(8), "version"),
        (bytes((udp_packets.VERSION, 99)) + bytes(6), "type"),
        (bytes((udp_packets.VERSION, udp_packets.DATA)) + bytes(6), "hdr"),
    ],
)
def test_why_it_is_no_packet(packet: bytes, why: str) -> None:
    assert udp_packets.parse(packet) is None
    assert udp_packets.fault(packet) == why


def ack(lead: int = 0, page: int = 0, pages: int = 1, length: int = 0) -> bytes:
    return struct.pack("!BBHIQQQQIHHB", 1, udp_packets.ACK, 0, 1, 9, lead, 3, 4, 5, page, pages, length)


@each_of(
    "packet",
    [
        b"",
        b"\x01\x01\x00",
        struct.pack("!BBHI", 2, udp_packets.SM, 0, 1) + bytes(24),  # another version
        struct.pack("!BBHIQIIQ", 1, udp_packets.DATA, 0, 1, 5, 6, 1, 0) + b"x",  # a trail below 0
        struct.pack("!BBHIQIIQ", 1, udp_packets.DATA, 0, 1, 5, 0, 1, 0),  # no datagram
        struct.pack("!BBHIQQQQ", 1, udp_packets.SM, 0, 1, 5, 6, 0, 0),  # a trail above the lead
        struct.pack("!BBHIQQQQ", 1, udp_packets.SM, 0, 1, 2**63, 6, 0, 0),
        struct.pack("!BBHIQQII", 1, udp_packets.NAK, 0, 1, 9, 5, 3, 3),  # one number twice
        struct.pack("!BBHIQQI", 1, udp_packets.NAK, 0, 1, 9, 5, 0),
        struct.pack("!BBHIQQ", 1, udp_packets.NAK, 0, 1, 9, 5) + b"abc",
        struct.pack("!BBHIQQ", 1, udp_packets.NAK, 0, 1, 9, 5) + b"".join(n.to_bytes(4, "big") for n in range(1, 400)),
        struct.pack("!BBHIQ", 1, udp_packets.ACK, 0, 1, 5),
        udp_packets.connect(7, 0, 3)[:-1],  # shorter than its answer
        ack(page=1, pages=1),
        ack(length=32) + bytes(32),
        ack(length=2) + b"a",
        ack(length=1) + b"\xff",
        ack(length=1) + b"\x1b",
        ack() + bytes(4 * 257),
        ack(lead=2**63),
    ],
)
def test_what_contradicts_itself_is_none(packet: bytes) -> None:
    assert udp_packets.parse(packet) is None


def test_of_the_acks_of_a_client_the_newest_is_kept_in_any_order() -> None:
    def ack(number: int, room: int = 9, client: int = 1, topics: list[int] | None = None) -> bytes:
        return udp_packets.acks(7, client, number, (client, 1, "x"), 1, topics, 0, (number, room))[0]

    nak = udp_packets.naks(7, 1, [5])[0]
    come = [(ack(3), 1), (nak, 1), (ack(300), 1), (ack(4), 1), (ack(3, client=2), 2), (ack(2, 8, 2), 2), (b"", 3)]
    kept = [(nak, 1), (ack(300), 1), (ack(3, client=2), 2), (b"", 3)]
    assert udp_packets.newest_acks(come) == kept
    assert udp_packets.newest_acks(come[::-1]) == kept[::-1]
    assert udp_packets.newest_acks([(ack(3, 1), 1), (ack(3, 256), 1), (ack(3, 2), 1)]) == [(ack(3, 256), 1)]
    # One that lists topics says something else, and an equal one of another address is another client's.
    both = [(ack(3, topics=[1]), 1), (ack(4), 1), (ack(4), 2)]
    assert udp_packets.newest_acks(both) == both
    assert udp_packets.newest_acks([(ack(3), 1), (ack(3), 1)]) == [(ack(3), 1)]
