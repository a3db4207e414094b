"""Messages with headers at a delivery controller: in order, behind a gap, in fragments, and damaged."""

from __future__ import annotations

import numpy as np
import pytest

from ipcbus.delivery.message_types import FragmentInfo
from ipcbus.delivery.received_message import Origin, whole_message
from ipcbus.delivery.sink import Sink
from ipcbus.wire.properties import pack
from ipcbus.wire.wire_layout import FLAG_END_BATCH, FLAG_PROPERTIES
from tests.kit.datagrams import Item, fragments
from tests.kit.desk import Desk, data, lost, whole

HEADERS = (("key", b"k"), ("trace", bytes(20)))
BLOCK = pack(HEADERS)
SIZE = 16


@pytest.fixture(params=[1, -1, 0])
def ordered(request: pytest.FixtureRequest) -> int:
    """Every mode."""
    return int(request.param)


def headed(number: int, *, block: bytes = BLOCK, flags: int = 0) -> Item:
    """A message in one piece that holds its number, with headers."""
    return Item(1, number, block + str(number).encode(), flags | FLAG_PROPERTIES)


def cut(number: int) -> Item:
    """One whose header block is longer than all of it."""
    return Item(1, number, BLOCK[:-1], FLAG_PROPERTIES)


def pieces(first: int, value: bytes, block: bytes = BLOCK) -> list[Item]:
    """Fragments of a message with headers."""
    return fragments(first, block + value, SIZE, flags=FLAG_PROPERTIES)


def test_they_come_beside_the_value_in_order_with_the_others(ordered: int) -> None:
    desk = Desk(ordered=ordered)
    assert desk.feed(headed(0), whole(1), headed(2, flags=FLAG_END_BATCH), headed(3)) == data(0, 1, 2, 3)
    messages = desk.messages[1:]
    assert [message.headers for message in messages] == [HEADERS, (), HEADERS, HEADERS]
    assert [message.properties_block for message in messages] == [BLOCK, b"", BLOCK, BLOCK]
    assert [len(message) for message in messages] == [1] * 4
    assert [bytes(message.view) for message in messages] == [b"0", b"1", b"2", b"3"]
    assert [message.flags for message in messages] == [0, 0, FLAG_END_BATCH, 0]
    assert desk.demux.messages == 4
    assert desk.topic.fast_path


def test_they_wait_behind_a_gap_and_come_once() -> None:
    desk = Desk(recovery_ns=100)
    assert desk.feed(whole(0), headed(2), headed(2), headed(3)) == data(0)
    assert desk.feed(headed(1)) == data(1, 2, 3)
    assert [message.headers for message in desk.messages[2:]] == [HEADERS] * 3
    assert desk.feed(headed(2)) == []
    assert (desk.tally.duplicates, desk.tally.malformed) == (2, 0)


def test_they_are_the_value_of_nothing_but_headers(ordered: int) -> None:
    desk = Desk(ordered=ordered)
    empty = Item(1, 0, BLOCK, FLAG_PROPERTIES)
    assert desk.feed(empty, empty._replace(sequence=1)) == [("data", 0, 0, b""), ("data", 1, 1, b"")]
    assert [message.headers for message in desk.messages[1:]] == [HEADERS] * 2


@pytest.mark.parametrize("value", [b"", b"v", b"value" * 9], ids=["none", "short", "long"])
@pytest.mark.parametrize("mode", [1, -1])
def test_in_fragments_they_are_taken_off_the_whole(mode: int, value: bytes) -> None:
    desk = Desk(ordered=mode)
    items = pieces(0, value)
    last = len(items) - 1
    assert desk.feed(*items, whole(last + 1)) == [("data", 0, last, value), *data(last + 1)]
    message = desk.messages[1]
    assert (message.headers, message.properties_block, len(message)) == (HEADERS, BLOCK, len(value))
    assert message.fragment_info == FragmentInfo(0, 0, len(BLOCK) + len(value))
    assert (message.flags, bytes(message.view)) == (0, value)
    assert (desk.budget.bytes, desk.tally.reassembly_bytes) == (0, 0)


def test_raw_fragments_are_pieces_of_both_and_say_so() -> None:
    desk = Desk(ordered=0)
    desk.feed(*pieces(0, b"value" * 9))
    messages = desk.messages[1:]
    assert b"".join(message.data for message in messages) == BLOCK + b"value" * 9
    assert {message.flags for message in messages} == {FLAG_PROPERTIES}
    assert {message.headers for message in messages} == {()}


def test_a_damaged_block_is_counted_and_its_number_lost(ordered: int) -> None:
    desk = Desk(ordered=ordered)
    assert desk.feed(headed(0), cut(1), headed(2)) == [*data(0), *lost(1), *data(2)]
    assert desk.feed(Item(1, 3, b"", FLAG_PROPERTIES), whole(4)) == [*lost(3), *data(4)]
    assert desk.tally.malformed == 2
    assert desk.demux.lost == 2
    assert desk.topic.fast_path


def test_the_first_message_of_all_may_be_damaged(ordered: int) -> None:
    desk = Desk(ordered=ordered)
    assert desk.feed(cut(0), whole(1)) == [*lost(0), *data(1)]


def test_a_damaged_block_behind_a_gap_is_lost_in_its_turn() -> None:
    desk = Desk(recovery_ns=100)
    assert desk.feed(whole(0), cut(2), headed(3)) == data(0)
    assert desk.feed(whole(1)) == [*data(1), *lost(2), *data(3)]


@pytest.mark.parametrize("mode", [1, -1])
def test_all_numbers_of_a_message_in_fragments_are_lost_with_its_block(mode: int) -> None:
    desk = Desk(ordered=mode)
    items = pieces(0, b"value" * 9, b"\xff\xff" + BLOCK[2:])
    last = len(items) - 1
    assert desk.feed(*items, whole(last + 1)) == [*lost(*range(last + 1)), *data(last + 1)]
    assert (desk.tally.malformed, desk.budget.bytes, desk.topic.fast_path) == (1, 0, True)


def test_a_block_in_an_unfinished_message_breaks_it_off() -> None:
    desk = Desk()
    items = pieces(0, b"value" * 9)
    assert desk.feed(*items[:2], headed(2)) == [*lost(0, 1), *data(2)]


def test_an_exception_in_the_callback_is_counted_and_the_next_message_comes() -> None:
    desk = Desk()
    desk.receive(2, desk.sink(lambda _: 1 / 0))
    desk.feed(headed(0)._replace(topic=2), headed(1)._replace(topic=2), headed(2)._replace(topic=2))
    assert [type(failure) for failure in desk.failures] == [ZeroDivisionError] * 4  # BOS too
    assert desk.seen[-1] == ("data", 2, 2, b"2")


def test_counters_have_the_bytes_of_both() -> None:
    desk = Desk()
    called, pulled = desk.sink(), Sink(None, 10)
    desk.receive(2, called, pulled)
    desk.feed(*(headed(number)._replace(topic=2) for number in range(3)))
    for sink in (called, pulled):
        assert (sink.delivered, sink.bytes_delivered) == (3, 3 * (len(BLOCK) + 1))
    assert [message.headers for message in pulled.queue] == [(), HEADERS, HEADERS, HEADERS]


def test_no_row_takes_a_message_with_headers() -> None:
    desk = Desk()
    sink = Sink(None, 10)
    desk.receive(2, sink)
    desk.feed(Item(2, 0, b"0"))
    sink.queue.clear()
    sink.start_rows(np.zeros((8, 1), np.uint8))
    sink.open_rows()
    desk.feed(Item(2, 1, b"1"), Item(2, 2, b"2"), headed(3)._replace(topic=2), Item(2, 4, b"4"))
    found = sink.rows_filled(), len(sink.queue), *map(sink.put_row, sink.queue)
    sink.end_rows()
    assert found == (2, 2, False, True)


def test_a_message_tells_of_them() -> None:
    message = whole_message(Origin("t", "LBT-IPC:1:1"), b"value", 3, 3, FLAG_PROPERTIES, 0, None, BLOCK)
    assert repr(message) == f"<Message 't' 3 of 5 bytes and {len(BLOCK)} of headers from LBT-IPC:1:1>"
    assert message.flags == 0
    for name in ("headers", "properties_block"):
        with pytest.raises(AttributeError):
            setattr(message, name, None)
