from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ipcbus.wire import control_messages, topic_places
from ipcbus.wire import gmd_messages as messages
from ipcbus.wire.control_messages import NUMBER_MAX
from ipcbus.wire.gmd_messages import (
    END_OF_ANSWER,
    MAY_COME_LATER,
    Ack,
    Delete,
    Leave,
    Nack,
    Next,
    Register,
    Registered,
    ResendRequest,
    Resent,
)
from ipcbus.wire.number_ranges import NumberRanges
from ipcbus.wire.resent_entries import Entry
from ipcbus.wire.wire_layout import TOPIC_MASK
from tests.kit.cases import each_of

TOPIC = st.integers(0, TOPIC_MASK)
U64 = st.integers(0, 2**64 - 1)
NUMBER = st.integers(1, NUMBER_MAX)
PAIR = st.tuples(NUMBER, NUMBER).map(lambda pair: (min(pair), max(pair)))
RANGES = st.lists(PAIR, min_size=1, max_size=20).map(lambda found: list(NumberRanges(found)))
NAME = (
    st.text(min_size=1, max_size=60)
    .filter(lambda name: len(name.encode("utf-8", "replace")) <= 255)
    .filter(lambda name: name.isprintable() or not any("\ud800" <= each <= "\udfff" for each in name))
)
BYTES = st.binary(max_size=30)
ENTRIES = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 2**62), U64, U64, st.binary(max_size=20), st.binary(max_size=40)),
    max_size=5,
)


@given(st.integers(30, 42), st.integers(0, 3), st.binary(max_size=120))
def test_any_bytes_are_a_message_or_none(kind: int, detail: int, rest: bytes) -> None:
    for each in (rest, bytes([kind]) + rest, bytes([kind, detail, 0, 0, 0, 0, 0, 0]) + rest):
        found = messages.decode(each)
        assert found == messages.decode(memoryview(each))
        assert found is None or messages.is_gmd(each)
        assert not messages.is_gmd(each) or control_messages.decode(each) is None


@given(TOPIC, U64, st.integers(1, 2**64 - 1), PAIR, RANGES, NAME)
def test_messages(
    topic: int, instance: int, incarnation: int, numbers: tuple[int, int], ranges: list[tuple[int, int]], name: str
) -> None:
    first, last = numbers
    pairs = (
        (messages.register(topic, instance, 1, name), Register(topic, instance, 1, name)),
        (
            messages.registered(topic, instance, incarnation, instance, first, last, name),
            Registered(topic, instance, 0, incarnation, instance, first, last, name),
        ),
        (messages.refused(topic, instance, 2), Registered(topic, instance, 2, 0, 0, 0, 0, "")),
        (
            messages.resend_request(topic, instance, incarnation, first, last, 7),
            ResendRequest(topic, instance, incarnation, first, last, 7),
        ),
        (
            messages.resend_request(topic, instance, incarnation, first, None, 7),
            ResendRequest(topic, instance, incarnation, first, None, 7),
        ),
        (messages.ack(topic, instance, incarnation, ranges), Ack(topic, instance, incarnation, ranges)),
        (messages.delete(topic, instance, incarnation, ranges), Delete(topic, instance, incarnation, ranges)),
        (messages.nack(topic, instance, incarnation, first, 522), Nack(topic, instance, incarnation, first, 522)),
        (messages.upcoming(topic, instance, incarnation, first, last), Next(topic, instance, incarnation, first, last)),
        (messages.leave(topic, instance), Leave(topic, instance)),
    )
    for whole, value in pairs:
        assert messages.decode(whole) == value
        assert messages.decode(whole + b"\0") is None
        for length in range(len(whole)):
            found = messages.decode(whole[:length])
            assert found is None or isinstance(found, Ack | Delete)


@given(TOPIC, U64, U64, st.integers(1, 2**40), ENTRIES, st.booleans())
def test_resent_messages(
    topic: int,
    instance: int,
    incarnation: int,
    first: int,
    drawn: list[tuple[int, int, int, int, bytes, bytes]],
    ends: bool,
) -> None:
    entries, packed, number = [], [], first - 1
    for step, send_time_ns, opening, place, block, data in drawn:
        number += step
        entries.append(Entry(number, send_time_ns, opening, topic_places.unpack(place), block, data))
        packed.append(messages.entry(number, send_time_ns, opening, place, block, data))
    detail = END_OF_ANSWER if ends else 0
    whole = messages.resent(topic, instance, incarnation, first, number + 1, detail, packed)
    assert messages.decode(whole) == Resent(topic, instance, incarnation, first, number + 1, ends, False, entries)
    assert len(whole) == messages.RESENT_HEADER + sum(map(len, packed))
    assert not entries or messages.decode(whole[:-41]) != messages.decode(whole)
    later = messages.resent(topic, instance, incarnation, first, number + 1, detail | MAY_COME_LATER, packed)
    assert (messages.decode(later) is None) == bool(entries)


@each_of(
    "whole",
    [
        messages.register(1, 2, 3, "a"),
        messages.register(1, 2, 0, ""),
        messages.register(1, 2, 0, "a" * 256),
        messages.registered(1, 2, 0, 9, 1, 1, "a"),
        messages.registered(1, 2, 3, 9, 2, 1, "a"),
        messages.registered(1, 2, 3, 9, 0, 1, "a"),
        messages.registered(1, 2, 3, 9, 1, 1, ""),
        messages.refused(1, 2, 6),
        messages.resend_request(1, 2, 3, 0, 5, 1),
        messages.resend_request(1, 2, 3, 6, 5, 1),
        messages.resend_request(1, 2, 3, 6, NUMBER_MAX + 1, 1),
        messages.ack(1, 2, 3, []),
        messages.ack(1, 2, 3, [(0, 5)]),
        messages.ack(1, 2, 3, [(1, 5), (6, 7)]),
        messages.ack(1, 2, 3, [(5, 4)]),
        messages.ack(1, 2, 3, [(5, NUMBER_MAX + 1)]),
        messages.ack(1, 2, 3, [(2 * number, 2 * number) for number in range(1, 1026)]),
        messages.nack(1, 2, 3, 0, 1),
        messages.upcoming(1, 2, 3, 2, 1),
        messages.resent(1, 2, 3, 0, 1, 0, []),
        messages.resent(1, 2, 3, 2, 1, 0, []),
        messages.resent(1, 2, 3, 2, 3, 4, []),
        messages.resent(1, 2, 3, 2, 3, 0, [messages.entry(1, 0, 0, 0, b"", b"")]),
        messages.resent(1, 2, 3, 2, 3, 0, [messages.entry(3, 0, 0, 0, b"", b"")]),
        messages.resent(1, 2, 3, 2, 4, 0, [messages.entry(3, 0, 0, 0, b"", b""), messages.entry(2, 0, 0, 0, b"", b"")]),
        messages.register(TOPIC_MASK + 1, 2, 0, "a"),
        b"",
    ],
)
def test_what_contradicts_itself_is_refused(whole: bytes) -> None:
    assert messages.decode(whole) is None


def test_a_name_is_valid_text() -> None:
    whole = messages.register(1, 2, 0, "ab")
    assert messages.decode(whole[:-1] + b"\xff") is None
