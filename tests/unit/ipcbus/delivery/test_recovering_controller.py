"""Late join and recovery in the delivery controller, rule by rule, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ipcbus import MessageFlag
from ipcbus.delivery.delivery_rules import DeliveryRules
from ipcbus.delivery.reassembly_budget import ReassemblyBudget
from ipcbus.delivery.recovering_controller import RecoveringController
from ipcbus.delivery.retransmitted_feed import RetransmittedFeed
from tests.kit.cases import each_of
from tests.kit.datagrams import Item, fragments, info
from tests.kit.desk import Desk, Seen, data, lost, whole
from tests.kit.retaining import entry

if TYPE_CHECKING:
    from ipcbus import Message

UNORDERED = [-1, 0]


class LateDesk(Desk):
    """A desk whose topic 1 joins late."""

    def __init__(self, *, floor: int | None = 0, budget: ReassemblyBudget | None = None, **rules: int) -> None:
        super().__init__(floor=floor, budget=budget, **rules)
        self.topic.begin_late_join(0)
        self.given = RetransmittedFeed(self.demux, self.topic)

    def promise(self, first: int, next_sequence: int) -> list[Seen]:
        """The source says what it keeps; returns what that gave."""
        before = len(self.seen)
        self.topic.promise(first, next_sequence, self.now_ns)
        return self._since(before)

    def again(self, first: int, last: int, *items: Item) -> list[Seen]:
        """The source sends messages again; returns what that gave."""
        before = len(self.seen)
        entries = b"".join(entry(item.sequence, item.payload, item.flags) for item in items)
        self.given.begin(first, last, entries, self.topic.recovery_flag)
        assert self.given.run(self.now_ns)
        return self._since(before)

    def numbers(self, first: int, last: int) -> list[Seen]:
        """The source sends all messages of a range again."""
        return self.again(first, last, *(whole(number) for number in range(first, last + 1)))

    @property
    def missing(self) -> list[tuple[int, int]]:
        """What a recovery has to bring."""
        return list(self.topic.missing())


def test_history_comes_before_what_is_live() -> None:
    desk = LateDesk(floor=5)
    assert desk.feed(whole(5), whole(6)) == []
    assert not desk.topic.is_promised
    assert desk.promise(2, 7) == []
    assert desk.missing == [(2, 4)]
    assert desk.numbers(2, 3) == data(2, 3)
    assert desk.feed(whole(7)) == []
    assert desk.numbers(4, 4) == data(4, 5, 6, 7)
    assert desk.topic.fast_path
    assert not desk.topic.recovering
    flags = {message.sequence_number: message.flags for message in desk.messages if message.sequence_number >= 0}
    assert flags == {2: 8, 3: 8, 4: 8, 5: 0, 6: 0, 7: 0}
    assert desk.feed(whole(8)) == data(8)
    assert desk.end(9) == [("EOS",)]


@pytest.mark.parametrize("ordered", UNORDERED)
def test_not_in_order_live_messages_do_not_wait(ordered: int) -> None:
    desk = LateDesk(floor=5, ordered=ordered)
    assert desk.feed(whole(5)) == data(5)
    assert desk.topic.fast_path
    assert not desk.topic.settled
    assert desk.promise(2, 6) == []
    assert desk.numbers(2, 3) == data(2, 3)
    assert desk.feed(whole(6)) == data(6)
    assert desk.numbers(3, 4) == data(4)
    assert desk.topic.settled


def test_what_was_gone_before_the_promise_is_not_lost_and_what_leaves_later_is() -> None:
    desk = LateDesk(floor=9)
    desk.promise(3, 9)
    assert desk.again(3, 6, whole(5), whole(6)) == lost(3, 4) + data(5, 6)
    assert desk.again(7, 8) == lost(7, 8)
    assert desk.feed(whole(9)) == data(9)
    assert desk.demux.lost == 4


def test_what_is_gone_is_reported_in_order() -> None:
    desk = LateDesk(floor=9)
    desk.promise(5, 9)
    assert desk.again(7, 8, whole(8)) == []
    assert desk.again(5, 6, whole(5)) == data(5) + lost(6, 7) + data(8)


def test_without_a_promise_nothing_is_lost() -> None:
    desk = LateDesk(floor=5)
    desk.feed(whole(5))
    assert desk.end(7) == data(5) + lost(6) + [("EOS",)]
    desk = LateDesk(floor=5)
    desk.feed(whole(5))
    before = len(desk.seen)
    desk.topic.end_recovery(9)
    assert desk._since(before) == data(5)
    assert desk.feed(whole(6)) == data(6)


def test_without_history_live_messages_go_on() -> None:
    desk = LateDesk(floor=5)
    desk.feed(whole(5))
    assert desk.promise(6, 6) == data(5)
    assert desk.feed(whole(6)) == data(6)
    assert LateDesk(floor=0).feed(whole(0)) == data(0)


def test_without_history_fragments_from_before_are_not_lost() -> None:
    desk = LateDesk(floor=5)
    desk.promise(5, 5)
    old = fragments(3, b"abcdefgh", 2)
    assert desk.feed(old[2], old[3], whole(7)) == data(7)


@each_of("ordered", [1, -1])
@each_of("first", [1, 2])
def test_the_rest_of_a_message_before_the_history_is_neither_lost_nor_waited_for(ordered: int, first: int) -> None:
    """Over UDP, datagrams from before the join may still come, and begin below the history that was asked for."""
    desk = LateDesk(floor=9, ordered=ordered)
    old = fragments(3, b"abcdefgh", 2)
    live = [whole(number) for number in range(7, 10)]
    seen = desk.feed(*old[first:], *live)
    seen += desk.promise(8, 10)
    assert seen == data(7, 8, 9)
    assert desk.topic.settled
    assert desk.topic.is_settled_below(10)
    assert desk.tally.reassembly_bytes == 0
    assert desk.end(10) == [("EOS",)]


@pytest.mark.parametrize("ordered", [1, -1])
def test_the_rest_of_a_message_before_the_history_may_come_after_the_promise(ordered: int) -> None:
    desk = LateDesk(floor=9, ordered=ordered)
    old = fragments(3, b"abcdefgh", 2)
    seen = desk.feed(old[1]) + desk.promise(8, 10) + desk.feed(old[2]) + desk.feed(whole(9), old[3])
    seen += desk.numbers(7, 8)
    assert sorted(seen, key=str) == data(7, 8, 9)
    assert desk.topic.settled
    assert desk.end(10) == [("EOS",)]


@pytest.mark.parametrize("ordered", [1, -1])
def test_messages_that_took_the_numbers_of_a_message_that_was_given_up_are_delivered(ordered: int) -> None:
    desk = LateDesk(floor=9, ordered=ordered)
    old = fragments(3, b"abcdefgh", 2)  # its source has given it up after number 4
    seen = desk.feed(old[1], whole(5), whole(6), whole(8)) + desk.promise(4, 9) + desk.numbers(7, 7)
    # Not in order, the message was given up before it was known that nobody wanted it.
    assert sorted(seen, key=str) == data(5, 6, 7, 8) + lost(4) * (ordered == -1)
    assert desk.topic.settled
    assert desk.end(9) == [("EOS",)]


@pytest.mark.parametrize("ordered", [1, -1])
def test_a_message_that_the_history_has_from_its_beginning_is_completed(ordered: int) -> None:
    desk = LateDesk(floor=9, ordered=ordered)
    old = fragments(3, b"abcdefgh", 2)
    seen = desk.feed(*old[2:], whole(7), whole(8)) + desk.promise(3, 9) + desk.again(3, 4, *old[:2])
    assert sorted(seen, key=str) == [("data", 3, 6, b"abcdefgh"), *data(7, 8)]
    assert desk.topic.settled


def test_where_the_floor_is_unknown_the_first_message_ends_the_history() -> None:
    desk = LateDesk(floor=None)
    assert desk.feed(whole(4)) == []
    desk.promise(1, 6)
    assert desk.missing == [(1, 3)]
    assert desk.numbers(1, 3) == data(1, 2, 3, 4)
    assert desk.feed(whole(5)) == data(5)


def test_where_nothing_came_the_promise_tells_what_was_sent() -> None:
    desk = LateDesk(floor=None)
    desk.promise(1, 4)
    assert desk.missing == [(1, 3)]
    assert desk.numbers(1, 3) == data(1, 2, 3)
    desk = LateDesk(floor=None)
    desk.topic.set_floor(3)
    desk.promise(1, 4)
    assert desk.missing == [(1, 2)]


def test_far_behind_live_messages_are_skipped_and_asked_for() -> None:
    desk = LateDesk(floor=100, proximity=10)
    desk.promise(0, 100)
    assert desk.topic.skips_live
    assert desk.feed(*(whole(number) for number in range(100, 120))) == []
    assert desk.missing == [(0, 119)]
    assert desk.demux.messages == 0
    desk.feed(info(125))
    assert desk.missing == [(0, 124)]
    assert len(desk.numbers(0, 114)) == 115
    assert bool(desk.topic.skips_live) is False
    assert desk.feed(whole(125)) == []
    assert desk.numbers(115, 124) == data(*range(115, 126))
    assert desk.topic.fast_path
    assert desk.demux.messages == 126
    assert desk.budget.entries == 0


def test_a_number_that_cannot_be_is_not_skipped_to() -> None:
    desk = LateDesk(floor=100, proximity=10)
    desk.promise(0, 100)
    assert desk.feed(Item(1, 1 << 62, b"x")) == []
    assert (desk.topic.expected, desk.tally.malformed) == (100, 1)


def test_too_many_that_wait_are_skipped() -> None:
    desk = LateDesk(floor=5, waiting_max=3)
    desk.promise(0, 5)
    desk.feed(*(whole(number) for number in range(5, 12)))
    assert desk.missing == [(0, 4), (9, 11)]
    assert desk.numbers(0, 4) == data(*range(9))
    assert desk.numbers(9, 11) == data(9, 10, 11)
    assert desk.feed(whole(12)) == data(12)


def test_what_waits_makes_room_for_other_topics() -> None:
    desk = LateDesk(floor=5, budget=ReassemblyBudget(4))
    desk.promise(0, 5)
    desk.feed(*(whole(number) for number in range(5, 12)))
    assert desk.topic.relieved == 1
    assert desk.budget.entries <= 4
    assert desk.numbers(0, 11) == data(*range(12))


def test_what_waits_comes_before_what_is_sent_again_behind_it() -> None:
    desk = LateDesk(floor=9, waiting_max=2)
    desk.promise(0, 9)
    desk.feed(*(whole(number) for number in range(9, 14)))
    assert desk.missing == [(0, 8), (12, 13)]
    assert desk.numbers(0, 13) == data(*range(14))


def test_a_lost_message_is_recovered() -> None:
    desk = LateDesk(floor=0)
    desk.topic.recovers = True
    noted: list[tuple[int, int, int]] = []
    desk.topic.on_missing = lambda first, last, now_ns: noted.append((first, last, now_ns))
    desk.promise(0, 0)
    assert desk.feed(whole(0), whole(3), after=50) == data(0)
    assert noted == [(1, 2, 50)]
    assert desk.feed(after=10**12) == []
    assert desk.numbers(1, 2) == data(1, 2, 3)
    assert [message.flags for message in desk.messages[-3:]] == [MessageFlag.OTR, MessageFlag.OTR, 0]
    desk.feed(whole(6))
    before = len(desk.seen)
    desk.topic.end_recovery(desk.now_ns)
    assert desk._since(before) == lost(4, 5) + data(6)


def test_fragments_and_headers_are_recovered() -> None:
    desk = LateDesk(floor=9)
    desk.promise(0, 9)
    pieces = fragments(1, b"abcdefgh", 3)
    assert desk.again(0, 2, whole(0), pieces[0], pieces[1]) == data(0)
    assert desk.again(3, 4, pieces[2], whole(4)) == [("data", 1, 3, b"abcdefgh"), *data(4)]
    assert desk.messages[-2].flags == MessageFlag.LATE_JOIN
    assert desk.again(5, 8, fragments(5, b"abcdef", 3)[0], whole(7), whole(8)) == lost(5, 6) + data(7, 8)


def test_rules_have_the_defaults_of_the_options() -> None:
    assert (DeliveryRules().proximity, DeliveryRules().waiting_max) == (5000, 10_000)


def test_live_messages_wait_without_python_and_within_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    slowly = RecoveringController.take_slowly

    def count(self: RecoveringController, *arguments: Any) -> int:  # noqa: ANN401
        nonlocal calls
        calls += 1
        return slowly(self, *arguments)

    monkeypatch.setattr(RecoveringController, "take_slowly", count)
    for waiting_max, slow in ((0, 20), (10, 2)):
        calls, desk = 0, LateDesk(floor=5, waiting_max=waiting_max)
        desk.promise(3, 5)
        for number in range(5, 1005):
            assert desk.feed(whole(number)) == []
        assert 0 < calls <= slow
        assert desk.topic.skips_live is bool(waiting_max)
        assert desk.tally.order_map_entries <= (waiting_max + 2 if waiting_max else 1001)
        assert desk.feed(Item(1, 1005, b"in pieces", 0)) == []
        seen = desk.numbers(3, 4)
        while desk.missing:
            seen += desk.numbers(*desk.missing[0])
        assert [each[1] for each in seen] == list(range(3, 1006))


def test_a_callback_that_ends_a_receiver_gets_no_more_of_what_waited() -> None:
    desk = LateDesk(floor=5)
    desk.promise(4, 5)
    desk.feed(*(whole(number) for number in range(5, 100)))
    desk.session.keep_sinks(1, [])

    def end(message: Message) -> None:
        if message.sequence_number == 50:
            desk.session.remove_topic(1)

    desk.receive(1, desk.sink(end))
    desk.numbers(4, 4)
    assert [message.sequence_number for message in desk.messages if message.sequence_number >= 0][-1] == 50
    assert desk.budget.entries == 0
