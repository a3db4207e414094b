"""Retransmitted messages on their way to the sinks: entries of any bytes, full receivers, several sinks."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipcbus import Message, MessageFlag, MessageType
from ipcbus.delivery.retransmitted_feed import RetransmittedFeed
from ipcbus.delivery.sink import Sink
from ipcbus.wire.wire_layout import FLAG_END_BATCH, FLAG_STAMPED, FLAG_TSNI
from tests.kit.cases import each_of
from tests.kit.desk import Desk, data, lost, whole
from tests.kit.retaining import entry


def late_desk(floor: int = 10) -> tuple[Desk, RetransmittedFeed]:
    """A desk that misses the numbers below `floor`."""
    desk = Desk(floor=floor)
    desk.feed()
    desk.topic.begin_late_join(0)
    desk.topic.promise(0, floor, 0)
    return desk, RetransmittedFeed(desk.demux, desk.topic)


def entries(*numbers: int) -> bytes:
    """Messages that hold their numbers."""
    return b"".join(entry(number, str(number).encode()) for number in numbers)


def test_messages_have_their_own_time_and_flags() -> None:
    desk, feed = late_desk()
    some = entry(0, b"a", FLAG_END_BATCH, send_ticks=12345) + entry(1, b"b", send_ticks=0)
    feed.begin(0, 1, some, MessageFlag.LATE_JOIN)
    states = [feed.busy, feed.run(0), feed.busy]
    assert states == [True, True, False]
    assert [(message.data, message.flags) for message in desk.messages[1:]] == [(b"a", 0xA), (b"b", 0x8)]
    assert desk.messages[1].send_time_ns > 0
    assert desk.messages[2].send_time_ns == 0
    assert (feed.messages, feed.reached, desk.demux.messages) == (2, 2, 2)


def test_times_from_another_host_are_of_the_epoch() -> None:
    desk, feed = late_desk()
    sent_ns = 1_700_000_000_123_456_789
    feed.begin(0, 0, entry(0, b"a", send_ticks=sent_ns), 8, epoch=True)
    feed.run(0)
    assert abs(desk.messages[-1].send_time_ns - sent_ns) < 1000


@each_of(
    "bad",
    [
        b"x" * 8,
        entries(2)[:-8],
        entry(2, b"x", topic=2),
        entry(2, b"x", FLAG_TSNI),
        entry(2, b"x", FLAG_STAMPED),
        entries(1),
        entries(9),
        struct.pack("<QIIQ", 0, 2**32 - 1, 1, 2) + bytes(64),
    ],
)
def test_bytes_that_contradict_themselves_end_a_retransmission(bad: bytes) -> None:
    desk, feed = late_desk()
    feed.begin(0, 5, entries(0, 1) + bad, 8)
    assert feed.run(0)
    assert desk._since(0) == data(0, 1)
    assert (feed.reached, desk.tally.malformed) == (2, 1)
    assert list(desk.topic.missing()) == [(2, 9)]
    feed.begin(2, 9, entries(*range(2, 10)), 8)
    assert feed.run(0)
    assert desk._since(0) == data(*range(10))


@given(st.binary(max_size=200), st.integers(0, 12), st.integers(0, 12))
def test_any_bytes_are_taken(some: bytes, first: int, last: int) -> None:
    _, feed = late_desk()
    feed.begin(first, last, some, 8)
    assert feed.run(0)
    assert feed.reached <= max(first, last + 1)


def test_what_is_not_missing_is_left_alone() -> None:
    desk, feed = late_desk()
    feed.begin(0, 3, entries(0, 1, 2, 3), 8)
    feed.run(0)
    feed.begin(1, 20, entries(1, 4, 12), 8)
    feed.run(0)
    assert desk._since(0) == data(0, 1, 2, 3, 4) + lost(5, 6, 7, 8, 9)
    assert desk.tally.duplicates == 0
    assert desk.demux.messages == 5


def test_a_full_receiver_stops_the_feed_and_loses_nothing() -> None:
    desk, feed = late_desk()
    pulled = Sink(None, 2)
    desk.topic.set_sinks([*desk.topic.sinks, pulled])
    feed.begin(0, 9, entries(*range(9)), 8)
    got = []
    assert not feed.run(0)
    with pytest.raises(ValueError, match="not finished"):
        feed.begin(0, 1, b"", 8)
    assert desk._since(0) == data(0, 1)
    for _ in range(20):
        while pulled.queue:
            got.append(pulled.queue.popleft())
        if feed.run(0):
            break
    got += pulled.queue
    assert [message.sequence_number for message in got if message.type != MessageType.BOS] == list(range(10))
    assert desk._since(0) == data(*range(9)) + lost(9)


def test_rows_are_filled() -> None:
    desk, feed = late_desk()
    pulled = Sink(None, 10)
    desk.topic.set_sinks([pulled])
    rows = np.zeros((4, 2), np.uint8)
    pulled.start_rows(rows)
    pulled.open_rows()
    feed.begin(0, 3, b"".join(entry(number, bytes([number, 9])) for number in range(4)), 8)
    assert feed.run(0)
    pulled.end_rows()
    assert rows.tolist() == [[0, 9], [1, 9], [2, 9], [3, 9]]
    assert pulled.delivered == 4


def test_a_callback_may_keep_messages_close_its_receiver_and_raise() -> None:
    desk, feed = late_desk()
    kept: list[Message] = []

    def callback(message: Message) -> None:
        kept.append(message)
        if len(kept) == 3:
            sink.closed = True
            desk.session.remove_topic(1)
        raise RuntimeError("from a callback")

    sink = Sink(callback, 1)
    desk.topic.set_sinks([sink])
    topic = desk.topic
    feed.begin(0, 9, entries(*range(10)), 8)
    assert feed.run(0)
    assert [message.data for message in kept] == [b"0", b"1", b"2"]
    assert bytes(kept[0].view) == b"0"
    assert len(desk.failures) == 3
    assert list(topic.missing()) == []


def test_a_live_datagram_in_hand_is_not_disturbed() -> None:
    desk, feed = late_desk(floor=2)
    pulled = Sink(None, 3)
    desk.topic.set_sinks([pulled])
    feed.begin(0, 1, entries(0, 1), 8)
    assert feed.run(0)
    desk.feed(whole(2), whole(3), whole(4))
    assert desk.holds()
    assert [message.data for message in pulled.queue] == [b"0", b"1", b"2"]
    pulled.queue.clear()
    desk.demux.blocked = False
    desk.demux.resume(0)
    assert [message.data for message in pulled.queue] == [b"3", b"4"]
