"""Guaranteed messages at a delivery controller: in order, behind a gap, in fragments, damaged."""

from __future__ import annotations

import numpy as np
import pytest

from ipcbus import MessageFlag, MessageType
from ipcbus.delivery.received_message import Origin, resent_message, whole_message
from ipcbus.delivery.sink import Sink
from ipcbus.wire.properties import pack
from ipcbus.wire.wire_layout import FLAG_END_BATCH, FLAG_GUARANTEED, FLAG_PROPERTIES, FLAG_REQUEST
from tests.kit.datagrams import Item, fragments
from tests.kit.desk import Desk, data, lost, whole

NUMBER = 0xFEDCBA9876543210
HEADER = NUMBER.to_bytes(8, "little")
BLOCK = pack({"key": b"k"})


@pytest.fixture(params=[1, -1, 0])
def ordered(request: pytest.FixtureRequest) -> int:
    """Every mode."""
    return int(request.param)


def guaranteed(sequence: int, number: int, *, front: bytes = b"", flags: int = 0) -> Item:
    """A guaranteed message in one piece that holds its sequence number."""
    payload = number.to_bytes(8, "little") + front + str(sequence).encode()
    return Item(1, sequence, payload, flags | FLAG_GUARANTEED)


def test_they_come_in_order_with_the_others(ordered: int) -> None:
    desk = Desk(ordered=ordered)
    headed = guaranteed(3, NUMBER, front=BLOCK, flags=FLAG_PROPERTIES)
    got = desk.feed(whole(0), guaranteed(1, 1), guaranteed(2, 2, flags=FLAG_END_BATCH), headed, whole(4))
    assert got == data(0, 1, 2, 3, 4)
    messages = desk.messages[1:]
    assert [message.gmd_sequence_number for message in messages] == [0, 1, 2, NUMBER, 0]
    assert [message.flags for message in messages] == [0, 0, FLAG_END_BATCH, 0, 0]
    assert messages[3].headers == (("key", b"k"),)
    assert {message.type for message in messages} == {MessageType.DATA}
    assert [len(message) for message in messages] == [1] * 5
    assert bytes(messages[1].view) == b"1"
    assert (desk.tally.lbm_reqs_rcved, desk.demux.messages) == (0, 5)
    assert desk.topic.fast_path


def test_they_wait_behind_a_gap_and_come_once() -> None:
    desk = Desk(recovery_ns=100)
    assert desk.feed(whole(0), guaranteed(2, 2), guaranteed(2, 2), guaranteed(3, 3)) == data(0)
    assert desk.feed(guaranteed(1, 1)) == data(1, 2, 3)
    assert [message.gmd_sequence_number for message in desk.messages[2:]] == [1, 2, 3]


@pytest.mark.parametrize("value", [b"", b"v", b"value" * 9], ids=["none", "short", "long"])
@pytest.mark.parametrize("block", [b"", BLOCK], ids=["bare", "headed"])
@pytest.mark.parametrize("mode", [1, -1])
def test_in_fragments_they_are_put_together(mode: int, block: bytes, value: bytes) -> None:
    desk = Desk(ordered=mode)
    items = fragments(0, HEADER + block + value, 6, flags=FLAG_GUARANTEED | (FLAG_PROPERTIES if block else 0))
    last = len(items) - 1
    assert desk.feed(*items, whole(last + 1)) == [("data", 0, last, value), *data(last + 1)]
    message = desk.messages[1]
    assert (message.properties_block, message.flags, message.gmd_sequence_number) == (block, 0, NUMBER)


def test_a_request_header_stands_first() -> None:
    desk = Desk()
    both = FLAG_GUARANTEED | FLAG_REQUEST
    desk.feed(Item(1, 0, (5).to_bytes(8, "little") + HEADER + b"v", both))
    desk.feed(*fragments(1, (5).to_bytes(8, "little") + HEADER + BLOCK + b"v", 6, flags=both | FLAG_PROPERTIES))
    for message in desk.messages[1:]:
        assert (message.type, message.gmd_sequence_number, message.data) == (MessageType.REQUEST, NUMBER, b"v")
        assert message.flags == 0


def test_raw_fragments_keep_their_flag() -> None:
    desk = Desk(ordered=0)
    desk.feed(*fragments(0, HEADER + b"value", 6, flags=FLAG_GUARANTEED))
    messages = desk.messages[1:]
    assert b"".join(message.data for message in messages) == HEADER + b"value"
    assert {(message.flags, message.gmd_sequence_number) for message in messages} == {(MessageFlag.GUARANTEED, 0)}


@pytest.mark.parametrize(
    "damaged",
    [
        Item(1, 3, HEADER[:7], FLAG_GUARANTEED),
        Item(1, 3, b"", FLAG_GUARANTEED),
        Item(1, 3, bytes(8) + b"v", FLAG_GUARANTEED),
        Item(1, 3, HEADER + BLOCK[:-1], FLAG_GUARANTEED | FLAG_PROPERTIES),
        Item(1, 3, HEADER, FLAG_GUARANTEED | FLAG_REQUEST),
    ],
    ids=["cut", "empty", "zero", "block", "request"],
)
def test_a_damaged_one_is_lost_with_its_number(ordered: int, damaged: Item) -> None:
    desk = Desk(ordered=ordered)
    desk.feed(*(whole(number) for number in range(3)))
    assert desk.feed(damaged, whole(4)) == [*lost(3), *data(4)]
    assert desk.tally.malformed == 1


@pytest.mark.parametrize("payload", [bytes(12), HEADER[:7] + b"\0" * 0])
def test_a_damaged_one_in_fragments_is_lost(payload: bytes) -> None:
    desk = Desk()
    items = fragments(0, payload, 6, flags=FLAG_GUARANTEED)
    desk.feed(*items, whole(len(items)))
    assert desk.tally.malformed == 1
    assert [message.type for message in desk.messages[-1:]] == [MessageType.DATA]


def test_rows_take_its_value() -> None:
    desk, sink = Desk(), Sink(None, 10)
    desk.receive(2, sink)
    desk.feed(Item(2, 0, b"0"))
    sink.queue.clear()
    rows = np.zeros((8, 1), np.uint8)
    sink.start_rows(rows)
    sink.open_rows()
    desk.feed(Item(2, 1, b"1"), guaranteed(2, 1)._replace(topic=2), Item(2, 3, b"3"))
    found = sink.rows_filled(), len(sink.queue)
    sink.end_rows()
    assert (found, rows[:3].tobytes()) == ((3, 0), b"123")


def test_its_header_counts_as_bytes() -> None:
    desk, sink = Desk(), Sink(None, 10)
    desk.receive(2, sink)
    desk.feed(guaranteed(0, 1)._replace(topic=2), Item(2, 1, b"1"))
    assert sink.bytes_delivered == 8 + 1 + 1


def test_other_messages_have_no_number() -> None:
    message = whole_message(Origin("t", "LBT-IPC:1:1"), b"v", 3, 3, 0, 0, None)
    assert message.gmd_sequence_number == 0


def test_a_message_of_an_earlier_session_says_so() -> None:
    origin = Origin("t", "LBT-IPC:1:1")
    before = resent_message(origin, 17, 5, None, b"", b"value")
    assert (before.sequence_number, before.gmd_sequence_number) == (-1, 17)
    assert repr(before) == "<Message 't' GMD 17 of an earlier session, of 5 bytes from LBT-IPC:1:1>"
    assert repr(resent_message(origin, 17, 5, (3, 3), b"", b"value")) == "<Message 't' 3 of 5 bytes from LBT-IPC:1:1>"
