"""A controller leaves off when its stay in the session ends, and that of the next stay goes on there."""

from __future__ import annotations

import pytest

from ipcbus.delivery.retransmitted_feed import RetransmittedFeed
from tests.kit.datagrams import Item, fragments
from tests.kit.desk import Desk, Seen, data, lost, whole
from tests.kit.retaining import entry

BOTH = pytest.mark.parametrize("ordered", [1, -1])


def stay(ordered: int = 1, *, floor: int = 0) -> Desk:
    """A stay whose gaps a recovery fills."""
    desk = Desk(floor=floor, ordered=ordered)
    desk.topic.recovers = True
    return desk


def next_stay(before: Desk, *, floor: int, ordered: int = 1, recovers: bool = True) -> Desk:
    """The stay that goes on where another one stopped; the source's next number is `floor`."""
    left_off = before.topic.leave_off()
    assert left_off is not None
    desk = Desk(floor=floor, ordered=ordered)
    desk.topic.go_on(left_off)
    desk.topic.recovers = recovers
    if not left_off.resumes:
        desk.topic.begin_late_join(0)
    desk.topic.miss_again(left_off)
    assert before.end(0) in ([("EOS",)], [])
    return desk


def again(desk: Desk, *items: Item) -> list[Seen]:
    """The source sends messages again; returns what that gave."""
    before = len(desk.seen)
    feed = RetransmittedFeed(desk.demux, desk.topic)
    entries = b"".join(entry(item.sequence, item.payload, item.flags) for item in items)
    feed.begin(items[0].sequence, items[-1].sequence, entries, desk.topic.recovery_flag)
    assert feed.run(desk.now_ns)
    return [each for each in desk.seen[before:] if each[0] != "BOS"]


def missing(desk: Desk) -> list[tuple[int, int]]:
    """What the recovery has to bring."""
    return list(desk.topic.missing())


@BOTH
def test_what_is_published_between_the_stays_is_missing_in_the_next_one(ordered: int) -> None:
    first = stay(ordered)
    assert first.feed(whole(0), whole(1)) == data(0, 1)
    second = next_stay(first, floor=5, ordered=ordered)
    assert missing(second) == []
    second.topic.note_next_sequence(5, 0)
    assert missing(second) == [(2, 4)]
    assert again(second, whole(2), whole(3), whole(4)) == data(2, 3, 4)
    assert second.feed(whole(5)) == data(5)
    assert second.topic.settled


def test_in_order_what_waited_is_missing_again() -> None:
    first = stay()
    assert first.feed(whole(0), whole(3), whole(4)) == data(0)
    second = next_stay(first, floor=9)
    assert missing(second) == [(1, 4)]
    assert second.feed(whole(5)) == []
    assert again(second, *(whole(number) for number in range(1, 5))) == data(1, 2, 3, 4, 5)


def test_not_in_order_only_what_did_not_come_is_missing() -> None:
    first = stay(-1)
    assert first.feed(whole(0), whole(3), whole(6)) == data(0, 3, 6)
    second = next_stay(first, floor=9, ordered=-1)
    assert missing(second) == [(1, 2), (4, 5)]
    third = next_stay(second, floor=9, ordered=-1)  # evicted again before anything came
    assert missing(third) == [(1, 2), (4, 5)]
    assert third.feed(whole(7)) == data(7)
    assert again(third, whole(1), whole(2), whole(4), whole(5)) == data(1, 2, 4, 5)
    assert third.topic.settled


@BOTH
def test_a_message_that_came_in_part_is_missing_as_a_whole(ordered: int) -> None:
    first, pieces = stay(ordered), fragments(1, b"abcdefgh", 4)
    assert first.feed(whole(0), pieces[0]) == data(0)
    second = next_stay(first, floor=3, ordered=ordered)
    assert missing(second) == [(1, 1)]
    assert again(second, pieces[0]) == []
    assert [each[:3] for each in second.feed(pieces[1])] == [("data", 1, 2)]
    assert second.topic.settled


@BOTH
def test_without_recovery_in_the_next_stay_it_is_reported_lost(ordered: int) -> None:
    first = stay(ordered)
    first.feed(whole(0), whole(3))
    second = next_stay(first, floor=4, ordered=ordered, recovers=False)
    expected = lost(1, 2) if ordered == -1 else lost(1, 2, 3)
    assert second.check(1) == expected


def test_a_late_join_without_promise_begins_again_at_the_same_number() -> None:
    first = stay(floor=5)
    first.topic.begin_late_join(0)
    assert first.feed(whole(5), whole(6)) == []
    second = next_stay(first, floor=9)
    assert not second.topic.is_promised
    assert second.topic.live_floor == 5
    second.topic.promise(3, 9, 0)
    assert missing(second) == [(3, 6)]
    assert again(second, *(whole(number) for number in range(3, 7))) == data(3, 4, 5, 6)
    assert {message.flags for message in second.messages if message.sequence_number >= 0} == {8}


def test_a_late_join_without_promise_gives_nothing_twice_in_order_of_arrival() -> None:
    first = stay(-1, floor=5)
    first.topic.begin_late_join(0)
    assert first.feed(whole(6)) == data(6)
    second = next_stay(first, floor=7, ordered=-1)
    second.topic.promise(4, 7, 0)
    assert missing(second) == [(4, 5)]


def test_what_came_from_below_the_first_live_number_is_not_given_twice_in_order_of_arrival() -> None:
    first = stay(-1, floor=5)
    first.topic.begin_late_join(0)
    assert first.feed(whole(3), whole(5)) == data(3, 5)  # 3 was on its way when the receivers joined
    second = next_stay(first, floor=7, ordered=-1)
    second.topic.promise(2, 7, 0)
    assert missing(second) == [(2, 2), (4, 4)]


def test_in_order_a_late_join_goes_on_behind_what_was_delivered_without_promise() -> None:
    first = stay(floor=1)
    first.topic.begin_late_join(0)
    assert first.feed(whole(0), whole(1)) == data(0, 1)  # 0 was on its way when the receivers joined
    second = next_stay(first, floor=4)
    assert missing(second) == []
    second.topic.note_next_sequence(4, 0)
    third = next_stay(second, floor=5)
    assert missing(third) == [(2, 3)]
    assert again(third, whole(2), whole(3)) == data(2, 3)


@BOTH
def test_a_history_given_up_without_promise_is_not_reported_lost_twice(ordered: int) -> None:
    first = stay(ordered, floor=3)
    first.topic.begin_late_join(0)
    first.topic.give_up_oldest()
    assert first.seen[-3:] == lost(0, 1, 2)
    second = next_stay(first, floor=3, ordered=ordered)
    assert second.feed(whole(3)) == data(3)
    assert second.topic.settled
    assert missing(second) == []


def test_what_came_without_promise_is_not_reported_lost_when_the_next_stay_begins() -> None:
    first = stay(-1, floor=5)
    first.topic.begin_late_join(0)
    assert first.feed(whole(3)) == data(3)
    left_off = first.topic.leave_off()
    assert left_off is not None
    second = Desk(floor=7, ordered=-1)
    second.topic.go_on(left_off)
    second.topic.begin_late_join(0)
    second.topic.give_up_oldest()  # too much waits in another topic
    second.topic.miss_again(left_off)
    assert second.seen[-3:] == lost(0, 1, 2)
    assert missing(second) == [(4, 4)]


def test_a_late_join_with_promise_goes_on_as_off_transport_recovery() -> None:
    first = stay(floor=5)
    first.topic.begin_late_join(0)
    first.topic.promise(2, 5, 0)
    assert again(first, whole(2)) == data(2)
    second = next_stay(first, floor=5)
    assert missing(second) == [(3, 4)]
    assert again(second, whole(3), whole(4)) == data(3, 4)
    assert {message.flags for message in second.messages if message.sequence_number >= 0} == {0x2000}


def test_a_stay_that_does_not_know_its_first_number_leaves_nothing_off() -> None:
    assert Desk(floor=None).topic.leave_off() is None


@BOTH
def test_an_own_history_without_promise_still_waits_for_all_below_its_first_live_message(ordered: int) -> None:
    first = Desk(floor=None, ordered=ordered)
    first.topic.begin_history(5, 0)
    first.topic.note_next_sequence(7, 0)  # the others lost 4 to 6, so the first live message is 7
    left_off = first.topic.leave_off()
    assert left_off is not None
    second = Desk(floor=None, ordered=ordered)
    second.topic.go_on_with_history(left_off, 0, 0)
    assert second.topic.live_floor == 5
    second.topic.promise(3, 7, 0)
    assert missing(second) == [(3, 6)]
