"""Topic resolution in virtual time: contexts that come and go over a network that loses, delays, doubles and fails.

`python -m tests.sim.resolution --seeds 1000` runs many; `--seed 7` runs one and tells what happened.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import sys
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from ipcbus.resolution.local.adverts import Endpoint, SessionAdvert, SourceAdvert
from ipcbus.resolution.network.forwarder import Forwarder, ForwarderSettings
from ipcbus.resolution.network.network_resolution import NetworkResolution, Who
from ipcbus.resolution.network.resolution_settings import ResolutionSettings
from ipcbus.resolution.network.resolver_clients import ResolverClients, ResolverClientSettings
from ipcbus.wire import relay_packets, resolution_packets, wire_layout
from tests.sim.rates import RateWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

MS = 1_000_000
S = 1000 * MS
FOUND_NS = 30 * S
"""Everybody finds what he wants within this time, at 30 % loss in each direction."""
FOUND_AGAIN_NS = 60 * S
"""The same after an outage: who asks and who tells may both be in their quiescent phase."""
FORGOTTEN_NS = 40 * S
"""And forgets it within this time, when nobody says that it has gone."""
END = 900 * S
OUTAGE = 100 * S
FORGER = "10.6.6.6"
TOPICS = ("quotes.A", "quotes.B", "orders", "news")
DAEMONS = (("10.9.0.1", 15380), ("10.9.0.2", 15380))

Address = tuple[str, int]


@dataclass(frozen=True)
class Storm:
    """What a seed draws."""

    loss: float
    duplication: float
    reordering: float
    delay: int
    contexts: int
    unicast: bool
    forger: bool
    outage: int
    bulk: int
    terms: ResolutionSettings

    @staticmethod
    def draw(random: Random) -> Storm:
        """Any storm; sometimes a calm one."""
        unicast = random.random() < 0.3
        narrow = random.random() < 0.3
        return Storm(
            loss=random.choice([0, 0.01, 0.1, 0.3]),
            duplication=random.choice([0, 0, 0.1]),
            reordering=random.choice([0, 0.1, 0.5]),
            delay=random.choice([1, 5, 30]) * MS,
            contexts=random.choice([2, 3, 5]),
            unicast=unicast,
            forger=random.random() < 0.5,
            outage=random.choice([0, 0, random.randrange(10, 200)]) * S,
            bulk=random.choice([0, 0, 0, 40]),
            terms=ResolutionSettings(
                check_address=not unicast,
                datagram_max_size=random.choice([200, 1400, 8192]),
                **dict.fromkeys(RATES, 20_000) if narrow else {},
                **dict.fromkeys(COUNTS, 50) if narrow else {},
            ),
        )


RATES = ("initial_advertisement_bps", "sustain_advertisement_bps", "initial_query_bps", "sustain_query_bps")
COUNTS = tuple(
    f"{phase}_{kind}_per_second" for phase in ("initial", "sustain") for kind in ("advertisements", "queries")
)


@dataclass
class Life:
    """A context, from when until when, and what it is told."""

    who: int
    resolution: NetworkResolution
    watch: RateWatch
    clients: ResolverClients | None
    address: Address
    up: int
    down: int = END
    offers: dict[SourceAdvert, list[int]] = field(default_factory=dict)
    wants: dict[str, int] = field(default_factory=dict)
    pattern: int | None = None
    known: dict[SourceAdvert, list[list[int]]] = field(default_factory=dict)
    """When each source was known: from, until."""
    seen: int = -1
    due: int = 0
    """When it has to be turned; 0 after anything came or was asked of it."""


class World:
    """One run of a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.storm = Storm.draw(self.random)
        self.now = 0
        self.log: list[str] = []
        self.lives: list[Life] = []
        self.forwarders = {address: Forwarder(ForwarderSettings(), repr(address).encode()) for address in DAEMONS}
        self._todo: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._captured: list[bytes] = []
        self._faults: list[str] = []

    def at(self, when: int, work: Callable[[], None]) -> None:
        """Has something happen."""
        heapq.heappush(self._todo, (when, next(self._order), work))

    # ---- the script

    def run(self) -> None:
        """Lets contexts come, go, crash, and time pass until the end."""
        for who in range(1, self.storm.contexts + 1):
            # Some come ten minutes late, when all others are quiet.
            up = self.random.choice([0, self.random.randrange(20 * S), 600 * S])
            self.at(up, lambda who=who: self._start(who))  # type: ignore[misc]
        if self.storm.forger:
            for _ in range(60):
                self.at(self.random.randrange(END), self._forge)
        if self.storm.unicast:
            # One of the two daemons is always there.
            self.at(self.random.randrange(100 * S), lambda: self._restart(DAEMONS[0]))
        while self.now < END:
            times = [live.due for live in self._up()]
            times += [time for daemon in self.forwarders.values() if (time := daemon.next_ns) is not None]
            if self._todo:
                times.append(self._todo[0][0])
            self.now = min(END, max(self.now + 1, min(times, default=END)))
            while self._todo and self._todo[0][0] <= self.now:
                heapq.heappop(self._todo)[2]()
            for live in self._up():
                if live.due <= self.now:
                    self._turn(live)
            self._turn_daemons()

    def _start(self, who: int) -> None:
        address = (f"10.0.0.{who}", 12965)
        clients = (
            ResolverClients(DAEMONS, ResolverClientSettings(), Random(who), self.now) if self.storm.unicast else None
        )
        resolution = NetworkResolution(self.storm.terms, Who(who, who, f"c{who}"), "sim", Random(who), self.now)
        live = Life(who, resolution, RateWatch(self.storm.terms), clients, address, self.now)
        self.lives.append(live)
        for number, topic in enumerate(TOPICS):
            if self.random.random() < 0.6:
                source = SourceAdvert(_session(who, 1 + number % 2), topic, number)
                self.at(self.now + self.random.choice([0, 7 * S, 300 * S]), lambda s=source: self._offer(live, s))  # type: ignore[misc]
            if self.random.random() < 0.6:
                self.at(self.now + self.random.choice([0, 3 * S, 250 * S]), lambda t=topic: self._want(live, t))  # type: ignore[misc]
        for number in range(self.storm.bulk):
            self._offer(live, SourceAdvert(_session(who, 1 + number % 2), f"bulk.{number}", 100 + number))
            self._want(live, f"bulk.{number}")
        if self.random.random() < 0.3:
            live.pattern = self.now
            resolution.want_pattern(r"quotes\..", self.now)
        if self.random.random() < 0.5:
            crash = self.random.random() < 0.5
            self.at(self.now + self.random.randrange(S, 400 * S), lambda: self._stop(live, crash))

    def _offer(self, live: Life, source: SourceAdvert) -> None:
        if live.down < END:
            return
        live.offers[source] = [self.now, END]
        live.resolution.offer(source, self.now)
        live.due = 0
        if self.random.random() < 0.3:
            self.at(self.now + self.random.randrange(100 * S), lambda: self._withdraw(live, source))

    def _withdraw(self, live: Life, source: SourceAdvert) -> None:
        if live.down == END:
            live.offers[source][1] = self.now
            live.resolution.withdraw(source, self.now)
            live.due = 0

    def _want(self, live: Life, topic: str) -> None:
        if live.down == END:
            live.wants[topic] = self.now
            live.resolution.want(topic, self.now)
            live.due = 0

    def _stop(self, live: Life, crash: bool) -> None:
        self._note(live)
        packets = live.resolution.close(self.now)
        if not crash:
            self._send(live, packets)
        live.down = self.now
        for span in live.offers.values():
            span[1] = min(span[1], self.now)

    def _restart(self, address: Address) -> None:
        """A daemon dies, and comes back with another secret."""
        del self.forwarders[address]
        forwarder = Forwarder(ForwarderSettings(), b"another")
        self.at(self.now + self.random.randrange(100 * S), lambda: self.forwarders.update({address: forwarder}))

    # ---- the network

    def _up(self) -> list[Life]:
        return [live for live in self.lives if live.down == END]

    def _turn(self, live: Life) -> None:
        if live.clients is not None:
            changes = live.clients.changes
            live.clients.turn(self.now)
            if live.clients.changes != changes and live.clients.alive:
                live.resolution.refresh(self.now)
        live.resolution.turn(self.now)
        self._send(live, live.resolution.take())
        self._note(live)
        times = (live.resolution.next_ns, None if live.clients is None else live.clients.next_ns)
        live.due = min((time for time in times if time is not None), default=END)

    def _send(self, live: Life, packets: list[bytes]) -> None:
        for packet in packets:
            self._captured = [*self._captured[-20:], packet]
            self.log.append(f"{self.now} {live.who} {packet.hex()}")
            self._faults += live.watch.sent(packet, self.now)
            if live.clients is not None:
                live.clients.send(packet)
            else:
                for other in self._up():  # itself too: multicast is looped back
                    self._wire(packet, live.address, other)
        for packet, to in live.clients.take() if live.clients is not None else ():
            self._carry(packet, live.address, to)

    def _turn_daemons(self) -> None:
        for address, daemon in self.forwarders.items():
            daemon.turn(self.now)
            for packet, to in daemon.take():
                self._carry(packet, address, to)

    def _carry(self, packet: bytes, sender: Address, to: Hashable) -> None:
        """From one host to another."""
        for live in self._up():
            if live.address == to:
                self._wire(packet, sender, live)
        if to in self.forwarders:
            self._later(lambda: to in self.forwarders and self.forwarders[to].receive(packet, sender, self.now))  # type: ignore[index,func-returns-value,arg-type]

    def _wire(self, packet: bytes, sender: Address, live: Life) -> None:
        self._later(lambda: self._came(packet, sender, live))

    def _later(self, arrive: Callable[[], object]) -> None:
        if self.storm.outage and self.storm.outage <= self.now < self.storm.outage + OUTAGE:
            return
        for _ in range(1 + (self.random.random() < self.storm.duplication)):
            if self.random.random() >= self.storm.loss:
                late = self.random.random() < self.storm.reordering
                self.at(self.now + self.storm.delay + late * self.random.randrange(60 * MS), arrive)  # type: ignore[arg-type]

    def _came(self, packet: bytes, sender: Address, live: Life) -> None:
        if live.down < END:
            return
        live.due = 0
        if live.clients is None:
            live.resolution.receive(packet, sender, self.now)
        elif (inner := live.clients.receive(packet, sender, self.now)) is not None:
            live.resolution.receive(inner, sender, self.now)
        self._note(live)

    def _forge(self) -> None:
        """Somebody says what is not so, under his own address or, where cookies protect, under any."""
        for live in self._up():
            for packet in self._captured[-3:]:
                changed = bytearray(packet)
                for _ in range(self.random.choice([0, 1, 5])):
                    changed[self.random.randrange(len(changed))] = self.random.randrange(256)
                self._forge_to(live, bytes(changed))
            head = resolution_packets.Head(self.random.randrange(1, 6), 1, "x", "sim", 1 << 61)
            told = _told(self.random.choice(["10.0.0.1", "10.6.6.7"]))
            topics = {self.random.randrange(1 << 20): topic for topic in TOPICS}
            for packet in (
                resolution_packets.advert(head, 60_000, [(told, topics)]),
                resolution_packets.final(head, []),
                resolution_packets.wildcard_query(head, [""]),
                self.random.randbytes(100),
            ):
                self._forge_to(live, packet)

    def _forge_to(self, live: Life, packet: bytes) -> None:
        if not self.storm.unicast:
            self._wire(packet, (FORGER, 1), live)
            return
        wrapped = relay_packets.relay(self.random.getrandbits(64), packet)
        self._wire(self.random.choice([packet, wrapped]), self.random.choice([(FORGER, 1), DAEMONS[1]]), live)
        # To a daemon, in the name of another of its clients.
        self._carry(wrapped, self.random.choice(self.lives).address, DAEMONS[1])

    # ---- the accounts

    def _note(self, live: Life) -> None:
        """Writes down what a context knows."""
        if live.seen == live.resolution.changes:
            return
        live.seen = live.resolution.changes
        now = {source for topics in live.resolution.sources().values() for source in topics.values()}
        for source in now:
            spans = live.known.setdefault(source, [])
            if not spans or spans[-1][1] != END:
                spans.append([self.now, END])
        for source, spans in live.known.items():
            if source not in now and spans[-1][1] == END:
                spans[-1][1] = self.now

    def faults(self) -> list[str]:
        """What is wrong; nothing when all is well."""
        found = list(self._faults)
        offered = {source: (span, live) for live in self.lives for source, span in live.offers.items()}
        for live in self.lives:
            made_up = live.known.keys() - offered.keys()
            found += [f"{live.who} knows {source}, which nobody has offered" for source in made_up]
            for source, (span, owner) in offered.items():
                if owner is not live:
                    found += self._faults_of(live, source, *span)
        return found

    def _faults_of(self, live: Life, source: SourceAdvert, begin: int, end: int) -> list[str]:
        what = f"{live.who} and {source.topic} of {source.session.context_id} ({begin / S:.1f} to {end / S:.1f} s)"
        spans = live.known.get(source, [])
        found = [
            f"{what}: known from {first / S:.1f} to {min(last, live.down) / S:.1f} s"
            for first, last in spans
            if first < begin or min(last, live.down) > end + FORGOTTEN_NS or first > end + FORGOTTEN_NS
        ]
        wanted = live.wants.get(source.topic)
        if live.pattern is not None and source.topic.startswith("quotes."):
            wanted = live.pattern
        if wanted is None:
            return found
        # In these stretches it has to be known, after the time that finding it may take.
        begin, end = max(begin, wanted, live.up), min(end, live.down)
        outage = (self.storm.outage, self.storm.outage + OUTAGE) if self.storm.outage else (END, END)
        for first, last in ((begin, min(end, outage[0])), (max(begin, outage[1]), end)):
            needed = (first + (FOUND_NS if first == begin else FOUND_AGAIN_NS), last)
            if needed[0] < needed[1] and not any(a <= needed[0] and b >= needed[1] for a, b in spans):
                found.append(f"{what}: not known from {needed[0] / S:.1f} to {needed[1] / S:.1f} s, but {spans}")
        return found


def _session(who: int, session_id: int) -> SessionAdvert:
    endpoint = Endpoint(f"10.0.0.{who}", 14380)
    return SessionAdvert(who, session_id, wire_layout.TRANSPORT_LBTRU, session_id, 0, 1 << 20, True, 64, endpoint)


def _told(host: str) -> resolution_packets.Session:
    return resolution_packets.Session(wire_layout.TRANSPORT_LBTRU, True, 64, 1, 1, 0, 1 << 20, host, 14380)


def run(seed: int) -> World:
    """Runs a seed to its end."""
    world = World(seed)
    world.run()
    return world


def main() -> int:
    """Runs seeds; exit status 1 when one of them fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.resolution", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args()
    one = arguments.seed is not None
    failed = 0
    for seed in [arguments.seed] if one else range(arguments.first, arguments.first + arguments.seeds):
        world = run(seed)
        if faults := world.faults():
            failed += 1
            print(f"seed {seed}: {'; '.join(faults[:5])}")
        if one:
            print(world.storm, *(live.resolution.counts for live in world.lives), sep="\n")
    print(f"{failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
