"""Order and loss of messages in one piece, rule by rule, in virtual time."""

from __future__ import annotations

import pytest

from ipcbus.delivery.reassembly_budget import ReassemblyBudget
from ipcbus.delivery.sink import Sink
from tests.kit.datagrams import Item, fragments, info
from tests.kit.desk import Desk, data, lost, whole

MODES = [1, -1, 0]
UNORDERED = [-1, 0]
LONG = 1000


@pytest.fixture(params=MODES)
def ordered(request: pytest.FixtureRequest) -> int:
    """Option ordered_delivery."""
    return int(request.param)


# Order.


def test_in_order_what_comes_behind_a_gap_waits_for_it() -> None:
    desk = Desk(recovery_ns=LONG)
    assert desk.feed(whole(0), whole(2), whole(3)) == data(0)
    assert desk.feed(whole(5)) == []
    assert desk.feed(whole(1)) == data(1, 2, 3)
    assert desk.feed(whole(4)) == data(4, 5)
    assert desk.topic.fast_path
    assert desk.budget.entries == 0


@pytest.mark.parametrize("ordered", UNORDERED)
def test_as_it_arrives_nothing_waits(ordered: int) -> None:
    desk = Desk(ordered=ordered, recovery_ns=LONG)
    assert desk.feed(whole(0), whole(2)) == data(0, 2)
    assert desk.feed(whole(5), whole(4), whole(1)) == data(5, 4, 1)
    assert desk.budget.entries == 1
    assert desk.feed(whole(3)) == data(3)
    assert desk.topic.fast_path


def test_what_has_come_is_not_given_again(ordered: int) -> None:
    desk = Desk(ordered=ordered, recovery_ns=LONG)
    desk.feed(whole(0), whole(2))
    assert desk.feed(whole(0), whole(2)) == []
    assert desk.tally.duplicates == 2
    desk.feed(whole(1))
    assert desk.feed(whole(0), whole(1), whole(2)) == []
    assert desk.tally.duplicates == 5
    assert desk.demux.messages == 3


def test_send_times_and_flags_survive_the_order_map() -> None:
    desk = Desk(recovery_ns=LONG)
    desk.feed(Item(1, 1, b"later", flags=0x3))
    desk.feed(whole(0))
    assert [message.flags for message in desk.messages[-2:]] == [0, 0x3]
    assert desk.messages[-1].send_time_ns > 0


# Loss.


def test_a_gap_is_given_up_when_its_time_is_over_and_not_before(ordered: int) -> None:
    desk = Desk(ordered=ordered, recovery_ns=100, loss_check_ns=1)
    desk.feed(whole(0))
    behind = desk.feed(whole(3), after=50)
    assert desk.check(after=99) == []
    given = desk.check(after=1)
    assert behind + given == (lost(1, 2) + data(3) if ordered == 1 else data(3) + lost(1, 2))
    assert desk.demux.lost == 2


def test_what_arrives_shows_the_time_too(ordered: int) -> None:
    desk = Desk(ordered=ordered, recovery_ns=100, loss_check_ns=0)
    desk.feed(whole(0), whole(2))
    assert desk.check(after=500) == []
    assert [each for each in desk.feed(whole(3)) if each[0] == "lost"] == lost(1)


def test_after_a_pause_a_gap_is_given_up_when_all_has_been_read(ordered: int) -> None:
    """The loss check is overdue: the repair of the first gap may wait behind the message that opens the second one."""
    desk = Desk(ordered=ordered, recovery_ns=100, loss_check_ns=10)
    desk.feed(whole(0), whole(2))
    desk.check()
    given = desk.feed(whole(4), whole(1), after=500)
    assert not [each for each in given if each[0] == "lost"]
    assert {each for each in given + desk.seen} >= set(data(1, 2))
    assert desk.check(after=99) == []
    assert [each for each in desk.check(after=11) if each[0] == "lost"] == lost(3)


def test_without_recovery_a_loss_is_told_before_the_message_behind_it(ordered: int) -> None:
    desk = Desk(ordered=ordered)
    assert desk.feed(whole(0), whole(3), whole(4)) == data(0) + lost(1, 2) + data(3, 4)


def test_what_comes_after_it_was_given_up_is_a_duplicate(ordered: int) -> None:
    desk = Desk(ordered=ordered)
    desk.feed(whole(0), whole(2))
    assert desk.feed(whole(1)) == []
    assert desk.tally.duplicates == 1
    assert desk.demux.messages == 2


def test_each_gap_has_its_own_time() -> None:
    desk = Desk(recovery_ns=100)
    desk.feed(whole(0), whole(2))
    desk.feed(whole(4), after=60)
    assert desk.feed(whole(5), after=40) == lost(1) + data(2)
    assert desk.feed(whole(6), after=59) == []
    assert desk.feed(whole(7), after=1) == lost(3) + data(4, 5, 6, 7)


def test_part_of_a_gap_that_came_is_not_lost() -> None:
    desk = Desk(recovery_ns=100)
    desk.feed(whole(0), whole(6))
    desk.feed(whole(3))
    assert desk.feed(info(7), after=100) == lost(1, 2) + data(3) + lost(4, 5) + data(6)


# Bursts.


def test_a_gap_as_long_as_the_maximum_is_no_burst(ordered: int) -> None:
    desk = Desk(ordered=ordered, burst_loss=3, recovery_ns=LONG)
    desk.feed(whole(0), whole(4))
    assert [each for each in desk.feed(whole(5), after=LONG) if each[0] != "data"] == lost(1, 2, 3)
    assert desk.feed(whole(9))[-1:] == ([] if ordered == 1 else data(9))


def test_a_longer_one_is_one_event(ordered: int) -> None:
    desk = Desk(ordered=ordered, burst_loss=3)
    assert desk.feed(whole(0), whole(5)) == [*data(0), ("burst", 1, 4), *data(5)]
    assert desk.demux.lost == 4


def test_a_burst_that_the_transport_brings_in_time_is_none(ordered: int) -> None:
    desk = Desk(ordered=ordered, burst_loss=3, recovery_ns=100)
    got = desk.feed(whole(0), whole(5))
    got += desk.feed(*(whole(number) for number in (1, 2, 3, 4)), after=50)
    assert sorted(got) == data(0, 1, 2, 3, 4, 5)


def test_a_burst_throws_nothing_away_that_is_buffered() -> None:
    desk = Desk(burst_loss=3, recovery_ns=100)
    desk.feed(whole(0), whole(2))
    # The burst waits behind the gap before it, or order would be broken.
    assert desk.feed(whole(9), after=50) == []
    assert desk.feed(whole(1)) == data(1, 2)
    assert desk.feed(after=100) == []
    assert desk.feed(info(10)) == [("burst", 3, 8), *data(9)]


def test_a_burst_may_be_as_long_as_numbers_reach(ordered: int) -> None:
    desk = Desk(ordered=ordered)
    last = 2**62 - 1
    assert desk.feed(whole(0), whole(last, b"x")) == [*data(0), ("burst", 1, last - 1), ("data", last, last, b"x")]
    assert desk.feed(whole(last, b"x"), Item(1, 2**63, b"beyond")) == []
    assert (desk.tally.duplicates, desk.tally.malformed) == (1, 1)


# The beginning.


def test_with_a_floor_the_first_messages_are_missed(ordered: int) -> None:
    desk = Desk(ordered=ordered, floor=3)
    assert desk.feed(whole(5)) == lost(3, 4) + data(5)


def test_what_came_from_below_the_floor_is_the_beginning() -> None:
    desk = Desk(floor=3)
    assert desk.feed(whole(1), whole(2), whole(3)) == data(1, 2, 3)


def test_without_a_floor_leading_loss_is_silent(ordered: int) -> None:
    desk = Desk(ordered=ordered, floor=None, recovery_ns=LONG)
    assert desk.feed(info(5)) == []
    assert not desk.topic.misses_below(5)
    assert desk.feed(whole(7)) == data(7)
    assert desk.feed(whole(6)) == []
    assert desk.end(7) == [("EOS",)]
    assert desk.tally.duplicates == 1


# What tells of numbers.


def test_tsni_reveals_what_is_lost_at_the_end(ordered: int) -> None:
    desk = Desk(ordered=ordered, recovery_ns=100, loss_check_ns=1)
    desk.feed(whole(0))
    assert desk.feed(info(3)) == []
    assert desk.feed(whole(1), after=50) == data(1)
    assert desk.check(after=49) == []
    assert desk.check(after=1) == lost(2)
    assert desk.feed(info(3)) == []
    assert desk.demux.messages == 2


def test_tsni_before_anything_counts_from_the_floor(ordered: int) -> None:
    desk = Desk(ordered=ordered, floor=2)
    assert desk.feed(info(2)) == []
    assert desk.feed(info(4)) == lost(2, 3)
    assert desk.feed(whole(4)) == data(4)


def test_tsni_from_long_ago_tells_nothing(ordered: int) -> None:
    desk = Desk(ordered=ordered)
    desk.feed(whole(0), whole(1), whole(2))
    assert desk.feed(info(0), info(1), info(3)) == []
    assert desk.topic.expected == 3


def test_tsni_of_numbers_that_there_are_not_is_malformed() -> None:
    desk = Desk()
    assert desk.feed(info(2**62), info(2**64 - 1)) == []
    assert desk.tally.malformed == 2
    assert not desk.topic.misses_below(2**62)


def test_told_of_is_as_tsni(ordered: int) -> None:
    desk = Desk(ordered=ordered)
    desk.feed(whole(0))
    assert desk.topic.misses_below(2)
    desk.topic.note_next_sequence(2, 0)
    assert desk.seen[1:] == [*data(0), *lost(1)]
    assert not desk.topic.misses_below(2)


# Bounds.


@pytest.mark.parametrize("caching", [1, 3])
def test_more_waiting_than_the_threshold_gives_the_first_gap_up(caching: int) -> None:
    desk = Desk(caching=caching, recovery_ns=LONG)
    waiting = range(2, 2 + caching)
    assert desk.feed(whole(0), *map(whole, waiting)) == data(0)
    upcoming = 2 + caching
    assert desk.feed(whole(upcoming)) == lost(1) + data(*waiting, upcoming)


def test_only_the_gaps_in_the_way_are_given_up() -> None:
    desk = Desk(caching=2, recovery_ns=LONG)
    desk.feed(whole(0), whole(2), whole(4))
    assert desk.feed(whole(6)) == lost(1) + data(2)
    assert desk.feed(whole(3)) == data(3, 4)


def test_a_threshold_of_0_is_none() -> None:
    desk = Desk(caching=0, recovery_ns=LONG)
    assert desk.feed(whole(0), *(whole(number) for number in range(2, 500))) == data(0)


def test_the_bound_of_a_context_is_kept_by_all_topics_together() -> None:
    desk = Desk(budget=ReassemblyBudget(entries_max=4), recovery_ns=LONG)
    desk.receive(2, Sink(desk.note, 1))
    assert desk.feed(whole(1), whole(1, topic=2)) == []
    assert desk.budget.entries == 4
    assert desk.feed(whole(2)) == lost(0) + data(1, 2)
    assert desk.budget.entries == 2
    assert desk.feed(whole(3, topic=2)) == []
    assert desk.feed(whole(4, topic=2)) == lost(0) + data(1)
    assert desk.budget.entries == 3


def test_over_the_bound_the_oldest_gap_of_the_context_goes_not_that_of_the_topic_that_came_last() -> None:
    desk = Desk(budget=ReassemblyBudget(entries_max=5), recovery_ns=LONG)
    desk.receive(2, Sink(desk.note, 1))
    assert desk.feed(whole(1, topic=2), whole(1), whole(2)) == []  # topic 2 has the older gap, topic 1 holds more
    assert desk.budget.entries == 5
    assert desk.feed(whole(3)) == lost(0) + data(1)  # of topic 2
    assert [message.topic for message in desk.messages[-2:]] == ["topic 2", "topic 2"]
    assert desk.budget.entries == desk.tally.order_map_entries == 4
    assert desk.feed(whole(5, topic=2)) == lost(0) + data(1, 2, 3)  # the gap 2..4 of topic 2 is younger
    assert {message.topic for message in desk.messages[-4:]} == {"topic 1"}


def test_the_oldest_gap_may_be_one_that_a_topic_has_filled_in_part() -> None:
    desk = Desk(budget=ReassemblyBudget(entries_max=4), recovery_ns=LONG)
    desk.receive(2, Sink(desk.note, 1))
    desk.feed(whole(2), whole(1, topic=2))
    assert desk.feed(whole(0)) == data(0)  # of the gap 0..1 the rest is as old as all of it
    assert desk.feed(whole(2, topic=2)) == lost(1) + data(2)
    assert desk.budget.entries == 3


def test_a_topic_without_gaps_is_passed_over_and_one_that_is_received_no_more_too() -> None:
    desk = Desk(budget=ReassemblyBudget(entries_max=4), recovery_ns=LONG)
    desk.receive(2, Sink(desk.note, 1))
    desk.receive(3, Sink(desk.note, 1))
    desk.feed(whole(1), whole(0))  # its gap is filled
    desk.feed(whole(1, topic=3))
    desk.session.remove_topic(3)
    desk.feed(whole(1, topic=2), whole(2, topic=2), whole(3, topic=2))
    assert desk.budget.entries == 4
    assert desk.feed(whole(3)) == lost(0) + data(1, 2, 3)  # of topic 2
    assert {message.topic for message in desk.messages[-4:]} == {"topic 2"}


@pytest.mark.parametrize("ordered", UNORDERED)
def test_gaps_alone_count_against_the_bound(ordered: int) -> None:
    desk = Desk(ordered=ordered, budget=ReassemblyBudget(entries_max=2), recovery_ns=LONG)
    assert desk.feed(whole(1), whole(3), whole(5)) == data(1, 3) + lost(0) + data(5)
    assert desk.budget.entries == desk.tally.order_map_entries == 2


# The end.


def test_the_end_tells_every_loss_and_gives_what_waits(ordered: int) -> None:
    desk = Desk(ordered=ordered, recovery_ns=LONG)
    before = desk.feed(whole(0), whole(2), whole(5))
    ending = desk.end(7)
    rest = [*lost(1), *data(2), *lost(3, 4), *data(5), *lost(6)]
    missed = [*lost(1), *lost(3, 4), *lost(6)]
    assert before + ending == [*data(0), *(rest if ordered == 1 else data(2, 5) + missed), ("EOS",)]
    assert desk.budget.entries == 0


def test_an_end_of_which_the_number_is_not_known_tells_what_was_noticed(ordered: int) -> None:
    desk = Desk(ordered=ordered, recovery_ns=LONG)
    desk.feed(whole(1))
    assert [each for each in desk.end() if each[0] != "data"] == [*lost(0), ("EOS",)]


@pytest.mark.parametrize("upcoming", [2**62, 2**64 - 1])
def test_an_end_at_numbers_that_there_are_not_is_none(upcoming: int) -> None:
    desk = Desk()
    desk.feed(whole(0))
    assert desk.end(upcoming) == [("EOS",)]


def test_forgotten_it_gives_back_what_it_held(ordered: int) -> None:
    desk = Desk(ordered=ordered, recovery_ns=LONG)
    controller = desk.topic
    desk.feed(whole(0), whole(2), *fragments(10, bytes(30), 8)[:2])
    assert desk.budget.entries > 0
    desk.session.remove_topic(1)
    assert (desk.budget.entries, desk.budget.bytes) == (0, 0)
    assert (desk.tally.order_map_entries, desk.tally.reassembly_bytes) == (0, 0)
    assert desk.feed(whole(1)) == []
    assert desk.demux.no_topic == 1
    controller.forget()
    assert desk.budget.entries == 0


def test_what_the_transport_knows_not_to_come_is_lost_at_once() -> None:
    desk = Desk(recovery_ns=LONG)
    assert desk.feed(whole(0), whole(2), whole(4)) == data(0)
    desk.session.settle([(desk.topic, 3)], 1)
    assert desk.seen[-2:] == [*lost(1), *data(2)]
    desk.session.settle([(desk.topic, desk.topic.shown_below)], 1)
    assert desk.seen[-2:] == [*lost(3), *data(4)]


def test_numbers_that_the_source_says_beside_its_datagrams_are_not_shown_by_datagrams() -> None:
    desk = Desk(recovery_ns=LONG)
    desk.feed(whole(0), whole(2))
    desk.topic.note_next_sequence(6, 0)  # 3 to 5 may still be on their way
    assert desk.topic.shown_below == 3
    desk.session.settle([(desk.topic, desk.topic.shown_below)], 1)
    assert desk.seen[-2:] == [*lost(1), *data(2)]
    assert desk.feed(whole(3), whole(4), whole(5)) == data(3, 4, 5)
    desk.feed(info(8))
    assert desk.topic.shown_below == 8


def test_while_datagrams_are_on_their_way_nothing_is_lost_for_its_age() -> None:
    desk = Desk(recovery_ns=LONG)
    desk.feed(whole(0), whole(2))
    desk.topic.put_off(LONG + 100)
    desk.session.topics()[0].check(LONG + 99)
    assert desk.seen[-1:] == data(0)
    desk.session.topics()[0].check(LONG + 100)
    assert desk.seen[-3:] == [*data(0), *lost(1), *data(2)]
