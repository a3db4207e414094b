"""Whole sessions in virtual time, everything about them drawn from one seed.

A source context sends on a few topics; the wire loses, doubles, delays, cuts short, and recovers some of what it lost;
receiving contexts in every delivery mode, with limits so tiny that they matter, account for each number.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from ipcbus.delivery.delivery_rules import DeliveryRules
from ipcbus.delivery.delivery_session import DeliverySession
from ipcbus.delivery.reassembly_budget import ReassemblyBudget
from ipcbus.delivery.sink import Sink
from ipcbus.wire.properties import pack
from tests.kit.desk import seen_of
from tests.sim.accounts import Account, Sent
from tests.sim.wire import Wire
from tests.sim.world import MS, SECOND, TOPICS_MAX, Sender, Terms, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Message
    from ipcbus.topic.topic_source import TopicSource

UNLIMITED = 1 << 40
PARTIAL_BYTES = 512


@dataclass
class Topic:
    """A source and what it sent."""

    number: int
    source: TopicSource
    sent: dict[int, Sent]
    gone: bool = False

    @property
    def upcoming(self) -> int:
        """The number of its next message."""
        return self.source.sequence_number + 1


class Reception:
    """One topic at one context: one or two sinks, of which one may be pulled from."""

    def __init__(self, member: Member, topic: Topic, random: Random) -> None:
        self.member, self.topic, self.random = member, topic, random
        self.closed = False
        self.close_at = random.choice([0] * 9 + [random.randint(1, 40)])
        self.raises = random.choice([0, 0, 0, 0.1])
        self.pulled = random.random() < 0.3
        self.ordered = member.ordered
        sinks = [Sink(None, random.randint(1, 5)) if self.pulled else Sink(partial(self._called, 0), 1)]
        if random.random() < 0.2:
            sinks.append(Sink(partial(self._called, 1), 1))
        self.sinks = sinks
        self.accounts = [Account(self.ordered, topic.sent) for _ in sinks]
        # Who knows the beginning was told by the source when it joined.
        self.floor = topic.upcoming if random.random() < 0.7 else None
        member.delivery.receive(topic.number, topic.source.topic, sinks, member.rules, self.floor)
        member.delivery.begin_topic(topic.number)

    def pull(self, count: int) -> bool:
        """The application takes some of what is kept; says whether there was anything."""
        queue = self.sinks[0].queue
        had = bool(queue)
        for _ in range(min(count, len(queue))):
            self._enter(0, queue.popleft())
        return had

    def end(self, upto: int | None) -> None:
        """Nothing more comes."""
        if self.closed:
            return
        controller = self.member.delivery.topic(self.topic.number)
        assert controller is not None
        self.member.delivery.end_topic(controller, upto or 0)
        if not self.closed:
            self.member.delivery.remove_topic(self.topic.number)
            while self.pulled and self.pull(UNLIMITED):
                pass
            for account in self.accounts:
                account.close(self.floor, upto)
        self.closed = True

    def all_sinks(self) -> list[Sink]:
        """Those of all its receivers."""
        return self.sinks

    def _called(self, index: int, message: Message) -> None:
        self._enter(index, message)
        if self.close_at and len(self.member.trace) >= self.close_at and not self.closed:
            # The application closes its receivers from inside a callback, whatever was going on.
            self.closed = True
            for sink in self.all_sinks():
                sink.closed = True
            self.member.delivery.remove_topic(self.topic.number)
        if self.random.random() < self.raises:
            self.member.raised += 1
            raise RuntimeError("a callback that raises")

    def _enter(self, index: int, message: Message) -> None:
        self.member.note(self.topic.number, index, message)
        self.member.guard(lambda: self.accounts[index].enter(message))


class Member:
    """A receiving context."""

    def __init__(self, storm: Storm, random: Random) -> None:
        self.storm, self.random, self.world = storm, random, storm.world
        self.wire_terms = Wire.draw(random)
        self.ordered = random.choice([1, 1, -1, -1, 0])
        tiny = random.random() < 0.6
        recovery_ns = random.choice([0, 5 * MS, 60 * MS, 60 * MS])
        self.limits = (random.choice([0, 1, 4, 20]), random.choice([40, 700, 3000])) if tiny else (0, UNLIMITED)
        self.rules = DeliveryRules(
            ordered=self.ordered,
            burst_loss=random.choice([2, 5, 1024]) if tiny else 1024,
            caching=random.choice([0, 1, 5, 10_000]) if tiny else 0,
            loss_check_ns=random.choice([0, 3 * MS, 50 * MS]),
            recovery_ns=recovery_ns,
        )
        self.budget = ReassemblyBudget(*self.limits)
        self.trace: list[tuple[object, ...]] = []
        self.wrong: AssertionError | None = None
        self.raised = self.failed = 0
        self.delivery = DeliverySession(
            "LBT-RM:storm", TOPICS_MAX, budget=self.budget, failed=self._fail, delivered=lambda told: None
        )
        self.pending: deque[bytes] = deque()
        self.receptions = [
            Reception(self, topic, random) for topic in storm.topics if not topic.gone and random.random() < 0.8
        ]
        storm.sender.receivers.append(self)  # type: ignore[arg-type]
        # On such a wire, with nothing in the way, not one message may be lost. (In the way is
        # who is slow to pull. Who does not know the beginning takes what comes first for it.)
        self.calm = (
            not tiny
            and self.wire_terms.brings_all
            and recovery_ns > self.wire_terms.longest_ns
            and not any(reception.pulled or reception.floor is None for reception in self.receptions)
        )
        if self.rules.loss_check_ns:
            self._check()
        self._pull()

    def wire(self, number: int, datagram: bytes) -> None:
        """A datagram is sent to this context."""
        random, terms = self.random, self.wire_terms
        copies = 2 if random.random() < terms.duplication else 1
        for _ in range(copies):
            delay = MS // 10
            if random.random() < terms.loss:
                if random.random() >= terms.recovery:
                    continue
                delay += random.randint(1, terms.recovery_ns)
            if random.random() < terms.reordering:
                delay += random.randint(1, terms.delay_ns)
            whole = random.random() >= terms.cut
            come = datagram if whole else datagram[: random.randrange(len(datagram))]
            self.world.after(delay, partial(self._come, come))

    def session_message(self, sent: int) -> None:
        """This wire has none."""

    def note(self, topic: int, index: int, message: Message) -> None:
        """Into the trace."""
        self.trace.append((self.world.now_ns, topic, index, *seen_of(message), message.flags))

    def guard(self, check: Callable[[], None]) -> None:
        """Keeps the first failed assertion, which a callback could not raise to anybody."""
        try:
            check()
        except AssertionError as error:
            self.wrong = self.wrong or error

    def finish(self) -> None:
        """The session is over: everything that came is taken, every topic ends."""
        self._take_rest()
        known = self.random.random() < 0.7
        for reception in self.receptions:
            reception.end(reception.topic.upcoming if known else None)
        self._inspect()
        assert (self.budget.entries, self.budget.bytes) == (0, 0), "something is held at the end"
        tally = self.delivery.demux.tally
        assert (tally.order_map_entries, tally.reassembly_bytes) == (0, 0)
        assert self.failed == self.raised
        if self.calm:
            lost = sum(account.lost for reception in self.receptions for account in reception.accounts)
            assert lost == 0, f"{lost} messages reported lost though all came in time"

    def _take_rest(self) -> None:
        while self.pending or self.delivery.demux.holds_datagram:
            self._pull_once(UNLIMITED)

    def _come(self, datagram: bytes) -> None:
        self.pending.append(datagram)
        self._work()

    def _work(self) -> None:
        demux = self.delivery.demux
        while not demux.blocked:
            if demux.holds_datagram:
                demux.resume(self.world.now_ns)
            elif self.pending:
                demux.feed(self.pending.popleft(), 1, self.world.now_ns)
            else:
                break
            self._inspect()

    def _inspect(self) -> None:
        if self.wrong is not None:
            raise self.wrong
        entries, memory = self.limits
        assert self.budget.entries >= 0
        assert not 0 < entries < self.budget.entries, f"{self.budget.entries} entries, {entries} allowed"
        assert 0 <= self.budget.bytes <= memory + PARTIAL_BYTES

    def _check(self) -> None:
        if not self.delivery.demux.blocked:
            self.delivery.check(self.delivery.due(self.world.now_ns), self.world.now_ns)
            self._inspect()
        self.world.after(self.rules.loss_check_ns, self._check)

    def _pull(self) -> None:
        if any(reception.pulled and not reception.closed for reception in self.receptions):
            self._pull_once(self.random.randint(1, 10))
            self.world.after(self.random.randint(1, 20) * MS, self._pull)

    def _pull_once(self, count: int) -> None:
        for reception in self.receptions:
            if reception.pulled and not reception.closed:
                reception.pull(count)
        self.delivery.demux.blocked = False
        self._work()

    def _fail(self, sink: Sink, error: BaseException) -> None:
        if not isinstance(error, RuntimeError):
            raise error
        self.failed += 1


class Storm:
    """One simulation."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.world = World()
        self.sender = Sender(
            self.world,
            Terms(
                datagram_max=random.choice([48, 64, 104, 200, 1500]),
                minimum_length=random.choice([1, 60, 300, 2048]),
                batching_interval=random.choice([1, 10]) * MS,
                tsni_interval=random.choice([0, 4, 20]) * MS,
                tsni_active=random.choice([0, 100]) * MS,
                sm_minimum=1000 * SECOND,
            ),
        )
        self.topics = [Topic(n, self.sender.topic(f"topic {n}"), {}) for n in range(random.randint(1, 3))]
        self.members: list[Member] = []
        self._join()
        for _ in range(random.choice([0, 1, 1, 2])):
            self.world.after(random.choice([0, random.randint(1, 100) * MS]), self._join)

    def run(self) -> None:
        """All of it."""
        random = self.random
        for _ in range(random.randint(10, 100)):
            self._act(random.choice(self.topics))
            if random.random() < 0.4:
                self.world.run(self.world.now_ns + random.choice([1, 1, 5, 30]) * MS)
        for topic in self.topics:
            topic.source._refuse_sends()  # which ends an explicit batch that is open
        self.sender.batch.flush()
        self.sender.pump()
        self.world.run(self.world.now_ns + 200 * MS)
        for member in self.members:
            member.finish()

    def digest(self) -> str:
        """Of everything that any receiver was given, and when."""
        trace = repr([member.trace for member in self.members])
        return hashlib.blake2b(trace.encode(), digest_size=16).hexdigest()

    def _join(self) -> None:
        self.members.append(Member(self, Random(self.random.random())))

    def _act(self, topic: Topic) -> None:
        random = self.random
        what = random.random()
        if topic.gone:
            return
        if what < 0.02 and len(self.topics) > 1:
            self.sender.delete(topic.source)
            topic.gone = True
            if random.random() < 0.5:
                # Whoever learns of it has read what was sent until then, or lost it.
                self.world.after(60 * MS, partial(self._ends, topic))
        elif what < 0.06:
            topic.source.flush()
            self.sender.pump()
        elif what < 0.1:
            sizes = random.randint(1, 30)
            payloads = [random.randbytes(sizes) for _ in range(random.randint(1, 8))]
            before = topic.upcoming
            self.sender.channel.writer.set_time(self.world.now_ns)
            topic.source.send_many(payloads, flush=random.random() < 0.5)
            self._sent(topic, before, payloads)
            self.sender.pump()
        else:
            self._send(topic)

    def _send(self, topic: Topic) -> None:
        random = self.random
        length = random.choice([random.randint(0, 40), random.randint(0, 40), random.randint(0, 600)])
        payload = random.randbytes(length)
        headers = [("h" * random.randint(1, 9), random.randbytes(random.choice([0, 5, 300])))] * random.choice(
            [0, 0, 1, 3]
        )
        flags = {
            "flush": random.random() < 0.3,
            "start_batch": random.random() < 0.05,
            "end_batch": random.random() < 0.2,
        }
        before = topic.upcoming
        # Noted before it is sent: with a wire this short it may be there when `send` returns.
        self.sender.send(topic.source, payload, headers, **flags)
        self._sent(topic, before, [payload], pack(headers))

    @staticmethod
    def _sent(topic: Topic, before: int, payloads: list[bytes], block: bytes = b"") -> None:
        room = topic.source.message_max
        piece = (room - 16) & ~7
        for payload in payloads:
            length = len(block) + len(payload)
            last = before if length <= room else before - 1 - (-length // piece)
            sent = Sent(before, last, payload, block)
            topic.sent |= dict.fromkeys(range(before, last + 1), sent)
            before = last + 1
        assert before == topic.upcoming, "other numbers were given than the length says"

    def _ends(self, topic: Topic) -> None:
        for member in self.members:
            for reception in member.receptions:
                if reception.topic is topic and not member.delivery.demux.blocked:
                    reception.end(topic.upcoming)


def run(seed: int) -> str:
    """Runs a simulation; returns the digest of its trace.

    Raises:
        AssertionError: something was not as promised.
    """
    storm = Storm(seed)
    storm.run()
    return storm.digest()
