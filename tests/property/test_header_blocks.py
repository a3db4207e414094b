"""Header blocks: any headers come back, any bytes are either one block or none, and nothing else happens."""

from __future__ import annotations

import contextlib

from hypothesis import event, given
from hypothesis import strategies as st

from ipcbus import MessageType
from ipcbus.wire.properties import block_length, pack, unpack
from ipcbus.wire.wire_layout import FLAG_FRAGMENT, FLAG_PROPERTIES, FLAG_REQUEST, FLAG_TSNI
from tests.kit.datagrams import Item
from tests.kit.desk import Desk

headers = st.lists(
    st.tuples(st.text(st.characters(codec="utf-8"), min_size=1, max_size=60), st.binary(max_size=60)), max_size=6
)


@given(headers, st.binary(max_size=100))
def test_what_is_packed_comes_back(given_headers: list[tuple[str, bytes]], value: bytes) -> None:
    block = pack(given_headers)
    assert unpack(block) == tuple(given_headers)
    assert block_length(block + value) == len(block)


@st.composite
def nearly_blocks(draw: st.DrawFn) -> bytes:
    """A block of which some bytes were changed, cut off or added."""
    block = bytearray(pack(draw(headers)))
    for _ in range(draw(st.integers(0, 3))):
        if block:
            block[draw(st.integers(0, len(block) - 1))] = draw(st.integers(0, 255))
    return bytes(block[: draw(st.integers(0, len(block)))]) + draw(st.binary(max_size=10))


@given(st.binary(max_size=200) | nearly_blocks())
def test_bytes_are_exactly_one_block_or_refused(data: bytes) -> None:
    length = block_length(data)
    assert 0 <= length <= len(data)
    event(f"a block: {bool(length)}")
    if length:
        assert pack(unpack(data[:length])) == data[:length]
    if length != len(data):
        with contextlib.suppress(ValueError):
            assert unpack(data) is None, "it is more than a block, or none"


FLAGS = [
    *(0, FLAG_PROPERTIES, FLAG_PROPERTIES | FLAG_FRAGMENT, FLAG_PROPERTIES | FLAG_TSNI, FLAG_REQUEST),
    *(FLAG_REQUEST | FLAG_PROPERTIES, FLAG_REQUEST | FLAG_PROPERTIES | FLAG_FRAGMENT, 0xF0, 0xFF),
]


@given(
    st.lists(st.tuples(st.sampled_from(FLAGS), nearly_blocks(), st.integers(0, 12)), max_size=12),
    st.sampled_from([1, -1, 0]),
)
def test_whatever_a_source_sends_each_number_comes_once_and_nothing_is_raised(
    sent: list[tuple[int, bytes, int]], ordered: int
) -> None:
    desk = Desk(ordered=ordered, recovery_ns=5)
    for flags, payload, number in sent:
        desk.feed(Item(1, number, payload, flags), after=1)
    desk.end(13)
    numbers: list[int] = []
    for message in desk.messages:
        assert unpack(message.properties_block) == message.headers
        if message.type not in (MessageType.BOS, MessageType.EOS):
            numbers += range(message.first_sequence_number, message.sequence_number + 1)
    assert sorted(numbers) == list(range(13))
    assert not desk.failures
