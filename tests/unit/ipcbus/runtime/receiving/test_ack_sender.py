"""Acknowledgements in order: from a gate into the area, then into the pipe to the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus.delivery.gmd_gate import GmdGate
from ipcbus.delivery.pump import Pump
from ipcbus.delivery.received_message import Origin, whole_message
from ipcbus.delivery.sink import Sink
from ipcbus.errors import GmdError
from ipcbus.gmd.acknowledged_floor import AcknowledgedFloor
from ipcbus.recovery.control_channel import ControlChannel
from ipcbus.runtime.receiving.ack_sender import AckSender
from ipcbus.wire import gmd_messages
from ipcbus.wire.gmd_messages import Ack
from tests.kit.pipe_stage import PipeStage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.delivery.received_message import Message

TOPIC, INSTANCE, INCARNATION = 5, (1 << 64) - 2, (1 << 64) - 1
ORIGIN = Origin("t", "LBT-IPC:1:1")


class Keeper:
    """Counts what the gate leaves to it."""

    def __init__(self) -> None:
        self.flushes = 0

    def take(self, message: Message) -> None:
        """Nothing."""

    take_event = take

    def flush(self) -> None:
        """Counted."""
        self.flushes += 1

    def flush_soon(self) -> None:
        """Nothing: the pump calls at the end of the pass."""

    def failed(self, sink: Sink, error: BaseException) -> None:
        """Nothing."""


class Stand:
    """A gate whose acknowledgements go the short way when three of them wait."""

    def __init__(self, stage: PipeStage) -> None:
        _, link, source = stage.open()
        self.source = ControlChannel(source, queue_max=1 << 20, message_max=1 << 20)
        self.channel = ControlChannel(link, queue_max=1 << 20, message_max=1 << 20)
        writer = link.response_writer(self.channel, Pump())
        assert writer is not None
        self.writer = writer
        self.recorded: list[int] = []
        self.refuses = False
        self.floor = AcknowledgedFloor(self._record, "gateway", INCARNATION)
        self.keeper = Keeper()
        self.gate = GmdGate(Sink(lambda message: None, 100), None, self.keeper, self.keeper, unrecorded_max=3)
        self.gate.is_open, self.gate.next_number = True, 1
        self.acks = self.gate.short_way = AckSender(TOPIC, INSTANCE)

    def _record(self, sender: str, incarnation: int, floor: int, ranges: tuple[()]) -> None:
        if self.refuses:
            raise GmdError("full")
        self.recorded.append(floor)

    def give(self, first: int, last: int) -> None:
        """Messages pass the gate."""
        for number in range(first, last + 1):
            message = whole_message(ORIGIN, b"x", number, number, 0, 0, None, gmd_number=number)
            self.gate.sink.take(message, self.keeper)

    def sent(self) -> list[Ack]:
        """What the source got."""
        found = [gmd_messages.decode(message) for message in iter(self.source.receive, None)]
        assert all(isinstance(each, Ack) for each in found)
        return found  # type: ignore[return-value]


@pytest.fixture
def stand(domain: str) -> Iterator[Stand]:
    stage = PipeStage(domain)
    yield Stand(stage)
    stage.close()


def test_a_run_is_recorded_and_sent(stand: Stand) -> None:
    stand.acks.use(stand.floor, INCARNATION, stand.writer)
    stand.floor.begin(0)
    stand.give(1, 7)
    assert stand.recorded == [3, 6]
    assert stand.sent() == [
        Ack(TOPIC, INSTANCE, INCARNATION, [(1, 3)]),
        Ack(TOPIC, INSTANCE, INCARNATION, [(4, 6)]),
    ]
    assert (stand.gate.take_acks(), stand.floor.sent, stand.keeper.flushes) == ([(7, 7)], 6, 0)


def test_what_is_not_in_order_is_left_to_the_keeper(stand: Stand) -> None:
    stand.give(1, 3)
    stand.acks.use(stand.floor, INCARNATION, stand.writer)
    stand.floor.begin(0)
    stand.give(4, 4)
    assert (stand.keeper.flushes, stand.recorded, stand.gate.take_acks()) == (1, [4], [])
    stand.floor.begin(1)
    stand.give(5, 7)
    assert (stand.keeper.flushes, stand.gate.take_acks()) == (2, [(5, 7)])


def test_an_area_that_refuses_keeps_the_acknowledgements(stand: Stand) -> None:
    stand.acks.use(stand.floor, INCARNATION, stand.writer)
    stand.floor.begin(0)
    stand.refuses = True
    stand.give(1, 3)
    assert (stand.sent(), stand.gate.take_acks(), stand.keeper.flushes) == ([], [(1, 3)], 1)


def test_messages_that_wait_in_the_channel_go_first(stand: Stand) -> None:
    stand.acks.use(stand.floor, INCARNATION, stand.writer)
    stand.floor.begin(0)
    stand.channel.send(gmd_messages.ack(TOPIC, INSTANCE, INCARNATION, [(9, 9)]))
    stand.give(1, 3)
    assert (stand.recorded, stand.floor.sent, stand.gate.take_acks()) == ([3], 0, [(1, 3)])


def test_without_a_pipe_all_of_them_are_left(stand: Stand) -> None:
    stand.acks.use(stand.floor, INCARNATION, None)
    stand.floor.begin(0)
    stand.give(1, 3)
    assert (stand.recorded, stand.keeper.flushes, stand.gate.take_acks()) == ([], 1, [(1, 3)])
