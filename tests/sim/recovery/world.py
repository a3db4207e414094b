"""Receivers that join late, or lose messages, and ask the source for them; everything is drawn from one seed.

A source sends on a few topics and keeps some of it. Contexts join at any time, on a ring that overruns them or on a
wire that loses, with receivers in every mode, full ones too; some are made later, or closed in the middle, and some
rings evict contexts, which join again. Their channels to the source delay, fill up, break, and lose. The source ends in
the middle, or waits for the recoveries; then another one begins. Every number from the promised one on is delivered
once or reported lost once.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from ipcbus.delivery.delivery_rules import DeliveryRules
from ipcbus.delivery.delivery_session import DeliverySession
from ipcbus.delivery.message_types import MessageFlag
from ipcbus.delivery.reassembly_budget import ReassemblyBudget
from ipcbus.recovery.control_channel import ControlChannel
from ipcbus.recovery.recovery_settings import RecoverySettings, RequestTerms
from ipcbus.topic.message_retention import Retention
from ipcbus.wire import control_messages
from tests.sim.recovery.answers import Answers
from tests.sim.recovery.links import LinkTerms, link
from tests.sim.recovery.reception import LateReception
from tests.sim.recovery.recording import SimulatedRecorder
from tests.sim.storm import UNLIMITED, Member, Storm, Topic
from tests.sim.wire import Wire
from tests.sim.world import MS, SECOND, TOPICS_MAX, Sender, Terms, World

if TYPE_CHECKING:
    from ipcbus import Message
    from ipcbus.transport.topic_catch_up import TopicCatchUp
    from tests.sim.recovery.later import LaterReceiver

MESSAGE_MAX = 1 << 20


class LateMember(Member):
    """A receiving context with a control channel to the source."""

    def __init__(self, storm: RecoveryStorm, random: Random) -> None:
        self.storm: RecoveryStorm = storm
        self.random, self.world = random, storm.world
        self.ring = random.random() < 0.5
        self.wire_terms = Wire.draw(random)
        self.overruns = random.choice([0, 0, 0.02, 0.1])
        self._overrun = 0
        self.ordered = random.choice([1, 1, 1, -1, 0])
        self.joins_late = random.random() < 0.8
        self.recovers = random.random() < 0.6
        tiny = random.random() < 0.5
        self.reads_archive = random.random() < 0.8
        self.limits = (random.choice([0, 1, 4, 20]), random.choice([40, 700, 3000])) if tiny else (0, UNLIMITED)
        recovery_ns = 0 if self.ring else random.choice([0, 5 * MS, 60 * MS])
        self.rules = DeliveryRules(
            ordered=self.ordered,
            burst_loss=random.choice([2, 5, 1024]) if tiny else 1024,
            caching=random.choice([0, 1, 5, 10_000]) if tiny and not recovery_ns else 0,
            loss_check_ns=random.choice([0, 3 * MS, 50 * MS]),
            recovery_ns=recovery_ns,
            proximity=random.choice([0, 3, 20, 5000]),
            waiting_max=random.choice([1, 4, 30, 10_000]),
        )
        self.settings = self._draw_settings(random)
        self.budget = ReassemblyBudget(*self.limits)
        self.trace: list[tuple[object, ...]] = []
        self.wrong: AssertionError | None = None
        self.raised = self.failed = 0
        self.evictions = random.randint(1, 3) if self.ring and storm.evicts and random.random() < 0.7 else 0
        self.evicted = self.ending = False
        self._stay = 0
        self.delivery = self._deliver(begun=False)
        self.pending: deque[bytes] = deque()
        self.link_terms = LinkTerms.draw(random)
        self.channel: ControlChannel | None = None
        self._attending = self._over = False
        self._timer_ns = 0
        self._refused = random.random() < 0.05
        self.receptions: list[LateReception] = []  # type: ignore[assignment]
        topics = [topic for topic in storm.topics if not topic.gone]
        for topic in [topic for topic in topics if random.random() < 0.8] or topics[:1]:
            self.receptions.append(LateReception(self, topic, random))
        storm.sender.receivers.append(self)  # type: ignore[arg-type]
        self.calm = (
            not tiny
            and (self.recovers or not (self.overruns or self.evictions) if self.ring else self.recovers)
            and self.link_terms.brings_all
            and self.settings.late_join.timeout_ns > SECOND
            and not self._refused
            and storm.keeps_all
            and not any(reception.live_floor is None for reception in self.receptions)
        )
        if self.rules.loss_check_ns:
            self._check()
        self._pull()
        self.world.after(random.choice([0, 1, 10]) * MS, self._open)
        for reception in self.receptions:
            for _ in range(0 if self._refused else random.choice([0, 0, 1, 2])):
                self.world.after(random.randint(0, 200) * MS, reception.more)
        self._draw_evictions()

    def _draw_evictions(self) -> None:
        for _ in range(self.evictions):
            self.world.after(self.random.randint(1, 400) * MS, self._evict)

    def take_older(self) -> None:
        """Over UDP, datagrams from before the join may be on their way, or in the socket."""
        sent = self.storm.sender.sent
        older = 0 if self.ring else self.random.choice([0, 0, 1, 4])
        for number in range(max(0, len(sent) - older), len(sent)):
            self.wire(number, sent[number])

    def _deliver(self, *, begun: bool) -> DeliverySession:
        return DeliverySession(
            "LBT-RM:storm", TOPICS_MAX, budget=self.budget, failed=self._fail, delivered=lambda told: None, begun=begun
        )

    @staticmethod
    def _draw_settings(random: Random) -> RecoverySettings:
        def terms(timeout_ms: int) -> RequestTerms:
            interval = random.choice([5, 30]) * MS
            return RequestTerms(
                initial_delay_ns=random.choice([0, 10, 40]) * MS,
                interval_ns=interval,
                interval_max_ns=random.choice([interval, 4 * interval]),
                timeout_ns=timeout_ms * MS,
                requests_max=random.choice([1, 3, 10]),
                numbers_max=random.choice([1, 7, 1000]),
            )

        timeout_ms = random.choice([300, 3000])
        return RecoverySettings(
            late_join=terms(timeout_ms),
            otr=terms(timeout_ms),
            info_interval_ns=random.choice([10, 50]) * MS,
            info_requests_max=random.choice([10, 60]),
            asks_silent_sources=random.random() < 0.8,
            history=random.choice([None, None, None, 0, 1, 5, 50]),
        )

    # ------------------------------------------------------------------ the live stream

    def wire(self, number: int, datagram: bytes) -> None:
        """A datagram is sent to this context."""
        if not self.ring:
            super().wire(number, datagram)
            return
        if self.evicted:
            return
        if self._overrun == 0 and self.random.random() < self.overruns:
            self._overrun = self.random.randint(1, 30)
        if self._overrun:
            self._overrun -= 1
        else:
            self.world.after(MS // 10, partial(self._come_in_stay, self._stay, datagram))

    def _come_in_stay(self, stay: int, datagram: bytes) -> None:
        if stay == self._stay and not self.evicted:
            self._come(datagram)

    def _work(self) -> None:
        if not self.evicted:
            super()._work()
            self.attend()

    # ------------------------------------------------------------------ eviction

    def _evict(self) -> None:
        """The source evicts this context, which does not read the ring any more."""
        if self._over or self.evicted:
            return
        if not any(each.busy for each in self._catch_ups()):
            self.attend()  # takes what has come through the channel
            for each in self._catch_ups():
                each.source_ended(self.world.now_ns)
            self.attend()
        self.evicted = True
        if self.channel is not None:
            self.channel.close()
            self.channel = None
        self.pending.clear()
        self.delivery.demux.secure()
        self.delivery.demux.detached = True
        self._report_losses()
        self.world.after(self.random.choice([0, 1, 20, 100]) * MS, self._join_again)

    def _report_losses(self) -> None:
        """What is published and not delivered is lost, in topics without recovery."""
        for reception in self._open_receptions():
            if not reception.controller.recovers:
                reception.controller.finish(reception.published)
        self._inspect()

    def _join_again(self) -> None:
        """Goes on in another stay, when all receivers have room."""
        if self._over:
            return
        self._report_losses()
        if any(sink.pulls and sink.is_full_now() for each in self._open_receptions() for sink in each.open_sinks()):
            self.world.after(5 * MS, self._join_again)
            return
        before, receptions = self.delivery, self._open_receptions()
        offered = [reception for reception in receptions if not reception.topic.gone]
        left_off = {each.topic.number: before.leave_off(each.controller) for each in offered}
        for reception in receptions:
            before.end_topic(reception.controller, 0 if reception in offered else reception.topic.upcoming)
            if not (reception in offered or reception.closed):
                reception.settle(reception.topic.upcoming)
                reception.closed = True
        assert (before.demux.tally.order_map_entries, before.demux.tally.reassembly_bytes) == (0, 0)
        self.delivery = self._deliver(begun=bool(self.storm.sender.sent))
        self._stay += 1
        self.evicted = False
        for reception in offered:
            if not reception.closed:
                found = left_off[reception.topic.number]
                assert found is not None
                reception.stay(found)
        self._inspect()
        self.world.after(self.random.choice([0, 1, 10]) * MS, self._open)
        self.attend()

    # ------------------------------------------------------------------ the channel

    def _open(self) -> None:
        if self._over or self._refused or self.evicted or self.channel is not None:
            return
        answers, key = self.storm.answers, id(self)
        here, there = link(self.world, self.random, self.link_terms, self.attend, lambda: answers.work(key, source_end))
        queue_max = self.random.choice([100, 5000, UNLIMITED])
        self.channel = ControlChannel(here, queue_max=queue_max, message_max=MESSAGE_MAX)
        source_end = ControlChannel(there, queue_max=queue_max, message_max=MESSAGE_MAX)
        answers.open(key, source_end)
        for catch_up in self._catch_ups():
            catch_up.channel_ready(self.world.now_ns)
        self.attend()

    def _open_receptions(self) -> list[LateReception]:
        return [reception for reception in self.receptions if not reception.closed]

    def _catch_ups(self) -> list[TopicCatchUp]:
        found = self._open_receptions()
        return [each.catch_up for each in found] + [later.catch_up for each in found for later in self._later(each)]

    def attend(self) -> None:
        """What an event loop does for recoveries in a turn."""
        if self._attending or self._over or self.evicted:
            return
        self._attending = True
        now_ns, channel = self.world.now_ns, self.channel
        while channel is not None and (message := channel.receive()) is not None:
            self._take(message)
        if channel is not None and channel.broken:
            self.channel = channel = None
            for catch_up in self._catch_ups():
                catch_up.channel_lost(now_ns)
            self.world.after(self.random.choice([1, 20, 400]) * MS, self._open)
        for reception in self._open_receptions():
            before = reception.catch_up.busy
            send = channel.send if channel is not None else self._no_room
            reception.work(send)
            for later in self._later(reception):
                later.catch_up.work(now_ns, send)
                later.advance()
            self._inspect()
            if before and not reception.catch_up.busy and self.delivery.demux.blocked:
                self.world.after(0, self.unblock)
        if channel is not None:
            channel.flush()
        self._attending = False
        due = [each.due_ns for each in self._catch_ups()]
        due += [now_ns + MS for each in self._open_receptions() if self._later(each)]
        due += [now_ns if each.hurries else now_ns + MS for each in self._catch_ups() if each.busy and each.reads_past]
        due_ns = min((each for each in due if each is not None), default=None)
        if due_ns is not None and not now_ns <= self._timer_ns <= due_ns:
            self._timer_ns = max(due_ns, now_ns + MS // 1000)
            self.world.after(self._timer_ns - now_ns, self._timer)

    def _timer(self) -> None:
        if self.world.now_ns >= self._timer_ns:
            self._timer_ns = -1
        self.attend()

    def unblock(self) -> None:
        """A receiver may have room."""
        self.delivery.demux.blocked = False
        self._work()

    def _take(self, message: bytes) -> None:
        found = control_messages.decode(message)
        assert isinstance(found, control_messages.Info | control_messages.Retransmission)
        for reception in self._open_receptions():
            if reception.topic.number == found.topic:
                self._hand(reception, found)

    def _hand(self, reception: LateReception, found: control_messages.Info | control_messages.Retransmission) -> None:
        """Hands what the source has sent to the recoveries of a topic."""
        if isinstance(found, control_messages.Info):
            reception.info(found)
        else:
            reception.catch_up.retransmission(found, self.world.now_ns)
        for later in self._later(reception):
            if isinstance(found, control_messages.Info):
                later.info(found)
            else:
                later.retransmission(found)

    @staticmethod
    def _later(reception: LateReception) -> list[LaterReceiver]:
        return [each for each in reception.later if each.recovers]

    @staticmethod
    def _no_room(message: bytes) -> bool:
        del message
        return False

    def work_off(self, reception: LateReception) -> None:
        """The session ends: what has come is delivered, and what an archive has."""
        if not reception.closed:
            was_promised = reception.controller.is_promised
            reception.catch_up.source_ended(self.world.now_ns)
            if reception.low is not None:
                reception.note_promise(was_promised)
        for later in self._later(reception):
            later.catch_up.source_ended(self.world.now_ns)
        now_ns = self.world.now_ns
        while reception.catch_up.busy and not reception.closed:
            now_ns += MS  # the session waits for a recorder
            while reception.pull(UNLIMITED):
                pass
            reception.work(self._no_room, now_ns)
        for later in self._later(reception):
            while later.recovers and later.catch_up.busy:
                now_ns += MS
                later.pull(UNLIMITED)
                later.catch_up.work(now_ns, self._no_room)
                later.advance()
        self._inspect()

    def _check(self) -> None:
        if self.evicted:
            self._report_losses()
            self.world.after(self.rules.loss_check_ns, self._check)
            return
        super()._check()
        self.attend()

    def _pull(self) -> None:
        self._pull_once(self.random.randint(1, 10))
        self.world.after(self.random.randint(1, 20) * MS, self._pull)

    def _pull_once(self, count: int) -> None:
        for reception in self._open_receptions():
            reception.pull(count)
        self.unblock()

    # ------------------------------------------------------------------ the end

    @property
    def recovering(self) -> bool:
        """Whether a recovery runs, or messages wait for receivers."""
        return bool(self.pending or self.evicted) or any(
            each.controller.recovering or each.catch_up.busy or self._later(each) for each in self._open_receptions()
        )

    def tell_last_numbers(self) -> None:
        """The source says how far its topics went."""
        for reception in self._open_receptions():
            if not (self.evicted or reception.topic.gone or self.pending or self.delivery.demux.holds_datagram):
                reception.controller.note_next_sequence(reception.topic.upcoming, self.world.now_ns)
        self.attend()

    def note(self, topic: int, index: int, message: Message) -> None:
        """Into the trace."""
        super().note(topic, index, message)
        later = any(reception.later for reception in self.receptions if reception.topic.number == topic)
        if index > 1 or later:
            return  # a later receiver asks for its own history, and what comes for it may be missing here too
        if message.flags & MessageFlag.LATE_JOIN:
            self.guard(lambda: self._assert(self.joins_late, "late join without being asked for"))
        if message.flags & MessageFlag.OTR:
            self.guard(lambda: self._assert(self.recovers or self.joins_late, "recovered without being asked for"))

    def finish(self) -> None:
        """The session is over."""
        patient = self.storm.patient
        self.calm = self.calm and patient and not any(reception.topic.gone for reception in self.receptions)
        self._over, self.ending = False, True
        super().finish()
        self._over = True

    def _take_rest(self) -> None:
        if not self.evicted:
            super()._take_rest()

    @staticmethod
    def _assert(holds: bool, why: str) -> None:
        assert holds, why


class RecoveryStorm(Storm):
    """One source's session in a world in which others may have been before."""

    def __init__(self, random: Random, world: World) -> None:
        self.random, self.world = random, world
        self.over = False
        self.patient = random.random() < 0.6
        self.keeps_all = random.random() < 0.5
        self.evicts = random.random() < 0.5
        self.sender = Sender(
            world,
            Terms(
                datagram_max=random.choice([48, 64, 104, 200, 1500]),
                minimum_length=random.choice([1, 60, 300, 2048]),
                batching_interval=random.choice([1, 10]) * MS,
                tsni_interval=random.choice([0, 4, 20]) * MS,
                tsni_active=random.choice([0, 100]) * MS,
                sm_minimum=1000 * SECOND,
            ),
        )
        self.topics = [Topic(n, self.sender.topic(f"topic {n}"), {}) for n in range(random.randint(1, 2))]
        size_limit = UNLIMITED if self.keeps_all else random.choice([100, 2000, 10_000])
        self.answers = Answers(world, random)
        self.retentions: list[Retention] = []
        for topic in self.topics:
            thresholds = (0, 0) if self.keeps_all else (random.choice([0, 0, 500]), random.choice([0, 0, 50 * MS]))
            retention = Retention(*thresholds, size_limit)
            topic.source._retain(retention)
            self.retentions.append(retention)
            self.answers.retransmitter.add_topic(topic.number, retention)
        self.recorder = SimulatedRecorder(self, random) if random.random() < 0.6 else None
        self.late_members: list[LateMember] = []
        for _ in range(random.choice([1, 2, 2, 3])):
            world.after(random.randint(0, 300) * MS, self._join)

    def run(self) -> None:
        """All of it."""
        random, world = self.random, self.world
        for _ in range(random.randint(20, 150)):
            topic = random.choice(self.topics)
            was_gone = topic.gone
            self._act(topic)
            if topic.gone and not was_gone:
                self.answers.retransmitter.remove_topic(topic.number)
            if random.random() < 0.4:
                world.run(world.now_ns + random.choice([1, 1, 5, 30]) * MS)
        for topic in self.topics:
            topic.source._refuse_sends()  # which ends an explicit batch that is open
        self.sender.batch.flush()
        self.sender.pump()
        world.run(world.now_ns + 200 * MS)
        turns = 2000 if self.patient else random.randint(0, 2)
        for _ in range(turns):
            for member in self.late_members:
                member.tell_last_numbers()
            world.run(world.now_ns + 50 * MS)
            if not any(member.recovering for member in self.late_members):
                break
        if self.recorder is not None:
            self.recorder.finish()
        self.over = self.answers.over = True
        for member in self.members:
            member.finish()

    @property
    def members(self) -> list[LateMember]:  # type: ignore[override]
        """Its receiving contexts."""
        return self.late_members

    def _join(self) -> None:
        if not self.over:
            self.late_members.append(LateMember(self, Random(self.random.random())))
            self.late_members[-1].take_older()


def run(seed: int) -> str:
    """Runs a simulation; returns the digest of its traces.

    Raises:
        AssertionError: something was not as promised.
    """
    random, world, digests = Random(seed), World(), []
    for _ in range(random.choice([1, 1, 2])):
        storm = RecoveryStorm(random, world)
        storm.run()
        digests.append(storm.digest())
    return " ".join(digests)
