"""Guaranteed deliveries, each drawn from one seed.

A source with an area sends in every mode to named receivers. The live stream loses and delays, control channels break
and fill up, source and receivers are killed at any write and start again with what their areas have, time passes in
steps of every size, the application deletes, sends again and forgets, areas fill up or refuse. At the end all of them
run undisturbed: then nothing is pending, and every send was delivered, or was given up with a reason.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from ipcbus.errors import GmdAreaFull
from ipcbus.gmd.delivery_modes import ALL, SOME
from ipcbus.gmd.gmd_events import GmdFailure
from ipcbus.gmd.gmd_settings import ReceiverSettings, SenderSettings, ZeroReceivers
from ipcbus.wire import gmd_messages
from tests.kit.gmd_models import SenderDisk
from tests.sim.gmd.actors import KilledError, ReceiverProcess, SourceProcess, Wire
from tests.sim.gmd.ledger import Ledger, Sent
from tests.sim.world import MS, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.gmd.receiver_area import Acknowledged

NAMES = ("one", "two", "three")
WORKS = ("live", "live", "control", "bulk", "turn", "turn", "take", "ack", "end")


class GuaranteedWorld:
    """One source, its receivers, and what happens to them."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.now_ns = SECOND
        self.ledger = Ledger()
        self.disk = SenderDisk(incarnation=random.getrandbits(63) + 1)
        self.settings = SenderSettings(
            zero_receivers=random.choice([*[ZeroReceivers.WAIT] * 3, ZeroReceivers.SUCCESS, ZeroReceivers.FAILURE]),
            reconnect_timeout_ns=random.choice([0, 5 * SECOND, 300 * SECOND]),
            confirms=random.random() < 0.5,
            turn_bytes=random.choice([100, 100_000]),
            piece_bytes=random.choice([50, 500, 32_000]),
            names_max=random.choice([2, 10, 10, 10]),
        )
        self.ledger.zero_success = self.settings.zero_receivers is ZeroReceivers.SUCCESS
        self.recorded: dict[str, dict[tuple[str, int], Acknowledged]] = {name: {} for name in NAMES}
        self.modes = {name: random.choice([0, 0, 0, 1, 2]) for name in NAMES}
        self.source: SourceProcess | None = None
        self.receivers: list[ReceiverProcess] = []
        self.instance = 0
        self.loss = random.choice([0, 0, 0.05, 0.3])
        self.max_size = random.choice([0, 0, 0, 400])
        self.kept: set[int] = set()
        self.terms = [(random.choice([SOME, ALL]), random.choice([0, 0, 0, 2 * SECOND, 60 * SECOND])) for _ in range(3)]
        self.calm = False
        self.faults = random.random() < 0.8

    # ------------------------------------------------------------------ processes

    def start_source(self) -> None:
        """Starts the source if it does not run."""
        if self.source is None:
            writes = self.random.randint(1, 60) if self.faults and not self.calm and self.random.random() < 0.5 else -1
            try:
                self.source = SourceProcess(self.disk, self.settings, self.now_ns, self.random, writes)
            except KilledError:
                self._look_at_area()
                return
            self.source.area.max_size = 0 if self.calm else self.max_size
            for receiver in self.receivers:
                receiver.join(self.source, self.now_ns)
        self._look_at_area()

    def kill_source(self) -> None:
        """Kills the source; what is in its rings stays readable for a while."""
        source, self.source = self.source, None
        if source is not None:
            self.ledger.trace.append(("kill source",))
            for wire in source.wires:
                self.break_channel(wire)
                if self.random.random() < 0.5:
                    del list(wire.live)[self.random.randint(0, 5) :]
        self._look_at_area()

    def start_receiver(self, name: str) -> None:
        """Starts a receiver."""
        random, unrecorded = self.random, self.random.choice([1, 4, 64])
        settings = ReceiverSettings(
            disconnect_mode=self.modes.get(name, 0),
            unrecorded_max=unrecorded,
            deliveries_max=random.choice([0, 0, 2]),
            backoff_ns=random.choice([10, 1000]) * MS,
            held_messages_max=random.choice([1, 5, 1000]),
            held_bytes_max=random.choice([40, 100_000]),
            request_bytes=100_000 if self.calm else random.choice([1, 100, 100_000]),
        )
        self.instance += 1
        recorded = self.recorded[name]
        receiver = ReceiverProcess(name, recorded, settings, self.instance, self.ledger, random)
        known = recorded.get((self.disk.sender, self.disk.incarnation))
        done = set(range(1, known.floor + 1)) if known else set()
        for first, last in known.ranges if known else ():
            done.update(range(first, last + 1))
        receiver.life.may_repeat = self.ledger.name(name).delivered - done
        if self.calm:
            receiver.acknowledges, receiver.refuses = 1.0, 0.0
        elif self.faults and random.random() < 0.4:
            receiver.area.writes_left, receiver.area.is_after = random.randint(1, 15), random.random() < 0.5
        self.receivers.append(receiver)
        if self.source is not None:
            receiver.join(self.source, self.now_ns)

    def kill_receiver(self, receiver: ReceiverProcess) -> None:
        """Kills a receiver."""
        self.ledger.trace.append(("kill", receiver.name))
        self.receivers.remove(receiver)
        known = receiver.area.recorded.get((self.disk.sender, self.disk.incarnation))
        recorded = set(range(1, known.floor + 1)) if known else set()
        for first, last in known.ranges if known else ():
            recorded.update(range(first, last + 1))
        life = receiver.life
        unrecorded = life.acknowledged - recorded
        if not life.area_failed:
            assert len(unrecorded) <= life.unrecorded_max, f"{len(unrecorded)} acknowledged messages are unrecorded"
        if self.modes[receiver.name] == gmd_messages.GMD_SUCCESS:
            self.ledger.name(receiver.name).taken_back = True
        for wire in receiver.wires:
            self.break_channel(wire)
            if self.source is not None and wire in self.source.wires:
                self.source.wires.remove(wire)

    def break_channel(self, wire: Wire) -> None:
        """Ends a control channel; both sides notice."""
        if not wire.is_open:
            return
        wire.break_channel()
        self.ledger.trace.append(("break", wire.receiver.name))
        if self.modes[wire.receiver.name] == gmd_messages.GMD_SUCCESS:
            self.ledger.name(wire.receiver.name).taken_back = True
        if self.source is wire.source:
            wire.source.sender.lost_peer(wire, self.now_ns)
        wire.machine.channel_lost(self.now_ns)

    # ------------------------------------------------------------------ what happens

    def send(self) -> None:
        """Sends a message."""
        source, random = self.source, self.random
        if source is None:
            return
        data = random.randbytes(random.choice([0, 5, 30]))
        if random.random() < 0.3:
            source.publish(random, 0, data, self.loss)
            return
        mode, timeout_ns = terms = random.choice(self.terms)
        if terms != source.sender.current_terms:
            source.sender.terms(mode, timeout_ns)
        expected = set(source.sender.expected)
        try:
            number = source.area.save(mode, timeout_ns, self.now_ns, b"", data)
        except GmdAreaFull:
            return
        if random.random() < 0.05:
            source.area.unsave(number)
            return
        self.ledger.save(number, mode, data, expected)
        self.kept.add(number)
        source.publish(random, number, data, self.loss)

    def act(self) -> None:
        """Does something."""
        random = self.random
        draw = random.random()
        if draw < 0.25:
            for _ in range(random.choice([1, 1, 5, 20])):
                self.send()
        elif draw < 0.9:
            self.work()
        elif draw < 0.95:
            self.now_ns += random.choice([1, 100, 600, 2000, 2000, 10_000, 400_000]) * MS
        else:
            self.disturb()

    def work(self) -> None:
        """One of the processes does a bit of its work."""
        random, source = self.random, self.source
        if source is not None and random.random() < 0.3:
            wires = [wire for wire in source.wires if wire.to_source]
            if wires and random.random() < 0.7:
                wire = random.choice(wires)
                found = gmd_messages.decode(wire.to_source.popleft())
                assert isinstance(found, gmd_messages.GmdRequest)
                source.sender.receive(wire, found, self.now_ns)
            else:
                source.sender.turn(self.now_ns, source.send)
            self._take_events(source)
            return
        if not self.receivers:
            return
        receiver = random.choice(self.receivers)
        if not receiver.wires:
            return
        wire = random.choice(receiver.wires)
        self._work_of(
            receiver, wire, random.choice(["live", "live", "control", "bulk", "turn", "turn", "take", "ack", "end"])
        )

    def _work_of(self, receiver: ReceiverProcess, wire: Wire, what: str) -> None:
        random = self.random
        if what == "live":
            for _ in range(random.choice([1, 1, 8])):
                if wire.live:
                    receiver.read(wire, self.now_ns)
            if random.random() < 0.1 and not wire.live and wire.reached < wire.source.upcoming:
                receiver.lost(wire, wire.reached, wire.source.upcoming - 1, self.now_ns)
        elif what in ("control", "bulk"):
            receiver.control(wire, what == "control", self.now_ns)
        elif what == "turn":
            receiver.turn(wire, self.now_ns, wire.send_to_source)
            if not wire.is_open and wire.source is self.source and random.random() < 0.5:
                wire.is_open = True
        elif what == "take":
            receiver.take(wire, random.choice([1, 3, 1000]), self.now_ns)
        elif what == "ack":
            receiver.acknowledge_some(random.choice([0.3, 1.0]))
            receiver.area.fails = self.faults and not self.calm and random.random() < 0.05
            receiver.life.area_failed |= receiver.area.fails
        elif wire.source is not self.source:
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
        self._check_account(wire)

    def disturb(self) -> None:
        """Something goes wrong, or the application intervenes."""
        random, source = self.random, self.source
        choices: list[Callable[[], object]] = [self.start_source, self._start_some, self._start_some]
        if self.faults:
            choices += [self.kill_source] if random.random() < 0.3 else []
            if self.receivers:
                receiver = random.choice(self.receivers)
                choices += [lambda: self.kill_receiver(receiver)] if random.random() < 0.5 else []
                choices += [partial(self.break_channel, wire) for wire in receiver.wires[-1:]]
        if source is not None:
            choices += [self._delete, lambda: source.sender.resend(None, self.now_ns)]
            choices += [self._forget] if random.random() < 0.3 else []
        random.choice(choices)()

    def _start_some(self) -> None:
        name = self.random.choice(NAMES)
        if not any(receiver.name == name for receiver in self.receivers):
            self.start_receiver(name)

    def _delete(self) -> None:
        source = self.source
        if source is None or not self.kept:
            return
        number = self.random.choice(sorted(self.kept))
        self.ledger.trace.append(("delete", number))
        self.ledger.sent[number].deleted = True
        source.sender.delete(number)

    def _forget(self) -> None:
        source, name = self.source, self.random.choice(NAMES)
        if source is not None:
            self.ledger.trace.append(("forget", name))
            self.ledger.forget(name)
            source.sender.forget(name, self.now_ns)

    def _take_events(self, source: SourceProcess) -> None:
        while (event := source.sender.next_event()) is not None:
            if not isinstance(event, GmdFailure):
                continue
            sent = self._failed(event)
            self.ledger.trace.append(("failure", event.number, event.receiver, event.error_number))
            assert event.message is not None
            assert event.message.data == sent.data
            draw = self.random.random()
            if draw < 0.3:
                source.sender.resend(event.number, self.now_ns)
            elif draw < 0.5:
                sent.deleted = True
                source.sender.delete(event.number)

    def _failed(self, event: GmdFailure) -> Sent:
        sent = self.ledger.sent[event.number]
        sent.failed = True
        if not event.receiver:
            sent.expected.clear()  # it failed before the names were known
        return sent

    def _look_at_area(self) -> None:
        """Compares the area with what it was."""
        gone = sorted(number for number in self.kept if number not in self.disk.saved)
        self.kept.difference_update(gone)
        self.ledger.release(gone)
        if self.source is not None:
            self.ledger.registered(set(self.source.sender.expected))
            assert self.source.sender.pending == len(self.kept)

    def _check_account(self, wire: Wire) -> None:
        """Each message without a guarantee was delivered or reported lost, once and in order."""
        numbers = [number for number, _ in wire.account]
        expected = [number for number in sorted(wire.source.best_effort) if wire.joined_at <= number < wire.reached]
        assert numbers == expected, f"{wire.receiver.name} got {numbers}, not {expected}"

    # ------------------------------------------------------------------ the run

    def step(self, action: Callable[[], object]) -> None:
        """Does something; processes may die of it."""
        try:
            action()
        except KilledError:
            dead = [each for each in self.receivers if each.area.writes_left == 0]
            for receiver in dead:
                self.step(partial(self.kill_receiver, receiver))
            if self.source is not None and self.source.area.writes_left == 0:
                self.kill_source()
        self._look_at_area()

    def run(self) -> str:
        """All of it; returns a digest of what happened."""
        random = self.random
        self.step(self.start_source)
        for _ in range(random.randint(0, 3)):
            self.step(self._start_some)
        for _ in range(random.choice([100, 400, 1000])):
            self.step(self.act)
        self.settle()
        return hashlib.sha1(repr(self.ledger.trace).encode()).hexdigest()[:12]

    def settle(self) -> None:
        """Everything works from now on, until nothing is pending."""
        self.calm, self.loss, self.faults = True, 0.0, False
        for receiver in list(self.receivers):
            self.step(lambda receiver=receiver: self.kill_receiver(receiver))  # type: ignore[misc]
        self.step(self.kill_source)
        self.settings = replace(self.settings, turn_bytes=1 << 20, piece_bytes=1 << 15)
        self.step(self.start_source)
        for name in sorted({name for name, account in self.ledger.names.items()} & set(NAMES) or {"one"}):
            self.step(lambda name=name: self.start_receiver(name))  # type: ignore[misc]
        for turn in range(300):
            self._calm_turn(turn)
            if not self.kept and not any(wire.live for receiver in self.receivers for wire in receiver.wires):
                break
        source = self.source
        assert source is not None
        states = [source.sender.status(number) for number in sorted(self.kept)[:3]]
        assert not self.kept, f"{sorted(self.kept)} are pending: {states}, {source.sender.connected}"
        for receiver in self.receivers:
            for wire in list(receiver.wires):
                self.end_session(receiver, wire)

    def _calm_turn(self, turn: int) -> None:
        source = self.source
        assert source is not None
        self.now_ns += 300 * MS
        if turn < 20:
            self.step(self.send)
        if turn % 10 == 9:
            self.step(lambda: source.sender.resend(None, self.now_ns))
        for _ in range(3):
            self.step(lambda: source.sender.turn(self.now_ns, source.send))
            while (event := source.sender.next_event()) is not None:
                if isinstance(event, GmdFailure):
                    self._failed(event)
            for receiver in self.receivers:
                for wire in receiver.wires:
                    while wire.to_receiver[0]:
                        receiver.control(wire, True, self.now_ns)
                    while wire.to_receiver[1]:
                        receiver.control(wire, False, self.now_ns)
                    while wire.live:
                        receiver.read(wire, self.now_ns)
                    receiver.take(wire, 10_000, self.now_ns)
                    receiver.turn(wire, self.now_ns, wire.send_to_source)
                    while wire.to_source:
                        found = gmd_messages.decode(wire.to_source.popleft())
                        assert isinstance(found, gmd_messages.GmdRequest)
                        source.sender.receive(wire, found, self.now_ns)
                        self._look_at_area()
        self._look_at_area()


def run(seed: int) -> str:
    """Runs a simulation; returns the digest of its trace.

    Raises:
        AssertionError: something was not as promised.
    """
    return GuaranteedWorld(seed).run()
