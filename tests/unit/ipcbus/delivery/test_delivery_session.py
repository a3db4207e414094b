"""A session that datagrams are fed to: its ends, the loss check, callbacks that raise or close, full receivers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageType
from ipcbus.delivery.delivery_rules import DeliveryRules
from ipcbus.delivery.reassembly_budget import ReassemblyBudget
from ipcbus.delivery.sink import Sink
from tests.kit.cases import each_of
from tests.kit.datagrams import compose, fragments, info
from tests.kit.desk import Desk, Seen, data, lost, seen_of, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Message
    from ipcbus.delivery.recovering_controller import RecoveringController

LONG = 1000
BOS, EOS = ("BOS",), ("EOS",)


# Beginning and end.


def test_the_first_datagram_is_the_beginning_for_every_topic() -> None:
    desk = Desk()
    desk.receive(2, desk.sink())
    assert desk.seen == []
    desk.feed(whole(0, topic=3))
    assert desk.seen == [BOS, BOS]
    desk.receive(3, desk.sink(), desk.sink())
    assert desk.seen == [BOS] * 4
    desk.session.begin_topic(3)
    assert desk.told == 4


def test_an_empty_datagram_is_a_beginning_too() -> None:
    desk = Desk()
    desk.demux.feed(b"", 0, 0)
    assert desk.seen == [BOS]
    assert not desk.holds()


def test_who_loses_the_first_messages_is_told_of_the_beginning_before() -> None:
    desk = Desk()
    assert desk.end(2) == [*lost(0, 1), EOS]
    assert desk.seen[0] == BOS


def test_a_session_that_never_began_does_not_end() -> None:
    desk = Desk()
    assert desk.end() == []
    assert desk.seen == []


def holding(desk: Desk, before: Callable[[], object]) -> RecoveringController:
    """Topic 2, held back behind a message of topic 1; `before` is called before it begins."""
    desk.receive(2, desk.sink())
    held = desk.session.topic(2)
    assert held is not None
    desk.session.hold(held, before)
    desk.feed(whole(0))
    return held


@pytest.mark.parametrize("released", ["message", "loss", "end", "by hand"])
def test_a_topic_that_is_held_back_begins_with_its_release_message_loss_or_end(released: str) -> None:
    desk = Desk()
    held = holding(desk, lambda: desk.end(1))
    desk.session.begin_topic(2)
    assert desk.seen == [BOS, *data(0)]
    if released == "message":
        desk.feed(whole(0, b"held", topic=2))
    elif released == "loss":
        held.finish(1)
    elif released == "end":
        desk.session.end_topic(held, 0)
    else:
        desk.session.release(2)
    message: Seen = ("data", 0, 0, b"held")
    after: dict[str, list[Seen]] = {"message": [message], "loss": lost(0), "end": [EOS], "by hand": []}
    following = after[released]
    assert desk.seen == [BOS, *data(0), EOS, BOS, *following]
    desk.session.release(2)
    assert desk.seen[-len(following) - 1 :] == [BOS, *following]


@pytest.mark.parametrize("shown_by", ["message", "loss"])
def test_a_callback_that_ends_an_earlier_stay_may_raise_and_nothing_is_left_out(shown_by: str) -> None:
    class Stop(BaseException):
        pass

    def stop(_: Message) -> None:
        raise Stop

    desk = Desk()
    held = holding(desk, lambda: desk.end(1))
    desk.topic.set_sinks([desk.sink(stop)])
    desk.session._had_bos[1] = set(desk.topic.sinks)
    with pytest.raises(Stop):
        desk.feed(whole(0, b"held", topic=2)) if shown_by == "message" else held.finish(1)
    desk.demux.poll_once(1)
    after = ("data", 0, 0, b"held") if shown_by == "message" else ("lost", 0)
    assert desk.seen == [BOS, *data(0), EOS, BOS, after]


def test_a_receiver_that_is_made_while_an_earlier_stay_ends_gets_the_next_one_after_that() -> None:
    desk = Desk()

    def end() -> None:
        desk.session.begin_topic(2)  # as a callback that makes another receiver does
        assert desk.session.is_beginning(2)
        desk.end(1)

    holding(desk, end)
    desk.session.release(2)
    assert desk.seen == [BOS, *data(0), EOS, BOS]


def test_a_topic_that_was_interrupted_begins_and_ends_once_more_for_what_is_missing() -> None:
    desk = Desk()
    desk.feed(whole(0))
    desk.end()
    assert desk.end(3) == [*lost(1, 2), EOS]
    assert desk.seen == [BOS, *data(0), EOS, BOS, *lost(1, 2), EOS]
    assert desk.end(3) == []
    desk.session.begin_topic(1)
    assert desk.seen[-1] == EOS


@pytest.mark.parametrize(("floor", "following"), [(5, 0), (5, 5), (None, 5)])
def test_who_joined_after_the_last_message_is_told_of_beginning_and_end(floor: int | None, following: int) -> None:
    desk = Desk(floor=floor)
    desk.end(following)
    desk.end(following)
    assert desk.seen == [BOS, EOS]


def test_a_stay_that_brought_nothing_new_does_not_begin_or_end() -> None:
    desk = Desk(floor=None)
    desk.topic.resume_at(5)
    assert desk.end(5) == []
    assert desk.seen == []
    desk = Desk(floor=None)
    desk.topic.resume_at(5)
    desk.end(7)
    assert desk.seen == [BOS, *lost(5, 6), EOS]


def test_the_end_comes_once() -> None:
    desk = Desk()
    desk.feed(whole(0))
    assert desk.end(1) == [EOS]
    assert desk.end(1) == []


def test_a_topic_received_again_begins_again() -> None:
    desk = Desk()
    desk.feed(whole(0))
    desk.session.remove_topic(1)
    desk.session.remove_topic(1)
    desk.receive(1, desk.sink(), floor=5)
    assert desk.feed(whole(5)) == data(5)
    assert desk.seen.count(BOS) == 2


def test_every_sink_of_a_topic_is_told_in_turn() -> None:
    desk = Desk(ordered=1)
    got: list[str] = []

    def sink(name: str) -> Sink:
        return Sink(lambda message: got.append(name + message.type.name), 1)

    desk.receive(2, sink("a"), sink("b"))
    desk.feed(whole(1, topic=2))
    kinds = ["BOS", "UNRECOVERABLE_LOSS", "DATA"]
    assert got == [name + kind for kind in kinds for name in "ab"]


# The loss check.


def test_the_check_looks_at_a_topic_once_an_interval() -> None:
    desk = Desk(loss_check_ns=100, recovery_ns=10)
    assert desk.check() == []
    desk.feed(whole(0), whole(2))
    assert desk.check(after=87) == []  # an eighth of the interval early at most
    assert desk.check(after=1) == lost(1) + data(2)


def test_checks_are_due_on_a_grid_that_topics_share() -> None:
    rules = DeliveryRules(loss_check_ns=100)
    assert [rules.next_loss_check(now_ns) for now_ns in (0, 1, 87, 88, 100, 250)] == [100, 100, 100, 200, 200, 300]


def test_without_an_interval_there_is_no_check() -> None:
    desk = Desk(loss_check_ns=0, recovery_ns=10)
    desk.feed(whole(0), whole(2))
    assert desk.check(after=10**12) == []


# What is not received.


def test_messages_and_infos_of_other_topics_are_passed_over() -> None:
    desk = Desk()
    assert desk.feed(whole(7, topic=2), info(9, topic=5), whole(0)) == data(0)
    assert desk.demux.no_topic == 1
    assert desk.feed(*fragments(8, b"abcde", 2, topic=2)) == []
    assert desk.demux.no_topic == 2


@each_of("cut", range(1, 81))
def test_a_datagram_cut_short_is_not_delivered_in_part(cut: int) -> None:
    desk = Desk()
    datagram = compose(whole(0, b"x" * 24), whole(1, b"y" * 23))
    desk.demux.feed(datagram[: len(datagram) - cut], 0, 0)
    # Without the second message nothing shows that more was meant.
    came = {40: [0]}.get(cut, [])
    assert [each[1] for each in desk.seen if each[0] == "data"] == came
    assert desk.tally.malformed == (cut not in (40, 80))
    assert not desk.holds()
    assert [each[1] for each in desk.feed(whole(2, b"z"))] == [*range(len(came), 3)]


# Callbacks that raise.


def raising(message: Message) -> None:
    """A callback's mistake."""
    raise RuntimeError(f"at {message!r}")


@pytest.mark.parametrize("ordered", [1, -1, 0])
def test_a_callback_that_raises_each_time_loses_nothing(ordered: int) -> None:
    desk = Desk(ordered=ordered, recovery_ns=LONG)
    sink = desk.sink(raising)
    desk.receive(2, sink, desk.sink())
    items = [item._replace(topic=2) for item in (whole(0), whole(2), *fragments(3, b"x" * 20, 8), whole(1), whole(7))]
    desk.feed(*items)
    desk.session.end_topic(desk.session.topics()[-1], 8)
    mine, theirs = desk.seen[1::2], desk.seen[2::2]  # the first is topic 1's BOS
    assert mine == theirs
    assert mine[0] == BOS
    assert mine[-1] == EOS
    assert len(desk.failures) == sink.callback_errors == len(mine)
    assert desk.budget.entries == desk.budget.bytes == 0


class Stop(BaseException):
    """As KeyboardInterrupt is: not for a callback's owner."""


def test_what_is_no_exception_stops_and_then_it_goes_on() -> None:
    desk = Desk()

    def stopping(message: Message) -> None:
        if message.type is MessageType.DATA and message.sequence_number in (1, 3):
            raise Stop

    desk.session.remove_topic(1)
    desk.receive(1, desk.sink(stopping))
    with pytest.raises(Stop):
        desk.demux.feed(compose(*map(whole, (0, 1, 2))), 0, 0)
    assert desk.holds()
    with pytest.raises(ValueError, match="is not finished"):
        desk.demux.feed(compose(whole(3)), 0, 0)
    desk.demux.resume(0)
    assert not desk.holds()
    with pytest.raises(Stop):
        desk.demux.feed(compose(whole(3)), 0, 0)
    desk.demux.resume(0)
    assert desk.feed(whole(4)) == data(4)
    assert desk.seen == [BOS, *data(0, 1, 2, 3, 4)]


@pytest.mark.parametrize("ordered", [-1, 0])
def test_what_revealed_a_burst_that_stopped_is_delivered(ordered: int) -> None:
    desk = Desk(ordered=ordered, burst_loss=2)

    def stopping(message: Message) -> None:
        if message.type is MessageType.UNRECOVERABLE_LOSS_BURST:
            raise Stop

    desk.session.remove_topic(1)
    desk.receive(1, desk.sink(stopping))
    with pytest.raises(Stop):
        desk.demux.feed(compose(whole(5)), 0, 0)
    assert desk.seen[-1:] == data(5)
    desk.demux.resume(0)
    assert desk.feed(whole(6)) == data(6)


# Receivers closed in callbacks.


def closing(kind: MessageType) -> tuple[Desk, Callable[..., None]]:
    """A desk whose receiver closes at the first message or event of this kind."""
    desk = Desk(ordered=1, recovery_ns=LONG, budget=ReassemblyBudget())

    def close(message: Message) -> None:
        if message.type is kind:
            sink.closed = True
            desk.session.remove_topic(1)

    sink = desk.sink(close)

    def receive(**rules: int) -> None:
        desk.session.remove_topic(1)
        desk.rules = type(desk.rules)(**rules)
        desk.receive(1, sink)

    return desk, receive


@each_of("kind", [MessageType.BOS, MessageType.DATA, MessageType.UNRECOVERABLE_LOSS])
@each_of("ordered", [1, -1, 0])
@each_of("recovery_ns", [0, LONG])
def test_a_receiver_closed_in_a_callback_hears_no_more_and_holds_nothing(
    kind: MessageType, ordered: int, recovery_ns: int
) -> None:
    desk, receive = closing(kind)
    receive(ordered=ordered, recovery_ns=recovery_ns)
    long = fragments(8, b"x" * 40, 8)
    desk.feed(whole(0), whole(2), *fragments(3, b"y" * 20, 8)[:2], *long[:2], long[4], whole(20))
    desk.feed(whole(22), *fragments(30, b"y" * 20, 8)[:2], after=2 * LONG)
    names = [each[0] for each in desk.seen]
    closed_at = {MessageType.BOS: "BOS", MessageType.DATA: "data", MessageType.UNRECOVERABLE_LOSS: "lost"}[kind]
    assert names.count(closed_at) == 1
    assert names[-1] == closed_at
    assert desk.session.topics() == []
    assert (desk.budget.entries, desk.budget.bytes) == (0, 0)
    assert (desk.tally.order_map_entries, desk.tally.reassembly_bytes) == (0, 0)


@pytest.mark.parametrize("ordered", [1, -1, 0])
def test_a_receiver_closed_by_the_last_losses_is_closed(ordered: int) -> None:
    desk, receive = closing(MessageType.UNRECOVERABLE_LOSS)
    receive(ordered=ordered, recovery_ns=LONG)
    one, two = fragments(0, b"x" * 20, 8), fragments(3, b"y" * 20, 8)
    desk.feed(one[0], two[0], info(6))
    desk.session.end_topic(desk.topic, 9)
    assert [each[0] for each in desk.seen].count("lost") == 1
    assert desk.seen[-1][0] == "lost"
    assert (desk.budget.entries, desk.budget.bytes) == (0, 0)


def test_several_incomplete_messages_and_a_receiver_closed_at_the_end() -> None:
    desk, receive = closing(MessageType.UNRECOVERABLE_LOSS)
    receive(ordered=-1, recovery_ns=LONG)
    one, two = fragments(0, b"x" * 20, 8), fragments(3, b"y" * 20, 8)
    desk.feed(*one[:2])
    desk.feed(*two[:2])
    assert desk.budget.bytes > 2 * 20
    desk.session.end_topic(desk.topic, 0)
    assert [each[0] for each in desk.seen].count("lost") == 1
    assert desk.budget.bytes == 0


def test_a_receiver_closed_in_a_callback_leaves_the_others_theirs() -> None:
    desk = Desk()
    got: list[object] = []

    def close(message: Message) -> None:
        if message.type is MessageType.DATA:
            first.closed = True

    first = Sink(close, 1)
    desk.receive(2, first, Sink(lambda message: got.append(seen_of(message)), 1))
    desk.feed(whole(0, topic=2), whole(3, topic=2), *fragments(4, b"z" * 9, 8, topic=2))
    assert got == [BOS, *data(0), *lost(1, 2), *data(3), ("data", 4, 5, b"z" * 9)]
    assert first.delivered == 1


# A datagram in hand.


def blocked(queue_max: int = 2, **rules: int) -> tuple[Desk, Sink]:
    """A desk whose receiver of topic 1 is pulled from."""
    desk = Desk(**rules)
    desk.session.remove_topic(1)
    sink = Sink(None, queue_max)
    desk.receive(1, sink)
    return desk, sink


def pull(sink: Sink) -> list[Seen]:
    """All that a receiver keeps."""
    found = [seen_of(message) for message in sink.queue]
    sink.queue.clear()
    return found


def test_a_full_receiver_keeps_the_rest_of_a_datagram_in_hand() -> None:
    desk, sink = blocked(3)
    desk.receive(2, desk.sink())
    datagram = compose(whole(0), whole(1), whole(2), whole(0, topic=2), whole(3))
    assert desk.demux.feed(datagram, 0, 0) == 2  # BOS takes a place too
    assert desk.holds()
    assert desk.demux.blocked
    del datagram
    with pytest.raises(ValueError, match="is not finished"):
        desk.demux.feed(compose(whole(4)), 0, 0)
    assert desk.demux.resume(0) == 0
    assert pull(sink) == [BOS, *data(0, 1)]
    assert desk.demux.resume(0) == 0  # nobody has said that there is room
    desk.demux.blocked = False
    assert desk.demux.resume(0) == 3
    assert not desk.holds()
    assert pull(sink) == data(2, 3)
    assert desk.demux.resume(0) == 0
    desk.feed(whole(4))
    assert pull(sink) == data(4)


def test_a_full_receiver_that_closes_holds_nobody_up() -> None:
    desk, sink = blocked(1)
    desk.receive(2, desk.sink())
    desk.demux.feed(compose(whole(0), whole(0, topic=2)), 0, 0)
    assert desk.demux.blocked
    sink.closed = True
    desk.demux.blocked = False
    assert desk.demux.resume(0) >= 1
    assert not desk.holds()
    assert desk.seen[-1:] == data(0)


def test_a_topic_removed_while_its_datagram_is_in_hand() -> None:
    desk, _ = blocked(1)
    desk.demux.feed(compose(whole(0), whole(1)), 0, 0)
    desk.session.remove_topic(1)
    desk.demux.blocked = False
    assert desk.demux.resume(0) == 0
    assert desk.demux.no_topic == 2
    assert not desk.holds()


def test_time_that_passed_while_in_hand_counts() -> None:
    desk, sink = blocked(2, recovery_ns=100)
    desk.demux.feed(compose(whole(0), whole(2), whole(3)), 0, 0)
    assert pull(sink) == [BOS, *data(0)]
    desk.demux.blocked = False
    desk.demux.resume(50)  # only now the gap is seen
    assert pull(sink) == []
    desk.session.check(desk.session.due(149), 149)
    assert pull(sink) == []
    desk.demux.feed(compose(whole(4)), 0, 150)
    assert pull(sink) == lost(1) + data(2, 3, 4)


def test_nothing_is_taken_out_of_hand_from_within_a_callback() -> None:
    desk = Desk()
    inside: list[int] = []

    def again(message: Message) -> None:
        if message.type is MessageType.DATA:
            inside.append(desk.demux.resume(0))
            with pytest.raises(ValueError, match="is not finished"):
                desk.demux.feed(compose(whole(9)), 0, 0)

    desk.receive(2, desk.sink(again))
    desk.feed(*(whole(number, topic=2) for number in range(3)))
    assert inside == [0, 0, 0]
    assert desk.failures == []
    assert [each for each in desk.seen if each != BOS] == data(0, 1, 2)


def test_a_message_kept_longer_than_its_datagram_has_its_bytes() -> None:
    desk = Desk()
    desk.feed(whole(0, b"kept" * 100))
    views = [message.view for message in desk.messages if message.type is MessageType.DATA]
    desk.feed(whole(1, b"other" * 100))
    assert bytes(views[0]) == b"kept" * 100
