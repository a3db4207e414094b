"""From records to receivers, record by record: order, gaps, duplicates, damage, full receivers, rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ipcbus.delivery.delivery_controller import DeliveryController
from ipcbus.delivery.delivery_rules import DeliveryRules
from ipcbus.delivery.demux import Demux
from ipcbus.delivery.message_types import MessageType
from ipcbus.delivery.reassembly_budget import ReassemblyBudget
from ipcbus.delivery.received_message import Origin, event
from ipcbus.delivery.sink import Sink
from ringbuf.layout import control_view
from tests.kit.datagrams import Item, compose
from tests.rings import channels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus import Message
    from ipcbus.delivery.demux import Controller
    from ringbuf.channel import JoinedChannel, OwnedChannel

TOPICS_MAX = 4


class Notes:
    """What the demux hands over, noted."""

    def __init__(self) -> None:
        self.begun = 0
        self.kept = 0
        self.gaps: list[tuple[int, int, int]] = []
        self.failures: list[str] = []

    def begin(self) -> None:
        self.begun += 1

    def view_kept(self) -> None:
        self.kept += 1

    def lost(self, controller: Controller, first: int, last: int, burst: bool) -> None:
        self.gaps.append((controller.topic_number, first, last))

    def changed(self) -> None:
        pass

    def failed(self, sink: Sink, error: BaseException) -> None:
        if not isinstance(error, Exception):
            raise error
        self.failures.append(repr(error))


class Stand:
    """A ring, its reader's demux, and one topic with one sink."""

    def __init__(self, channel: OwnedChannel, reading: JoinedChannel) -> None:
        self.channel, self.reading = channel, reading
        self.notes = Notes()
        self.demux = Demux(reading.reader, TOPICS_MAX, self.notes)
        self.got: list[tuple[int, bytes]] = []

    def topic(self, number: int, *sinks: Sink, floor: int = 0) -> DeliveryController:
        """Receives a topic; into `got` without sinks."""
        controller = DeliveryController(
            Origin(f"topic {number}", "LBT-IPC:1:1"),
            *(number, DeliveryRules(), self.notes),
            tally=self.demux.tally,
            budget=ReassemblyBudget(),
            floor=floor,
        )
        controller.set_sinks(sinks or [Sink(self.note, 1)])
        self.demux.set_controller(controller)
        return controller

    def note(self, message: Message) -> None:
        """A callback."""
        self.got.append((message.sequence_number, message.data))

    def write(self, *items: Item) -> None:
        """Publishes a datagram."""
        assert self.channel.writer.write(compose(*items), len(items))

    def poll(self, limit: int = 100) -> int:
        """Delivers."""
        return self.demux.poll_once(limit)

    @property
    def slot(self) -> np.void:
        """The reader's slot in shared memory."""
        slot: np.void = control_view(self.channel.control.view())[2][self.reading.index]
        return slot


@pytest.fixture
def stand(domain: str) -> Iterator[Stand]:
    with channels.owned(domain, window=65536) as channel:
        reading = channels.join(domain)
        yield Stand(channel, reading)
        reading.leave()


def pulled(sink: Sink) -> list[bytes]:
    """The payloads in a queue."""
    return [message.data for message in sink.queue]


def test_messages_of_a_datagram_are_delivered_in_order(stand: Stand) -> None:
    stand.topic(1)
    stand.write(*(Item(1, number, bytes([number]) * number) for number in range(20)))
    assert stand.poll() == 20
    assert stand.got == [(number, bytes([number]) * number) for number in range(20)]
    assert stand.notes.begun == 1
    assert stand.notes.gaps == []
    assert stand.poll() == 0


def test_a_limit_may_stop_within_a_datagram(stand: Stand) -> None:
    stand.topic(1)
    stand.write(*(Item(1, number, b"x") for number in range(5)))
    stand.write(Item(1, 5, b"y"))
    assert [stand.poll(2) for _ in range(4)] == [2, 2, 2, 0]
    assert [number for number, _ in stand.got] == list(range(6))
    assert stand.slot["msgs_rcved"] == 2


def test_messages_of_other_topics_are_counted_and_passed_over(stand: Stand) -> None:
    stand.topic(1)
    stand.write(Item(0, 0, b"a"), Item(1, 0, b"b"), Item(2, 7, b"c"), Item(1 + TOPICS_MAX, 0, b"same line"))
    assert stand.poll() == 1
    assert stand.got == [(0, b"b")]
    assert stand.slot["lbm_msgs_no_topic_rcved"] == 3
    assert stand.slot["lbm_msgs_rcved"] == 1


def test_a_gap_is_reported_before_the_message_behind_it(stand: Stand) -> None:
    stand.topic(1)
    stand.write(Item(1, 0, b"a"))
    stand.write(Item(1, 5, b"b"))
    stand.poll()
    assert stand.notes.gaps == [(1, 1, 4)]
    assert stand.got == [(0, b"a"), (5, b"b")]


def test_what_was_sent_before_joining_is_no_gap(stand: Stand) -> None:
    stand.topic(1, floor=7)
    stand.write(Item(1, 5, b"from before"))
    stand.write(Item(1, 6, b"too"))
    stand.poll()
    assert stand.notes.gaps == []
    assert [number for number, _ in stand.got] == [5, 6]


def test_what_was_sent_after_joining_and_did_not_come_is_a_gap(stand: Stand) -> None:
    controller = stand.topic(1, floor=7)
    stand.write(Item(1, 9, b"x"))
    stand.poll()
    assert stand.notes.gaps == [(1, 7, 8)]
    assert not controller.misses_below(10)
    assert controller.misses_below(12)
    controller.note_next_sequence(12, 0)
    assert stand.notes.gaps == [(1, 7, 8), (1, 10, 11)]
    assert not controller.misses_below(12)


def test_a_repeated_number_is_dropped_and_counted(stand: Stand) -> None:
    stand.topic(1)
    stand.write(Item(1, 0, b"a"), Item(1, 1, b"b"), Item(1, 0, b"again"), Item(1, 1, b"again"), Item(1, 2, b"c"))
    assert stand.poll() == 3
    assert [data for _, data in stand.got] == [b"a", b"b", b"c"]
    assert stand.demux.tally.duplicates == 2
    assert stand.slot["duplicates"] == 2
    assert stand.notes.gaps == []


@pytest.mark.parametrize("length", [1, 24, 2**31, 2**32 - 1])
def test_a_length_beyond_the_datagram_drops_all_of_it_and_is_counted(stand: Stand, length: int) -> None:
    stand.topic(1)
    datagram = bytearray(compose(Item(1, 0, b"good"), Item(1, 1, b"")))
    datagram[24:28] = length.to_bytes(4, "little")
    assert stand.channel.writer.write(bytes(datagram), 2)
    stand.write(Item(1, 2, b"next datagram"))
    stand.poll()
    assert stand.got == [(2, b"next datagram")]
    assert stand.notes.gaps == [(1, 0, 1)]
    assert stand.slot["malformed"] == 1


@pytest.mark.parametrize("length", [0, 1, 15])
def test_a_datagram_too_short_for_a_header_is_passed_over(stand: Stand, length: int) -> None:
    stand.topic(1)
    assert stand.channel.writer.write(b"\xff" * length)
    stand.write(Item(1, 0, b"x"))
    stand.poll()
    assert stand.got == [(0, b"x")]
    assert stand.slot["malformed"] == (length > 0)


def test_the_end_of_the_session_asks_for_attention(stand: Stand) -> None:
    stand.topic(1)
    stand.write(Item(1, 0, b"last"))
    stand.channel.writer.close()
    before = stand.demux.attention
    assert stand.poll() == 1
    stand.poll()
    assert (before, stand.demux.attention, stand.demux.ring.ended) == (False, True, True)


def test_all_sinks_of_a_topic_get_each_message(stand: Stand) -> None:
    queue = Sink(None, 10)
    stand.topic(1, Sink(stand.note, 1), queue)
    stand.write(Item(1, 0, b"a"), Item(1, 1, b"b"))
    assert stand.poll() == 2
    assert [data for _, data in stand.got] == pulled(queue) == [b"a", b"b"]
    assert queue.delivered == 2
    assert queue.bytes_delivered == 2


def test_a_closed_sink_gets_nothing_more(stand: Stand) -> None:
    calling, queue = Sink(stand.note, 1), Sink(None, 10)
    stand.topic(1, calling, queue)
    calling.closed = queue.closed = True
    stand.write(Item(1, 0, b"a"))
    stand.poll()
    calling.event(event(Origin("t", "s"), MessageType.EOS, -1, -1), stand.notes)
    assert stand.got == []
    assert pulled(queue) == []
    assert calling.events == 0


def test_a_topic_is_received_no_more_once_its_controller_is_removed(stand: Stand) -> None:
    controller = stand.topic(1)
    assert stand.demux.controller(1) is controller
    assert stand.demux.line_in_use(1 + TOPICS_MAX)
    assert not stand.demux.line_in_use(1)
    assert stand.demux.remove_controller(1 + TOPICS_MAX) is None
    assert stand.demux.remove_controller(1) is controller
    assert stand.demux.controller_list() == []
    stand.write(Item(1, 0, b"a"))
    assert stand.poll() == 0


# Full receivers.


def test_a_full_queue_stops_the_session_before_the_message_that_has_no_place(stand: Stand) -> None:
    queue = Sink(None, 2)
    stand.topic(1, queue)
    stand.topic(2)
    stand.write(*(Item(1, number, b"%d" % number) for number in range(4)), Item(2, 0, b"behind"))
    assert stand.poll() == 2
    assert stand.demux.blocked
    assert stand.poll() == 0
    assert stand.got == []
    for number in range(2, 4):
        queue.queue.popleft()
        stand.demux.blocked = False
        assert stand.poll() == (1 if number < 3 else 2)
    assert pulled(queue) == [b"2", b"3"]
    assert stand.got == [(0, b"behind")]


def test_events_have_a_place_even_in_a_full_queue(stand: Stand) -> None:
    queue = Sink(None, 1)
    stand.topic(1, queue)
    stand.write(Item(1, 0, b"a"))
    stand.poll()
    queue.event(event(Origin("t", "s"), MessageType.UNRECOVERABLE_LOSS_BURST, 5, 9), stand.notes)
    assert [message.type for message in queue.queue] == [MessageType.DATA, MessageType.UNRECOVERABLE_LOSS_BURST]
    assert (queue.lost, queue.events) == (5, 1)


def test_a_closed_full_receiver_holds_up_nobody(stand: Stand) -> None:
    full, queue = Sink(None, 1), Sink(None, 10)
    stand.topic(1, full, queue)
    stand.write(Item(1, 0, b"a"), Item(1, 1, b"b"))
    assert stand.poll() == 1
    full.closed = True
    stand.demux.blocked = False
    assert stand.poll() == 1
    assert pulled(queue) == [b"a", b"b"]


# Exceptions.


def test_an_exception_is_handed_over_and_counted_and_the_next_message_comes(stand: Stand) -> None:
    def fail(message: Message) -> None:
        stand.note(message)
        raise LookupError(message.sequence_number)

    sink = Sink(fail, 1)
    stand.topic(1, sink)
    stand.write(Item(1, 0, b"a"), Item(1, 1, b"b"))
    assert stand.poll() == 2
    assert [data for _, data in stand.got] == [b"a", b"b"]
    assert stand.notes.failures == ["LookupError(0)", "LookupError(1)"]
    assert sink.callback_errors == 2


def test_an_interrupt_goes_through_and_loses_no_later_message(stand: Stand) -> None:
    def interrupted(message: Message) -> None:
        stand.note(message)
        if message.sequence_number == 0:
            raise KeyboardInterrupt

    stand.topic(1, Sink(interrupted, 1))
    stand.write(Item(1, 0, b"a"), Item(1, 1, b"b"))
    with pytest.raises(KeyboardInterrupt):
        stand.poll()
    stand.poll()
    assert [data for _, data in stand.got] == [b"a", b"b"]
    assert stand.notes.failures == []


# Rows.


def test_rows_take_messages_of_their_length_until_they_are_full(stand: Stand) -> None:
    sink = Sink(None, 10)
    stand.topic(1, sink)
    rows = np.zeros((3, 4), np.uint8)
    assert sink.start_rows(rows) == 3
    sink.open_rows()
    stand.write(*(Item(1, number, bytes([number]) * 4) for number in range(5)))
    assert [stand.poll(), stand.poll()] == [3, 0]
    assert not stand.demux.blocked  # the next call takes the rest
    sink.end_rows()
    assert sink.rows_filled() == 3
    assert rows.tolist() == [[0] * 4, [1] * 4, [2] * 4]
    stand.poll()
    assert pulled(sink) == [b"\3" * 4, b"\4" * 4]


def test_rows_end_at_a_message_of_another_length(stand: Stand) -> None:
    sink = Sink(None, 10)
    stand.topic(1, sink)
    rows = np.zeros((4, 4), np.uint8)
    sink.start_rows(rows)
    sink.open_rows()
    stand.write(Item(1, 0, b"0000"), Item(1, 1, b"odd"), Item(1, 2, b"2222"))
    stand.poll()
    sink.end_rows()
    assert sink.rows_filled() == 1
    assert pulled(sink) == [b"odd", b"2222"]


@pytest.mark.parametrize("limit", [100, 3])
@pytest.mark.parametrize(
    "between", [Item(9, 3, b"3333"), Item(1, 3, b"odd"), Item(1, 4, b"4444"), Item(1, 2, b"2222"), Item(1, 3, b"", 8)]
)
def test_rows_of_one_datagram_are_what_rows_of_many_are(stand: Stand, between: Item, limit: int) -> None:
    found = []
    for topic in (1, 2):  # of one in one datagram, of the other each message in its own
        sink = Sink(None, 10)
        stand.topic(topic, sink)
        rows = np.zeros((6, 4), np.uint8)
        sink.start_rows(rows)
        sink.open_rows()
        strange = between._replace(topic=topic) if between.topic == 1 else between
        items = [Item(topic, n, b"%d" % n * 4) for n in range(3)] + [strange]
        items += [Item(topic, n, b"%d" % n * 4) for n in range(3, 10)]
        before = stand.demux.messages, stand.demux.no_topic, stand.demux.tally.duplicates
        for datagram in [items] if topic == 1 else [[item] for item in items]:
            stand.write(*datagram)
        handled: list[int] = []
        while len(handled) < 20 and not (handled and handled[-1] == 0):
            handled.append(stand.poll(limit))
        sink.end_rows()
        counts = np.subtract((stand.demux.messages, stand.demux.no_topic, stand.demux.tally.duplicates), before)
        assert sink.rows_filled() >= 3
        noted: list[object] = [handled, rows.tolist(), sink.delivered, sink.bytes_delivered, counts.tolist()]
        stand.demux.blocked = False
        stand.poll()
        noted += [pulled(sink), sink.delivered, sink.bytes_delivered, [gap[1:] for gap in stand.notes.gaps]]
        found.append(noted)
        stand.notes.gaps.clear()
    assert found[0] == found[1]


def test_rows_wait_until_the_queue_is_taken(stand: Stand) -> None:
    sink = Sink(None, 10)
    stand.topic(1, sink)
    stand.write(Item(1, 0, b"0000"))
    stand.poll()
    rows = np.zeros((4, 4), np.uint8)
    sink.start_rows(rows)
    sink.open_rows()  # it is not taken yet
    stand.write(Item(1, 1, b"1111"))
    stand.poll()
    assert pulled(sink) == [b"0000", b"1111"]
    while sink.queue:
        assert sink.put_row(sink.queue.popleft())
    sink.open_rows()
    stand.write(Item(1, 2, b"2222"))
    stand.poll()
    sink.end_rows()
    assert sink.rows_filled() == 3
    assert [row.tobytes() for row in rows[:3]] == [b"0000", b"1111", b"2222"]


def test_rows_are_held_while_they_are_filled(stand: Stand) -> None:
    sink = Sink(None, 10)
    data = bytearray(16)
    sink.start_rows(memoryview(data).cast("B", (4, 4)))
    with pytest.raises(BufferError):
        data.extend(b"x")
    sink.end_rows()
    data.extend(b"x")


@pytest.mark.parametrize("shape", [(8,), (2, 2, 2)], ids=["1-D", "3-D"])
def test_rows_of_another_shape_are_refused_and_let_go(shape: tuple[int, ...]) -> None:
    sink = Sink(None, 10)
    array = np.zeros(shape, np.uint8)
    with pytest.raises(TypeError, match=f"{len(shape)} dimensions"):
        sink.start_rows(array)
    array.resize((3,), refcheck=False)


# A session that was left.


def test_nothing_is_read_or_shown_after_the_session_was_left_inside_a_callback(stand: Stand) -> None:
    def leave(message: Message) -> None:
        stand.note(message)
        stand.demux.detached = True

    stand.topic(1, Sink(leave, 1))
    before = int(stand.slot["position"])
    stand.write(Item(1, 0, b"a"), Item(1, 1, b"b"))
    stand.write(Item(1, 2, b"c"))
    stand.poll()
    assert stand.got == [(0, b"a")]
    assert stand.poll() == 0
    stand.demux.show()
    assert stand.slot["position"] == before
