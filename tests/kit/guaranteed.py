"""Guaranteed sources and named receivers of one test, with a ledger of GMD numbers."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipcbus import MessageFlag, MessageType
from tests.kit.payload import body, number_of

if TYPE_CHECKING:
    from ipcbus import Context, Message, Receiver, Source
    from tests.kit.bus import Bus

MEMORY: dict[str, object] = {"ipc_gmd_type": "memory"}


def source(bus: Bus, topic: str = "t", context: Context | None = None, **options: object) -> Source:
    """A source whose messages are guaranteed, in memory unless the options say otherwise."""
    given: dict[str, object] = {"gmd_name": "sender", "delivery_mode": "all", **MEMORY, **options}
    return bus.source(topic, context, **given)  # type: ignore[arg-type]


@dataclass
class GmdLedger:
    """What one receiver got of the guaranteed messages of one source.

    Attributes:
        numbers: GMD numbers in the order of their deliveries.
        again: those that came with the resend flag.
        lost: topic numbers that were reported lost.
        deleted: GMD numbers that were reported deleted.
        wrong: contents that do not fit their number.
        senders: sender and incarnation of all of them.
    """

    numbers: list[int] = field(default_factory=list)
    again: set[int] = field(default_factory=set)
    lost: int = 0
    deleted: list[int] = field(default_factory=list)
    begun: int = 0
    ended: int = 0
    wrong: list[str] = field(default_factory=list)
    senders: set[tuple[str | None, int]] = field(default_factory=set)

    def enter(self, message: Message) -> None:
        """Enters a message or event."""
        number = message.gmd_sequence_number
        if message.type is MessageType.BOS:
            self.begun += 1
        elif message.type is MessageType.EOS:
            self.ended += 1
        elif message.type is MessageType.GMD_FAILURE:
            self.deleted += range(message.first_gmd_sequence_number, number + 1)
        elif message.type is not MessageType.DATA:
            self.lost += message.sequence_number - message.first_sequence_number + 1
        elif number:
            self.numbers.append(number)
            self.senders.add((message.gmd_sender, message.gmd_incarnation))
            if message.flags & MessageFlag.GMD_RESEND:
                self.again.add(number)
            if number_of(message.data) != number:
                self.wrong.append(f"message {number} holds {number_of(message.data)}")

    def balanced(self, first: int, last: int) -> None:
        """Asserts that each message of a range came once, in order, whole, of one sender, and that nothing was lost."""
        assert self.wrong == []
        assert self.lost == 0
        assert self.numbers == list(range(first, last + 1))
        assert len(self.senders) <= 1
        assert (None, 0) not in self.senders


class Named:
    """A receiver with a name and a ledger, called back by its context."""

    def __init__(
        self, bus: Bus, name: str = "receiver", topic: str = "t", context: Context | None = None, **options: object
    ) -> None:
        self.bus, self.ledger = bus, GmdLedger()
        self.context = context or bus.context(f"of {name}")
        given: dict[str, object] = {**MEMORY, **options}
        self.receiver: Receiver = self.context.receiver(topic, self._on_message, gmd_name=name, **given)

    def _on_message(self, message: Message) -> None:
        self.ledger.enter(message)

    def until(self, count: int) -> None:
        """Receives until so many guaranteed messages have come."""
        self.bus.until(lambda: len(self.ledger.numbers) >= count, f"{count} messages, not {self.ledger}")


def held_up(named: Named, number: int) -> threading.Event:
    """Keeps a receiver busy with the guaranteed message of this number until the returned event is set."""
    free, enter = threading.Event(), named.ledger.enter

    def slow(message: Message) -> None:
        if message.gmd_sequence_number == number:
            free.wait(100)
        enter(message)

    named.ledger.enter = slow  # type: ignore[method-assign]
    return free


def send(bus: Bus, sending: Source, count: int, size: int = 64) -> int:
    """Sends so many guaranteed messages, each with its number; returns the last number."""
    for each in range(count):
        sending.send(body(sending.gmd_sequence_number + 1, size))
        if each % 32 == 31:
            sending.flush()
            bus.turn()
    sending.flush()
    return sending.gmd_sequence_number


def acknowledged(bus: Bus, sending: Source) -> None:
    """Waits until nothing is pending."""
    bus.until(lambda: not sending.gmd_num_pending, f"acknowledgements of {sending.gmd_num_pending} messages")


def expected(bus: Bus, sending: Source, *names: str) -> None:
    """Waits until these receivers are registered."""
    bus.until(lambda: sorted(sending.gmd_receivers) == sorted(names), f"{names}, not {sending.gmd_receivers}")
