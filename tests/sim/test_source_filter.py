"""Source-side filtering in virtual time: clients with changing topics over a wire that loses, doubles and delays."""

from __future__ import annotations

import itertools
from random import Random
from typing import TYPE_CHECKING

import pytest

from ipcbus.reliability.loss_detector import NakSettings
from ipcbus.reliability.receive_state import ReceiveSettings
from ipcbus.reliability.receiver_settings import ReceiverSettings
from ipcbus.reliability.registration import State
from ipcbus.reliability.reliable_receiver import ReliableReceiver
from ipcbus.reliability.reliable_sender import ReliableSender
from ipcbus.reliability.send_state import SendSettings
from ipcbus.reliability.session_sender import SenderSettings
from ipcbus.wire import udp_packets

if TYPE_CHECKING:
    from collections.abc import Hashable

AT = ("10.0.0.1", 14380)
MS, SECOND = 1_000_000, 1_000_000_000
STEP = 5 * MS
TOPICS = 6
SEEDS = [*range(12), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(12, 400))]


class Member:
    """A receiving context: what it receives, and what came of it."""

    def __init__(self, run: Run, place: int) -> None:
        self.run, self.address = run, ("10.0.0.2", place)
        naks = NakSettings(run.random.choice([0, 20]) * MS, 40 * MS, 50 * MS, generation=20 * SECOND)
        settings = ReceiverSettings(ReceiveSettings(naks), jump_max=run.random.choice([64, 1 << 16]))
        draws = Random(run.random.random())
        self.end = ReliableReceiver(7, AT, settings, draws, run.now, (place, 2, "here"), multicast=False)
        self.topics: set[int] = set()
        self.since: dict[int, int] = {}
        """For each topic, received without a break: the first number that it was promised; -1 before that."""
        self.got: dict[int, set[int]] = {topic: set() for topic in range(TOPICS)}
        self.numbers: set[int] = set()
        self.retopic()

    def retopic(self) -> None:
        """Receives other topics."""
        self.topics = {topic for topic in range(TOPICS) if self.run.random.random() < 0.4}
        self.since = {topic: self.since.get(topic, -1) for topic in self.topics}
        self.end.topics(sorted(self.topics), self.run.now)

    def take(self, found: list[tuple[bytes, int]]) -> None:
        """Enters what came."""
        for datagram, _ in found:
            number, messages = self.run.datagrams[datagram]
            assert number not in self.numbers, f"datagram {number} came twice"
            self.numbers.add(number)
            for topic, sequence in messages:
                self.got[topic].add(sequence)

    def note_promises(self) -> None:
        """Takes the first numbers of topics, once the source has sent them."""
        for topic, start in self.end.subscriptions.starts.items():
            if self.since.get(topic) == -1 and start is not None:
                self.since[topic] = start

    @property
    def ledger(self) -> tuple[int, int]:
        """The datagrams since it joined, and those accounted for."""
        counts, end = self.end.counts, self.end
        given_up = counts.unrecovered_tmo + counts.unrecovered_txw + counts.unrecovered_full - counts.late
        due = end.lead - (end.joined_at if end.joined_at is not None else end.lead)
        return due, len(self.numbers) + counts.dgrams_filtered + given_up + end.missing + end.held


class Run:
    """One seed."""

    def __init__(self, seed: int, *, calm: bool = False) -> None:
        self.random = Random(seed)
        self.now = 0
        self.loss = 0.0 if calm else self.random.choice([0, 0.05, 0.3])
        self.double = 0.0 if calm else self.random.choice([0, 0.1])
        self.late = 0.0 if calm else self.random.choice([0, 0.2])
        self.rate = 0 if calm else self.random.choice([0, 0, 200_000])
        sending = SendSettings(data_rate=self.rate, retransmit_rate=0, ignore_interval=10 * MS, sm_maximum=SECOND)
        self.sent = [0] * TOPICS
        self.datagrams: dict[bytes, tuple[int, list[tuple[int, int]]]] = {}
        self.source = ReliableSender(
            7, SenderSettings(sending), bytes(16), 0, False, lambda topic: (self.sent[topic],) * 2, self.topics_of
        )
        self.cut: Hashable = None
        self.wire: list[tuple[int, int, bytes, tuple[str, Hashable]]] = []
        self._order = itertools.count()
        self.on_wire = 0
        self.members = [Member(self, place) for place in range(self.random.choice([1, 2, 3]))]

    def topics_of(self, body: bytes) -> set[int]:
        return {topic for topic, _ in self.datagrams[body[udp_packets.DATA_BODY.size :]][1]}

    def send(self) -> None:
        """Sends a datagram with messages of one or two topics."""
        messages = []
        for topic in self.random.sample(range(TOPICS), self.random.choice([1, 1, 2])):
            messages.append((topic, self.sent[topic]))
            self.sent[topic] += 1
        number = len(self.datagrams)
        datagram = number.to_bytes(8, "big").ljust(self.random.choice([8, 200]))
        self.datagrams[datagram] = number, messages
        self.source.send(datagram, len(messages), 5, self.now)

    def step(self, send: int) -> None:
        """Lets a little time pass."""
        self.now += STEP
        for _ in range(send):
            if not self.source.blocked:
                self.send()
        self.source.turn(self.now)
        for member in self.members:
            member.end.turn(self.now)
            member.take(member.end.ready(self.now))
        for _ in range(4):
            self._exchange()
        for member in self.members:
            due, accounted = member.ledger
            assert due == accounted, f"{self.now}: {due} datagrams, {accounted} accounted for: {member.end.counts}"

    def _exchange(self) -> None:
        for member in self.members:
            for packet in member.end.take():
                self._put(packet, member.address, "up")
        for packet, to in self.source.take():
            assert to is not None, "to all, though each client gets its own"
            self.on_wire += packet[1] == udp_packets.DATA
            for address in self.source.addresses if to is None else (to,):
                self._put(packet, address, "down")
        due = [each for each in self.wire if each[0] <= self.now]
        self.wire = [each for each in self.wire if each[0] > self.now]
        for _, _, packet, (way, address) in due:
            member = next(each for each in self.members if each.address == address)
            if way == "up":
                self.source.receive(packet, address, self.now)
            else:
                member.take(member.end.receive(packet, AT, self.now))
                member.take(member.end.ready(self.now))
                member.note_promises()

    def _put(self, packet: bytes, address: Hashable, way: str) -> None:
        for _ in range(1 + (self.random.random() < self.double)):
            if self.random.random() >= self.loss and self.cut != address:
                delay = int(self.random.uniform(0, 30 * MS)) if self.random.random() < self.late else 0
                self.wire.append((self.now + delay, next(self._order), packet, (way, address)))

    def run(self) -> Run:
        """Sends while members change their topics and are cut off, then until nothing is missing."""
        for _ in range(4):
            burst = self.random.choice([1, 4, 40])
            for _ in range(150):
                self.step(self.random.randrange(burst + 1))
            victim = self.random.choice(self.members)
            if self.loss:
                self.cut = victim.address
                for _ in range(self.random.choice([20, 400])):
                    self.step(self.random.randrange(3))
                self.cut = None
            if self.random.random() < 0.7:
                victim.retopic()
        for _ in range(1600):
            self.step(0)
        return self


def check(run: Run) -> None:
    """Each member has every message of its topics from the promised number on, and misses nothing."""
    for member in run.members:
        end = member.end
        assert end.state is State.JOINED
        assert (end.lead, end.missing, end.catches_up) == (len(run.datagrams), 0, False)
        counts = end.counts
        assert counts.unrecovered_tmo + counts.unrecovered_txw + counts.unrecovered_full == 0
        assert set(member.since) == member.topics
        for topic, start in member.since.items():
            assert start >= 0, f"topic {topic} was never confirmed"
            lacks = set(range(start, run.sent[topic])) - member.got[topic]
            assert not lacks, f"topic {topic} from {start} on lacks {sorted(lacks)[:9]}"


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_not_sent_is_not_missed_and_what_is_received_comes(seed: int) -> None:
    run = Run(seed).run()
    check(run)
    filtered = run.source.snapshot()["dgrams_filtered"]
    assert filtered > 0
    if not (run.loss or run.double):
        assert filtered == sum(member.end.counts.dgrams_filtered for member in run.members)


@pytest.mark.parametrize("seed", range(4))
def test_without_losses_nobody_asks_and_nothing_else_is_on_the_wire(seed: int) -> None:
    run = Run(seed, calm=True).run()
    check(run)
    assert sum(member.end.counts.naks_sent for member in run.members) == 0
    came = sum(len(member.numbers) for member in run.members)
    filtered = run.source.snapshot()["dgrams_filtered"]
    assert run.on_wire == came
    assert came + filtered == sum(member.end.lead - (member.end.joined_at or 0) for member in run.members)
