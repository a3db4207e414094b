"""Shares in virtual time, from a seed: members join, hang, die and answer late; each message has an end."""

from __future__ import annotations

import random
from collections import Counter, deque

import pytest

from ipcbus.shares.share_member import ShareMember
from ipcbus.shares.share_queue import ShareQueue
from ipcbus.shares.share_settings import ShareSettings
from ipcbus.wire import gmd_messages, share_messages
from ipcbus.wire.share_messages import Ack, Join, Leave, Nack
from ipcbus.wire.work_entries import WorkMessage

MS = 1_000_000


class _Peer:
    """A member behind a channel, as its application sees it."""

    def __init__(self, world: _World, number: int, portion: int) -> None:
        self.world, self.number, self.portion = world, number, portion
        self.machine = ShareMember("workers", 7, number, context_id=number, portion=portion)
        self.down: deque[bytes] = deque()
        self.up: deque[bytes] = deque()
        self.delivered: list[int] = []  # and not acknowledged
        self.acked: list[int] = []

    def send(self, message: bytes) -> bool:
        if self.world.draw.random() < self.world.full:
            return False
        self.up.append(message)
        return True

    def step(self) -> None:
        draw = self.world.draw
        while self.down and draw.random() < 0.8:
            found = share_messages.decode(self.down.popleft())
            assert isinstance(found, share_messages.Work | share_messages.Joined)
            self.machine.receive(found)
        while self.machine.work and draw.random() < 0.9:
            work = self.machine.work.popleft()
            for entry in work.entries:
                first = entry.number - 1
                self.world.delivered[first] += 1
                self.delivered.append(first)
        for first in draw.sample(self.delivered, len(self.delivered)):
            if draw.random() < self.world.work:
                self.delivered.remove(first)
                if draw.random() < self.world.refuse:
                    self.machine.refuse(first + 1, None if draw.random() < 0.5 else draw.randrange(50 * MS))
                else:
                    self.world.worked.add(first)
                    self.acked.append(first)
                    self.machine.acknowledge(first + 1, first + 1)
        if self.acked and not self.world.settings.reassign_ns and draw.random() < 0.05:  # doubled
            again = draw.choice(self.acked)
            self.machine.acknowledge(again + 1, again + 1)
        self.machine.turn(self.world.now_ns, self.send)


class _World:
    """One source with one share."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        draw = self.draw
        self.settings = ShareSettings(
            flight_max=draw.choice([5, 100, 1000]),
            reassign_ns=draw.choice([0, 0, 20 * MS]),
            deliveries_max=draw.choice([0, 0, 3]),
            lifetime_ns=draw.choice([0, 0, 200 * MS]),
        )
        self.full, self.work, self.refuse = draw.choice([0.0, 0.2]), draw.random(), draw.choice([0.0, 0.1])
        self.queue = ShareQueue("workers", 7, self.settings)
        self.now_ns, self.next, self.sent = 1, 0, 0
        self.peers: list[_Peer] = []
        self.numbers = 0
        self.assigned: Counter[int] = Counter()
        self.delivered: Counter[int] = Counter()
        self.worked: set[int] = set()
        self.lost: list[int] = []

    def join(self) -> None:
        self.numbers += 1
        self.peers.append(_Peer(self, self.numbers, self.draw.choice([1, 4, 64])))

    def publish(self, count: int) -> None:
        messages = []
        for _ in range(count):
            last = self.next + self.draw.choice([0, 0, 0, 4])
            entry = gmd_messages.entry(self.next + 1, 5, 0, 0, b"", b"%d" % self.next)
            messages.append(WorkMessage(self.next, last, self.draw.random() < 0.1, entry))
            self.next, self.sent = last + 1, self.sent + 1
        self.queue.add(messages, self.now_ns)

    def send(self, peer: object, message: bytes) -> bool:
        target = next(each for each in self.peers if each is peer)
        if self.draw.random() < self.full:
            return False
        found = share_messages.decode(message)
        assert isinstance(found, share_messages.Work)
        assert found.instance == target.number
        for entry in found.entries:
            assert bool(found.detail & share_messages.REASSIGNED) == (self.assigned[entry.number - 1] > 0)
            self.assigned[entry.number - 1] += 1
        target.down.append(message)
        return True

    def take(self, peer: _Peer) -> None:
        while peer.up:
            found = share_messages.decode(peer.up.popleft())
            if isinstance(found, Join):
                answer = self.queue.join(peer, found.instance, found.context_id, found.portion)
                peer.down.append(share_messages.joined(7, found.instance, answer))
            elif isinstance(found, Ack):
                self.queue.acknowledge(peer, found.instance, found.ranges)
            elif isinstance(found, Nack):
                self.queue.refuse(peer, found.instance, found.number, found.delay_ns, self.now_ns)
            elif isinstance(found, Leave):
                self.queue.leave(peer, found.instance)

    def turn(self) -> None:
        due_ns = self.queue.turn(self.now_ns, self.send)
        assert due_ns >= self.now_ns
        while (report := self.queue.next_report()) is not None:
            self.lost.append(report.first)
        found = self.queue.statistics()
        assert found.consumed + found.lost + found.pending == self.sent
        assert found.lost == len(self.lost)
        for peer in self.peers:
            held = sum(len(work.entries) for work in peer.machine.work) + len(peer.delivered)
            assert held <= peer.portion

    def step(self) -> None:
        draw = self.draw
        chance = draw.random()
        if chance < 0.3:
            self.publish(draw.choice([1, 2, 30]))
        elif chance < 0.4 and len(self.peers) < 5:
            self.join()
        elif chance < 0.45 and self.peers:
            peer = draw.choice(self.peers)
            self.peers.remove(peer)
            if draw.random() < 0.5:
                peer.up.append(peer.machine.leave())
                self.take(peer)
            self.queue.lost_peer(peer)  # its channel ends in either case
        for peer in self.peers:
            peer.step()
            self.take(peer)
        self.now_ns += draw.choice([0, MS, 10 * MS])
        self.turn()


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_each_message_is_worked_off_or_reported(first: int) -> None:
    for seed in range(first, first + 15):
        world = _World(seed)
        for _ in range(150):
            world.step()
        world.join()
        world.full, world.refuse, world.work = 0.0, 0.0, 1.0
        for _ in range(3000):
            if not world.queue.pending:
                break
            for peer in world.peers:
                peer.step()
                world.take(peer)
            world.now_ns += 5 * MS
            world.turn()
        found = world.queue.statistics()
        assert (found.pending, found.in_flight) == (0, 0), f"seed {seed}"
        assert found.consumed + found.lost == world.sent, f"seed {seed}"
        assert len(set(world.lost)) == len(world.lost), f"seed {seed}"


def test_without_faults_each_message_is_assigned_once_and_the_work_is_even() -> None:
    world = _World(1)
    world.settings = ShareSettings()
    world.queue = ShareQueue("workers", 7, world.settings)
    world.full, world.refuse, world.work = 0.0, 0.0, 1.0
    world.peers = [_Peer(world, number, 64) for number in range(1, 5)]
    for _ in range(200):
        world.publish(8)
        for peer in world.peers:
            peer.step()
            world.take(peer)
        world.turn()
    while world.queue.pending:
        for peer in world.peers:
            peer.step()
            world.take(peer)
        world.turn()
    assert set(world.assigned.values()) == {1}
    assert world.lost == []
    shares = [len(peer.acked) for peer in world.peers]
    assert sum(shares) >= 1600
    assert min(shares) > 300


def test_a_member_that_hangs_keeps_no_more_than_its_portion() -> None:
    world = _World(2)
    world.settings = ShareSettings(reassign_ns=10 * MS)
    world.queue = ShareQueue("workers", 7, world.settings)
    world.full, world.refuse, world.work = 0.0, 0.0, 1.0
    hung, busy = _Peer(world, 1, 4), _Peer(world, 2, 64)
    world.peers = [hung, busy]
    for peer in world.peers:
        world.queue.join(peer, peer.number, peer.number, peer.portion)
    world.publish(100)
    for _ in range(20):
        busy.step()
        world.take(busy)
        world.now_ns += 5 * MS
        world.turn()
    assert world.queue.statistics().pending == 0
    works = [found for message in hung.down if isinstance(found := share_messages.decode(message), share_messages.Work)]
    assert sum(len(work.entries) for work in works) == 4
    assert len(busy.acked) == 100


def test_a_message_that_kills_its_members_is_given_up() -> None:
    world = _World(3)
    world.settings = ShareSettings(deliveries_max=3)
    world.queue = ShareQueue("workers", 7, world.settings)
    world.full = 0.0
    world.publish(1)
    for number in range(1, 6):
        peer = _Peer(world, number, 64)
        world.peers = [peer]
        world.queue.join(peer, number, number, 64)
        world.turn()
        world.queue.lost_peer(peer)
    world.turn()
    assert world.assigned[0] == 3
    assert world.lost == [0]


def test_a_message_that_kills_its_members_takes_no_others_with_it() -> None:
    world = _World(4)
    world.settings = ShareSettings(deliveries_max=2)
    world.queue = ShareQueue("workers", 7, world.settings)
    world.full = 0.0
    world.publish(30)
    poison = world.queue._fresh[12].message.first
    for number in range(1, 5):
        peer = _Peer(world, number, 64)
        world.peers = [peer]
        world.queue.join(peer, number, number, 64)
        for _ in range(100):
            world.turn()
            world.take(peer)
            peer.machine.work.extend(
                found
                for message in peer.down
                if isinstance(found := share_messages.decode(message), share_messages.Work)
            )
            peer.down.clear()
            got = [entry.number for work in peer.machine.work for entry in work.entries]
            peer.machine.work.clear()
            if poison + 1 in got:
                break  # it dies before it has acknowledged anything
            for each in got:
                world.queue.acknowledge(peer, number, [(each, each)])
        world.queue.lost_peer(peer)
    world.turn()
    figures = world.queue.statistics()
    assert world.lost == [poison]
    assert (figures.consumed, figures.lost, figures.dead_letters, figures.pending) == (29, 1, 1, 0)


def test_a_forged_range_ends_only_what_the_member_has() -> None:
    queue = ShareQueue("workers", 7, ShareSettings())
    queue.add([WorkMessage(number, number, False, bytes(40)) for number in range(10)], 1)
    queue.join("member", 1, 1, 4)
    queue.turn(1, lambda peer, message: True)
    queue.acknowledge("member", 1, [(1, 1 << 60)])
    queue.acknowledge("stranger", 1, [(1, 1 << 60)])
    assert (queue.statistics().consumed, queue.pending, queue.ignored) == (4, 6, 1)


@pytest.mark.parametrize("seed", range(5))
def test_bytes_of_any_kind_are_refused(seed: int) -> None:
    draw = random.Random(seed)
    good = [
        share_messages.join(1, 2, 3, 4, "name"),
        share_messages.ack(1, 2, [(1, 5)]),
        share_messages.nack(1, 2, 3, None),
        share_messages.leave(1, 2),
        share_messages.joined(1, 2),
        share_messages.work(1, 2, 1, 1, 2, [gmd_messages.entry(1, 5, 0, 0, b"", b"data")]),
    ]
    for message in good:
        assert share_messages.decode(message) is not None
        for _ in range(300):
            damaged = bytearray(message)
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
            share_messages.decode(bytes(damaged[: draw.randrange(len(damaged) + 1)]))
