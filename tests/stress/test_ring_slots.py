"""Readers come, go and are killed while several processes reclaim: no live slot is freed, no record is missed."""

from __future__ import annotations

import os
import random

import pytest

from ringbuf import layout, segment
from ringbuf.channel import JoinedChannel, OwnedChannel
from ringbuf.slots import SlotTable
from tests.rings.channels import control_name, join, ring_name, shape, slots_of
from tests.rings.children import Children, Flag, kill_myself

SLOTS = 12
STEPS = 11
"""Steps of joining and leaving at which a victim may die; some numbers are past the last one."""


def write_until(domain: str, ready: Flag, done: Flag) -> int:
    """The source: numbers its records, waits for slow readers, and looks for dead ones when it waits."""
    channel = OwnedChannel(ring_name(domain), control_name(domain), shape(slots_max=SLOTS, window=1 << 14))
    ready.raise_it()
    number = 0
    try:
        while not done.is_up():
            for _ in range(200):
                while not channel.writer.write(number.to_bytes(8, "little") * (number % 20 + 1)):
                    channel.writer.wait_room(200, 10, 2_000_000)
                    channel.slots.reclaim()
                number += 1
            os.sched_yield()
    finally:
        channel.close()
    return number


class Checking:
    """A reader that looks after its slot and its numbers."""

    def __init__(self, channel: JoinedChannel) -> None:
        self.channel = channel
        self.slot = slots_of(channel)[channel.index]
        self.generation = int(self.slot["generation"])
        self.next = -1
        self.count = 0

    def read_some(self, limit: int) -> None:
        """Reads up to so many records and checks each."""
        reader = self.channel.reader
        for _ in range(limit):
            body = reader.read()
            if body is None:
                reader.show()
                os.sched_yield()
                break
            number = int.from_bytes(body[:8], "little")
            assert self.next in (-1, number)
            assert body == body[:8] * (number % 20 + 1)
            self.next = number + 1
            self.count += 1
        self.check_slot()

    def check_slot(self) -> None:
        """The slot is still this reader's."""
        found = (int(self.slot["state"]), int(self.slot["pid"]), int(self.slot["generation"]))
        assert found == (layout.SLOT_ACTIVE, os.getpid(), self.generation)


def keep(domain: str, joined: Flag) -> tuple[int, int]:
    """Reads to the end; the number after the last record, and how many records it read."""
    checking = Checking(join(domain, 1))
    joined.raise_it()
    reader = checking.channel.reader
    while not reader.ended:
        checking.read_some(500)
        assert not reader.broken
    checking.channel.leave()
    return checking.next, checking.count


def churn(domain: str, cycles: int, seed: int) -> int:
    """Joins, reads a little and leaves, again and again."""
    rng = random.Random(seed)
    for _ in range(cycles):
        checking = Checking(join(domain, 2))
        for _ in range(rng.randrange(4)):
            checking.read_some(20)
        checking.check_slot()
        checking.channel.leave()
    return cycles


def reclaim_until(domain: str, done: Flag) -> int:
    """Reclaims without a pause; how many slots it freed."""
    fd = segment.open_fd(control_name(domain), write=True)
    table = SlotTable(segment.map_fd(fd, write=True), fd)
    freed = 0
    while not done.is_up():
        freed += len(table.reclaim())
        os.sched_yield()
    return freed


def die_somewhere(domain: str, seed: int) -> None:
    """Is killed at one of the steps of joining, reading and leaving."""
    left = random.Random(seed).randrange(STEPS)

    def checkpoint(_: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            kill_myself()

    channel = join(domain, 3, checkpoint)
    Checking(channel).read_some(5)
    channel.leave()
    kill_myself()


def race(domain: str, cycles: int, kills: int) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    with Children() as children, Flag() as ready, Flag() as joined, Flag() as done, Flag() as stop:
        writer = children.run(write_until, domain, ready, stop)
        children.until(ready)
        keepers = [children.run(keep, domain, joined) for _ in range(2)]
        for _ in keepers:
            children.until(joined)
        reclaimers = [children.run(reclaim_until, domain, done) for _ in range(2)]
        churners = [children.run(churn, domain, cycles, seed + number) for number in range(2)]
        for number in range(kills):
            assert children.run(die_somewhere, domain, seed + number).wait() == -9
        for churner in churners:
            assert churner.result() == cycles
        done.raise_it()
        for reclaimer in reclaimers:
            reclaimer.result()
        stop.raise_it()
        written = writer.result()
        for keeper in keepers:
            last, count = keeper.result()
            assert last == written
            assert 0 < count <= written


@pytest.mark.stress
def test_no_live_slot_is_freed_while_readers_come_go_and_die(domain: str) -> None:
    race(domain, cycles=100, kills=40)


@pytest.mark.long
def test_no_live_slot_is_freed_for_long_while_readers_come_go_and_die(domain: str) -> None:
    race(domain, cycles=10_000, kills=4000)
