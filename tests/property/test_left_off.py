"""Stays in a session that end at any moment, and go on: each number is delivered once or reported lost once."""

from __future__ import annotations

from random import Random

import pytest

from ipcbus.delivery.retransmitted_feed import RetransmittedFeed
from tests.kit.datagrams import Item, fragments
from tests.kit.desk import Desk, whole
from tests.kit.retaining import entry

SEEDS = 300


class Stays:
    """A source with retention, and a receiver in one stay after the other."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.ordered = random.choice([1, 1, -1])
        self.items: list[Item] = []
        self.kept_from = 0
        self.desks: list[Desk] = []
        self.begin()

    def begin(self) -> None:
        """Begins the next stay."""
        left_off = self.desks[-1].topic.leave_off() if self.desks else None
        if self.desks:
            self.desks[-1].end()
        desk = Desk(
            floor=len(self.items) if self.desks else 0, ordered=self.ordered, waiting_max=self.random.choice([0, 3])
        )
        if left_off is not None:
            desk.topic.go_on(left_off)
        desk.topic.recovers = self.random.random() < 0.9
        if left_off is not None:
            desk.topic.miss_again(left_off)
        self.desks.append(desk)

    @property
    def desk(self) -> Desk:
        """The stay that goes on."""
        return self.desks[-1]

    def send(self) -> None:
        """The source sends a message, whole or in pieces, of which some come."""
        number = len(self.items)
        new = [whole(number)] if self.random.random() < 0.7 else fragments(number, b"x" * 12, 4)
        self.items += new
        for item in new:
            if self.random.random() < 0.8:
                self.desk.feed(item)

    def send_again(self, count: int) -> None:
        """The source answers for the first numbers that are missing."""
        missing = next(self.desk.topic.missing(), None)
        if missing is None:
            return
        first, last = missing[0], min(missing[1], missing[0] + count - 1)
        kept = [item for item in self.items[first : last + 1] if item.sequence >= self.kept_from]
        feed = RetransmittedFeed(self.desk.demux, self.desk.topic)
        entries = b"".join(entry(item.sequence, item.payload, item.flags) for item in kept)
        feed.begin(first, last, entries, self.desk.topic.recovery_flag)
        assert feed.run(self.desk.now_ns)

    def step(self) -> None:
        """Something happens."""
        kind = self.random.random()
        if kind < 0.6:
            self.send()
        elif kind < 0.8:
            self.send_again(self.random.randint(1, 5))
        elif kind < 0.9:
            self.desk.topic.note_next_sequence(len(self.items), self.desk.now_ns)
        elif kind < 0.93:
            self.kept_from = self.random.randint(self.kept_from, len(self.items))
        else:
            self.begin()

    def account(self) -> list[int]:
        """The numbers that the receiver got or lost, in its order."""
        return [
            number
            for desk in self.desks
            for message in desk.messages
            if message.sequence_number >= 0
            for number in range(message.first_sequence_number, message.sequence_number + 1)
        ]


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, 4))])
def test_each_number_has_one_fate(part: int) -> None:
    for seed in range(part * SEEDS, (part + 1) * SEEDS):
        stays = Stays(Random(seed))
        for _ in range(60):
            stays.step()
        stays.desk.end(len(stays.items))
        account = stays.account()
        assert sorted(account) == list(range(len(stays.items))), f"seed {seed}"
        assert stays.ordered != 1 or account == sorted(account), f"seed {seed}"
