"""The receivers of one topic at one context, with their recoveries, in one stay in the session after the other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ipcbus.delivery.sink import Sink
from ipcbus.transport.topic_catch_up import TopicCatchUp
from tests.sim.accounts import Account
from tests.sim.recovery.later import LaterReceiver
from tests.sim.recovery.recording import SimulatedRecording
from tests.sim.storm import UNLIMITED, Reception, Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from ipcbus import Message
    from ipcbus.delivery.delivery_session import TopicLeftOff
    from ipcbus.delivery.recovering_controller import RecoveringController
    from ipcbus.wire import control_messages
    from tests.sim.recovery.world import LateMember


class LateReception(Reception):
    """One topic at one context: the receivers that were made first, which share a recovery, and later ones."""

    controller: RecoveringController
    catch_up: TopicCatchUp

    def __init__(self, member: LateMember, topic: Topic, random: Random) -> None:
        self.member: LateMember = member
        self.topic, self.random = topic, random
        self.closed = False
        self.close_at = random.choice([0] * 14 + [random.randint(1, 40)])
        self.closes_alone = random.random() < 0.5
        self.raises = random.choice([0, 0, 0, 0.1])
        self.pulled = random.random() < 0.3
        self.ordered = member.ordered
        self.sinks = [Sink(None, random.randint(1, 5)) if self.pulled else Sink(partial(self._called, 0), 1)]
        if random.random() < 0.2:
            self.sinks.append(Sink(partial(self._called, 1), 1))
        self.accounts = [Account(self.ordered, topic.sent) for _ in self.sinks]
        self.later: list[LaterReceiver] = []
        self.live_floor = topic.upcoming if member.ring or random.random() < 0.7 else None
        self.floor = self.live_floor
        self.low: int | None = None
        self.stay(None)

    def stay(self, left_off: TopicLeftOff | None) -> None:
        """Receives the topic from now on, and goes on where an earlier stay has stopped."""
        member, topic, delivery = self.member, self.topic, self.member.delivery
        self.low = None
        sharing = [sink for sink in self.open_sinks() if left_off is None or sink in left_off.sinks]
        floor = self.live_floor if left_off is None else self.published
        delivery.receive(topic.number, topic.source.topic, sharing, member.rules, floor)
        controller = delivery.topic(topic.number)
        assert controller is not None
        self.controller = controller
        if left_off is not None:
            controller.go_on(left_off.controller)
            for account in [*self.accounts, *(each.account for each in self.later)]:
                account.joins += 1
        self.catch_up = TopicCatchUp(
            delivery.demux,
            controller,
            member.settings,
            asks_at_once=member.ring,
            older=self.recording(),
            waiting_bytes_max=self.random.choice([0, 500, UNLIMITED]),
        )
        if member.recovers:
            self.catch_up.begin_otr()
        if member.joins_late and sharing and controller.resumed_at is None and (not left_off or controller.floor != 0):
            has_sent = left_off is not None or topic.upcoming > 0 or self.random.random() < 0.5
            self.catch_up.begin_late_join(member.world.now_ns, has_sent=has_sent)
        if left_off is not None:
            for each in self.later:
                if not (each.sink.closed or each.sink in left_off.sinks):
                    each.stay(left_off.histories.get(each.sink), self.published)
            controller.miss_again(left_off.controller)
        delivery.begin_topic(topic.number)

    @property
    def published(self) -> int:
        """The number of the next message that is published."""
        return self.member.storm.retentions[self.topic.number].published

    def recording(self) -> SimulatedRecording | None:
        """What a receiver of the context reads of an archive."""
        recorder = self.member.storm.recorder if self.member.reads_archive else None
        return SimulatedRecording(recorder, self.topic.number, self.random) if recorder is not None else None

    def info(self, found: control_messages.Info) -> None:
        """The source says what it keeps."""
        was_promised = self.controller.is_promised
        if self.catch_up.recovery.awaits(found):
            self.low = found.low
        self.catch_up.info(found, self.member.world.now_ns)
        self.note_promise(was_promised)

    def note_promise(self, was_promised: bool) -> None:
        """What this receiver was promised is known from now on."""
        if was_promised or self.controller._promised_from is None:
            return
        first = self.controller._promised_from
        assert self.low is None or first <= self.low
        if self.live_floor is not None:
            assert first <= self.live_floor
        sent = self.topic.sent.get(first)
        # What comes first may be the rest of a message that began before.
        rest = sent is not None and sent.first < first and self.ordered != 0
        self.floor = sent.last + 1 if sent is not None and rest else first

    def work(self, send: Callable[[bytes], bool], now_ns: int | None = None) -> None:
        """Goes on with the recovery."""
        was_promised = self.controller.is_promised
        self.catch_up.work(self.member.world.now_ns if now_ns is None else now_ns, send)
        if self.low is not None:
            self.note_promise(was_promised)

    # ------------------------------------------------------------------ what the application does

    def pull(self, count: int) -> bool:
        """The application takes some of what is kept; says whether there was anything."""
        had = super().pull(count)
        for each in self.later:
            had |= each.pull(count)
        return had

    def all_sinks(self) -> list[Sink]:
        """Those of all its receivers."""
        return [*super().all_sinks(), *(each.sink for each in self.later)]

    def open_sinks(self) -> list[Sink]:
        """Those of the receivers that are not closed."""
        return [sink for sink in self.all_sinks() if not sink.closed]

    def more(self) -> None:
        """The application makes another receiver of the topic."""
        if not (self.closed or self.topic.gone or self.member.evicted):
            self.later.append(LaterReceiver(self, len(self.later) + 1, self.random))
            self.member.delivery.begin_topic(self.topic.number)
            self.member.attend()

    def close_receivers(self, sinks: Iterable[Sink]) -> None:
        """The application closes some receivers, maybe from inside a callback, whatever was going on."""
        if self.closed:
            return
        for sink in sinks:
            sink.closed = True
        delivery, left = self.member.delivery, self.open_sinks()
        if not left:
            self.closed = True
            delivery.remove_topic(self.topic.number)
        elif not self.member.evicted:
            delivery.keep_sinks(self.topic.number, left)
            self.member.world.after(0, self.member.unblock)

    def _called(self, index: int, message: Message) -> None:
        self._enter(index, message)
        if self.close_at and len(self.member.trace) >= self.close_at and not self.sinks[index].closed:
            self.close_receivers(self.sinks if self.closes_alone else self.all_sinks())
        if self.random.random() < self.raises:
            self.member.raised += 1
            raise RuntimeError("a callback that raises")

    # ------------------------------------------------------------------ the end

    def end(self, upto: int | None) -> None:
        """Nothing more comes."""
        member = self.member
        if not member.evicted:
            member.work_off(self)
        elif not member.ending:
            return
        if self.closed:
            return
        assert member.delivery.topic(self.topic.number) is self.controller
        member.delivery.end_topic(self.controller, upto or 0)
        if not self.closed:
            member.delivery.remove_topic(self.topic.number)
            self.settle(upto)
        self.closed = True

    def settle(self, upto: int | None) -> None:
        """Everything was delivered or reported lost, to each receiver that is open."""
        while self.pull(UNLIMITED):
            pass
        for sink, account in zip(self.sinks, self.accounts, strict=True):
            if not sink.closed:
                account.close(self.floor, upto)
        for each in self.later:
            if not each.sink.closed:
                each.close(upto)
