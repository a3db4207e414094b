"""Numbers that cannot be: what is known of the way here decides, and a mistake never silences a topic."""

from __future__ import annotations

import pytest

from tests.kit.cases import each_of
from tests.kit.datagrams import fragments, info
from tests.kit.desk import Desk, Seen, data, lost, whole


class Known:
    """What the test says of the way (delivery.slow_path.Upstream)."""

    def __init__(self, *, counts_messages: bool = True) -> None:
        self.end, self.lost, self.counts_messages, self.now_ns = 1 << 62, 0, counts_messages, 0

    def sequence_limit(self, number: int) -> int:
        """Of topic 1."""
        return self.end if number == 1 else 0

    def missed_messages(self) -> int:
        """As told."""
        return self.lost

    def newest_arrival_ns(self) -> int:
        """As told."""
        return self.now_ns


def desk_of(way: Known, *, count: int = 3, **rules: int) -> Desk:
    """A session whose first messages came."""
    desk = Desk(**rules)
    desk.demux.set_upstream(way)
    desk.feed(*map(whole, range(count)))
    return desk


def burst(first: int, last: int) -> list[Seen]:
    """A loss of very many."""
    return [("burst", first, last)]


def test_a_number_that_nothing_explains_is_skipped_and_the_next_message_goes_on() -> None:
    desk = desk_of(Known())
    assert desk.feed(whole(3 ^ 1 << 38)) == []
    assert desk.tally.malformed == 1
    assert desk.feed(whole(4)) == lost(3) + data(4)
    assert desk.feed(whole(5)) == data(5)


def test_as_many_numbers_as_were_lost_on_the_way_may_be_passed_over_once() -> None:
    way = Known()
    desk = desk_of(way)
    way.lost = 5
    assert desk.feed(whole(8)) == lost(3, 4, 5, 6, 7) + data(8)
    assert desk.feed(whole(10)) == []
    assert desk.tally.malformed == 1


def test_what_was_found_missing_long_before_it_is_read_explains_more_than_one_gap() -> None:
    way = Known(counts_messages=False)
    desk = desk_of(way)
    way.lost = 2
    assert desk.feed(whole(4)) == lost(3) + data(4)
    assert desk.feed(whole(6)) == lost(5) + data(6)
    assert desk.feed(whole(6 ^ 1 << 38)) == []


def test_a_number_that_the_next_message_bears_out_was_right() -> None:
    desk = desk_of(Known())
    assert desk.feed(whole(5000)) == []
    assert desk.feed(whole(5001)) == burst(3, 5000) + data(5001)
    assert desk.feed(whole(5002)) == data(5002)


def test_a_number_that_its_source_has_not_reached_is_never_believed() -> None:
    way = Known()
    way.end = 10
    desk = desk_of(way)
    way.lost = 1000
    assert desk.feed(whole(10), whole(11), whole(12)) == []
    assert desk.feed(whole(9)) == lost(3, 4, 5, 6, 7, 8) + data(9)


def test_the_first_number_may_be_any_that_there_is() -> None:
    desk = Desk(floor=None)
    desk.demux.set_upstream(Known())
    assert desk.feed(whole(7)) == data(7)


@each_of("infos", [1, 2])
@each_of("floor", [None, 7])
def test_so_it_may_after_sequence_number_info_that_came_first(floor: int | None, infos: int) -> None:
    """Who joins in the middle is told the number of the next message, and gets that message."""
    desk = Desk(floor=floor)
    desk.demux.set_upstream(Known())
    assert desk.feed(*[info(7)] * infos) == []
    assert desk.feed(whole(7), whole(8)) == data(7, 8)
    assert desk.feed(whole(8 ^ 1 << 38)) == []
    assert desk.tally.malformed == 1


@pytest.mark.parametrize("rest", [1, 2, 3, 4])
@pytest.mark.parametrize("known", [False, True], ids=["floor is not known", "floor is known"])
def test_so_may_that_after_the_rest_of_a_message_from_before(known: bool, rest: int) -> None:
    """Who joins in the middle of a message in fragments gets the next message."""
    desk = Desk(floor=8 - rest if known else None)
    desk.demux.set_upstream(Known())
    assert desk.feed(*fragments(3, bytes(50), 10)[-rest:]) == []
    assert desk.feed(whole(8), whole(9)) == data(8, 9)
    assert desk.tally.malformed == 0


def test_sequence_number_info_is_held_to_the_same() -> None:
    way = Known()
    desk = desk_of(way)
    assert desk.feed(info(3)) == []
    assert desk.feed(info(3 ^ 1 << 38)) == []
    assert desk.tally.malformed == 1
    assert desk.feed(whole(3), whole(4)) == data(3, 4)
    way.lost = 2
    assert desk.feed(info(7)) == lost(5, 6)


def test_sequence_number_info_is_believed_when_it_is_repeated() -> None:
    desk = desk_of(Known())
    assert desk.feed(info(5)) == []
    assert desk.feed(info(5)) == lost(3, 4)
    assert desk.feed(whole(5)) == data(5)


def test_a_message_that_went_to_another_topic_explains_one_that_is_missing() -> None:
    desk = desk_of(Known())
    desk.feed(whole(3, topic=2))
    assert desk.feed(whole(4)) == lost(3) + data(4)


def test_a_datagram_that_contradicts_itself_explains_what_may_have_been_in_it() -> None:
    desk = desk_of(Known())
    desk.demux.feed(bytes(16) * 4 + b"?", 0, 0)
    assert desk.feed(whole(7)) == lost(3, 4, 5, 6) + data(7)


def test_a_gap_is_missing_since_it_was_found_though_nobody_told_the_time_since_long_ago() -> None:
    way = Known(counts_messages=False)
    desk = desk_of(way, recovery_ns=100)
    way.lost, way.now_ns = 1, 1000
    assert desk.feed(whole(4)) == []
    assert desk.check(1050) == []
    assert desk.feed(whole(3)) == data(3, 4)
