"""The queue of a receiver that nobody pulls: events join those that wait, and the numbers stay exact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.delivery.message_types import MessageType
from ipcbus.delivery.received_message import Origin, event, whole_message
from ipcbus.delivery.sink import Sink

if TYPE_CHECKING:
    from ipcbus import Message

BOS, EOS = MessageType.BOS, MessageType.EOS
LOSS, BURST = MessageType.UNRECOVERABLE_LOSS, MessageType.UNRECOVERABLE_LOSS_BURST
NO_SOURCE = MessageType.NO_SOURCE_NOTIFICATION


class Pulled:
    """A receiver's queue with room for three, and what is told to it."""

    def __init__(self, room: int = 3) -> None:
        self.sink = Sink(None, room)
        self.joins = 0

    def message(self, number: int) -> None:
        self.sink.take(whole_message(self.origin("t"), b"x", number, number, 0, 0, None), self)

    def lose(self, first: int, last: int | None = None, topic: str = "t") -> None:
        kind = LOSS if last is None else BURST
        self.sink.event(event(self.origin(topic), kind, first, first if last is None else last), self)

    def tell(self, *kinds: MessageType, topic: str = "t", following: int = 0) -> None:
        for kind in kinds:
            self.sink.event(event(self.origin(topic), kind, -1, -1, following), self)

    def origin(self, topic: str) -> Origin:
        """A new one each time, as after each joining."""
        return Origin(topic, "LBT-IPC:1:1")

    def failed(self, sink: Sink, error: Exception) -> None:
        raise error

    @property
    def waiting(self) -> list[object]:
        return [_seen(message) for message in self.sink.queue]


def _seen(message: Message) -> object:
    first, last = message.first_sequence_number, message.sequence_number
    if message.type in (LOSS, BURST):
        return message.type.name, first, last
    return last if message.type is MessageType.DATA else message.type


def test_while_there_is_room_each_number_has_its_event() -> None:
    pulled = Pulled(5)
    pulled.message(0)
    for number in (1, 2, 3):
        pulled.lose(number)
    assert pulled.waiting == [0, *((LOSS.name, number, number) for number in (1, 2, 3))]


def test_in_a_full_queue_losses_that_touch_are_one() -> None:
    pulled = Pulled()
    for number in range(3):
        pulled.message(number)
    for number in range(3, 1000):
        pulled.lose(number)
    pulled.lose(1000, 5000)
    pulled.lose(5002)
    assert pulled.waiting == [0, 1, 2, (BURST.name, 3, 5000), (LOSS.name, 5002, 5002)]
    assert (pulled.sink.lost, pulled.sink.events) == (4999, 999)


def test_an_event_that_was_taken_or_has_a_message_behind_it_is_not_added_to() -> None:
    pulled = Pulled(1)
    pulled.message(0)
    pulled.lose(1)
    pulled.message(2)  # of those that waited behind a gap
    pulled.lose(3)
    assert pulled.waiting == [0, (LOSS.name, 1, 1), 2, (LOSS.name, 3, 3)]
    pulled.sink.queue.remove(pulled.sink.queue[-1])
    pulled.lose(4)
    assert pulled.waiting[-1] == (LOSS.name, 4, 4)


def test_a_session_that_ends_again_and_again_leaves_one_loss_one_end_and_one_beginning() -> None:
    pulled = Pulled(1)
    pulled.message(0)
    for turn in range(50):
        for topic in ("t", "u"):
            pulled.lose(10 * turn + 1, 10 * turn + 10, topic)
            pulled.tell(EOS, topic=topic, following=10 * turn + 11)
            pulled.tell(BOS, topic=topic)
    assert pulled.waiting == [0, *2 * ((BURST.name, 1, 500), EOS), BOS, BOS]
    pulled.tell(EOS)
    assert pulled.waiting == [0, *2 * ((BURST.name, 1, 500), EOS), BOS]
    pulled.tell(BOS)
    assert pulled.waiting[-1] == BOS
    assert len(pulled.waiting) == 7


def test_that_there_is_no_source_is_told_once() -> None:
    pulled = Pulled(1)
    pulled.tell(NO_SOURCE, NO_SOURCE, NO_SOURCE)
    assert pulled.waiting == [NO_SOURCE]
