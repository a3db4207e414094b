"""Acknowledgement by hand, refusals, exceptions, and what becomes of messages that are given up."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import MessageFlag, MessageType, SourceEvent, SourceEventType
from tests.kit.bus import LBTIPC, Bus
from tests.kit.guaranteed import MEMORY, Named, acknowledged, expected, send, source

if TYPE_CHECKING:
    from ipcbus import Message

pytestmark = pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))
embedded = pytest.mark.parametrize("mode", ["embedded"])


class Kept:
    """A receiver that keeps its messages."""

    def __init__(self, bus: Bus, **options: object) -> None:
        self.messages: list[Message] = []
        self.receiver = bus.receiver("t", self._keep, gmd_name="receiver", **{**MEMORY, **options})

    def _keep(self, message: Message) -> None:
        if message.type is MessageType.DATA:
            self.messages.append(message)

    @property
    def numbers(self) -> list[int]:
        """GMD numbers in the order of their deliveries."""
        return [message.gmd_sequence_number for message in self.messages]


def test_by_hand_in_any_order(bus: Bus) -> None:
    kept, sending = Kept(bus, ipc_gmd_auto_ack=False), source(bus)
    expected(bus, sending, "receiver")
    send(bus, sending, 10)
    bus.until(lambda: len(kept.messages) == 10, "messages")
    assert sending.gmd_num_pending == 10
    for place in (9, 0, 4):
        kept.messages[place].ack()
    bus.until(lambda: sending.gmd_num_pending == 7, "three acknowledgements")
    assert [sending.gmd_status(number).standing.name for number in (10, 1, 5, 2)] == ["DONE", "DONE", "DONE", "PENDING"]

    def acknowledge_all() -> None:
        for message in kept.messages:
            message.ack()

    thread = threading.Thread(target=acknowledge_all)
    thread.start()
    thread.join()
    acknowledged(bus, sending)
    kept.messages[0].ack()
    assert kept.numbers == list(range(1, 11))


def test_when_the_last_reference_is_dropped(bus: Bus) -> None:
    kept, sending = Kept(bus, ipc_gmd_auto_ack_policy="last"), source(bus)
    expected(bus, sending, "receiver")
    send(bus, sending, 10)
    bus.until(lambda: len(kept.messages) == 10, "messages")
    assert sending.gmd_num_pending == 10
    del kept.messages[3:]
    gc.collect()
    bus.until(lambda: sending.gmd_num_pending == 3, "seven acknowledgements")
    kept.messages.pop(0).ack()
    bus.until(lambda: sending.gmd_num_pending == 2, "one more")
    kept.messages.clear()
    gc.collect()
    acknowledged(bus, sending)


def test_a_refused_message_comes_again(bus: Bus) -> None:
    got: list[tuple[int, bool]] = []

    def refuse_some(message: Message) -> None:
        number = message.gmd_sequence_number
        if number:
            got.append((number, bool(message.flags & MessageFlag.GMD_RESEND)))
            if number % 3 == 0 and got.count((number, False)) + got.count((number, True)) < 3:
                message.nack()

    bus.receiver("t", refuse_some, gmd_name="receiver", **MEMORY)
    sending = source(bus)
    expected(bus, sending, "receiver")
    send(bus, sending, 9)
    acknowledged(bus, sending)
    assert sorted(got) == sorted(
        [(number, False) for number in range(1, 10)] + [(number, True) for number in (3, 3, 6, 6, 9, 9)]
    )
    assert [number for number, again in got if not again] == list(range(1, 10))


@embedded
def test_an_exception_does_not_acknowledge(bus: Bus) -> None:
    got: list[int] = []

    def fail_once(message: Message) -> None:
        if message.gmd_sequence_number:
            got.append(message.gmd_sequence_number)
            if got.count(2) == 1 and message.gmd_sequence_number == 2:
                raise RuntimeError("as in the test")

    bus.receiver("t", fail_once, gmd_name="receiver", **MEMORY)
    sending = source(bus)
    expected(bus, sending, "receiver")
    send(bus, sending, 3)
    acknowledged(bus, sending)
    assert got == [1, 2, 3, 2]


@embedded
def test_an_exception_in_an_event_queue_does_not_acknowledge(bus: Bus) -> None:
    got: list[int] = []

    def fail_once(message: Message) -> None:
        if message.gmd_sequence_number:
            got.append(message.gmd_sequence_number)
            if got.count(2) == 1 and message.gmd_sequence_number == 2:
                raise RuntimeError("as in the test")

    queue = ipcbus.EventQueue()
    bus.context().receiver("t", fail_once, event_queue=queue, gmd_name="receiver", **MEMORY)
    sending = source(bus)
    expected(bus, sending, "receiver")
    send(bus, sending, 3)
    while len(got) < 4:
        queue.dispatch(1.0)
    acknowledged(bus, sending)
    assert got == [1, 2, 3, 2]
    queue.close()


@embedded
def test_a_queue_that_drops_gets_the_messages_again(bus: Bus) -> None:
    got: list[int] = []
    queue = ipcbus.EventQueue(5, "drop_oldest")
    bus.context().receiver(
        "t", lambda m: got.append(m.gmd_sequence_number), event_queue=queue, gmd_name="receiver", **MEMORY
    )
    sending = source(bus)
    expected(bus, sending, "receiver")
    send(bus, sending, 20)
    bus.until(lambda: queue.dropped, "dropped messages")
    while sending.gmd_num_pending:
        queue.dispatch(0.05)
    assert set(got) == set(range(21))
    queue.close()


@embedded
def test_a_message_that_is_refused_too_often_is_a_failure(bus: Bus) -> None:
    events: list[SourceEvent] = []
    deliveries: list[int] = []

    def refuse(message: Message) -> None:
        if message.gmd_sequence_number == 2:
            deliveries.append(2)
            message.nack()

    receiver = bus.receiver("t", refuse, gmd_name="receiver", gmd_max_deliveries=3, **MEMORY)
    sending = bus.source("t", on_event=events.append, gmd_name="sender", delivery_mode="all", ipc_gmd_type="memory")
    expected(bus, sending, "receiver")
    send(bus, sending, 3)
    bus.until(lambda: any(event.type is SourceEventType.GMD_FAILURE for event in events), "the failure")
    (failure,) = (event for event in events if event.type is SourceEventType.GMD_FAILURE)
    assert (failure.gmd_sequence_number, failure.receiver, failure.error_number) == (2, "receiver", 522)
    assert deliveries == [2, 2, 2]
    assert sending.gmd_num_pending == 1
    assert sending.gmd_delete(2)
    assert sending.gmd_num_pending == 0
    receiver.close()


@embedded
def test_a_dead_letter_topic_takes_what_is_given_up(bus: Bus) -> None:
    dead: list[Message] = []
    bus.receiver("dead", lambda m: dead.append(m) if m.type is MessageType.DATA else None)

    def refuse(message: Message) -> None:
        if message.gmd_sequence_number == 2:
            message.nack()

    options = {"gmd_max_deliveries": 2, "gmd_dead_letter_topic": "dead", **MEMORY}
    bus.receiver("t", refuse, gmd_name="receiver", **options)
    sending = source(bus)
    expected(bus, sending, "receiver")
    send(bus, sending, 3)
    acknowledged(bus, sending)
    bus.until(lambda: dead, "the message on the other topic")
    (message,) = dead
    assert message.data[-1:] == b"\x02"
    headers = dict(message.headers)
    assert headers["gmd_topic"] == b"t"
    assert headers["gmd_sequence_number"] == b"2"
    assert headers["gmd_receiver"] == b"receiver"
    assert headers["gmd_sender"] == b"sender"
    assert int(headers["gmd_incarnation"], 16)


@embedded
def test_what_is_not_acknowledged_comes_again_after_a_restart(bus: Bus) -> None:
    kept, sending = Kept(bus, ipc_gmd_auto_ack=False), source(bus)
    expected(bus, sending, "receiver")
    send(bus, sending, 5)
    bus.until(lambda: len(kept.messages) == 5, "messages")
    for place in (0, 1, 3):
        kept.messages[place].ack()
    bus.until(lambda: sending.gmd_num_pending == 2, "three acknowledgements")
    kept.receiver.close()
    kept.messages[2].ack()  # too late
    again = Named(bus)
    again.until(2)
    acknowledged(bus, sending)
    assert again.ledger.numbers == [3, 5]
    assert again.ledger.again == {3, 5}
