"""A receiver that is made when others of its topic receive already gets the history that they have had."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageFlag, MessageType
from ipcbus.delivery.reassembly_budget import ReassemblyBudget
from ipcbus.delivery.retransmitted_feed import RetransmittedFeed
from ipcbus.delivery.sink import Sink
from tests.kit.cases import each_of
from tests.kit.datagrams import fragments
from tests.kit.desk import Desk, Seen, data, lost, seen_of, whole
from tests.kit.retaining import entry

if TYPE_CHECKING:
    from ipcbus import Message
    from ipcbus.delivery.own_history import OwnHistory


class Later:
    """A second receiver of topic 1."""

    def __init__(self, desk: Desk, *, alike: bool = True, wants_all: bool = True) -> None:
        self.desk = desk
        self.messages: list[Message] = []
        self.sink = Sink(self.messages.append, 1)
        found = desk.session.receive_later(1, self.sink, 0, alike=alike, wants_all=wants_all)
        assert found is not None
        self.history: OwnHistory = found
        desk.session.begin_topic(1)
        self.feed = RetransmittedFeed(desk.demux, found.controller)

    def again(self, first: int, last: int) -> bool:
        """The source sends these numbers again."""
        entries = b"".join(entry(number, str(number).encode()) for number in range(first, last + 1))
        self.feed.begin(first, last, entries, self.history.controller.recovery_flag)
        assert self.feed.run(0)
        return self.history.advance(0)

    @property
    def seen(self) -> list[Seen]:
        """What it got."""
        return [seen_of(message) for message in self.messages]


def test_in_order_the_history_comes_first_and_then_it_joins_the_others() -> None:
    desk = Desk()
    desk.feed(*(whole(number) for number in range(5)))
    later = Later(desk)
    assert not later.history.advance(0)
    assert desk.feed(whole(5)) == data(5)
    later.history.controller.promise(2, 6, 0)
    assert not later.history.advance(0)
    assert desk.feed(whole(6)) == data(6)
    assert not later.again(2, 4)
    assert later.seen == [("BOS",), *data(2, 3, 4)]
    assert later.again(5, 5)
    assert later.seen == [("BOS",), *data(2, 3, 4, 5, 6)]
    assert desk.feed(whole(7)) == data(7)
    assert later.seen[-1:] == data(7)
    assert [message.flags for message in later.messages[1:]] == [MessageFlag.LATE_JOIN] * 4 + [0, 0]
    assert desk.session.sinks(1)[-1] is later.sink
    assert desk.topic.fast_path


def test_without_history_it_joins_at_once() -> None:
    desk = Desk()
    desk.feed(whole(0))
    later = Later(desk)
    later.history.controller.promise(1, 1, 0)
    assert later.history.advance(0)
    desk.feed(whole(1))
    assert later.seen == [("BOS",), *data(1)]


def test_before_the_others_got_anything_it_simply_joins_them() -> None:
    desk = Desk()
    assert desk.session.receive_later(1, desk.sink(), 0) is None
    assert len(desk.topic.sinks) == 2


def test_what_the_others_got_before_the_promise_comes_from_its_own_history() -> None:
    """From the first number on there is no gap: the others do not wait for the promise of their late join."""
    desk = Desk()
    desk.topic.begin_late_join(0)
    assert desk.feed(whole(0), whole(1), whole(2)) == data(0, 1, 2)
    later = Later(desk)
    assert not later.history.advance(0)
    assert desk.feed(whole(3)) == data(3)
    desk.topic.promise(0, 4, 0)
    later.history.controller.promise(0, 4, 0)
    assert not later.history.advance(0)
    assert later.again(0, 3)
    desk.feed(whole(4))
    assert later.seen == [("BOS",), *data(0, 1, 2, 3, 4)]


def test_what_is_kept_is_bounded_and_asked_for() -> None:
    desk = Desk(waiting_max=3)
    desk.feed(*(whole(number) for number in range(5)))
    later = Later(desk)
    later.history.controller.promise(0, 5, 0)
    later.history.advance(0)
    desk.feed(*(whole(number) for number in range(5, 20)))
    assert not later.again(0, 4)
    assert list(later.history.controller.missing()) == [(5, 19)]
    assert later.again(5, 19)
    assert later.seen == [("BOS",), *data(*range(20))]


@pytest.mark.parametrize("kept", [3, 4])
def test_what_is_kept_joins_the_queue_of_one_that_pulls_as_a_whole(kept: int) -> None:
    """As the option `receive_queue_maximum` says, the limit of what waits is the limit of what is added."""
    desk = Desk(waiting_max=3)
    desk.feed(*(whole(number) for number in range(5)))
    later = Later(desk)
    later.history.sink = sink = Sink(None, 3)
    later.history.controller.set_sinks([sink])
    later.history.controller.promise(3, 5, 0)
    later.history.advance(0)
    desk.feed(*(whole(number) for number in range(5, 5 + kept)))
    assert later.again(3, 4) == (kept <= 3)
    assert [message.sequence_number for message in sink.queue] == [3, 4, *(range(5, 5 + kept) if kept <= 3 else ())]


@pytest.mark.parametrize("ordered", [-1, 0])
def test_not_in_order_live_messages_come_at_once_and_each_number_once(ordered: int) -> None:
    desk = Desk(ordered=ordered, recovery_ns=10**9)
    desk.feed(whole(0), whole(1), whole(4))
    later = Later(desk)
    desk.feed(whole(5))
    assert later.seen == [("BOS",), *data(5)]
    later.history.controller.promise(0, 6, 0)
    assert list(later.history.controller.missing()) == [(0, 4)]
    desk.feed(whole(2), whole(3))
    assert later.again(0, 5)
    assert sorted(later.seen[1:]) == data(0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("ordered", [1, -1, 0])
def test_one_that_wants_less_gets_nothing_of_the_others_history(ordered: int) -> None:
    desk = Desk(floor=50, ordered=ordered)
    desk.topic.begin_late_join(0)
    later = Later(desk, alike=False, wants_all=False)
    later.history.controller.end_recovery(0)
    main = RetransmittedFeed(desk.demux, desk.topic)
    desk.topic.promise(20, 50, 0)
    desk.feed(whole(50))
    main.begin(20, 49, b"".join(entry(number, b"") for number in range(20, 50)), MessageFlag.LATE_JOIN)
    assert not later.history.advance(0)
    assert main.run(0)
    assert later.history.advance(0)
    desk.feed(whole(51))
    assert later.seen == [("BOS",), *data(50, 51)]
    assert sorted(first for _, first, *_ in desk._since(0)) == list(range(20, 52))


@pytest.mark.parametrize("ordered", [1, -1, 0])
def test_before_the_first_live_number_is_known_its_history_ends_there(ordered: int) -> None:
    """Over UDP the source says the number some time after the join."""
    desk = Desk(floor=None, ordered=ordered)
    later = Later(desk, alike=False)
    later.history.controller.promise(10, 30, 0)
    desk.feed(whole(33))
    assert not later.history.advance(0)
    assert later.again(10, 32) == (ordered != 1)
    missing = next(later.history.controller.missing(), None)
    assert missing is None or later.again(*missing)
    desk.feed(whole(34))
    assert sorted(later.seen[1:]) == sorted(data(*range(10, 35)))


@pytest.mark.parametrize("burst", [1, 1024])
def test_of_a_loss_that_began_before_it_came_it_gets_its_part(burst: int) -> None:
    desk = Desk(ordered=-1, recovery_ns=10, burst_loss=burst)
    desk.feed(whole(0))
    desk.topic.note_next_sequence(3, 0)
    later = Later(desk, alike=False, wants_all=False)
    later.history.controller.end_recovery(0)
    desk.feed(whole(6))
    assert desk.check(after=20)[-1:] == ([("burst", 3, 5)] if burst == 1 else [("lost", 5)])
    assert later.history.advance(0)
    assert later.seen == [("BOS",), *data(6), *([("burst", 3, 5)] if burst == 1 else [("lost", n) for n in (3, 4, 5)])]


@pytest.mark.parametrize("ordered", [-1, 0])
def test_one_that_pulls_and_has_no_room_holds_the_topic(ordered: int) -> None:
    desk = Desk(ordered=ordered)
    desk.feed(whole(0))
    sink = Sink(None, 1)
    history = desk.session.receive_later(1, sink, 0)
    assert history is not None
    desk.session.begin_topic(1)  # its BOS takes the room
    assert desk.feed(whole(1), whole(2)) == []
    assert desk.demux.blocked
    sink.queue.clear()
    desk.demux.blocked = False
    desk.demux.resume(0)
    assert [seen_of(message) for message in sink.queue] == data(1)


def test_at_the_end_what_did_not_come_is_lost() -> None:
    desk = Desk(burst_loss=1)
    desk.feed(*(whole(number) for number in range(5)))
    later = Later(desk)
    later.history.controller.promise(1, 5, 0)
    later.history.advance(0)
    desk.feed(whole(5))
    desk.end(7)
    assert later.seen == [("BOS",), ("burst", 1, 4), *data(5), ("lost", 6), ("EOS",)]


def test_a_closed_one_is_forgotten() -> None:
    desk = Desk()
    first = desk.topic.sinks[0]
    desk.feed(whole(0))
    later = Later(desk)
    later.history.controller.promise(0, 1, 0)
    later.history.advance(0)
    assert len(desk.topic.sinks) == 2
    desk.session.keep_sinks(1, [first])
    assert desk.topic.sinks == [first]
    assert desk.session.histories(1) == []
    assert desk.budget.entries == 0


@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(60, 600), marks=pytest.mark.long)])
def test_in_any_course_each_number_comes_once(seeds: range) -> None:
    each_of("seed", seeds)(in_any_course)()


def in_any_course(seed: int) -> None:
    """Checks a course of losses, repairs and promises that the seed draws."""
    random = Random(seed)
    ordered = random.choice([1, -1, 0])
    desk = Desk(ordered=ordered, waiting_max=random.choice([1, 3, 100]), proximity=random.choice([0, 2, 100]))
    sent = random.randint(1, 10)
    desk.feed(*(whole(number) for number in range(sent)))
    later = Later(desk, wants_all=random.random() < 0.5)
    low = random.randint(0, sent)
    for turn in range(60):
        if random.random() < 0.5:
            desk.feed(whole(sent))
            sent += 1
        elif random.random() < 0.3 and sent > 1:
            sent += 2  # two are lost on the way
            desk.feed(whole(sent))
            sent += 1
        if turn == 5:
            later.history.controller.promise(low, sent, 0)
        missing = next(later.history.controller.missing(), None) if turn > 5 else None
        if missing is not None:
            last = min(missing[1], missing[0] + random.randint(0, 5))
            later.again(missing[0], last)
        later.history.advance(0)
    desk.end(sent)
    fates = [
        number
        for message in later.messages
        if message.type not in (MessageType.BOS, MessageType.EOS)
        for number in range(message.first_sequence_number, message.sequence_number + 1)
    ]
    assert sorted(fates) == list(range(low, sent))
    assert ordered != 1 or fates == sorted(fates)
    assert [seen for seen in later.seen if seen in (("BOS",), ("EOS",))] == [("BOS",), ("EOS",)]


@pytest.mark.parametrize("ordered", [1, -1, 0])
def test_an_older_message_that_comes_live_after_the_history_was_begun_is_not_given_twice(ordered: int) -> None:
    """Over UDP it may have been on its way when the context joined."""
    desk = Desk(floor=24, ordered=ordered)
    later = Later(desk)
    later.history.controller.promise(22, 24, 0)
    later.history.advance(0)
    assert desk.feed(whole(23)) == []
    later.again(22, 23)
    assert desk.feed(whole(24)) == data(24)
    assert later.seen == [("BOS",), *data(22, 23, 24)]


def test_it_learns_what_the_others_lose_because_its_gap_fills_the_memory() -> None:
    """Seed 963 of tests.sim.recovery: what the others lost while it was made was in nobody's account."""
    desk = Desk(budget=ReassemblyBudget(1), ordered=-1, recovery_ns=1000)
    desk.topic.recovers = True
    pieces = fragments(1, b"abcdefgh", 2)
    assert desk.feed(whole(0), pieces[0], pieces[2]) == data(0)
    later = Later(desk)
    assert desk.seen[-3:] == lost(1, 2, 3)
    later.history.controller.promise(0, 4, 0)
    later.again(0, 3)
    desk.feed(pieces[3])
    desk.end(5)
    assert {seen[1] for seen in later.seen if seen[0] in ("data", "lost")} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("ordered", [1, -1, 0])
def test_what_was_sent_after_its_promise_and_came_to_nobody_is_lost_at_the_end(ordered: int) -> None:
    """Seed 6738 of tests.sim.recovery: the first live number was never known, and two messages had no account."""
    desk = Desk(floor=None, ordered=ordered)
    later = Later(desk)
    later.history.controller.promise(0, 2, 0)
    later.again(0, 1)
    desk.end(4)
    assert later.seen == [("BOS",), *data(0, 1), *lost(2, 3), ("EOS",)]
