"""A gate that holds live messages back while its receivers get what the source sends again."""

from __future__ import annotations

import random
import struct

import pytest

from ipcbus import MessageFlag, MessageType
from ipcbus.delivery.recovery_gate import RecoveryGate
from ipcbus.delivery.sink import Sink
from tests.kit.datagrams import Item, compose, fragments
from tests.kit.desk import Desk, data, lost, seen_of, whole

BOS, EOS = ("BOS",), ("EOS",)


def entries(*items: Item) -> bytes:
    """What a source retains of these messages."""
    return b"".join(struct.pack("<Q", 7) + compose(item) for item in items)


def numbers(first: int, last: int) -> bytes:
    """The same of whole messages."""
    return entries(*(whole(number) for number in range(first, last + 1)))


class Gated(Desk):
    """A session whose topic 1 has a gate before its receiver from the beginning; it joined at number `floor`."""

    def __init__(self, floor: int = 5, *, keep_max: int = 100, sink: Sink | None = None, **rules: int) -> None:
        super().__init__(floor=floor, **rules)
        self.target = sink or Sink(self.note, 1)
        self.topic.set_receivers([self.target])
        self.gate = RecoveryGate(
            self.session,
            self.topic,
            [self.target],
            flags=MessageFlag.LATE_JOIN,
            keep_max=keep_max,
            recovers_losses=True,
        )

    def answer(self, first: int, last: int) -> None:
        """The source sends these numbers again."""
        wanted = self.gate.wanted
        assert wanted is not None
        assert wanted[0] == first
        self.gate.retransmitted(last, numbers(first, last), 0, self.now_ns)


def test_history_comes_before_live_messages_and_is_flagged() -> None:
    desk = Gated()
    desk.feed(whole(5), whole(6))
    assert desk.seen == []
    desk.gate.begin(2, 5)
    assert desk.gate.wanted == (2, 4)
    desk.answer(2, 3)
    assert desk.gate.wanted == (4, 4)
    desk.answer(4, 4)
    assert desk.seen == [BOS, *data(2, 3, 4, 5, 6)]
    assert [message.flags for message in desk.messages[1:]] == [8, 8, 8, 0, 0]
    assert desk.gate.opened
    desk.feed(whole(7))
    assert desk.seen[-1:] == data(7)
    assert desk.end(8) == [EOS]
    assert desk.session.recovered == 3


def test_live_messages_that_the_source_sends_again_come_once() -> None:
    desk = Gated(floor=5)
    desk.feed(whole(4), whole(5), whole(6))  # 4 was in the open batch when the receiver joined
    desk.gate.begin(3, 6)
    desk.answer(3, 5)
    assert desk.seen == [BOS, *data(3, 4, 5, 6)]


def test_without_anything_to_recover_the_gate_opens_at_once() -> None:
    desk = Gated()
    desk.feed(whole(5))
    desk.gate.begin(5, 5)
    assert desk.gate.advance(0)
    assert desk.seen == [BOS, *data(5)]


def test_numbers_that_are_gone_are_lost_in_order() -> None:
    desk = Gated(floor=6)
    desk.gate.begin(1, 6)
    desk.gate.retransmitted(5, entries(whole(2), whole(4)), 0, 0)
    assert desk.seen == [BOS, *lost(1), *data(2), *lost(3), *data(4), *lost(5)]
    assert desk.session.demux.lost == 3


def test_a_long_way_behind_live_messages_are_left_out_and_asked_for_later() -> None:
    desk = Gated(floor=5, keep_max=4)
    desk.gate.begin(0, 5)
    desk.feed(*(whole(number) for number in range(5, 15)))
    desk.gate.advance(0)
    assert desk.gate.waiting == 0
    desk.feed(whole(15))
    assert desk.gate.wanted == (0, 15)
    desk.answer(0, 13)
    assert desk.gate.listens is True
    desk.feed(whole(16))
    desk.answer(14, 15)
    assert desk.seen == [BOS, *data(*range(17))]
    assert desk.gate.opened


def test_a_loss_of_the_transport_meanwhile_is_recovered_too() -> None:
    desk = Gated(floor=1)
    desk.feed(whole(1), whole(4))
    desk.gate.begin(0, 1)
    desk.answer(0, 0)
    assert desk.gate.wanted == (2, 3)
    assert desk.seen == [BOS, *data(0, 1)]
    desk.answer(2, 3)
    assert desk.seen == [BOS, *data(0, 1, 2, 3, 4)]
    assert desk.gate.opened
    assert desk.session.demux.lost == 0


def test_a_source_that_is_gone_leaves_losses_and_the_end_comes_last() -> None:
    desk = Gated(floor=3)
    desk.feed(whole(3), whole(5))
    desk.gate.begin(1, 3)
    desk.answer(1, 1)
    desk.end(7)
    assert desk.seen == [BOS, *data(1), *lost(2), *data(3), *lost(4), *data(5), *lost(6), EOS]


def test_an_end_before_the_beginning_of_a_recovery_loses_nothing_live() -> None:
    desk = Gated(floor=3)
    desk.feed(whole(3))
    desk.end(4)
    assert desk.seen == [BOS, *data(3), EOS]


def test_a_receiver_without_room_gets_the_rest_later() -> None:
    sink = Sink(None, 2)
    desk = Gated(floor=4, sink=sink)
    desk.feed(whole(4))
    desk.gate.begin(0, 4)
    desk.answer(0, 3)
    got = []
    while True:
        while sink.queue:
            got.append(seen_of(sink.queue.popleft()))
        if desk.gate.opened:
            break
        desk.gate.advance(0)
    assert got == [BOS, *data(0, 1, 2, 3, 4)]


def test_fragments_are_put_together_over_several_answers_and_a_loss() -> None:
    desk = Gated(floor=3)
    pieces = fragments(0, b"x" * 250, 100)
    desk.gate.begin(0, 3)
    desk.gate.retransmitted(0, entries(pieces[0]), 0, 0)
    desk.gate.retransmitted(2, entries(*pieces[1:]), 0, 0)
    assert desk.seen == [BOS, ("data", 0, 2, b"x" * 250)]
    assert desk.messages[-1].flags == MessageFlag.LATE_JOIN


def test_a_receiver_that_is_closed_meanwhile_is_dropped() -> None:
    desk = Gated()
    desk.gate.begin(0, 5)
    desk.topic.set_receivers([])
    assert desk.gate.opened
    assert desk.topic.gates == []


@pytest.mark.parametrize("entry", [b"1234567", numbers(0, 0)[:-8], entries(Item(1, 0, b"", 0x8)), numbers(9, 9)])
def test_entries_that_contradict_themselves_are_lost(entry: bytes) -> None:
    desk = Gated(floor=1)
    desk.gate.begin(0, 1)
    desk.gate.retransmitted(0, entry, 0, 0)
    assert desk.seen == [BOS, *lost(0)]


@pytest.mark.parametrize("seed", range(200))
def test_the_ledger_is_exact(seed: int) -> None:
    """Live messages with losses, answers of any length with holes, a source that ends: each number comes once."""
    chance = random.Random(seed)
    joined = chance.randrange(1, 40)
    desk = Gated(floor=joined, keep_max=chance.choice([3, 10, 1000]))
    if chance.random() < 0.8:
        desk.gate.begin(chance.randrange(joined), joined)
    first, live = desk.gate.wanted[0] if desk.gate.wanted else joined, joined
    for _ in range(chance.randrange(40)):
        if chance.random() < 0.6:
            live += chance.choice([0, 0, 0, 1, 3])
            desk.feed(*(whole(number) for number in range(live, live + 5)))
            live += 5
        wanted = desk.gate.wanted
        if wanted is not None and chance.random() < 0.7:
            last = chance.randrange(wanted[0], wanted[1] + 1)
            kept = [whole(number) for number in range(wanted[0], last + 1) if chance.random() < 0.9]
            desk.gate.retransmitted(last, entries(*kept), 0, 0)
        desk.gate.advance(0)
    live += chance.randrange(3)
    desk.end(live)
    accounted: list[int] = []
    for message in desk.messages:
        if message.type not in (MessageType.BOS, MessageType.EOS):
            accounted += range(message.first_sequence_number, message.sequence_number + 1)
    assert accounted == list(range(first, live))
    assert desk.seen[-1] == EOS or not accounted
    assert desk.seen.count(BOS) == desk.seen.count(EOS) <= 1
