from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipcbus.wire import packets
from ipcbus.wire.packets import Client, Data, Numbers, SessionMessage

NUMBERS = st.integers(0, packets.NUMBER_MAX)
SESSIONS = st.integers(0, 2**32 - 1)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_packet_or_none(packet: bytes) -> None:
    packets.parse(packet)


@given(st.integers(0, 9), st.binary(max_size=80))
def test_any_bytes_behind_a_head(kind: int, rest: bytes) -> None:
    found = packets.parse(struct.pack("!BBHI", 1, kind, 0, 5) + rest)
    if isinstance(found, Data):
        assert 0 <= found.trail <= found.number <= packets.NUMBER_MAX
        assert len(found.datagram) > 0
    elif isinstance(found, SessionMessage):
        assert 0 <= found.trail <= found.lead
    elif isinstance(found, Numbers):
        assert list(found.numbers) == sorted(set(found.numbers))
        assert len(found.numbers) <= len(rest) / 4 + 1
    else:
        assert found is None or isinstance(found, Client)


@given(
    SESSIONS, NUMBERS, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.binary(min_size=1), st.integers(0, 3)
)
def test_data(session: int, number: int, back: int, time: int, datagram: bytes, flags: int) -> None:
    trail = max(0, number - back)
    packet = packets.data(session, number, trail, 3, time, datagram, flags)
    assert len(packet) == packets.DATA_HEADER + len(datagram)
    found = packets.parse(packet)
    assert isinstance(found, Data)
    assert (found.session_id, found.number, found.trail, found.messages) == (session, number, trail, 3)
    assert (found.send_time_ns, bytes(found.datagram), found.flags) == (time, datagram, flags)


def test_a_trail_that_is_too_far_back_is_told_as_far_as_it_goes() -> None:
    found = packets.parse(packets.data(1, 2**40, 0, 1, 0, b"x", 0))
    assert isinstance(found, Data)
    assert found.trail == 2**40 - (2**32 - 1)


@given(SESSIONS, NUMBERS, NUMBERS, st.integers(0, 2**64 - 1))
def test_session_message(session: int, one: int, other: int, cookie: int) -> None:
    trail, lead = sorted((one, other))
    found = packets.parse(packets.session_message(session, lead, trail, packets.FINAL, cookie))
    assert found == SessionMessage(packets.SM, packets.FINAL, session, lead, trail, cookie)


@given(st.lists(NUMBERS, min_size=1, unique=True), st.integers(24, 1500), st.booleans())
def test_lists_of_numbers(numbers: list[int], size: int, refused: bool) -> None:
    numbers.sort()
    made = packets.ncfs(7, packets.NCF_SHED, numbers, size) if refused else packets.naks(7, numbers, size)
    assert all(len(packet) <= size for packet in made)
    told: list[int] = []
    for packet in made:
        found = packets.parse(packet)
        assert isinstance(found, Numbers)
        assert (found.type, found.reason) == ((packets.NCF, packets.NCF_SHED) if refused else (packets.NAK, 0))
        told += found.numbers
    assert told == numbers


def test_many_numbers_near_each_other_are_few_packets() -> None:
    assert len(packets.naks(7, range(300), 1472)) == 1


def test_clients() -> None:
    assert packets.parse(packets.connect(7, 99)) == Client(packets.CONNECT, 0, 7, 99, 0)
    assert packets.parse(packets.ack(7, 99, 5)) == Client(packets.ACK, 0, 7, 99, 5)
    assert packets.parse(packets.reset(7, 99)) == Client(packets.RESET, 0, 7, 99, 0)
    # The answer to who only claims an address is no longer than what he sent.
    assert len(packets.session_message(7, 1, 0, packets.WELCOME, 99)) <= len(packets.connect(7, 0))
    assert len(packets.reset(7, 99)) <= len(packets.ack(7, 99, 5))


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"\x01\x01\x00",
        struct.pack("!BBHI", 2, packets.SM, 0, 1) + bytes(24),  # another version
        struct.pack("!BBHIQIIQ", 1, packets.DATA, 0, 1, 5, 6, 1, 0) + b"x",  # a trail below 0
        struct.pack("!BBHIQIIQ", 1, packets.DATA, 0, 1, 5, 0, 1, 0),  # no datagram
        struct.pack("!BBHIQQQ", 1, packets.SM, 0, 1, 5, 6, 0),  # a trail above the lead
        struct.pack("!BBHIQQQ", 1, packets.SM, 0, 1, 2**63, 6, 0),
        struct.pack("!BBHIQII", 1, packets.NAK, 0, 1, 5, 3, 3),  # one number twice
        struct.pack("!BBHIQI", 1, packets.NAK, 0, 1, 5, 0),
        struct.pack("!BBHIQ", 1, packets.NAK, 0, 1, 5) + b"abc",
        struct.pack("!BBHIQ", 1, packets.ACK, 0, 1, 5),
    ],
)
def test_what_contradicts_itself_is_none(packet: bytes) -> None:
    assert packets.parse(packet) is None
