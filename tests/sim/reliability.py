"""Sessions of the reliability layer alone in virtual time: one source, some receivers, a wire that does anything.

`python -m tests.sim.reliability --seeds 10000` runs many; `--seed 7` runs one and tells what happened.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import sys
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from ipcbus.reliability.loss_map import NakTerms
from ipcbus.reliability.reception import Reception, ReceptionTerms
from ipcbus.reliability.transmission import Transmission, TransmissionTerms
from ipcbus.wire import packets

if TYPE_CHECKING:
    from collections.abc import Callable

MS = 1_000_000
SECOND = 1000 * MS
SESSION = 7


@dataclass(frozen=True)
class Storm:
    """What a seed draws: the wire, the terms, the traffic."""

    loss_to: float
    loss_back: float
    duplication: float
    reordering: float
    delay: int
    blocked_naks: bool
    receivers: int
    datagrams: int
    gap: int
    size: int
    send: TransmissionTerms
    receive: ReceptionTerms

    @staticmethod
    def draw(random: Random) -> Storm:
        """Any storm; sometimes a calm one."""
        ample = random.random() < 0.5  # nothing is in the way of recovery
        generation = 10 * SECOND if ample else random.choice([500, 2_000, 10_000]) * MS
        size = random.choice([1, 100, 1400])
        datagrams = random.choice([1, 20, 120])
        return Storm(
            loss_to=random.choice([0, 0.01, 0.1, 0.3]),
            loss_back=random.choice([0, 0.01, 0.1, 0.3]),
            duplication=random.choice([0, 0, 0.1]),
            reordering=random.choice([0, 0.1, 0.5]),
            delay=random.choice([1, 5, 30]) * MS,
            blocked_naks=not ample and random.random() < 0.2,
            receivers=random.choice([1, 1, 2, 4]),
            datagrams=datagrams,
            gap=random.choice([0, MS // 10, 20 * MS]),
            size=size,
            send=TransmissionTerms(
                # A tiny window lets go of what receivers still miss.
                window_size=25_165_824 if ample else random.choice([25_165_824, size, 5 * size]),
                window_limit=0 if ample else random.choice([0, 0, 1000]),
                data_rate=random.choice([0, 10_000_000, 1_000_000]),
                retransmit_rate=random.choice([0, 5_000_000] if ample else [0, 5_000_000, 200_000]),
                rate_interval=random.choice([5, 10, 100]) * MS,
                queue_max=1024 if ample else random.choice([1, 4, 1024]),
            ),
            receive=ReceptionTerms(
                naks=NakTerms(
                    initial_backoff=random.choice([0, 50]) * MS,
                    generation=generation,
                    entries_max=1 << 16 if ample else random.choice([4, 1 << 16]),
                ),
                activity_timeout=60 * SECOND,
            ),
        )


@dataclass
class Peer:
    """A receiver, and what was delivered to it."""

    reception: Reception
    first: int
    got: list[int] = field(default_factory=list)


class World:
    """One run of a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.storm = Storm.draw(self.random)
        self.now = 0
        self.log: list[str] = []
        self._todo: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.source = Transmission(self.storm.send, 0)
        self.peers = [
            Peer(Reception(self.storm.receive, Random(self.random.random()), 0, first=0), 0)
            for _ in range(self.storm.receivers)
        ]

    def at(self, when: int, work: Callable[[], None]) -> None:
        """Has something happen."""
        heapq.heappush(self._todo, (when, next(self._order), work))

    def run(self) -> None:
        """Sends all, and lets time pass until nothing can change any more."""
        for number in range(self.storm.datagrams):
            self.at(number * self.storm.gap, lambda: self._put(self.source.send(bytes(self.storm.size), self.now)))
        self._tick_source()
        for peer in self.peers:
            self._tick(peer)
        end = self.storm.datagrams * self.storm.gap + self.storm.receive.naks.generation + 40 * SECOND
        while self._todo and self._todo[0][0] <= end:
            self.now, _, work = heapq.heappop(self._todo)
            work()
        self.now = end

    def _tick_source(self) -> None:
        found, due = self.source.turn(self.now)
        self._put(found)
        if due:
            window = self.source.window
            self._to_all(packets.session_message(SESSION, window.lead, window.trail))
        following = self.source.next_ns(self.now)
        self.at(max(self.now + MS // 10, following if following is not None else self.now + MS), self._tick_source)

    def _tick(self, peer: Peer) -> None:
        for packet in packets.naks(SESSION, peer.reception.turn(self.now), 1400):
            self.log.append(f"{self.now} nak {len(packet)}")
            if not self.storm.blocked_naks:
                self._wire(self.storm.loss_back, lambda packet=packet: self._nak(packet))  # type: ignore[misc]
        self.at(max(self.now + MS // 10, min(peer.reception.next_ns, self.now + SECOND)), lambda: self._tick(peer))

    def _nak(self, packet: bytes) -> None:
        found = packets.parse(packet)
        assert isinstance(found, packets.Numbers)
        sent, refused = self.source.nak(found.numbers, self.now)
        self._put(sent)
        for refusal in refused:
            for ncf in packets.ncfs(SESSION, refusal.reason, refusal.numbers, 1400):
                self._to_all(ncf)

    def _put(self, sent: list) -> None:  # type: ignore[type-arg]
        for number, trail, data, again in sent:
            self.log.append(f"{self.now} data {number} {again}")
            self._to_all(packets.data(SESSION, number, trail, 1, 0, data, packets.AGAIN if again else 0))

    def _to_all(self, packet: bytes) -> None:
        for peer in self.peers:
            self._wire(self.storm.loss_to, lambda peer=peer: self._came(peer, packet))  # type: ignore[misc]

    def _wire(self, loss: float, arrive: Callable[[], None]) -> None:
        copies = 1 + (self.random.random() < self.storm.duplication)
        for _ in range(copies):
            if self.random.random() >= loss:
                late = self.random.random() < self.storm.reordering
                self.at(self.now + self.storm.delay + late * int(self.random.uniform(0, 60 * MS)), arrive)

    def _came(self, peer: Peer, packet: bytes) -> None:
        found = packets.parse(packet)
        if isinstance(found, packets.Data):
            if peer.reception.data(found.number, found.trail, len(found.datagram), self.now):
                peer.got.append(found.number)
        elif isinstance(found, packets.SessionMessage):
            peer.reception.session_message(found.lead, found.trail, self.now)
        elif isinstance(found, packets.Numbers):
            peer.reception.ncf(found.numbers, found.reason, self.now)
        else:
            raise AssertionError(packet)

    def faults(self) -> list[str]:
        """What is wrong with the accounts; nothing when all is well."""
        found = []
        sent = self.source.counts.msgs_sent
        if sent != self.storm.datagrams:
            found.append(f"{sent} of {self.storm.datagrams} were sent")
        for place, peer in enumerate(self.peers):
            counts = peer.reception.counts
            if len(set(peer.got)) != len(peer.got):
                found.append(f"receiver {place} was given something twice")
            given_up = counts.unrecovered_tmo + counts.unrecovered_txw + counts.unrecovered_full - counts.late
            if len(peer.got) + given_up != sent:
                found.append(f"receiver {place}: {sent} sent, {len(peer.got)} delivered, {given_up} given up")
            if counts.msgs_rcved != len(peer.got) or peer.reception.missing:
                found.append(f"receiver {place}: {peer.reception.missing} are missing still; {counts}")
            if self.recovers_all and len(peer.got) != sent:
                found.append(f"receiver {place} lacks {set(range(sent)) - set(peer.got)} that could be recovered")
        return found

    @property
    def recovers_all(self) -> bool:
        """Whether nothing may stay missing: all is held, asked for in time, and no limit is in the way."""
        storm = self.storm
        return (
            storm.send.window_size > storm.size * storm.datagrams
            and storm.send.window_limit == 0
            and not storm.blocked_naks
            and storm.receive.naks.entries_max > storm.datagrams
            and storm.receive.naks.generation == 10 * SECOND
            and storm.send.queue_max == 1024
            and storm.send.retransmit_rate != 200_000
            and max(storm.loss_to, storm.loss_back) <= 0.1
        )


def run(seed: int) -> World:
    """Runs a seed to its end."""
    world = World(seed)
    world.run()
    return world


def main() -> int:
    """Runs seeds; exit status 1 when one of them fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.reliability", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args()
    failed = 0
    for seed in range(arguments.seeds) if arguments.seed is None else [arguments.seed]:
        world = run(seed)
        if faults := world.faults():
            failed += 1
            print(f"seed {seed}: {'; '.join(faults)}")
        if arguments.seed is not None:
            print(
                world.storm, *world.log, *(peer.reception.counts for peer in world.peers), world.source.counts, sep="\n"
            )
    print(f"{failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
