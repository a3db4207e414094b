"""The gate of a named receiver: what passes, what goes to the keeper, and which acknowledgements come back."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageFlag, MessageType
from ipcbus.delivery.event_buffer import EventBuffer
from ipcbus.delivery.gmd_gate import GmdGate
from ipcbus.delivery.received_message import Origin, event, resent_message, whole_message
from ipcbus.delivery.sink import Sink
from ipcbus.wire import gmd_messages, topic_places
from ipcbus.wire.resent_entries import checked

if TYPE_CHECKING:
    from ipcbus import Message

ORIGIN = Origin("t", "LBT-IPC:1:1")


class Keeper:
    """Notes what the gate does not let pass."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.events: list[MessageType] = []
        self.flushes = self.soon = 0
        self.errors: list[BaseException] = []

    def take(self, message: Message) -> None:
        """Noted."""
        self.taken.append(message)

    def take_event(self, message: Message) -> None:
        """Noted."""
        self.events.append(message.type)

    def flush(self) -> None:
        """Counted."""
        self.flushes += 1

    def flush_from_any_thread(self) -> None:
        """Counted."""
        self.flushes += 1

    def flush_soon(self) -> None:
        """Counted."""
        self.soon += 1

    def failed(self, sink: Sink, error: BaseException) -> None:
        """Noted."""
        self.errors.append(error)


def guaranteed(number: int) -> Message:
    """A guaranteed message."""
    return whole_message(ORIGIN, b"%d" % number, number, number, 0, 0, None, gmd_number=number)


class Stand:
    """An open gate with a receiver that is called back, or that pulls."""

    def __init__(self, *, pulls: bool = False, **options: bool | int) -> None:
        self.got: list[Message] = []
        self.keeper = Keeper()
        self.raises: type[BaseException] | None = None
        self.target = Sink(None if pulls else self._callback, 100)
        self.gate = GmdGate(self.target, None, self.keeper, self.keeper, **options)  # type: ignore[arg-type]
        self.gate.is_open, self.gate.next_number = True, 1

    def _callback(self, message: Message) -> None:
        self.got.append(message)
        if self.raises is not None:
            raise self.raises("as in the test")

    def give(self, *messages: Message) -> list[int]:
        """Gives messages to the gate as a controller does; returns the GMD numbers that came."""
        before = len(self.got)
        for message in messages:
            self.gate.sink.take(message, self.keeper)
        return [message.gmd_sequence_number for message in self.got[before:]]


def test_the_next_number_passes_and_is_acknowledged() -> None:
    stand = Stand()
    assert stand.give(*map(guaranteed, range(1, 6))) == [1, 2, 3, 4, 5]
    assert (stand.gate.next_number, stand.keeper.taken, stand.keeper.soon) == (6, [], 1)
    assert stand.gate.take_acks() == [(1, 5)]
    assert stand.gate.take_acks() == []
    stand.give(guaranteed(6))
    assert (stand.gate.take_acks(), stand.keeper.soon) == ([(6, 6)], 2)


def test_other_numbers_go_to_the_keeper() -> None:
    stand = Stand()
    assert stand.give(guaranteed(2), guaranteed(1), guaranteed(1)) == [1]
    assert [message.gmd_sequence_number for message in stand.keeper.taken] == [2, 1]
    stand.gate.is_open = False
    plain = whole_message(ORIGIN, b"plain", 9, 9, 0, 0, None)
    assert stand.give(plain, guaranteed(2)) == []
    assert len(stand.keeper.taken) == 4
    stand.gate.is_open = True
    assert stand.give(plain) == [0]


def test_events_go_to_the_keeper() -> None:
    stand = Stand()
    stand.gate.sink.event(event(ORIGIN, MessageType.BOS, -1, -1), stand.keeper)
    stand.gate.sink.event(event(ORIGIN, MessageType.UNRECOVERABLE_LOSS, 3, 3), stand.keeper)
    assert stand.keeper.events == [MessageType.BOS, MessageType.UNRECOVERABLE_LOSS]
    stand.gate.deliver(event(ORIGIN, MessageType.BOS, -1, -1))
    assert (stand.got[0].type, stand.target.events) == (MessageType.BOS, 1)


def test_too_many_acknowledgements_are_flushed_at_once() -> None:
    stand = Stand(unrecorded_max=4)
    stand.give(*map(guaranteed, range(1, 4)))
    assert stand.keeper.flushes == 0
    stand.give(guaranteed(4))
    assert stand.keeper.flushes == 1


def test_by_hand_and_from_another_thread() -> None:
    stand = Stand(auto_ack=False)
    stand.give(*map(guaranteed, range(1, 6)))
    assert stand.gate.take_acks() == []
    thread = threading.Thread(target=stand.got[2].ack)
    thread.start()
    thread.join()
    for message in (stand.got[2], stand.got[0], stand.got[1]):
        message.ack()
    assert stand.gate.take_acks() == [(3, 3), (1, 1), (2, 2)]


def test_a_refusal_ends_the_chance_of_an_acknowledgement() -> None:
    stand = Stand(auto_ack=False)
    stand.give(guaranteed(1), guaranteed(2))
    stand.got[0].nack(0.5)
    stand.got[1].nack()
    stand.got[0].ack()
    found = stand.gate.take_refusals()
    assert [(message.gmd_sequence_number, delay) for message, delay in found] == [(1, 500_000_000), (2, None)]
    assert (stand.gate.take_refusals(), stand.gate.take_acks()) == ([], [])


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf")])
def test_a_delay_is_a_number_of_seconds(delay: float) -> None:
    with pytest.raises(ValueError, match="give seconds"):
        guaranteed(1).nack(delay)


def test_a_callback_that_raises_refuses() -> None:
    stand = Stand()
    stand.raises = KeyError
    stand.give(guaranteed(1))
    assert [(message.gmd_sequence_number, delay) for message, delay in stand.gate.take_refusals()] == [(1, None)]
    assert (stand.gate.take_acks(), len(stand.keeper.errors)) == ([], 1)


def test_the_last_reference_acknowledges() -> None:
    stand = Stand(acks_at_the_end=True)
    stand.give(*map(guaranteed, range(1, 4)))
    assert stand.gate.take_acks() == []
    stand.got.pop(1)
    gc.collect()
    assert stand.gate.take_acks() == [(2, 2)]
    stand.got[0].nack()
    stand.got.clear()
    gc.collect()
    assert stand.gate.take_acks() == [(3, 3)]


def test_a_receiver_that_pulls_acknowledges_itself() -> None:
    stand = Stand(pulls=True)
    assert stand.gate.sink.pulls
    stand.give(guaranteed(1), guaranteed(2))
    assert stand.gate.take_acks() == []
    stand.target.queue.popleft().ack()
    assert stand.gate.take_acks() == [(1, 1)]
    assert not stand.gate.is_full()


def test_deleted_messages_leave_the_queue() -> None:
    stand = Stand(pulls=True)
    stand.give(*map(guaranteed, range(1, 6)))
    stand.gate.withdraw(2, 4)
    assert [message.gmd_sequence_number for message in stand.target.queue] == [1, 5]


def test_deleted_messages_are_not_dispatched() -> None:
    got: list[int] = []
    keeper = Keeper()
    waiting = EventBuffer(100, False, keeper)  # type: ignore[arg-type]
    target = Sink(lambda message: got.append(message.gmd_sequence_number), 1, waiting)
    gate = GmdGate(target, None, keeper, keeper)
    gate.is_open, gate.next_number = True, 1
    for number in range(1, 6):
        gate.sink.take(guaranteed(number), keeper)
    gate.withdraw(2, 3)
    waiting.call_back(-1)
    assert got == [1, 4, 5]
    assert gate.take_acks() == [(1, 1), (4, 4), (5, 5)]


def test_a_message_sent_again_keeps_its_time() -> None:
    message = resent_message(ORIGIN, 7, 1_600_000_000_123_456_789, None, b"", b"value")
    assert (message.gmd_sequence_number, message.send_time_ns, message.data) == (7, 1_600_000_000_123_456_789, b"value")
    assert (message.sequence_number, message.flags, message.headers) == (-1, 0x10000, ())
    assert resent_message(ORIGIN, 7, 5, (3, 4), b"", b"").first_sequence_number == 3


def test_messages_that_came_again_pass_while_there_is_room() -> None:
    stand = Stand(pulls=True)
    packed = [
        gmd_messages.entry(number, 5, 7, topic_places.pack(number, number), b"", b"%d" % number)
        for number in range(1, 131)
    ]
    entries = checked(b"".join(packed), 0, 1, 131)
    assert entries is not None
    assert stand.gate.deliver_resent(entries, ORIGIN, 8) == 100  # the limit of the receiver
    assert (len(entries), stand.gate.deliver_resent(entries, ORIGIN, 8)) == (30, 0)
    message = stand.target.queue.popleft()
    assert (message.gmd_sequence_number, message.data, message.sequence_number) == (1, b"1", -1)
    assert message.flags == MessageFlag.GMD_RESEND
    assert message.send_time_ns == 5
    message.ack()
    assert stand.gate.take_acks() == [(1, 1)]
    assert stand.gate.deliver_resent(entries, ORIGIN, 7, without_limit=True) == 30
    assert stand.target.queue[-1].sequence_number == 130
