"""Requests at a delivery controller: in order, behind a gap, in fragments, damaged, and answered."""

from __future__ import annotations

import numpy as np
import pytest

from ipcbus import IpcBusError, MessageType
from ipcbus.delivery.received_message import Origin, response, whole_message
from ipcbus.delivery.sink import Sink
from ipcbus.wire.properties import pack
from ipcbus.wire.wire_layout import FLAG_END_BATCH, FLAG_PROPERTIES, FLAG_REQUEST
from tests.kit.datagrams import Item, fragments
from tests.kit.desk import Desk, data, lost, whole

NUMBER = 0xFEDCBA9876543210
HEADER = NUMBER.to_bytes(8, "little")
BLOCK = pack({"key": b"k"})


class Answers:
    """What takes responses (delivery.slow_path.Responder)."""

    def __init__(self) -> None:
        self.given: list[tuple[str, int, bytes]] = []

    def respond(self, topic: str, request: int, data: bytes) -> None:
        """Notes a response."""
        self.given.append((topic, request, bytes(data)))

    def return_address(self, request: int) -> bytes:
        """Returns the number as text."""
        return b"%d" % request


@pytest.fixture(params=[1, -1, 0])
def ordered(request: pytest.FixtureRequest) -> int:
    """Every mode."""
    return int(request.param)


def asked(number: int, *, front: bytes = HEADER, flags: int = 0) -> Item:
    """A request in one piece that holds its number."""
    return Item(1, number, front + str(number).encode(), flags | FLAG_REQUEST)


def requests(*numbers: int) -> list[tuple[str, int, int, bytes]]:
    """What they look like."""
    return [("request", number, number, str(number).encode()) for number in numbers]


def test_they_come_in_order_with_the_others(ordered: int) -> None:
    desk = Desk(ordered=ordered)
    headed = asked(3, front=HEADER + BLOCK, flags=FLAG_PROPERTIES)
    got = desk.feed(whole(0), asked(1), asked(2, flags=FLAG_END_BATCH), headed, whole(4))
    assert got == [*data(0), *requests(1, 2, 3), *data(4)]
    messages = desk.messages[1:]
    assert [message.flags for message in messages] == [0, 0, FLAG_END_BATCH, 0, 0]
    assert messages[3].headers == (("key", b"k"),)
    assert [len(message) for message in messages] == [1] * 5
    assert bytes(messages[1].view) == b"1"
    assert (desk.tally.lbm_reqs_rcved, desk.demux.messages) == (3, 5)
    assert desk.topic.fast_path


def test_they_wait_behind_a_gap_and_come_once() -> None:
    desk = Desk(recovery_ns=100)
    assert desk.feed(whole(0), asked(2), asked(2), asked(3)) == data(0)
    assert desk.feed(asked(1)) == requests(1, 2, 3)
    assert desk.tally.lbm_reqs_rcved == 3


@pytest.mark.parametrize("value", [b"", b"v", b"value" * 9], ids=["none", "short", "long"])
@pytest.mark.parametrize("block", [b"", BLOCK], ids=["bare", "headed"])
@pytest.mark.parametrize("mode", [1, -1])
def test_in_fragments_they_are_put_together(mode: int, block: bytes, value: bytes) -> None:
    desk = Desk(ordered=mode)
    items = fragments(0, HEADER + block + value, 6, flags=FLAG_REQUEST | (FLAG_PROPERTIES if block else 0))
    last = len(items) - 1
    assert desk.feed(*items, whole(last + 1)) == [("request", 0, last, value), *data(last + 1)]
    message = desk.messages[1]
    assert (message.properties_block, message.flags) == (block, 0)
    assert desk.tally.lbm_reqs_rcved == 1


def test_raw_fragments_keep_their_flag_and_cannot_be_answered() -> None:
    desk = Desk(ordered=0)
    items = fragments(0, HEADER + b"value", 6, flags=FLAG_REQUEST)
    desk.feed(*items)
    messages = desk.messages[1:]
    assert b"".join(message.data for message in messages) == HEADER + b"value"
    assert {(message.type, message.flags) for message in messages} == {(MessageType.DATA, FLAG_REQUEST)}
    with pytest.raises(IpcBusError, match="cannot be answered"):
        messages[0].respond(b"no")


@pytest.mark.parametrize(
    "damaged",
    [
        Item(1, 3, HEADER[:7], FLAG_REQUEST),
        Item(1, 3, b"", FLAG_REQUEST),
        Item(1, 3, HEADER + BLOCK[:-1], FLAG_REQUEST | FLAG_PROPERTIES),
    ],
    ids=["cut", "empty", "block"],
)
def test_a_damaged_one_is_lost_with_its_number(ordered: int, damaged: Item) -> None:
    desk = Desk(ordered=ordered)
    desk.feed(*(whole(number) for number in range(3)))
    assert desk.feed(damaged, whole(4)) == [*lost(3), *data(4)]
    assert (desk.tally.malformed, desk.tally.lbm_reqs_rcved) == (1, 0)


def test_no_row_takes_a_request() -> None:
    desk, sink = Desk(), Sink(None, 10)
    desk.receive(2, sink)
    sink.queue.clear()
    desk.feed(Item(2, 0, b"0"))
    sink.queue.clear()
    sink.start_rows(np.zeros((8, 1), np.uint8))
    sink.open_rows()
    desk.feed(Item(2, 1, b"1"), asked(2)._replace(topic=2), Item(2, 3, b"3"))
    found = sink.rows_filled(), [message.type for message in sink.queue], sink.put_row(sink.queue[0])
    sink.end_rows()
    assert found == (1, [MessageType.REQUEST, MessageType.DATA], False)


def test_an_answer_goes_with_the_number_of_its_request() -> None:
    desk, answers = Desk(), Answers()
    desk.topic.origin.responder = answers
    desk.feed(asked(0), whole(1))
    request, message = desk.messages[1:]
    request.respond(b"one")
    request.respond(bytearray(b"two"))
    assert answers.given == [("topic 1", NUMBER, b"one"), ("topic 1", NUMBER, b"two")]
    assert (request.return_address, message.return_address) == (b"%d" % NUMBER, b"")
    with pytest.raises(IpcBusError, match="type DATA cannot be answered"):
        message.respond(b"no")


def test_a_response_owns_its_bytes() -> None:
    found = response(Origin("t", "LBT-IPC:1:1"), memoryview(b"answer"), NUMBER)
    assert (found.type, found.data, bytes(found.view), len(found)) == (MessageType.RESPONSE, b"answer", b"answer", 6)
    assert (found.sequence_number, found.topic, found.headers, found.return_address) == (-1, "t", (), b"")
    assert repr(found) == "<Message RESPONSE 't' of 6 bytes from LBT-IPC:1:1>"
    with pytest.raises(IpcBusError, match="type RESPONSE cannot be answered"):
        found.respond(b"no")


def test_a_request_says_what_it_is() -> None:
    message = whole_message(Origin("t", "LBT-IPC:1:1"), b"ask", 3, 3, FLAG_REQUEST, 0, None, None, 0, 9)
    assert repr(message) == "<Message REQUEST 't' 3 of 3 bytes from LBT-IPC:1:1>"
    assert (message.type, message.flags) == (MessageType.REQUEST, 0)
