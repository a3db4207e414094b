from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from ipcbus.wire import control_messages as messages
from ipcbus.wire.control_messages import (
    NUMBER_MAX,
    Info,
    InfoRequest,
    RangeRequest,
    Response,
    Retransmission,
    TsniRequest,
)
from ipcbus.wire.wire_layout import RETAINED_HEADER_BYTES, TOPIC_MASK
from tests.kit.cases import each_of

TOPIC = st.integers(0, TOPIC_MASK)
U64 = st.integers(0, 2**64 - 1)
RANGE = st.tuples(st.integers(0, NUMBER_MAX), st.integers(0, NUMBER_MAX)).map(sorted)
ENTRIES = st.binary(max_size=64).map(lambda data: b"" if not data else data.ljust(-len(data) % 8 + len(data) + 24))


@given(st.integers(0, 8), st.binary(max_size=80))
def test_any_bytes_are_a_message_or_none(kind: int, rest: bytes) -> None:
    messages.decode(rest)
    messages.decode(bytes([kind]) + rest)
    messages.decode(memoryview(bytes([kind, 0, 0, 0]) + rest))
    for each in (rest, bytes([kind]) + rest, bytes([kind, 0, 0, 0, 0, 0, 0, 0]) + rest):
        found, quick = messages.decode(each), messages.decode_response(each)
        assert quick == ((found.request, found.data) if isinstance(found, Response) else None)


@given(TOPIC, RANGE, ENTRIES, U64, st.binary(max_size=100))
def test_messages(topic: int, numbers: list[int], entries: bytes, request: int, data: bytes) -> None:
    first, last = numbers
    assert messages.decode(messages.info_request(topic)) == InfoRequest(topic)
    asked = messages.info_request(topic, first, last, request)
    assert messages.decode(asked) == InfoRequest(topic, first, last, request)
    assert messages.decode(messages.tsni_request(topic)) == TsniRequest(topic)
    assert messages.decode(messages.info(topic, first, last)) == Info(topic, first, last)
    assert messages.decode(messages.info(topic, first, last, request)) == Info(topic, first, last, request)
    assert messages.decode(messages.range_request(topic, first, last)) == RangeRequest(topic, first, last)
    retransmission = messages.retransmission(topic, first, last, entries)
    assert messages.decode(retransmission) == Retransmission(topic, first, last, memoryview(entries))
    assert len(retransmission) == messages.RETRANSMISSION_HEADER + len(entries)
    response = messages.response(request, data)
    assert messages.decode(response) == Response(request, memoryview(data))
    assert len(response) == messages.RESPONSE_HEADER + len(data)


@given(TOPIC, RANGE, ENTRIES, U64, st.binary(max_size=100))
def test_a_message_cut_short_or_made_longer_is_never_another_range(
    topic: int, numbers: list[int], entries: bytes, request: int, data: bytes
) -> None:
    first, last = numbers
    for whole in (
        messages.info_request(topic),
        messages.tsni_request(topic),
        messages.info(topic, first, last),
        messages.range_request(topic, first, last),
    ):
        assert all(messages.decode(whole[:length]) is None for length in range(len(whole)))
        assert messages.decode(whole + b"\0") is None
    for whole, header in (
        (messages.retransmission(topic, first, last, entries), messages.RETRANSMISSION_HEADER),
        (messages.response(request, data), messages.RESPONSE_HEADER),
    ):
        assert all(messages.decode(whole[:length]) is None for length in range(header))


@given(st.lists(st.tuples(U64, U64), max_size=20), st.binary(max_size=50))
def test_a_response_that_is_sent_again_says_over_which_links_it_went(
    places: list[tuple[int, int]], data: bytes
) -> None:
    response = message = messages.response(7, data)
    for link, frame in places:
        message = messages.resent(link, frame, message)
    found = messages.decode_resent(message)
    if 1 <= len(places) <= 16:
        assert found == (places[::-1], response)
        assert len(message) - len(response) <= messages.RESENT_MAX
    else:
        assert found is None
    assert messages.is_response(message)
    assert messages.decode(message) is None or not places
    for length in range(len(message)):
        messages.decode_resent(message[:length])


def test_entries_begin_on_their_boundary() -> None:
    assert messages.RETRANSMISSION_HEADER % 8 == 0
    assert RETAINED_HEADER_BYTES % 8 == 0


@each_of(
    "message",
    [
        b"",
        messages.info_request(TOPIC_MASK + 1),
        messages.info(1, 6, 5),
        messages.info(1, 0, NUMBER_MAX + 1),
        messages.range_request(1, 6, 5),
        messages.range_request(1, 0, NUMBER_MAX + 1),
        messages.retransmission(1, 6, 5, b""),
        messages.retransmission(1, 5, 5, bytes(RETAINED_HEADER_BYTES - 8)),
        messages.retransmission(1, 5, 5, bytes(RETAINED_HEADER_BYTES + 1)),
        struct.pack("<BBHIQ", messages.RESPONSE, 0, 0, 1, 7),
        struct.pack("<BBHI", messages.INFO_REQUEST, 1, 0, 1),
        struct.pack("<BBHI", messages.INFO_REQUEST, 0, 1, 1),
        struct.pack("<BBHI", 0, 0, 0, 1),
        struct.pack("<BBHI", 7, 0, 0, 1),
    ],
)
def test_what_contradicts_itself_is_none(message: bytes) -> None:
    assert messages.decode(message) is None
