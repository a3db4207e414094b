"""Sessions over UDP in virtual time: the two ends with registration, over a wire that does anything."""

from __future__ import annotations

import heapq
import itertools
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from ipcbus.reliability.registration import State
from ipcbus.reliability.reliable_receiver import ReliableReceiver
from ipcbus.reliability.reliable_sender import ReliableSender
from ipcbus.transport.udp.datagram_relay import is_next
from ipcbus.wire import udp_packets
from tests.sim.udp_actors import Member, Sender
from tests.sim.udp_storm import MS, SECOND, Storm
from tests.sim.udp_watch import ReceiverWatch, SourceWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

AT = ("10.0.0.1", 14380)
TURNS_MAX = 50


class World:
    """One run of a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.storm = Storm.draw(self.random)
        self.relays = seed % 2 == 1
        self.now = 0
        self.log: list[str] = []
        self.faults: list[str] = []
        self._todo: list[tuple[int, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self.senders: list[Sender] = []
        self.members: list[Member] = []
        self._contexts = itertools.count(100)
        self._left = self.storm.datagrams
        self._changes = -1
        self._settled_ns = 0

    # ---- the run

    def at(self, when: int, work: Callable[[], object]) -> None:
        """Has something happen."""
        heapq.heappush(self._todo, (when, next(self._order), work))

    def run(self) -> World:
        """Sends all, ends the session, and lets time pass until nothing can change any more."""
        storm = self.storm
        self._start()
        for place in range(len(storm.joins)):
            self.at(storm.joins[place], partial(self._join, place))
            if (when := storm.restarts[place]) is not None and when > storm.joins[place]:
                self.at(when, partial(self._restart, place))
            if (when := storm.dies[place]) is not None:
                self.at(when, partial(self._die, place))
        if storm.source_restarts is not None:
            self.at(storm.source_restarts, self._restart_source)
        for _ in range(storm.forgers):
            self.at(int(self.random.uniform(0, SECOND)), self._forge)
        self.at(self.random.choice([0, 300 * MS]), self._send_one)
        end = 0
        while self._todo and not (end and self._todo[0][0] > end):
            self.now, _, work = heapq.heappop(self._todo)
            work()
            if not end and not self._left and not self.senders[-1].end.blocked:
                # All is sent. It tells the end after a while, and lives on until the last repair.
                naks = storm.receive.receiving.naks
                self._settled_ns = max(self.now, storm.outage[1] + 3 * SECOND, *storm.joins) + 3 * SECOND // 2
                ends = max(self.now, storm.outage[1] + 3 * SECOND) + self.random.choice([0, 2, 12]) * SECOND
                self.at(ends, partial(self._end, self.senders[-1]))
                self.at(ends + naks.generation + 8 * SECOND, partial(self._kill, self.senders[-1]))
                tries = storm.receive.maximum_connect_attempts * storm.receive.connect_interval
                # Who catches up from a source that is dead gives up a few datagrams at a time.
                end = (
                    ends
                    + naks.generation
                    + 12 * SECOND
                    + max(storm.receive.receiving.activity_timeout, tries)
                    + storm.receive.receiving.activity_timeout * any(storm.resumes)
                )
        self._judge()
        return self

    def _start(self) -> None:
        end = ReliableSender(
            self.random.getrandbits(32), self.storm.send, self.random.randbytes(16), self.now, self.storm.multicast
        )
        self.senders.append(Sender(end, SourceWatch(self.storm.send, self.now)))
        self._serve(self.senders[-1])

    def _join(self, place: int) -> None:
        if place in {member.address[1] for member in self.members if self._lives(member)}:  # type: ignore[index]
            return
        sender = self.senders[-1]
        context_id = next(self._contexts)
        end = ReliableReceiver(
            sender.end.session_id,
            AT,
            self.storm.receive,
            Random(self.random.random()),
            self.now,
            (context_id, 4000 + place, f"context {place}"),
            self.storm.multicast,
            0 if self.storm.resumes[place] else None,
        )
        member = Member(end, sender, ("10.0.0.2", place), context_id, ReceiverWatch(self.storm.receive))
        self.members.append(member)
        self._retopic(member)
        self.at(self.now + self.random.choice([0, 200, 1500]) * MS, partial(self._retopic, member))
        self._serve_member(member)

    def _retopic(self, member: Member) -> None:
        """A receiver receives other topics, some or so many that they take several pages."""
        if not member.dead:
            first = self.random.randrange(1000)
            member.topics.append(frozenset(range(first, first + self.random.choice([1, 300]))))
            member.end.topics(member.topics[-1], self.now)
            self._serve_member(member)

    def _lives(self, member: Member) -> bool:
        return not member.dead and member.sender is self.senders[-1]

    def _restart(self, place: int) -> None:
        self._die(place)
        if not self.storm.dies[place]:
            self._join(place)

    def _die(self, place: int) -> None:
        for member in self.members:
            if member.address == ("10.0.0.2", place) and not member.dead:
                member.dead, member.died_ns = True, self.now

    def _restart_source(self) -> None:
        old = self.senders[-1]
        if not self._left:
            return
        if self.storm.source_says:
            old.end.end(self.now)
            self._serve(old)
        old.dead = True
        self._start()
        for place, joins in enumerate(self.storm.joins):
            dies = self.storm.dies[place]
            if joins <= self.now and (dies is None or dies > self.now):
                self.at(self.now + 50 * MS, partial(self._join, place))

    def _end(self, sender: Sender) -> None:
        # What a client sent last may be on its way for some time after its death.
        silent = self.now - self.storm.send.clients.activity_timeout - SECOND // 5
        possible = {member.address for member in self.members if not member.dead or member.died_ns > silent}
        if not set(sender.end.addresses) <= possible:
            self.faults.append(f"{self.now}: has still clients {sender.end.addresses}, of which live {possible}")
        self._know_topics(sender)
        sender.end.end(self.now)
        self._serve(sender)

    def _know_topics(self, sender: Sender) -> None:
        """Seconds after all has settled the source knows who receives what."""
        told = {client.context_id: client.topics for client in sender.end.clients}
        settled = self.now - self._settled_ns >= 2 * SECOND and max(self.storm.loss_back, self.storm.loss_to) <= 0.01
        for member in self.members:
            current = member.sender is sender and not member.dead and member.end.state is State.JOINED
            if settled and current and told.get(member.context_id) != member.topics[-1]:
                self.faults.append(f"{self.now}: the source does not know the topics of {member.context_id}")

    def _kill(self, sender: Sender) -> None:
        sender.dead = True

    # ---- the source

    def _send_one(self) -> None:
        sender = self.senders[-1]
        while self._left and not sender.end.blocked:
            self._left -= 1
            payload = sender.sent.to_bytes(8, "big").ljust(self.storm.size, b".")
            self._send(sender, payload, sender.sent + 1000)
            sender.sent += 1
            if self.storm.gap:
                break
        self._serve(sender)
        if self._left:
            wait = self.storm.gap if not sender.end.blocked else 0
            following = sender.end.next_ns(self.now) if sender.end.blocked else None
            self.at(max(self.now + wait, following or 0), self._send_one)

    def _send(self, sender: Sender, payload: bytes, send_time_ns: int) -> None:
        """Gives a source a datagram; with odd seeds, where nothing hinders it, as the compiled relay does."""
        end = sender.end
        if not self.relays or end.window.position + len(payload) + udp_packets.CHARGE > end.open_until:
            end.send(payload, 1, send_time_ns, self.now)
            return
        body = udp_packets.DATA_BODY.pack(1, send_time_ns) + payload
        number = end.window.add(body)
        end.sent(1, len(payload), self.now)
        self._put(sender, udp_packets.data_front(end.session_id, number, end.trail, 0) + body, None)

    def _put(self, sender: Sender, packet: bytes, to: Hashable) -> None:
        """Puts a packet of a source on the wire."""
        sender.watch.sent(packet, to, self.now)
        self.log.append(f"{self.now} source {packet[:1400].hex()} to {to}")
        for member in self.members:
            heard = self.storm.multicast or member.address in sender.end.addresses if to is None else False
            if heard or member.address == to:
                self._wire(self.storm.loss_to, partial(self._to_member, member, packet))

    def _serve(self, sender: Sender) -> None:
        """Puts on the wire what the source has, and plans its next turn."""
        for packet, to in sender.end.take():
            self._put(sender, packet, to)
        if sender.end.changes != self._changes:
            self._changes = sender.end.changes
            self._joined(sender)
        self._plan(sender, sender.end.next_ns(self.now), partial(self._turn, sender))

    def _turn(self, sender: Sender) -> None:
        sender.end.turn(self.now)
        self._serve(sender)

    def _joined(self, sender: Sender) -> None:
        """Whom the source takes for a receiver of a topic misses nothing that is sent from now on."""
        for client in sender.end.clients:
            for member in self.members:
                if member.context_id == client.context_id and client.topics and member.sender is sender:
                    if member.end.joined_at is None or member.end.joined_at > sender.end.lead:
                        self.faults.append(f"{self.now}: {client.name} counts as joined, and is not")
                    if client.topics not in member.topics:
                        self.faults.append(f"{self.now}: {client.name} receives {client.topics}")

    # ---- the receivers

    def _serve_member(self, member: Member) -> None:
        for packet in member.end.take():
            found = udp_packets.parse(packet)
            self.log.append(f"{self.now} {member.context_id} {packet.hex()}")
            is_nak = isinstance(found, udp_packets.Numbers)
            if isinstance(found, udp_packets.Numbers):
                member.watch.nak(found.numbers, self.now)
            if not (self.storm.blocked_back or (is_nak and self.storm.blocked_naks)):
                self._wire(self.storm.loss_back, partial(self._to_source, packet, member.address))
        self._plan(member, member.end.next_ns, partial(self._turn_member, member))

    def _turn_member(self, member: Member) -> None:
        catches_up = member.end.catches_up
        member.end.turn(self.now)
        self._deliver(member, member.end.ready(self.now))
        if catches_up:
            member.watch.look_away(member.end.lead)
        if member.end.state not in (State.JOINED, State.ENDING):
            member.watch.unjoined()
        self._serve_member(member)

    def _deliver(self, member: Member, delivered: list[tuple[bytes, int]]) -> None:
        for datagram, send_time_ns in delivered:
            number = int.from_bytes(datagram[:8], "big")
            member.got.append(number)
            member.watch.delivered(number)
            if send_time_ns != number + 1000 or len(datagram) != self.storm.size:
                self.faults.append(f"{self.now}: {number} came otherwise than it was sent")

    def _to_member(self, member: Member, packet: bytes) -> None:
        if member.dead:
            return
        end = member.end
        known = end.lead if end.joined_at is not None else None
        joined = end.state in (State.JOINED, State.ENDING)
        found = udp_packets.parse(packet)
        if isinstance(found, udp_packets.Numbers) and end.joined_at is not None and found.session_id == packets_of(end):
            member.watch.ncf(found.numbers, found.reason, self.now)
        member.sender.watch.received(member.address)
        catches_up = end.catches_up
        delivered = self._received(end, packet)
        delivered += end.ready(self.now)
        self._deliver(member, delivered)
        if catches_up and not end.counts.late and member.got != sorted(member.got):
            self.faults.append(f"{self.now}: {member.context_id} catches up out of order")
        if known is None and end.joined_at is not None and isinstance(found, udp_packets.SessionMessage):
            resumes = self.storm.resumes[member.address[1]]  # type: ignore[index]
            if end.joined_at != (found.trail if resumes else found.lead):
                self.faults.append(f"{self.now}: {member.context_id} joins at {end.joined_at} by {found}")
        if end.catches_up or catches_up:
            member.watch.look_away(end.lead)
        elif end.joined_at is not None:
            first = known if known is not None else end.joined_at
            last = end.lead
            if delivered and isinstance(found, udp_packets.Data):  # else they had waited for the source's word
                number = int.from_bytes(delivered[0][0][:8], "big")
                last = number if number >= first else end.lead
            member.watch.found_missing(first, last, joined or known is None, self.now)
        if end.state not in (State.JOINED, State.ENDING):
            member.watch.unjoined()
        self._serve_member(member)

    def _received(self, end: ReliableReceiver, packet: bytes) -> list[tuple[bytes, int]]:
        """Gives a receiver a packet; with odd seeds, the usual ones as the compiled relay does."""
        expected = end.expected if self.relays else None
        if expected is None or not is_next(packet, *expected):
            return end.receive(packet, AT, self.now)
        body = packet[udp_packets.DATA_HEADER :]
        end.took(1, len(body), self.now)
        return [(body, udp_packets.DATA_HEAD.unpack_from(packet)[-1])]

    def _to_source(self, packet: bytes, address: Hashable) -> None:
        sender = self.senders[-1]
        if not sender.dead:
            sender.watch.came(packet, address)
            sender.end.receive(packet, address, self.now)
            self._serve(sender)

    def _forge(self) -> None:
        """A packet that looks like a client's, from an address that was never proven."""
        sid = self.senders[-1].end.session_id
        cookie = self.random.getrandbits(64)
        packet = self.random.choice(
            [
                udp_packets.connect(sid, cookie, 1),
                udp_packets.connect(sid ^ 1, cookie, 1),
                *udp_packets.naks(sid, cookie, [0, 1, 2]),
                *udp_packets.acks(sid, cookie, 5, (1, 2, ""), 9, ()),
                udp_packets.leave(sid, cookie),
                self.random.randbytes(self.random.randrange(60)),
            ]
        )
        victim = self.random.choice([("10.9.9.9", self.random.randrange(3)), ("10.0.0.2", 0)])
        counts = self.senders[-1].end.counts
        asked = counts.naks_rcved
        self._to_source(packet, victim)
        if counts.naks_rcved != asked:
            self.faults.append(f"{self.now}: a forged NAK is obeyed")

    # ---- the wire

    def _wire(self, loss: float, arrive: Callable[[], None]) -> None:
        copies = 1 + (self.random.random() < self.storm.duplication)
        for _ in range(copies):
            if self.random.random() >= loss and not self.storm.outage[0] <= self.now < self.storm.outage[1]:
                late = self.random.random() < self.storm.reordering
                self.at(self.now + self.storm.delay + late * int(self.random.uniform(0, 60 * MS)), arrive)

    def _plan(self, actor: Sender | Member, when: int | None, turn: Callable[[], None]) -> None:
        if when is not None and not actor.dead and (actor.planned < 0 or when < actor.planned):
            actor.planned = max(when, self.now)
            self.at(actor.planned, partial(self._due, actor, actor.planned, turn))

    def _due(self, actor: Sender | Member, planned: int, turn: Callable[[], None]) -> None:
        if actor.planned == planned and not actor.dead:
            actor.planned = -1
            self._spins(actor)
            turn()

    def _spins(self, actor: Sender | Member) -> None:
        when, times = actor.turns
        actor.turns = (self.now, times + 1 if when == self.now else 1)
        if actor.turns[1] == TURNS_MAX:
            raise AssertionError(f"{self.now}: {type(actor).__name__} wants its turn again and again")

    # ---- the accounts

    def _judge(self) -> None:
        for sender in self.senders:
            self.faults += sender.watch.faults
        last = self.senders[-1]
        if last.end.lead != last.sent or sum(sender.sent for sender in self.senders) != self.storm.datagrams:
            self.faults.append(f"{last.sent} of {self.storm.datagrams} were sent")
        for member in self.members:
            self._judge_member(member)

    def _judge_member(self, member: Member) -> None:
        end, name = member.end, f"receiver {member.context_id}"
        self.faults += [f"{name}: {fault}" for fault in member.watch.faults]
        if len(set(member.got)) != len(member.got):
            self.faults.append(f"{name} was given something twice")
        due, accounted = member.ledger
        if due != accounted:
            self.faults.append(f"{name}: was to have {due}, {accounted} are accounted for; {end.counts}")
        if member.dead:
            return
        if not end.over:
            self.faults.append(f"{name} is {end.state} when all is over")
        if member.sender is not self.senders[-1] or end.joined_at is None:
            return
        if self.storm.ample and end.state is not State.ENDED:
            self.faults.append(f"{name} is {end.state}: {end.reason}")
        if self.storm.recovers_all and sorted(member.got) != list(range(end.joined_at, member.sender.sent)):
            lacks = set(range(end.joined_at, member.sender.sent)) - set(member.got)
            self.faults.append(f"{name} lacks {lacks}, which could be recovered")


def packets_of(end: ReliableReceiver) -> int:
    """The session of a receiver."""
    return end._session_id


def run(seed: int) -> World:
    """Runs a seed to its end."""
    return World(seed).run()
