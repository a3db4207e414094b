"""The processes of a simulated guaranteed delivery: sources and receivers, with links that lose and delay."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from ipcbus.gmd.held_messages import GaveUp, LiveMessage, Loss, ResentMessage
from ipcbus.gmd.ready_messages import single
from ipcbus.gmd.received_stream import ReceivedStreams
from ipcbus.gmd.receiver_state import GmdReceiver, Verdict
from ipcbus.gmd.sender_state import GmdSender
from ipcbus.wire import gmd_messages, topic_places
from ipcbus.wire.resent_entries import ResentEntries
from tests.kit.gmd_models import ModelReceiverArea, ModelSenderArea
from tests.kit.gmd_pair import PlainGate

if TYPE_CHECKING:
    from collections.abc import Hashable
    from random import Random

    from ipcbus.gmd.gmd_settings import ReceiverSettings, SenderSettings
    from ipcbus.gmd.received_stream import ReceivedStream
    from ipcbus.gmd.receiver_area import Acknowledged
    from tests.sim.gmd.ledger import Life
    from tests.sim.gmd.sender_side import Side

_openings = count(1)


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


@dataclass(eq=False)
class Channel:
    """A control channel; the source may read what is in it after the receiver has left it."""

    room: int
    is_open: bool = True
    """Whether the receiver uses it."""
    to_source: deque[bytes] = field(default_factory=deque)
    to_receiver: tuple[deque[bytes], deque[bytes]] = field(default_factory=lambda: (deque(), deque()))

    def send_to_source(self, message: bytes) -> bool:
        """Sends a control message."""
        if not self.is_open or len(self.to_source) >= self.room:
            return False
        self.to_source.append(message)
        return True

    def clear(self) -> None:
        """Loses what is on its way."""
        for queue in (self.to_source, *self.to_receiver):
            queue.clear()


@dataclass(eq=False)
class Stream:
    """The live stream of one session to one receiver, named or anonymous."""

    source: SourceProcess
    joined_at: int
    live: deque[tuple[int, int, int, bytes]] = field(default_factory=deque)
    reached: int = 0
    losing: int = 0
    account: list[tuple[int, int]] = field(default_factory=list)
    """Topic numbers that were delivered (1) or reported lost (0), as they came; on a wire, without guaranteed ones."""

    def __post_init__(self) -> None:
        self.reached = self.joined_at

    def publish(self, random: Random, message: tuple[int, int, int, bytes], loss: float, doubled: float) -> None:
        """Takes a message, loses it, or doubles it."""
        if self.losing == 0 and random.random() < loss:
            self.losing = random.randint(1, 6)
        if self.losing:
            self.losing -= 1
            return
        self.live.append(message)
        if random.random() < doubled:
            at = random.randint(max(1, len(self.live) - 3), len(self.live))
            again = self.live[random.randrange(at)]
            if again[2]:
                self.live.insert(at, again)


class AnonymousReceiver(Stream):
    """Gets live messages only, and acknowledges nothing."""

    def read(self) -> None:
        """Reads the next live message."""
        first, last, _, _ = self.live.popleft()
        if first >= self.reached:
            self.account += [(each, 0) for each in range(self.reached, first)]
            self.account += [(each, 1) for each in range(first, last + 1)]
            self.reached = last + 1


@dataclass(eq=False)
class Wire(Stream):
    """The session of a source at a named receiver."""

    receiver: ReceiverProcess = field(kw_only=True)
    machine: GmdReceiver = field(kw_only=True)
    gate: PlainGate = field(kw_only=True)
    channel: Channel = field(kw_only=True)
    known: Channel = field(kw_only=True)
    """The channel that the machine knows."""
    ended: bool = False

    @property
    def side(self) -> Side:
        """The sender."""
        return self.source.side


class SourceProcess:
    """One process of a sender."""

    def __init__(self, side: Side, settings: SenderSettings, now_ns: int, random: Random, writes: int) -> None:
        self.side = side
        self.topic_numbers: dict[int, tuple[int, int]] = {}
        self.upcoming = 0
        self.best_effort: set[int] = set()
        self.streams: list[Stream] = []
        self.channels: list[Channel] = []
        self.area = MortalSenderArea(side.disk, segment=random.choice([0, 3, 10, 40]))
        self.area.writes_left, self.area.is_after = writes, random.random() < 0.5
        self.opening = next(_openings)
        self.sender = GmdSender(self.area, side.topic_number, settings, now_ns, opening=self.opening)

    def send(self, peer: Hashable, message: bytes, is_bulk: bool) -> bool:
        """Sends a control message to a receiver, which may have left the channel."""
        assert isinstance(peer, Channel)
        lane = peer.to_receiver[is_bulk]
        if len(lane) >= peer.room:
            return False
        lane.append(message)
        return True

    def open_channel(self, random: Random) -> Channel:
        """Returns a new control channel."""
        self.channels.append(Channel(random.choice([1, 4, 1000])))
        return self.channels[-1]

    def receive(self, channel: Channel, now_ns: int) -> None:
        """Takes the next control message of a channel."""
        found = gmd_messages.decode(channel.to_source.popleft())
        assert isinstance(found, gmd_messages.GmdRequest)
        self.sender.receive(channel, found, now_ns)

    def publish(self, random: Random, number: int, data: bytes, loss: float, doubled: float) -> None:
        """Sends a message with the live stream."""
        first = self.upcoming
        fragments = random.choice([0, 0, 0, 2])
        self.upcoming += fragments + 1
        if number:
            self.topic_numbers[number] = (first, self.upcoming - 1)
            saved = self.side.disk.saved
            saved[number] = saved[number]._replace(place=topic_places.pack(first, self.upcoming - 1))
        else:
            self.best_effort.update(range(first, self.upcoming))
        for stream in self.streams:
            stream.publish(random, (first, self.upcoming - 1, number, data), loss, doubled)


class ReceiverProcess:
    """One process of a named receiver, for one topic or, as one with a pattern, for several."""

    def __init__(
        self,
        name: str,
        recorded: dict[str, dict[tuple[str, int], Acknowledged]],
        settings: ReceiverSettings,
        instance: int,
        random: Random,
    ) -> None:
        self.name, self.settings, self.instance, self.random = name, settings, instance, random
        self.areas = {topic: MortalReceiverArea(known) for topic, known in recorded.items()}
        self.streams = {topic: ReceivedStreams(area, settings) for topic, area in self.areas.items()}
        self.lives: dict[Side, Life] = {}
        self.acknowledges = random.choice([1.0, 1.0, 0.5, 0.0])
        self.refuses = random.choice([0.0, 0.0, 0.05, 0.3])
        self.held: list[tuple[Side, ReceivedStream, int]] = []
        self.wires: list[Wire] = []
        self.ended: list[Wire] = []
        """Those whose losses are withheld."""

    def join(self, source: SourceProcess, now_ns: int) -> None:
        """Joins the session of a source, if it has a topic of this receiver."""
        side, gate = source.side, PlainGate()
        if side.topic not in self.areas:
            return
        if side not in self.lives:
            self.lives[side] = side.begin_life(self)
        streams = self.streams[side.topic]
        machine = GmdReceiver(
            self.name,
            side.topic_number,
            self.instance,
            streams,
            self.settings,
            gate,
            now_ns,
            opening=source.opening,
        )
        channel = source.open_channel(self.random)
        wire = Wire(source, source.upcoming, receiver=self, machine=machine, gate=gate, channel=channel, known=channel)
        self.wires.append(wire)
        source.streams.append(wire)

    def read(self, wire: Wire, now_ns: int) -> None:
        """Reads the next live message; the machine has to know one that it got before."""
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
            if isinstance(item, ResentEntries):
                item = single(item.pop(), wire.machine.opening)
            if isinstance(item, Loss):
                self._report(wire, item.first, item.last)
            elif isinstance(item, LiveMessage):
                assert isinstance(item.what, bytes)
                self._deliver(wire, item.number, item.first, item.last, item.what, now_ns)
            elif isinstance(item, ResentMessage):
                self._deliver(wire, item.number, -1, -1, item.data, now_ns, item)
            else:
                assert isinstance(item, GaveUp)
                wire.side.ledger.gave_up(item.first, item.last)

    def _report(self, wire: Wire, first: int, last: int) -> None:
        wire.account += [(number, 0) for number in range(first, last + 1) if number in wire.source.best_effort]
        stream = wire.machine.stream
        numbers = [each for each, (low, high) in wire.source.topic_numbers.items() if first <= high and low <= last]
        if wire.ended:
            sent = wire.side.ledger.sent
            again = {
                each
                for each in self.lives[wire.side].delivered.intersection(numbers)
                if not (sent[each].failed or sent[each].was_unassigned)  # it was not this receiver's at that time
            }
            assert not again, f"{again} came again, and were reported lost"
            life = self.lives[wire.side]
            life.lost.update(set(numbers) - life.delivered)
        elif stream is None or stream.user is wire.machine:
            wire.side.ledger.lost(self.lives[wire.side], numbers)

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
        side = wire.side
        ledger, life = side.ledger, self.lives[side]
        ledger.deliver(life, number, data, is_resent=resent is not None, is_late=is_late)
        stream = wire.machine.stream
        assert stream is not None
        draw = self.random.random()
        if draw < self.refuses:
            ledger.refuse(life, number)
            wire.machine.refuse(number, 0, now_ns)
        elif self.random.random() < self.acknowledges:
            ledger.acknowledge(life, number)
            stream.acknowledge(number, number)
        else:
            self.held.append((side, stream, number))

    def acknowledge_some(self, share: float) -> None:
        """Acknowledges messages that it has held, in any order."""
        self.random.shuffle(self.held)
        count = int(len(self.held) * share)
        now, self.held = self.held[:count], self.held[count:]
        for side, stream, number in now:
            side.ledger.acknowledge(self.lives[side], number)
            stream.acknowledge(number, number)

    def control(self, wire: Wire, urgent: bool, now_ns: int) -> None:
        """Takes the next control message."""
        lane = wire.channel.to_receiver[not urgent]
        if lane:
            found = gmd_messages.decode(lane.popleft())
            assert isinstance(found, gmd_messages.GmdAnswer)
            wire.machine.receive(found, now_ns)

    def turn(self, wire: Wire, now_ns: int) -> None:
        """Takes a turn; it notices a new channel now."""
        if wire.known is not wire.channel or (wire.machine.is_registered and not wire.channel.is_open):
            wire.known = wire.channel
            wire.machine.channel_lost(now_ns)
        wire.machine.turn(now_ns, wire.channel.send_to_source)
