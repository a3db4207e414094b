"""Messages in fragments at a delivery controller: whole, broken, refused, interleaved."""

from __future__ import annotations

import pytest

from ipcbus.delivery.delivery_controller import DeliveryController
from ipcbus.delivery.message_types import FragmentInfo
from ipcbus.delivery.reassembly_budget import ReassemblyBudget
from ipcbus.wire.wire_layout import FLAG_END_BATCH, FLAG_START_BATCH
from tests.kit.cases import each_of
from tests.kit.datagrams import Item, fragment, fragments, info
from tests.kit.desk import Desk, Seen, data, lost, whole

LONG = 1000
SIZE = 8
TEXT = b"the quick brown fox jumps over the lazy dog"


@pytest.fixture(params=[1, -1])
def ordered(request: pytest.FixtureRequest) -> int:
    """The modes in which fragments are put together."""
    return int(request.param)


def message(first: int, count: int) -> bytes:
    """A payload that takes so many fragments and tells where it begins."""
    return b"%-8d" % first + TEXT[: SIZE * (count - 1) - 3]


def pieces(first: int, count: int) -> list[Item]:
    """Its fragments."""
    return fragments(first, message(first, count), SIZE)


def together(first: int, count: int) -> list[Seen]:
    """What it looks like whole."""
    return [("data", first, first + count - 1, message(first, count))]


def test_fragments_come_as_one_message_with_the_last_number(ordered: int) -> None:
    desk = Desk(ordered=ordered)
    assert desk.feed(*pieces(0, 4)) == together(0, 4)
    assert desk.feed(whole(4)) == data(4)
    infos = [each.fragment_info for each in desk.messages[-2:]]
    assert infos == [FragmentInfo(0, 0, len(message(0, 4))), None]
    assert desk.tally.msgs_reassembled == 1
    assert desk.demux.messages == 2
    assert desk.tally.fragments_rcved == 4
    assert desk.budget.bytes == 0
    assert desk.topic.fast_path


def test_the_flags_of_all_fragments_are_shown_but_not_that_they_were_fragments(ordered: int) -> None:
    desk = Desk(ordered=ordered)
    first, second = pieces(0, 2)
    desk.feed(
        first._replace(flags=first.flags | FLAG_START_BATCH), second._replace(flags=second.flags | FLAG_END_BATCH)
    )
    assert desk.messages[-1].flags == FLAG_START_BATCH | FLAG_END_BATCH


def test_raw_each_fragment_comes_by_itself() -> None:
    desk = Desk(ordered=0, recovery_ns=LONG)
    items = pieces(0, 3)
    assert desk.feed(items[2], items[0]) == [
        ("data", 2, 2, message(0, 3)[16:]),
        ("data", 0, 0, message(0, 3)[:8]),
    ]
    assert desk.messages[-2].fragment_info == FragmentInfo(0, 16, len(message(0, 3)))
    assert desk.messages[-1].flags == 0
    assert desk.budget.bytes == 0
    assert desk.end(3)[0] == lost(1)[0]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_fragments_may_come_in_any_order(ordered: int, order: tuple[int, ...]) -> None:
    desk = Desk(ordered=ordered, recovery_ns=LONG)
    items = pieces(0, 3)
    assert desk.feed(*(items[i] for i in order)) == together(0, 3)
    assert (desk.budget.entries, desk.budget.bytes) == (0, 0)
    assert desk.feed(*items) == []
    assert desk.tally.duplicates == 3


def test_messages_that_arrive_in_each_others_midst_both_come() -> None:
    desk = Desk(ordered=-1, recovery_ns=LONG)
    one, two = pieces(0, 3), pieces(3, 3)
    assert desk.feed(one[0], two[1], one[2]) == []
    assert desk.feed(whole(6)) == data(6)
    assert desk.feed(two[0], two[2]) == together(3, 3)
    assert desk.feed(one[1]) == together(0, 3)


def test_a_topic_does_not_wait_for_anothers_fragments(ordered: int) -> None:
    desk = Desk(ordered=ordered)
    desk.receive(2, desk.sink())
    mine, theirs = pieces(0, 3), [item._replace(topic=2) for item in pieces(0, 2)]
    assert desk.feed(mine[0], theirs[0], mine[1], whole(2, topic=2)) == lost(0, 1) + data(2)
    assert desk.feed(mine[2]) == together(0, 3)


# What is lost of a message.


def test_with_one_fragment_the_whole_message_is_lost(ordered: int) -> None:
    desk = Desk(ordered=ordered)
    items = pieces(1, 5)
    assert desk.feed(whole(0), items[0], items[1]) == data(0)
    assert desk.feed(items[3]) == lost(1, 2, 3, 4)
    assert desk.feed(items[4], whole(6)) == lost(5) + data(6)
    assert desk.feed(items[2]) == []
    assert desk.tally.duplicates == 1
    assert desk.budget.bytes == 0


def test_a_lost_message_of_many_fragments_is_a_burst() -> None:
    desk = Desk(burst_loss=3)
    items = pieces(0, 6)
    desk.feed(*items[:4])
    assert desk.feed(items[5]) == [("burst", 0, 4), *lost(5)]


def test_the_last_fragment_missing_is_shown_by_tsni(ordered: int) -> None:
    desk = Desk(ordered=ordered, recovery_ns=100, loss_check_ns=1)
    assert desk.feed(*pieces(0, 3)[:2]) == []
    assert desk.feed(info(3)) == []
    assert desk.check(after=99) == []
    assert desk.check(after=1) == lost(0, 1, 2)


def test_an_incomplete_message_is_lost_at_the_end(ordered: int) -> None:
    desk = Desk(ordered=ordered)
    desk.feed(whole(0), *pieces(1, 4)[:3])
    assert desk.end(5) == [*lost(1, 2, 3, 4), ("EOS",)]
    assert desk.budget.bytes == 0


def test_several_incomplete_messages_are_lost_in_the_order_of_their_numbers() -> None:
    desk = Desk(ordered=-1, recovery_ns=LONG)
    desk.feed(pieces(3, 3)[1], pieces(0, 3)[0])
    assert sorted(desk.end(6)[:-1]) == lost(0, 1, 2, 3, 4, 5)
    desk = Desk(ordered=-1)
    desk.feed(pieces(0, 3)[0], info(1), pieces(0, 3)[1])
    assert desk.end() == [*lost(0, 1), ("EOS",)]


def test_a_message_that_its_source_gave_up_is_lost_when_another_follows(ordered: int) -> None:
    desk = Desk(ordered=ordered)
    assert desk.feed(*pieces(0, 4)[:2], whole(2)) == lost(0, 1) + data(2)
    assert desk.feed(*pieces(3, 4)[:3], *pieces(6, 2)) == lost(3, 4, 5) + together(6, 2)
    assert desk.budget.bytes == 0


def test_messages_of_other_shape_are_other_messages(ordered: int) -> None:
    desk = Desk(ordered=ordered)
    desk.feed(fragment(0, 0, 0, 24, b"x" * 8))
    assert desk.feed(fragment(1, 0, 8, 25, b"x" * 8)) == lost(0, 1)
    assert desk.budget.bytes == 0


def test_two_messages_cannot_have_one_number() -> None:
    desk = Desk(ordered=-1, recovery_ns=LONG)
    # 5 to 8 by what the fragment 8 says, 3 to 7 by what the fragment 4 says.
    assert desk.feed(fragment(8, 5, 24, 30, b"x" * 6)) == []
    assert desk.feed(fragment(4, 3, 8, 40, b"x" * 8)) == lost(4)
    seen = desk.feed(fragment(3, 3, 0, 40, b"x" * 8), *(whole(number) for number in (0, 1, 2, 5, 6, 7)))
    assert seen == [*lost(3), *data(0, 1, 2), *lost(8), *data(5, 6, 7)]


# The beginning.


@pytest.mark.parametrize("floor", [None, 2, 3])
def test_a_message_that_began_before_is_nobodys_loss(ordered: int, floor: int | None) -> None:
    desk = Desk(ordered=ordered, floor=floor)
    assert desk.feed(*pieces(1, 4)[2:], whole(5)) == data(5)
    assert desk.tally.duplicates == 0
    assert desk.end(6) == [("EOS",)]


def test_a_message_that_begins_at_the_floor_is_missed(ordered: int) -> None:
    desk = Desk(ordered=ordered, floor=1)
    assert desk.feed(*pieces(1, 4)[2:], whole(5)) == lost(1, 2, 3, 4) + data(5)


def test_after_it_everything_is_missed_where_the_floor_was_known(ordered: int) -> None:
    desk = Desk(ordered=ordered, floor=2)
    assert desk.feed(pieces(1, 4)[1]) == []
    assert not desk.topic.misses_below(5)
    assert desk.feed(whole(7)) == lost(5, 6) + data(7)


# Memory.


def test_a_message_that_there_is_no_memory_for_is_reported_lost(ordered: int) -> None:
    desk = Desk(ordered=ordered, budget=ReassemblyBudget(bytes_max=20))
    assert desk.feed(*pieces(0, 4), *pieces(4, 2)) == lost(0, 1, 2, 3) + together(4, 2)
    assert desk.tally.reassembly_refused == 1
    assert desk.budget.bytes == 0


def test_memory_is_shared_by_the_topics_of_a_context(ordered: int) -> None:
    desk = Desk(ordered=ordered, budget=ReassemblyBudget(bytes_max=100))
    desk.receive(2, desk.sink())
    other = [item._replace(topic=2) for item in pieces(0, 3)]
    assert desk.feed(pieces(0, 3)[0], *other) == lost(0, 1, 2)
    assert desk.feed(*pieces(0, 3)[1:]) == together(0, 3)
    again = [item._replace(topic=2) for item in pieces(3, 3)]
    assert desk.feed(*again) == together(3, 3)


def test_the_system_may_have_no_memory_either(ordered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(fragment: object, send_ticks: int) -> None:
        raise MemoryError

    monkeypatch.setattr("ipcbus.delivery.delivery_controller.Partial", none)
    desk = Desk(ordered=ordered)
    assert desk.feed(*pieces(0, 2), whole(2)) == lost(0, 1) + data(2)
    assert desk.tally.reassembly_refused == 1
    assert (desk.budget.bytes, desk.tally.reassembly_bytes) == (0, 0)


# What contradicts itself.


def spoiled() -> dict[str, Item]:
    """Fragment 2 of a message 1 to 4, wrong in one way each."""
    good = pieces(1, 4)[1]
    length = len(message(1, 4))
    piece = good.payload[16:]
    return {
        "first behind": fragment(2, 3, 8, length, piece),
        "first before": fragment(2, 0, 8, length, piece),
        "offset": fragment(2, 1, 9, length, piece),
        "offset beyond": fragment(2, 1, 2**32 - 1, length, piece),
        "total too short": fragment(2, 1, 8, 15, piece),
        "total 0": fragment(2, 1, 8, 0, piece),
        "total of no message": fragment(2, 1, 8, 2**31, piece),
        "no piece": fragment(2, 1, 8, length, b""),
        "short piece": fragment(2, 1, 8, length, piece[:-1]),
        "long piece": fragment(2, 1, 8, length, piece + b"x"),
        "no header": good._replace(payload=good.payload[:15]),
        "empty": good._replace(payload=b""),
    }


@pytest.mark.parametrize("name", spoiled())
def test_a_fragment_that_contradicts_itself_costs_its_message_and_nothing_else(ordered: int, name: str) -> None:
    desk = Desk(ordered=ordered)
    items = pieces(1, 4)
    items[1] = spoiled()[name]
    assert desk.feed(whole(0), *items, whole(5)) == data(0) + lost(1, 2, 3, 4) + data(5)
    assert desk.tally.malformed == 1
    assert desk.budget.bytes == 0
    assert desk.topic.fast_path


@each_of("name", spoiled())
def test_raw_only_the_fragment_itself_is_lost(name: str) -> None:
    desk = Desk(ordered=0)
    items = pieces(1, 4)
    items[1] = spoiled()[name]
    seen = desk.feed(whole(0), *items, whole(5))
    assert [each[:2] for each in seen] == [("data", 0), ("data", 1), ("lost", 2), ("data", 3), ("data", 4), ("data", 5)]


def test_a_message_of_another_size_within_one_ends_it(ordered: int) -> None:
    desk = Desk(ordered=ordered)
    items = pieces(1, 4)
    items[1] = fragment(2, 1, 8, len(message(1, 4)) + 1, items[1].payload[16:])
    assert desk.feed(whole(0), *items, whole(5)) == data(0) + lost(1, 2, 3, 4) + data(5)
    assert desk.tally.malformed == 0


def test_compiled_code_puts_fragments_in_order_together(ordered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(ordered=ordered)
    desk.feed(whole(0))
    first, second, third, fourth = pieces(1, 4)
    # The extension type cannot be patched, and this class calls it for what is not in order.
    monkeypatch.delattr(DeliveryController, "take_slowly")
    assert desk.feed(first, second) == []
    assert (desk.tally.reassembly_bytes, desk.budget.bytes > 0) == (len(message(1, 4)), True)
    assert desk.feed(third) == []
    assert desk.feed(fourth) == together(1, 4)
    assert (desk.tally.fragments_rcved, desk.tally.msgs_reassembled, desk.budget.bytes) == (4, 1, 0)
    assert desk.topic.fast_path


@pytest.mark.parametrize("end", ["lost", "given up", "finished", "forgotten"])
def test_what_compiled_code_has_put_together_is_not_forgotten(ordered: int, end: str) -> None:
    desk = Desk(ordered=ordered)
    desk.feed(whole(0))
    desk.feed(*pieces(1, 4)[:2])
    if end == "lost":
        assert desk.feed(whole(4)) == [*lost(1, 2, 3), *data(4)]
    elif end == "given up":
        assert desk.feed(whole(3)) == [*lost(1, 2), *data(3)]
    elif end == "finished":
        assert desk.end(5) == [*lost(1, 2, 3, 4), ("EOS",)]
    else:
        desk.topic.forget()
    assert (desk.tally.reassembly_bytes, desk.budget.bytes) == (0, 0)


def test_a_gap_in_a_message_that_compiled_code_has_begun_is_filled(ordered: int) -> None:
    desk = Desk(ordered=ordered, recovery_ns=LONG)
    desk.feed(whole(0))
    first, second, third, fourth = pieces(1, 4)
    assert desk.feed(first, third, fourth) == []
    assert desk.feed(second) == together(1, 4)
    assert desk.feed(*pieces(5, 3)) == together(5, 3)
