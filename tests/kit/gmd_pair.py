"""A guaranteed source and its named receivers without transports, for tests of the protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipcbus.gmd.delivery_modes import ALL
from ipcbus.gmd.gmd_settings import ReceiverSettings, SenderSettings
from ipcbus.gmd.held_messages import GaveUp, LiveMessage, Loss
from ipcbus.gmd.received_stream import ReceivedStreams
from ipcbus.gmd.receiver_state import GmdReceiver, Verdict
from ipcbus.gmd.sender_state import GmdSender
from ipcbus.wire import gmd_messages, topic_places
from ipcbus.wire.resent_entries import ResentEntries
from tests.kit.gmd_models import ModelReceiverArea, ModelSenderArea, SenderDisk

if TYPE_CHECKING:
    from ipcbus.gmd.gmd_events import GmdEvent

MS = 1_000_000
SECOND = 1000 * MS
TOPIC = 5


@dataclass
class PlainGate:
    """A gate that only keeps its two values."""

    is_open: bool = False
    next_number: int = 0


@dataclass
class Source:
    """A source, and the events that it reported."""

    disk: SenderDisk = field(default_factory=SenderDisk)
    settings: SenderSettings = field(default_factory=SenderSettings)
    now_ns: int = SECOND
    events: list[GmdEvent] = field(default_factory=list)
    topic_number: int = -1
    openings: int = 0

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Opens its area in a new process."""
        self.receivers: list[Receiver] = []
        self.topic_number = -1
        self.area = ModelSenderArea(self.disk, segment=7)
        self.openings += 1
        self.sender = GmdSender(self.area, TOPIC, self.settings, self.now_ns, opening=self.openings)

    def save(self, mode: int = ALL, timeout_ns: int = 0, data: bytes = b"") -> tuple[int, int]:
        """Saves a message as a send does; returns its GMD number and its topic number."""
        if (mode, timeout_ns) != self.sender.current_terms:
            self.sender.terms(mode, timeout_ns)
        self.sender.places.begin_sending()
        self.topic_number += 1
        place = topic_places.pack(self.topic_number, self.topic_number)
        number = self.area.save(mode, place, 1000, b"", data or b"%d" % (self.area.last_number + 1))
        return number, self.topic_number

    def send_plain(self) -> int:
        """Sends a message without a guarantee, which nobody gets; returns its topic number."""
        self.topic_number += 1
        return self.topic_number

    def send(self, mode: int = ALL, timeout_ns: int = 0, *, to: tuple[Receiver, ...] | None = None) -> int:
        """Sends a message to receivers (all that are connected); the other ones miss it."""
        number, topic_number = self.save(mode, timeout_ns)
        for each in self.receivers if to is None else to:
            each.live(number, topic_number)
        return number

    def run(self, steps: int = 20) -> int:
        """Lets source and receivers take turns; returns when the source's next turn is due."""
        due = 0
        for _ in range(steps):
            due = self.sender.turn(self.now_ns, self._to_receiver)
            for each in list(self.receivers):
                each.turn()
            while (event := self.sender.next_event()) is not None:
                self.events.append(event)
        return due

    def later(self, ns: int) -> None:
        """Lets time pass, then takes turns."""
        self.now_ns += ns
        self.run()

    def _to_receiver(self, peer: object, message: bytes, is_bulk: bool) -> bool:
        for each in self.receivers:
            if each is peer:
                found = gmd_messages.decode(message)
                assert isinstance(found, gmd_messages.GmdAnswer)
                each.answers.append(found)
                if not each.holds_answers:
                    each.read_answers()
        return True

    def lose(self, receiver: Receiver) -> None:
        """Ends the channel of a receiver."""
        self.receivers.remove(receiver)
        self.sender.lost_peer(receiver, self.now_ns)
        receiver.machine.channel_lost(self.now_ns)

    def take_events(self) -> list[GmdEvent]:
        """Returns the events so far."""
        events, self.events = self.events, []
        return events


class Receiver:
    """A named receiver that acknowledges what it gets, unless `holds` is True."""

    def __init__(
        self,
        source: Source,
        name: str = "settlement",
        *,
        area: ModelReceiverArea | None = None,
        settings: ReceiverSettings | None = None,
        instance: int = 1,
        streams: ReceivedStreams | None = None,
    ) -> None:
        self.area = area or ModelReceiverArea()
        self.settings = settings or ReceiverSettings()
        self.streams = streams or ReceivedStreams(self.area, self.settings)
        self.gate = PlainGate()
        self.source, self.name = source, name
        self.machine = GmdReceiver(
            name, TOPIC, instance, self.streams, self.settings, self.gate, source.now_ns, opening=source.openings
        )
        self.holds = False
        self.reads = True
        self.got: list[int | tuple[int, int] | str] = []
        """Numbers of messages, resent ones negative; losses as pairs; what was given up as text."""
        self.answers: list[gmd_messages.GmdAnswer] = []
        self.holds_answers = False
        self._read = 0
        self.due = 0
        source.receivers.append(self)

    def live(self, number: int, topic_number: int) -> None:
        """A message comes with the live stream."""
        if self.gate.is_open and number in (0, self.gate.next_number):
            self.gate.next_number += number > 0
            self._deliver(number, number)
        elif self.machine.offer(number, topic_number, topic_number, 1, None) is Verdict.DELIVER:
            self._deliver(number, number)
        self.drain()

    def lost(self, first: int, last: int) -> None:
        """Topic numbers are lost."""
        if self.machine.loss(first, last) is Verdict.DELIVER:
            self.got.append((first, last))
        self.drain()

    def read_answers(self) -> None:
        """Takes the answers of the source that are on their way."""
        while self._read < len(self.answers):
            self._read += 1
            self.machine.receive(self.answers[self._read - 1], self.source.now_ns)
            self.drain()

    def drain(self) -> None:
        """Takes what the machine has."""
        while self.reads and (item := self.machine.take()) is not None:
            if isinstance(item, Loss):
                self.got.append((item.first, item.last))
            elif isinstance(item, GaveUp):
                self.got.append(f"{item.first}-{item.last}")
            elif isinstance(item, LiveMessage):
                self._deliver(item.number, item.number)
            else:
                resent = item.pop() if isinstance(item, ResentEntries) else item
                assert resent.data == b"%d" % resent.number
                self._deliver(-resent.number, resent.number)

    def _deliver(self, shown: int, number: int) -> None:
        self.got.append(shown)
        if number and not self.holds:
            self.machine.acknowledge(number, number)

    def turn(self) -> None:
        """Takes a turn."""
        self.due = self.machine.turn(self.source.now_ns, self._to_source)
        self.drain()

    def _to_source(self, message: bytes) -> bool:
        found = gmd_messages.decode(message)
        assert isinstance(found, gmd_messages.GmdRequest)
        if self in self.source.receivers:
            self.source.sender.receive(self, found, self.source.now_ns)
        return self in self.source.receivers

    def end(self) -> None:
        """Its session ends."""
        self.machine.end()
        self.drain()
        self.machine.detach()
        self.machine.has_losses = self.drain

    def take(self) -> list[int | tuple[int, int] | str]:
        """Returns what came since the last call."""
        got, self.got = self.got, []
        return got
