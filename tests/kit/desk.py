"""A receiving session that datagrams are fed to by hand, at times that the test says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus import MessageType
from ipcbus.delivery.delivery_rules import DeliveryRules
from ipcbus.delivery.delivery_session import DeliverySession
from ipcbus.delivery.reassembly_budget import ReassemblyBudget
from ipcbus.delivery.sink import Sink
from tests.kit.datagrams import Item, compose

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Message
    from ipcbus.delivery.recovering_controller import RecoveringController

Seen = tuple[str | int | bytes, ...]
"""What a receiver got: its kind, then what matters of it."""


def seen_of(message: Message) -> Seen:
    """A message or event as tests compare it."""
    first, last = message.first_sequence_number, message.sequence_number
    if message.type is MessageType.DATA:
        return "data", first, last, message.data
    if message.type is MessageType.REQUEST:
        return "request", first, last, message.data
    if message.type is MessageType.UNRECOVERABLE_LOSS:
        return "lost", last
    if message.type is MessageType.UNRECOVERABLE_LOSS_BURST:
        return "burst", first, last
    return (message.type.name,)


class Desk:
    """One session; topic 1 is received from the beginning."""

    def __init__(self, *, floor: int | None = 0, budget: ReassemblyBudget | None = None, **rules: int) -> None:
        self.budget = budget or ReassemblyBudget()
        self.failures: list[Exception] = []
        self.told = 0
        self.seen: list[Seen] = []
        self.messages: list[Message] = []
        self.rules = DeliveryRules(**rules)
        self.session = DeliverySession("LBT-RM:test", 4, budget=self.budget, failed=self._failed, delivered=self._count)
        self.demux = self.session.demux
        self.tally = self.demux.tally
        self.now_ns = 0
        self.receive(1, Sink(self.note, 1), floor=floor)

    def _failed(self, _: Sink, error: BaseException) -> None:
        if not isinstance(error, Exception):
            raise error
        self.failures.append(error)

    def receive(self, number: int, *sinks: Sink, floor: int | None = 0) -> None:
        """Gives a topic to these sinks."""
        self.session.receive(number, f"topic {number}", sinks, self.rules, floor)
        self.session.begin_topic(number)

    def sink(self, then: Callable[[Message], object] = lambda _: None) -> Sink:
        """One more sink that notes what it gets, and then does something."""

        def callback(message: Message) -> None:
            self.note(message)
            then(message)

        return Sink(callback, 1)

    @property
    def topic(self) -> RecoveringController:
        """The controller of topic 1."""
        controller = self.session.topic(1)
        assert controller is not None
        return controller

    def note(self, message: Message) -> None:
        """A callback."""
        self.messages.append(message)
        self.seen.append(seen_of(message))

    def feed(self, *items: Item, after: int = 0) -> list[Seen]:
        """One datagram, `after` ns later; returns what it gave, BOS left out."""
        self.now_ns += after
        before = len(self.seen)
        self.demux.feed(compose(*items), 7, self.now_ns)
        return self._since(before)

    def check(self, after: int = 0) -> list[Seen]:
        """The loss check, `after` ns later; returns what it gave."""
        self.now_ns += after
        before = len(self.seen)
        self.session.check(self.session.due(self.now_ns), self.now_ns)
        return self._since(before)

    def end(self, next_sequence: int = 0) -> list[Seen]:
        """The end of topic 1; returns what it gave."""
        before = len(self.seen)
        self.session.end_topic(self.topic, next_sequence)
        return self._since(before)

    def holds(self) -> bool:
        """Whether a datagram is in hand."""
        return self.demux.holds_datagram

    def _since(self, before: int) -> list[Seen]:
        return [each for each in self.seen[before:] if each != ("BOS",)]

    def _count(self, told: int) -> None:
        self.told += told


def whole(number: int, payload: bytes | None = None, *, topic: int = 1) -> Item:
    """A message in one piece; it holds its number unless it is said what."""
    return Item(topic, number, str(number).encode() if payload is None else payload)


def data(*numbers: int) -> list[Seen]:
    """What `whole` messages of these numbers look like."""
    return [("data", number, number, str(number).encode()) for number in numbers]


def lost(*numbers: int) -> list[Seen]:
    """What the loss of these numbers looks like."""
    return [("lost", number) for number in numbers]
