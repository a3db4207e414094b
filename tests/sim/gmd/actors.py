"""The processes of a simulated guaranteed delivery: sources and receivers, with links that lose and delay."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipcbus.gmd.held_messages import GaveUp, LiveMessage, Loss, ResentMessage
from ipcbus.gmd.received_stream import ReceivedStreams
from ipcbus.gmd.receiver_state import GmdReceiver, Verdict
from ipcbus.gmd.sender_state import GmdSender
from ipcbus.wire import gmd_messages
from tests.kit.gmd_models import ModelReceiverArea, ModelSenderArea
from tests.kit.gmd_pair import PlainGate
from tests.sim.gmd.ledger import Life

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from random import Random

    from ipcbus.gmd.gmd_settings import ReceiverSettings, SenderSettings
    from ipcbus.gmd.received_stream import ReceivedStream
    from ipcbus.gmd.receiver_area import Acknowledged
    from tests.kit.gmd_models import SenderDisk
    from tests.sim.gmd.ledger import Ledger

TOPIC = 5


class KilledError(BaseException):
    """A process ends in the middle of a step."""


class MortalSenderArea(ModelSenderArea):
    """An area whose process may be killed before or after a write."""

    writes_left = -1
    is_after = False

    def _die(self) -> None:
        self.writes_left -= self.writes_left > 0
        if self.writes_left == 0:
            raise KilledError

    def note(self, payload: bytes) -> None:
        """Appends a note, unless it dies."""
        if not self.is_after:
            self._die()
        super().note(payload)
        if self.is_after:
            self._die()

    def release(self, first: int, last: int) -> None:
        """Gives up copies, unless it dies."""
        if not self.is_after:
            self._die()
        super().release(first, last)
        if self.is_after:
            self._die()


class MortalReceiverArea(ModelReceiverArea):
    """An area whose process may be killed before or after it records."""

    writes_left = -1
    is_after = False

    def record(self, sender: str, incarnation: int, floor: int, ranges: object) -> None:
        """Records, unless it dies."""
        self.writes_left -= self.writes_left > 0
        if self.writes_left == 0 and not self.is_after:
            raise KilledError
        super().record(sender, incarnation, floor, ranges)  # type: ignore[arg-type]
        if self.writes_left == 0:
            raise KilledError


@dataclass
class Wire:
    """The live stream of one session to one receiver, and their control channel."""

    source: SourceProcess
    receiver: ReceiverProcess
    machine: GmdReceiver
    gate: PlainGate
    joined_at: int
    room: int
    live: deque[tuple[int, int, int, bytes]] = field(default_factory=deque)
    reached: int = 0
    is_open: bool = True
    """Whether there is a channel."""
    to_source: deque[bytes] = field(default_factory=deque)
    to_receiver: tuple[deque[bytes], deque[bytes]] = field(default_factory=lambda: (deque(), deque()))
    losing: int = 0
    account: list[tuple[int, int]] = field(default_factory=list)
    """Topic numbers of messages without a guarantee that were delivered, or of losses, as they came."""
    ended: bool = False

    def __post_init__(self) -> None:
        self.reached = self.joined_at

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def break_channel(self) -> None:
        """Loses what is on its way."""
        self.is_open = False
        for queue in (self.to_source, *self.to_receiver):
            queue.clear()

    def send_to_source(self, message: bytes) -> bool:
        """Sends a control message."""
        if not self.is_open or len(self.to_source) >= self.room:
            return False
        self.to_source.append(message)
        return True


class SourceProcess:
    """One process of the source."""

    def __init__(self, disk: SenderDisk, settings: SenderSettings, now_ns: int, random: Random, writes: int) -> None:
        self.topic_numbers: dict[int, tuple[int, int]] = {}
        self.upcoming = 0
        self.best_effort: set[int] = set()
        self.wires: list[Wire] = []
        self.area = MortalSenderArea(disk, segment=random.choice([0, 3, 10, 40]))
        self.area.writes_left, self.area.is_after = writes, random.random() < 0.5
        self.sender = GmdSender(self.area, TOPIC, settings, now_ns, topic_numbers=self.topic_numbers.get)

    def send(self, peer: Hashable, message: bytes, is_bulk: bool) -> bool:
        """Sends a control message to a receiver."""
        assert isinstance(peer, Wire)
        lane = peer.to_receiver[is_bulk]
        if not peer.is_open or len(lane) >= peer.room:
            return False
        lane.append(message)
        return True

    def publish(self, random: Random, number: int, data: bytes, loss: float) -> None:
        """Sends a message with the live stream."""
        first = self.upcoming
        fragments = random.choice([0, 0, 0, 2])
        self.upcoming += fragments + 1
        if number:
            self.topic_numbers[number] = (first, self.upcoming - 1)
        else:
            self.best_effort.update(range(first, self.upcoming))
        for wire in self.wires:
            if wire.losing == 0 and random.random() < loss:
                wire.losing = random.randint(1, 6)
            if wire.losing:
                wire.losing -= 1
            else:
                wire.live.append((first, self.upcoming - 1, number, data))


class ReceiverProcess:
    """One process of a receiver; without a name it is anonymous."""

    def __init__(
        self,
        name: str,
        recorded: dict[tuple[str, int], Acknowledged],
        settings: ReceiverSettings,
        instance: int,
        ledger: Ledger,
        random: Random,
    ) -> None:
        self.name, self.settings, self.instance, self.ledger, self.random = name, settings, instance, ledger, random
        self.area = MortalReceiverArea(recorded)
        self.streams = ReceivedStreams(self.area, settings)
        self.life = Life(name, settings.unrecorded_max)
        self.acknowledges = random.choice([1.0, 1.0, 0.5, 0.0])
        self.refuses = random.choice([0.0, 0.0, 0.05])
        self.held: list[tuple[ReceivedStream, int]] = []
        self.wires: list[Wire] = []

    def join(self, source: SourceProcess, now_ns: int) -> Wire:
        """Joins the session of a source."""
        gate = PlainGate()
        machine = GmdReceiver(self.name, TOPIC, self.instance, self.streams, self.settings, gate, now_ns)
        wire = Wire(source, self, machine, gate, source.upcoming, self.random.choice([1, 4, 1000]))
        self.wires.append(wire)
        source.wires.append(wire)
        return wire

    def read(self, wire: Wire, now_ns: int) -> None:
        """Reads the next live message."""
        first, last, number, data = wire.live.popleft()
        if first > wire.reached:
            self.lost(wire, wire.reached, first - 1, now_ns)
        wire.reached = max(wire.reached, last + 1)
        gate = wire.gate
        if gate.is_open and number in (0, gate.next_number):
            gate.next_number += number > 0
            self._deliver(wire, number, first, last, data, now_ns)
        elif wire.machine.offer(number, first, last, len(data), data) is Verdict.DELIVER:
            self._deliver(wire, number, first, last, data, now_ns)

    def lost(self, wire: Wire, first: int, last: int, now_ns: int) -> None:
        """Notices a loss."""
        wire.reached = last + 1
        if wire.machine.loss(first, last) is Verdict.DELIVER:
            self._report(wire, first, last)

    def take(self, wire: Wire, count: int, now_ns: int) -> None:
        """Delivers what the machine has."""
        for _ in range(count):
            item = wire.machine.take()
            if item is None:
                return
            if isinstance(item, Loss):
                self._report(wire, item.first, item.last)
            elif isinstance(item, LiveMessage):
                assert isinstance(item.what, bytes)
                self._deliver(wire, item.number, item.first, item.last, item.what, now_ns)
            elif isinstance(item, ResentMessage):
                self._deliver(wire, item.number, -1, -1, item.data, now_ns, item)
            else:
                assert isinstance(item, GaveUp)
                self.ledger.gave_up(item.first, item.last)

    def _report(self, wire: Wire, first: int, last: int) -> None:
        wire.account += [(number, 0) for number in range(first, last + 1) if number in wire.source.best_effort]
        stream = wire.machine.stream
        if not wire.ended and (stream is None or stream.user is wire.machine):
            # A session that is over cannot tell which of its numbers come again in the next one.
            numbers = [each for each, (low, high) in wire.source.topic_numbers.items() if first <= high and low <= last]
            self.ledger.lost(self.life, numbers)

    def _deliver(
        self,
        wire: Wire,
        number: int,
        first: int,
        last: int,
        data: bytes,
        now_ns: int,
        resent: ResentMessage | None = None,
    ) -> None:
        if not number:
            wire.account += [(each, 1) for each in range(first, last + 1)]
            return
        is_late = resent is not None and resent.is_late
        self.ledger.deliver(self.life, number, data, is_resent=resent is not None, is_late=is_late)
        stream = wire.machine.stream
        assert stream is not None
        draw = self.random.random()
        if draw < self.refuses:
            self.refuse(wire.machine, number, now_ns)
        elif self.random.random() < self.acknowledges:
            self.ledger.acknowledge(self.life, number)
            stream.acknowledge(number, number)
        else:
            self.held.append((stream, number))

    def refuse(self, machine: GmdReceiver, number: int, now_ns: int) -> None:
        """Refuses a message."""
        self.ledger.refuse(self.life, number)
        machine.refuse(number, 0, now_ns)

    def acknowledge_some(self, share: float) -> None:
        """Acknowledges messages that it has held, in any order."""
        self.random.shuffle(self.held)
        count = int(len(self.held) * share)
        now, self.held = self.held[:count], self.held[count:]
        for stream, number in now:
            self.ledger.acknowledge(self.life, number)
            stream.acknowledge(number, number)

    def control(self, wire: Wire, urgent: bool, now_ns: int) -> None:
        """Takes the next control message."""
        lane = wire.to_receiver[not urgent]
        if lane:
            found = gmd_messages.decode(lane.popleft())
            assert isinstance(found, gmd_messages.GmdAnswer)
            wire.machine.receive(found, now_ns)

    def turn(self, wire: Wire, now_ns: int, send: Callable[[bytes], bool]) -> int:
        """Takes a turn."""
        return wire.machine.turn(now_ns, send)
