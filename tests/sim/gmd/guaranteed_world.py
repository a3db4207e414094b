"""Guaranteed deliveries, each drawn from one seed.

One sender, several of one topic, or senders of several topics send in every mode, each with an area of its own, to
named receivers of one or all of the topics, and to anonymous ones. The live stream loses, doubles and delays; control
channels break, fill up, and are left for others (as at a failover) while their messages are still on the way; sources
and receivers are killed at any write and start again with what their areas have, also before the other side has noticed
it; time passes in steps of every size; the application deletes, sends again, forgets and refuses; areas fill up or
refuse. At the end all of them run undisturbed, some without a new start: then nothing is pending, and every send was
delivered, or was given up with a reason.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from ipcbus.gmd.gmd_settings import ReceiverSettings
from tests.sim.gmd.actors import AnonymousReceiver, KilledError, ReceiverProcess, Stream, Wire
from tests.sim.gmd.sender_side import Side
from tests.sim.world import MS, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.gmd.receiver_area import Acknowledged
    from tests.sim.gmd.actors import SourceProcess

NAMES = ("one", "two", "three")
SENDERS = (
    [("gateway", "orders", 5)],
    [("gateway", "orders", 5)],
    [("gateway", "orders", 5), ("gateway 2", "orders", 5)],
    [("gateway", "orders", 5), ("gateway", "trades", 6)],
    [("gateway", "orders", 5), ("gateway 2", "orders", 9), ("gateway", "trades", 5)],
)
"""Name, topic and the number of the topic in the sessions of each sender."""
WORKS = ("live", "live", "control", "bulk", "turn", "turn", "take", "ack", "end")


class GuaranteedWorld:
    """Senders, their receivers, and what happens to them."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.now_ns = SECOND
        self.modes = {name: random.choice([0, 0, 0, 1, 2]) for name in NAMES}
        self.sides = [Side(random, *each, self.modes) for each in random.choice(SENDERS)]
        topics = {side.topic for side in self.sides}
        self.recorded: dict[str, dict[str, dict[tuple[str, int], Acknowledged]]] = {
            name: {topic: {} for topic in topics} for name in NAMES
        }
        self.receivers: list[ReceiverProcess] = []
        self.anonymous: list[AnonymousReceiver] = []
        self.instance = 0
        self.loss = random.choice([0, 0, 0.05, 0.3])
        self.doubled = random.choice([0, 0, 0.05, 0.3])
        self.calm = False
        self.faults = random.random() < 0.8

    # ------------------------------------------------------------------ processes

    def start_source(self, side: Side) -> None:
        """Starts the process of a sender if it does not run."""
        mortal = self.faults and not self.calm and self.random.random() < 0.5
        if side.start(self.now_ns, writes=self.random.randint(1, 60) if mortal else -1, is_calm=self.calm):
            source = side.process
            assert source is not None
            for receiver in self.receivers:
                receiver.join(source, self.now_ns)
            if self.random.random() < 0.3:
                self.join_anonymous(source)

    def join_anonymous(self, source: SourceProcess) -> None:
        """An anonymous receiver joins a source."""
        receiver = AnonymousReceiver(source, source.upcoming)
        self.anonymous.append(receiver)
        source.streams.append(receiver)

    def start_receiver(self, name: str) -> None:
        """Starts a receiver, of one topic or of all."""
        random, unrecorded = self.random, self.random.choice([1, 4, 64])
        settings = ReceiverSettings(
            disconnect_mode=self.modes[name],
            unrecorded_max=unrecorded,
            deliveries_max=random.choice([0, 0, 2]),
            backoff_ns=random.choice([10, 1000]) * MS,
            held_messages_max=random.choice([1, 5, 1000]),
            held_bytes_max=random.choice([40, 100_000]),
            request_bytes=100_000 if self.calm else random.choice([1, 100, 100_000]),
        )
        self.instance += 1
        recorded = self.recorded[name]
        if not self.calm and random.random() < 0.3:
            recorded = {topic: recorded[topic] for topic in sorted(recorded)[:1]}
        receiver = ReceiverProcess(name, recorded, settings, self.instance, random)
        if self.calm:
            receiver.acknowledges, receiver.refuses = 1.0, 0.0
        elif self.faults and random.random() < 0.4:
            area = random.choice(sorted(receiver.areas.items()))[1]
            area.writes_left, area.is_after = random.randint(1, 15), random.random() < 0.5
        self.receivers.append(receiver)
        for side in self.sides:
            if side.process is not None:
                receiver.join(side.process, self.now_ns)

    def kill_receiver(self, receiver: ReceiverProcess) -> None:
        """Kills a receiver; sources notice it now or later."""
        self.receivers.remove(receiver)
        for side, life in receiver.lives.items():
            side.ledger.trace.append(("kill", receiver.name))
            unrecorded = life.acknowledged - side.recorded(receiver)
            if not life.area_failed:
                assert len(unrecorded) <= life.unrecorded_max, f"{len(unrecorded)} acknowledged messages are unrecorded"
        for wire in receiver.wires:
            wire.source.streams.remove(wire)
            self.step(partial(self.leave_channel, wire))  # its source may die of it

    def leave_channel(self, wire: Wire) -> None:
        """A receiver leaves its channel; the source notices it now or later, and may read it until then."""
        if wire.channel.is_open:
            wire.side.ledger.trace.append(("leave", wire.receiver.name))
            wire.channel.is_open = False
            if self.random.random() < 0.5:
                wire.channel.clear()
                wire.side.notice_lost(wire.channel, self.now_ns)

    def fail_over(self, wire: Wire) -> None:
        """A receiver goes on with another channel of the same session."""
        self.leave_channel(wire)
        if wire.source is wire.side.process:
            wire.channel = wire.source.open_channel(self.random)

    # ------------------------------------------------------------------ what happens

    def act(self) -> None:
        """Does something."""
        random = self.random
        draw = random.random()
        if draw < 0.25:
            for _ in range(random.choice([1, 1, 5, 20])):
                random.choice(self.sides).send(self.now_ns, self.loss, self.doubled)
        elif draw < 0.9:
            self.work()
        elif draw < 0.95:
            self.now_ns += random.choice([1, 100, 600, 2000, 2000, 10_000, 400_000]) * MS
        else:
            self.disturb(random.choice(self.sides))

    def work(self) -> None:
        """One of the processes does a bit of its work."""
        random = self.random
        source = random.choice(self.sides).process
        if source is not None and random.random() < 0.3:
            channels = [each for each in source.channels if each.to_source]
            if channels and random.random() < 0.7:
                source.receive(random.choice(channels), self.now_ns)
            else:
                source.sender.turn(self.now_ns, source.send)
            source.side.take_events(self.now_ns, decides=True)
            gone = [channel for channel in source.channels if not channel.is_open]
            if gone and random.random() < 0.1:
                source.side.notice_lost(random.choice(gone), self.now_ns)
            return
        if self.anonymous and random.random() < 0.1:
            anonymous = random.choice(self.anonymous)
            for _ in range(min(random.choice([1, 8]), len(anonymous.live))):
                anonymous.read()
        wires = [(receiver, wire) for receiver in self.receivers for wire in receiver.wires]
        if wires:
            self._work_of(*random.choice(wires), random.choice(WORKS))

    def _work_of(self, receiver: ReceiverProcess, wire: Wire, what: str) -> None:
        random, is_live = self.random, wire.source is wire.side.process
        if what == "live":
            for _ in range(random.choice([1, 1, 8])):
                if wire.live:
                    receiver.read(wire, self.now_ns)
            if random.random() < 0.1 and not wire.live and wire.reached < wire.source.upcoming:
                receiver.lost(wire, wire.reached, wire.source.upcoming - 1, self.now_ns)
        elif what in ("control", "bulk"):
            receiver.control(wire, what == "control", self.now_ns)
        elif what == "turn":
            receiver.turn(wire, self.now_ns)
            if not wire.channel.is_open and is_live and random.random() < 0.5:
                wire.channel = wire.source.open_channel(random)
        elif what == "take":
            receiver.take(wire, random.choice([1, 3, 1000]), self.now_ns)
        elif what == "ack":
            receiver.acknowledge_some(random.choice([0.3, 1.0]))
            for side in receiver.lives:
                receiver.areas[side.topic].fails = self.faults and not self.calm and random.random() < 0.05
            for side, life in receiver.lives.items():  # senders of a topic share its area
                life.area_failed |= receiver.areas[side.topic].fails
        elif not is_live:
            self.end_session(receiver, wire)

    def end_session(self, receiver: ReceiverProcess, wire: Wire) -> None:
        """A receiver learns that a session is over."""
        while wire.live:
            receiver.read(wire, self.now_ns)
        wire.ended = True
        wire.machine.end()
        receiver.take(wire, 100_000, self.now_ns)
        wire.machine.detach()
        receiver.wires.remove(wire)
        receiver.ended.append(wire)
        self.check_ended(receiver, wire)

    def check_ended(self, receiver: ReceiverProcess, wire: Wire) -> None:
        """Checks the account of a session that is over, unless losses may come again; they are reported late."""
        receiver.take(wire, 100_000, self.now_ns)
        if wire.machine.withholds:
            return
        receiver.ended.remove(wire)
        delivered = [number for number, is_there in wire.account if is_there]
        assert delivered == sorted(delivered), f"{receiver.name} got {delivered}"
        wire.account.sort()
        expected = [number for number in sorted(wire.source.best_effort) if wire.joined_at <= number < wire.reached]
        self._check_account(wire, expected, receiver.name)

    def disturb(self, side: Side) -> None:
        """Something goes wrong, or the application intervenes."""
        random = self.random
        choices: list[Callable[[], object]] = [partial(self.start_source, side), self._start_some, self._start_some]
        if self.faults:
            choices += [side.kill] if random.random() < 0.3 else []
            choices += [partial(self.kill_and_restart_all, side)] if random.random() < 0.1 else []
            if self.receivers:
                receiver = random.choice(self.receivers)
                choices += [lambda: self.kill_receiver(receiver)] if random.random() < 0.5 else []
                for wire in receiver.wires[-1:]:
                    choices += [partial(self.leave_channel, wire), partial(self.fail_over, wire)]
        choices += [side.delete, partial(side.resend, self.now_ns)]
        choices += [partial(side.forget, random.choice(NAMES), self.now_ns)] if random.random() < 0.3 else []
        random.choice(choices)()

    def kill_and_restart_all(self, side: Side) -> None:
        """A sender and a receiver are killed and started again before anybody notices it."""
        receiver = self.random.choice(self.receivers) if self.receivers else None
        side.kill()
        if receiver is not None:
            self.kill_receiver(receiver)
            self.start_receiver(receiver.name)
        self.start_source(side)

    def _start_some(self) -> None:
        name = self.random.choice(NAMES)
        if not any(receiver.name == name for receiver in self.receivers):
            self.start_receiver(name)

    def _check_account(self, stream: Stream, expected: list[int], name: str) -> None:
        """Each message was delivered or reported lost, once and in order: on a wire, those without a guarantee."""
        numbers = [number for number, _ in stream.account]
        assert numbers == expected, f"{name} got {numbers}, not {expected}"

    # ------------------------------------------------------------------ the run

    def step(self, action: Callable[[], object]) -> None:
        """Does something; processes may die of it."""
        try:
            action()
        except KilledError:
            for receiver in list(self.receivers):
                if any(area.writes_left == 0 for area in receiver.areas.values()):
                    self.step(partial(self.kill_receiver, receiver))
            for side in self.sides:
                if side.process is not None and side.process.area.writes_left == 0:
                    side.kill()
        for side in self.sides:
            side.look_at_area()

    def run(self) -> str:
        """All of it; returns a digest of what happened."""
        random = self.random
        for side in self.sides:
            self.step(partial(self.start_source, side))
        for _ in range(random.randint(0, 3)):
            self.step(self._start_some)
        for _ in range(random.choice([100, 400, 1000])):
            self.step(self.act)
        self.settle()
        trace = [side.ledger.trace for side in self.sides]
        return hashlib.sha1(repr(trace).encode()).hexdigest()[:12]

    def settle(self) -> None:
        """Everything works from now on, until nothing is pending."""
        self.calm, self.loss, self.doubled, self.faults = True, 0.0, 0.0, False
        if self.random.random() < 0.5:
            for receiver in list(self.receivers):
                self.step(partial(self.kill_receiver, receiver))
            for side in self.sides:
                side.kill()
        for side in self.sides:
            side.settings = replace(side.settings, turn_bytes=1 << 20, piece_bytes=1 << 15)
            self.step(partial(self.start_source, side))
            assert side.process is not None
            side.process.area.writes_left, side.process.area.max_size = -1, 0
            for channel in side.process.channels:
                channel.room = 1000
        self._calm_receivers()
        self._run_calmly()
        for receiver in self.receivers:
            for wire in list(receiver.ended):
                wire.machine.report_losses()
                self.check_ended(receiver, wire)
        for side in self.sides:
            assert side.process is not None
            sender = side.process.sender
            states = [sender.status(number) for number in sorted(side.kept)[:3]]
            assert not side.kept, f"{side.topic}: {sorted(side.kept)} are pending: {states}, {sender.connected}"
        for receiver in self.receivers:
            for wire in list(receiver.wires):
                self.end_session(receiver, wire)
        for anonymous in self.anonymous:
            while anonymous.live:
                anonymous.read()
            self._check_account(anonymous, list(range(anonymous.joined_at, anonymous.reached)), "anonymous")

    def _run_calmly(self) -> None:
        """Runs until nothing is pending, or nothing goes on any more."""
        turn = progress = 0
        kept: list[set[int]] = []
        while turn - progress < 600:
            self._calm_turn(turn)
            wires = [wire for receiver in self.receivers for wire in receiver.wires]
            turn += 1
            if [side.kept for side in self.sides] != kept:
                kept, progress = [set(side.kept) for side in self.sides], turn
            elif turn > 20 and not any(kept) and not any(wire.live for wire in wires):
                return

    def _calm_receivers(self) -> None:
        """Receivers that live acknowledge everything from now on; those that are expected start."""
        all_topics = {side.topic for side in self.sides}
        for receiver in list(self.receivers):
            if set(receiver.areas) != all_topics:  # somebody has to receive the other topics
                self.step(partial(self.kill_receiver, receiver))
            receiver.acknowledges, receiver.refuses = 1.0, 0.0
            for area in receiver.areas.values():
                area.writes_left, area.fails = -1, False
        names = {name for side in self.sides for name in side.ledger.names} & set(NAMES) or {"one"}
        for name in sorted(names - {receiver.name for receiver in self.receivers}):
            self.step(partial(self.start_receiver, name))

    def _calm_turn(self, turn: int) -> None:
        self.now_ns += 300 * MS
        for side in self.sides:
            source = side.process
            assert source is not None
            if turn < 20:
                self.step(partial(side.send, self.now_ns, self.loss, self.doubled))
            if turn % 10 == 9:
                self.step(partial(side.resend, self.now_ns))
            for channel in [each for each in source.channels if not each.is_open] if turn > 3 else ():
                side.notice_lost(channel, self.now_ns)
            for _ in range(3):
                self.step(partial(self._calm_source, source))
                for receiver in self.receivers:
                    for wire in [wire for wire in receiver.wires if wire.side is side]:
                        self._calm_wire(receiver, wire)
        for receiver in self.receivers:
            receiver.acknowledge_some(1.0)
        for side in self.sides:
            side.look_at_area()

    def _calm_source(self, source: SourceProcess) -> None:
        source.sender.turn(self.now_ns, source.send)
        source.side.take_events(self.now_ns, decides=False)
        for channel in list(source.channels):
            while channel.to_source:
                source.receive(channel, self.now_ns)
                source.side.look_at_area()

    def _calm_wire(self, receiver: ReceiverProcess, wire: Wire) -> None:
        if wire.source is not wire.side.process:
            self.end_session(receiver, wire)
            return
        if not wire.channel.is_open:
            wire.channel = wire.source.open_channel(self.random)
        for urgent in (True, False):
            while wire.channel.to_receiver[not urgent]:
                receiver.control(wire, urgent, self.now_ns)
        while wire.live:
            receiver.read(wire, self.now_ns)
        receiver.take(wire, 10_000, self.now_ns)
        receiver.turn(wire, self.now_ns)


def run(seed: int) -> str:
    """Runs a simulation; returns the digest of its trace.

    Raises:
        AssertionError: something was not as promised.
    """
    return GuaranteedWorld(seed).run()
