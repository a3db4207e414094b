"""What waits for the thread that calls back: order, room, drops, counts, times."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from ipcbus.delivery.event_buffer import EventBuffer
from ipcbus.delivery.message_types import MessageType
from ipcbus.delivery.received_message import Origin, event, given_up, resent_message, whole_message
from ipcbus.delivery.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Message

ORIGIN = Origin("t", "LBT-IPC:1:1")
BOS, DATA, EOS, LOSS = MessageType.BOS, MessageType.DATA, MessageType.EOS, MessageType.UNRECOVERABLE_LOSS
BURST = MessageType.UNRECOVERABLE_LOSS_BURST


class Notes:
    """A keeper that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def room_available(self) -> None:
        self.asked.append("room_available")

    def size_exceeded(self, size: int) -> None:
        self.asked.append(("size_exceeded", size))

    def delay_exceeded(self, seconds: float) -> None:
        self.asked.append("delay_exceeded")

    def failed(self, sink: Sink, error: BaseException) -> None:
        if not isinstance(error, Exception):
            raise error
        self.asked.append(repr(error))


class Stand:
    """A shelf with one sink."""

    def __init__(self, maximum: int = 1000, drops: bool = False, **options: Any) -> None:  # noqa: ANN401
        self.notes = Notes()
        self.event_buffer = EventBuffer(maximum, drops, self.notes, **options)
        self.got: list[object] = []
        self.sink = self.make_sink(self.note)

    def make_sink(self, callback: Callable[[Message], object]) -> Sink:
        return Sink(callback, 1, self.event_buffer)

    def note(self, message: Message) -> None:
        self.noting(self.got)(message)

    def noting(self, got: list[object]) -> Callable[[Message], None]:
        def note(message: Message) -> None:
            first, last = message.first_sequence_number, message.sequence_number
            if message.type is DATA:
                got.append(last)
            else:
                got.append(message.type if first < 0 else (first, last))

        return note

    def put(self, *what: int | MessageType, sink: Sink | None = None, origin: Origin = ORIGIN) -> None:
        for each in what:
            if isinstance(each, MessageType):
                self.event_buffer.put(sink or self.sink, event(origin, each, -1, -1))
            else:
                self.event_buffer.put(sink or self.sink, whole_message(origin, b"x", each, each, 0, 0, None))

    def lose(self, first: int, last: int, origin: Origin = ORIGIN, sink: Sink | None = None) -> None:
        self.event_buffer.put(sink or self.sink, event(origin, LOSS if first == last else BURST, first, last))

    def balanced(self) -> None:
        event_buffer = self.event_buffer
        assert event_buffer.total == event_buffer.dispatched + event_buffer.dropped + len(event_buffer)


def test_messages_and_events_come_in_the_order_of_their_arrival() -> None:
    stand = Stand()
    order = [BOS, 0, 1, LOSS, LOSS, 2, EOS, BOS, 0, EOS]
    stand.put(*order)
    assert (len(stand.event_buffer), stand.got) == (10, [])
    assert stand.event_buffer.call_back(-1) == 10
    assert (len(stand.event_buffer), stand.got) == (0, order)
    assert stand.notes.asked == []
    stand.balanced()


def test_several_sinks_keep_one_order() -> None:
    stand = Stand()
    other = stand.make_sink(lambda message: stand.got.append(("other", message.sequence_number)))
    stand.put(0)
    stand.put(1, sink=other)
    stand.put(2)
    stand.event_buffer.call_back(-1)
    assert stand.got == [0, ("other", 1), 2]


def test_what_comes_during_the_callbacks_is_left() -> None:
    stand = Stand()
    again = stand.make_sink(lambda message: stand.put(7))
    stand.put(0, 1, sink=again)
    assert stand.event_buffer.call_back(-1) == 2
    assert len(stand.event_buffer) == 2


def test_a_limit_stops_before_the_next_callback_but_not_before_the_first() -> None:
    stand = Stand()
    stand.put(0, 1, 2)
    assert stand.event_buffer.call_back(0) == 1
    assert stand.got == [0]
    assert stand.event_buffer.call_back(10**12) == 2


def test_a_full_shelf_says_so_and_tells_of_room_when_half_is_free() -> None:
    stand = Stand(4)
    stand.put(0, 1, 2)
    assert not stand.event_buffer.is_full()
    stand.put(3)
    stand.event_buffer.call_back(0)
    stand.put(4)
    assert stand.event_buffer.is_full()
    stand.event_buffer.call_back(0)
    assert (stand.notes.asked, stand.event_buffer.is_full()) == ([], False)
    stand.event_buffer.call_back(0)
    assert stand.notes.asked == ["room_available"]
    stand.event_buffer.call_back(-1)
    assert stand.notes.asked == ["room_available"]


def test_nobody_is_told_of_room_who_did_not_ask() -> None:
    stand = Stand(2)
    stand.put(0, 1)
    stand.event_buffer.call_back(-1)
    assert stand.notes.asked == []


def test_a_shelf_of_one_has_room_when_it_is_empty() -> None:
    stand = Stand(1)
    stand.put(BOS, 0)  # events always find a place; whoever puts messages asks before
    assert stand.event_buffer.is_full()
    stand.event_buffer.call_back(0)
    assert stand.notes.asked == []
    stand.event_buffer.call_back(0)
    assert stand.notes.asked == ["room_available"]


def test_the_oldest_message_gives_its_place_and_events_never_do() -> None:
    stand = Stand(3, drops=True)
    stand.put(BOS, 0, 1, 2, 3, LOSS)
    assert not stand.event_buffer.is_full()
    assert (len(stand.event_buffer), stand.event_buffer.dropped, stand.sink.dropped) == (5, 1, 1)
    stand.balanced()
    stand.event_buffer.call_back(-1)
    assert stand.got == [BOS, 1, 2, 3, LOSS]


def put_bytes(stand: Stand, number: int, length: int) -> None:
    stand.event_buffer.put(stand.sink, whole_message(ORIGIN, bytes(length), number, number, 0, 0, None))


def test_the_bytes_that_wait_fill_it_too() -> None:
    stand = Stand(100, bytes_maximum=1000)
    put_bytes(stand, 0, 5000)  # an empty one takes any message
    assert stand.event_buffer.is_full()
    stand.event_buffer.call_back(0)
    assert stand.notes.asked == ["room_available"]
    for number in range(1, 4):
        assert not stand.event_buffer.is_full()
        put_bytes(stand, number, 400)
    assert stand.event_buffer.is_full()
    stand.event_buffer.call_back(0)
    assert stand.notes.asked == ["room_available"]
    stand.event_buffer.call_back(0)
    assert stand.notes.asked == ["room_available"] * 2
    stand.event_buffer.call_back(-1)
    assert (stand.got, stand.event_buffer.dropped) == ([0, 1, 2, 3], 0)


def test_the_oldest_messages_give_their_bytes() -> None:
    stand = Stand(100, drops=True, bytes_maximum=1000)
    for number in range(10):
        put_bytes(stand, number, 100)
    put_bytes(stand, 10, 250)
    stand.put(LOSS)
    assert (stand.event_buffer.dropped, stand.sink.dropped, len(stand.event_buffer)) == (3, 3, 9)
    headers = whole_message(ORIGIN, b"", 10, 10, 0, 0, None, bytes(900))
    stand.event_buffer.put(stand.sink, headers)
    assert stand.event_buffer.dropped == 11  # headers count
    put_bytes(stand, 11, 5000)  # nothing else stays
    put_bytes(stand, 12, 0)
    put_bytes(stand, 13, 1000)
    stand.balanced()
    stand.event_buffer.call_back(-1)
    assert (stand.got, stand.event_buffer.dropped) == ([LOSS, 12, 13], 13)


def test_events_take_no_room_from_messages() -> None:
    stand = Stand(2, drops=True)
    stand.put(BOS, EOS, BOS, EOS, BOS, 0, 1, 2)
    assert stand.event_buffer.call_back(-1) == 7
    assert stand.got == [BOS, EOS, BOS, EOS, BOS, 1, 2]
    stand.balanced()
    blocking = Stand(2)
    blocking.put(BOS, EOS, BOS, 0)
    assert not blocking.event_buffer.is_full()


# Losses, ends and beginnings that wait are as few as tell the same.


def test_on_a_full_shelf_losses_that_touch_are_one() -> None:
    stand = Stand(1)
    stand.put(0)
    for number in (*range(1, 500), 501):
        stand.lose(number, number)
    stand.put(502)
    stand.lose(503, 503)  # behind a message
    assert len(stand.event_buffer) == 5
    stand.balanced()
    stand.event_buffer.call_back(-1)
    assert stand.got == [0, (1, 499), (501, 501), 502, (503, 503)]
    assert stand.event_buffer.waiting_by_kind() == {}
    stand.balanced()


def test_a_session_that_ends_again_and_again_is_told_of_once() -> None:
    stand = Stand(1)
    other = Origin("u", "LBT-IPC:1:1")
    stand.put(0)
    for turn in range(100):
        for origin in (ORIGIN, other):
            stand.lose(10 * turn, 10 * turn + 9, origin)
            stand.put(EOS, BOS, origin=origin)
            assert len(stand.event_buffer) <= 7
            stand.balanced()
    stand.put(EOS)
    assert stand.event_buffer.waiting_by_kind() == {DATA: 1, BURST: 2, EOS: 2, BOS: 1}
    stand.event_buffer.call_back(-1)
    assert stand.got == [0, (0, 999), EOS, (0, 999), EOS, BOS]
    stand.put(BOS)
    stand.event_buffer.call_back(-1)
    assert stand.got[-1] == BOS
    assert len(stand.event_buffer) == 0
    stand.balanced()


def test_an_event_that_was_taken_is_not_added_to() -> None:
    stand = Stand(1)
    stand.put(0)
    stand.lose(1, 1)
    stand.event_buffer.call_back(0)
    stand.event_buffer.call_back(0)
    stand.put(2)
    stand.lose(3, 3)
    stand.event_buffer.call_back(-1)
    stand.lose(4, 4)
    stand.put(5)
    stand.event_buffer.call_back(-1)
    assert stand.got == [0, (1, 1), 2, (3, 3), (4, 4), 5]


@pytest.mark.parametrize("sinks", [1, 2])
def test_losses_between_messages_that_were_dropped_are_one(sinks: int) -> None:
    stand = Stand(4, drops=True)
    got: list[list[object]] = [[] for _ in range(sinks)]
    several = [stand.make_sink(stand.noting(each)) for each in got]
    for number in range(0, 4000, 2):
        for sink in several:
            stand.put(number, sink=sink)
            stand.lose(number + 1, number + 1, sink=sink)
        assert len(stand.event_buffer) <= 8 + sinks
        stand.balanced()
    stand.event_buffer.call_back(-1)
    kept = 4 // sinks
    first = 4000 - 2 * kept  # the oldest message that is there
    assert got == sinks * [[(1, first - 1), *(each for n in range(first, 4000, 2) for each in (n, (n + 1, n + 1)))]]
    stand.balanced()


def test_a_range_has_no_number_that_was_called_back() -> None:
    stand = Stand(2, drops=True)
    stand.put(0)
    stand.lose(1, 1)
    stand.put(2)
    stand.event_buffer.call_back(-1)
    stand.lose(3, 3)
    stand.put(4, 5, 6)  # 4 is dropped
    stand.lose(7, 7)
    stand.put(8, 9)
    stand.event_buffer.call_back(-1)
    assert stand.got == [0, (1, 1), 2, (3, 7), 8, 9]


def test_a_silent_sink_is_not_called_back() -> None:
    stand = Stand()
    stand.put(0, 1)
    stand.sink.silent = True
    assert stand.event_buffer.call_back(-1) == 0
    assert (stand.got, stand.sink.dropped, len(stand.event_buffer)) == ([], 2, 0)
    stand.balanced()


def test_a_guaranteed_message_of_a_receiver_without_a_name_is_called_back() -> None:
    """It has no gate, which shows of a named receiver's message that its source has deleted it."""
    stand = Stand()
    stand.event_buffer.put(stand.sink, whole_message(ORIGIN, b"x", 5, 5, 0, 0, None, gmd_number=7))
    stand.event_buffer.put(stand.sink, given_up(ORIGIN, 3, 5))
    deleted = resent_message(ORIGIN, 8, 0, (6, 6), b"", b"x")
    stand.event_buffer.put(stand.sink, deleted)
    stand.event_buffer.call_back(-1)
    assert stand.got == [5, MessageType.GMD_FAILURE]


def test_an_exception_is_told_and_the_rest_goes_on() -> None:
    stand = Stand()
    failing = stand.make_sink(lambda message: [][1])
    stand.put(0)
    stand.put(1, 2, sink=failing)
    stand.put(3)
    assert stand.event_buffer.call_back(-1) == 4
    assert stand.got == [0, 3]
    assert failing.callback_errors == len(stand.notes.asked) == 2


def test_what_is_no_exception_goes_through_and_loses_nothing() -> None:
    stand = Stand()

    def leave(message: Message) -> None:
        raise SystemExit

    stand.put(0)
    stand.put(1, sink=stand.make_sink(leave))
    stand.put(2)
    with pytest.raises(SystemExit):
        stand.event_buffer.call_back(-1)
    stand.balanced()
    assert stand.event_buffer.call_back(-1) == 1
    assert stand.got == [0, 2]


def test_a_closed_shelf_drops_and_counts() -> None:
    stand = Stand(2)
    stand.put(BOS, 0)
    stand.event_buffer.close()
    stand.event_buffer.close()
    stand.put(1, EOS)
    assert (len(stand.event_buffer), stand.event_buffer.dropped, stand.sink.dropped) == (0, 4, 4)
    assert not stand.event_buffer.is_full()
    assert stand.event_buffer.call_back(-1) == 0
    assert stand.event_buffer.waiting_by_kind() == {}
    stand.balanced()


def test_a_callback_may_close_the_shelf() -> None:
    stand = Stand()
    stand.put(0, 1, sink=stand.make_sink(lambda message: stand.event_buffer.close()))
    assert stand.event_buffer.call_back(-1) == 1
    stand.balanced()


def test_too_many_are_told_of_once_a_crossing() -> None:
    stand = Stand(size_warning=4)
    stand.put(*range(4))
    assert stand.notes.asked == []
    stand.put(4, 5, 6)
    assert stand.notes.asked == [("size_exceeded", 5)]
    for _ in range(4):  # down to 3, more than half of the limit
        stand.event_buffer.call_back(0)
    stand.put(7, 8)
    assert len(stand.notes.asked) == 1
    stand.event_buffer.call_back(-1)
    stand.put(*range(9))
    assert stand.notes.asked == [("size_exceeded", 5)] * 2


def test_what_waited_too_long_is_told_of_once() -> None:
    stand = Stand(delay_warning_ns=1)
    stand.put(0, 1, 2)
    stand.event_buffer.call_back(-1)
    assert stand.notes.asked == ["delay_exceeded"]


def test_times_are_measured_unless_they_are_not_wanted() -> None:
    stand = Stand()
    assert (stand.event_buffer.age(), stand.event_buffer.service()) == (None, None)
    stand.put(0, 1, 2)
    stand.event_buffer.call_back(-1)
    for spread in (stand.event_buffer.age(), stand.event_buffer.service()):
        assert spread is not None
        least, mean, most = spread
        assert 0 < least <= mean <= most
    quiet = Stand(times_age=False, times_service=False, counts=False)
    quiet.put(0)
    assert quiet.event_buffer.waiting_by_kind() == {}
    quiet.event_buffer.call_back(-1)
    assert (quiet.event_buffer.age(), quiet.event_buffer.service()) == (None, None)


def test_what_waits_is_counted_by_kind() -> None:
    stand = Stand(3, drops=True)
    stand.put(BOS, 0, 1, 2)
    assert stand.event_buffer.waiting_by_kind() == {BOS: 1, DATA: 3}
    stand.event_buffer.call_back(0)
    assert stand.event_buffer.waiting_by_kind() == {DATA: 3}


@pytest.mark.parametrize("close", [False, True])
def test_very_many_are_freed_without_recursion(close: bool) -> None:
    lasts: list[weakref.ref[Stand]] = []

    def work() -> None:
        stand = Stand(10**7)
        stand.put(*range(30_000))
        lasts.append(weakref.ref(stand))
        if close:
            stand.event_buffer.close()
        del stand
        gc.collect()

    # On a small stack, where recursion of that depth would end the process.
    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=work)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert lasts[0]() is None
