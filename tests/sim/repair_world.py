"""A source that sends all the time, and receivers behind links that lose, delay and jumble, in virtual time."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from ipcbus.reliability.loss_detector import NakSettings
from ipcbus.reliability.receive_state import ReceiveSettings
from ipcbus.reliability.receiver_settings import ReceiverSettings
from ipcbus.reliability.reliable_receiver import ReliableReceiver
from ipcbus.reliability.reliable_sender import ALL, ReliableSender
from ipcbus.reliability.send_state import SendSettings
from ipcbus.reliability.session_sender import SenderSettings
from ipcbus.wire.udp_packets import AGAIN, DATA, NAK

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

MS, SECOND = 1_000_000, 1_000_000_000
AT = ("10.0.0.1", 14380)
BEGINS = SECOND
"""When the source begins to send, unless a test says otherwise: all receivers have joined."""
MEASURED = -1
OVERHEAD = 28
"""Bytes of the headers of IP and UDP."""


@dataclass
class Link:
    """A slow link on the way down, with a queue that drops what finds no room.

    Attributes:
        rate: bits a second.
        queue: packets that may wait.
    """

    rate: int
    queue: int
    dropped: int = 0
    _leaves: deque[int] = field(default_factory=deque)

    def passes(self, size: int, now: int) -> int:
        """When a packet of this size is through; -1 when it is dropped."""
        while self._leaves and self._leaves[0] <= now:
            self._leaves.popleft()
        if len(self._leaves) > self.queue:
            self.dropped += 1
            return -1
        begins = self._leaves[-1] if self._leaves else now
        self._leaves.append(begins + (size + OVERHEAD) * 8 * SECOND // self.rate)
        return self._leaves[-1]


@dataclass
class Member:
    """A receiver, and what came to it."""

    end: ReliableReceiver
    address: Hashable
    got: dict[int, int] = field(default_factory=dict)
    """When each datagram was delivered."""
    repairs: int = 0
    """Packets with datagrams that were sent again."""
    planned: int = 1 << 62

    @property
    def unrecovered(self) -> int:
        counts = self.end.counts
        return counts.unrecovered_tmo + counts.unrecovered_txw + counts.unrecovered_full - counts.late


class World:
    """One run."""

    def __init__(
        self,
        seed: int,
        *,
        multicast: bool = False,
        receivers: int = 1,
        gap: int = SECOND // 2000,
        size: int = 100,
        loss: float = 0,
        delay: int = 10 * MS,
        jitter: int = 0,
        sending: SendSettings | None = None,
        link: Link | None = None,
        begins: int = BEGINS,
    ) -> None:
        self.random = Random(seed)
        self.multicast, self.gap, self.size = multicast, gap, size
        self.loss, self.delay, self.jitter, self.link = loss, delay, jitter, link
        self.begins = begins
        self.drops: Callable[[bytes, Member, bool], bool] = lambda packet, member, down: False
        """What else is lost, on the way down to a receiver or up to the source."""
        self.now = 0
        self._todo: list[tuple[int, int, Member | None, bytes | None, bool]] = []
        self._order, self._numbers = itertools.count(), itertools.count()
        self._planned = 1 << 62
        sending = sending or SendSettings(data_rate=0, retransmit_rate=0)
        self.source = ReliableSender(7, SenderSettings(sending), bytes(16), 0, multicast)
        self.members = [Member(self._end(place), ("10.0.0.2", place)) for place in range(receivers)]
        for member in self.members:
            self._turn(member)
        self._until(begins)

    def _end(self, place: int, resume_at: int | None = None) -> ReliableReceiver:
        backoff = 50 * MS if self.multicast else MEASURED
        receiving = ReceiverSettings(ReceiveSettings(NakSettings(initial_backoff=backoff)))
        random, identity = Random(self.random.random()), (place, 2, f"here {place}")
        return ReliableReceiver(7, AT, receiving, random, self.now, identity, self.multicast, resume_at)

    def begin_again(self) -> None:
        """Each receiver begins another stay, where the one before stopped."""
        for place, member in enumerate(self.members):
            member.end, member.planned = self._end(place, member.end.stopped_at), 1 << 62
            self._turn(member)

    def join(self) -> Member:
        """One more receiver joins."""
        place = len(self.members)
        self.members.append(Member(self._end(place), ("10.0.0.2", place)))
        self._turn(self.members[-1])
        return self.members[-1]

    def send(self, datagrams: int) -> None:
        """Sends datagrams at the rate, while what is due happens."""
        for _ in range(datagrams):
            self.send_one()
            self._until(self.now + self.gap)

    def send_one(self) -> None:
        """Sends a datagram now."""
        self.source.send(next(self._numbers).to_bytes(8, "big").ljust(self.size), 1, 5, self.now)
        self._serve_source()

    def rest(self, ns: int) -> None:
        """Lets time pass."""
        self._until(self.now + ns)

    def complete_at(self, below: int) -> int:
        """The time at which the last receiver had all datagrams below a number."""
        return max(each.got[number] for each in self.members for number in range(below))

    def check(self, datagrams: int) -> None:
        """Each receiver has got every datagram once, and misses nothing."""
        assert self.source.lead == datagrams
        for member in self.members:
            assert (member.unrecovered, member.end.missing, member.end.lead) == (0, 0, datagrams)
            assert len(member.got) == datagrams

    def _until(self, end: int) -> None:
        while self._todo and self._todo[0][0] <= end:
            self.now, _, member, packet, down = heapq.heappop(self._todo)
            if packet is None:
                self._turn(member)
            elif member is not None and down:
                member.repairs += packet[1] == DATA and packet[3] == AGAIN
                self._deliver(member, member.end.receive(packet, AT, self.now))
                self._serve(member)
            elif member is not None:
                self.source.receive(packet, member.address, self.now)
                self._serve_source()
        self.now = end

    def _turn(self, member: Member | None) -> None:
        if member is None:
            if self._planned <= self.now:
                self._planned = 1 << 62
                self.source.turn(self.now)
                self._serve_source()
        elif member.planned <= self.now:
            member.planned = 1 << 62
            member.end.turn(self.now)
            self._deliver(member, member.end.ready(self.now))
            self._serve(member)
        elif member.planned == 1 << 62:
            self._serve(member)

    def _deliver(self, member: Member, found: list[tuple[bytes, int]]) -> None:
        for datagram, _ in found:
            number = int.from_bytes(datagram[:8], "big")
            assert number not in member.got, f"{number} came twice"
            member.got[number] = self.now

    def _serve(self, member: Member) -> None:
        for packet in member.end.take():
            self._put(packet, member, down=False)
        due = member.end.next_ns
        if due is not None and due < member.planned:
            member.planned = max(due, self.now)
            heapq.heappush(self._todo, (member.planned, next(self._order), member, None, True))

    def _serve_source(self) -> None:
        for packet, to in self.source.take():
            # What is for a group splits behind the link.
            once = self._through(packet) if self.multicast and to is ALL else None
            for member in self.members:
                if to is ALL or to == member.address:
                    self._put(packet, member, down=True, begins=self._through(packet) if once is None else once)
        due = self.source.next_ns(self.now)
        if due is not None and due < self._planned:
            self._planned = max(due, self.now)
            heapq.heappush(self._todo, (self._planned, next(self._order), None, None, True))

    def _through(self, packet: bytes) -> int:
        """When a packet has passed the link; -1 when it is dropped there."""
        return self.link.passes(len(packet), self.now) if self.link is not None else self.now

    def _put(self, packet: bytes, member: Member, *, down: bool, begins: int | None = None) -> None:
        begins = self.now if begins is None else begins
        lost = self.now >= self.begins and self.random.random() < self.loss
        if begins < 0 or lost or self.drops(packet, member, down):
            return
        late = int(self.random.random() * self.jitter) if self.jitter else 0
        heapq.heappush(self._todo, (begins + self.delay + late, next(self._order), member, packet, down))


def is_nak(packet: bytes) -> bool:
    """Whether a packet asks for datagrams."""
    return packet[1] == NAK


def is_new(packet: bytes) -> bool:
    """Whether a packet has a datagram that is sent for the first time."""
    return packet[1] == DATA and packet[3] != AGAIN
