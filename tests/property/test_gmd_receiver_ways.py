"""A named receiver whose acknowledgements go the compiled way, and one with the machine in Python only, do the same."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from ipcbus.delivery.gmd_gate import GmdGate
from ipcbus.delivery.pump import Pump
from ipcbus.delivery.received_message import Origin, whole_message
from ipcbus.delivery.sink import Sink
from ipcbus.gmd.gmd_settings import ReceiverSettings
from ipcbus.gmd.received_stream import ReceivedStreams
from ipcbus.gmd.receiver_state import GmdReceiver, Verdict
from ipcbus.recovery.control_channel import ControlChannel
from ipcbus.runtime.receiving.ack_sender import AckSender
from ipcbus.wire import gmd_messages
from ipcbus.wire.gmd_messages import Ack, Nack
from ipcbus.wire.number_ranges import NumberRanges
from tests.kit.gmd_models import ModelReceiverArea
from tests.kit.pipe_stage import PipeStage

if TYPE_CHECKING:
    from ipcbus.delivery.received_message import Message
    from ipcbus.transport.ring.response_frames import ResponseWriter

TOPIC, INSTANCE, INCARNATION = 5, 9, 77
ORIGIN = Origin("t", "LBT-IPC:1:1")
WINDOW = 3
Pipe = tuple[ControlChannel, ControlChannel, "ResponseWriter | None"]


def opened(stage: PipeStage) -> Pipe:
    """The channel of a source and that of its receiver, with the short way into it."""
    _, link, source = stage.open()
    of_source, of_receiver = (ControlChannel(each, queue_max=1 << 20, message_max=1 << 20) for each in (source, link))
    return of_source, of_receiver, link.response_writer(of_receiver, Pump())


class Way:
    """A receiver of one source; it acknowledges by itself, or by hand."""

    def __init__(self, pipe: Pipe, *, compiled: bool, auto: bool) -> None:
        self.source, self.channel, writer = pipe
        self.writer = writer if compiled else None
        self.area = ModelReceiverArea()
        target = Sink(self._callback, 100)
        self.gate = GmdGate(target, None, self, self, auto_ack=auto, unrecorded_max=WINDOW)
        self.now_ns = time.monotonic_ns()
        receiver_settings = ReceiverSettings(unrecorded_max=WINDOW)
        streams = ReceivedStreams(self.area, receiver_settings)
        self.machine = GmdReceiver(
            "one", TOPIC, INSTANCE, streams, receiver_settings, self.gate, self.now_ns, opening=1
        )
        self.acks = self.gate.short_way = AckSender(TOPIC, INSTANCE)
        self.kept: list[Message] = []
        self.got: list[int] = []
        self.acknowledged, self.refused = NumberRanges(), list[int]()
        self.turn()
        self._from_source(gmd_messages.Registered(TOPIC, INSTANCE, 0, INCARNATION, 1, 1, 1, "gateway"))
        self.turn()

    def _from_source(self, message: gmd_messages.GmdAnswer) -> None:
        self.machine.receive(message, self.now_ns)

    def _callback(self, message: Message) -> None:
        self.got.append(message.gmd_sequence_number)
        self.kept.append(message)

    # ------------------------------------------------------------------ the keeper of the gate

    def take(self, message: Message) -> None:
        """The gate does not let it pass."""
        number = message.gmd_sequence_number
        if self.machine.offer(number, number, number, 1, message) is Verdict.DELIVER:
            self.gate.deliver(message)

    take_event = take

    def flush(self) -> None:
        """Records what is acknowledged."""
        for first, last in self.gate.take_acks():
            self.machine.acknowledge(first, last)
        for message, _ in self.gate.take_refusals():
            self.machine.refuse(message.gmd_sequence_number, 1 << 60, self.now_ns)
        if self.machine.stream is None or self.machine.stream.record():
            self.gate.note_recorded()

    def flush_from_any_thread(self) -> bool:
        """As `flush`."""
        self.flush()
        return not self.area.fails

    def flush_soon(self) -> None:
        """The next turn does it."""

    def failed(self, sink: Sink, error: BaseException) -> None:
        """No callback raises."""
        raise AssertionError from error

    # ------------------------------------------------------------------ what happens

    def live(self, number: int) -> None:
        """A message comes."""
        message = whole_message(ORIGIN, b"x", number, number, 0, 0, None, gmd_number=number)
        self.gate.sink.take(message, self)

    def turn(self) -> None:
        """A turn of the driver."""
        self.flush()
        self.machine.turn(self.now_ns, lambda message: self.channel.send(message))
        self.flush()
        stream = self.machine.stream
        if stream is not None:
            self.acks.use(stream.ordered, INCARNATION, self.writer)
        while (item := self.machine.take()) is not None:
            self.gate.deliver(item.what)  # type: ignore[union-attr, arg-type]
        self.channel.flush()
        self.read()

    def read(self) -> None:
        """The source reads."""
        while (whole := self.source.receive()) is not None:
            found = gmd_messages.decode(whole)
            if isinstance(found, Ack):
                assert (found.topic, found.instance, found.incarnation) == (TOPIC, INSTANCE, INCARNATION)
                for first, last in found.ranges:
                    self.acknowledged.add(first, last)
            elif isinstance(found, Nack):
                self.refused.append(found.number)

    def state(self) -> tuple[object, ...]:
        """What the application, the area and the source have."""
        known = {key: (each.floor, list(each.ranges)) for key, each in self.area.recorded.items()}
        return self.got, known, list(self.acknowledged), self.refused, self.gate.next_number, self.gate.is_open


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("live"), st.integers(1, 5)),
        st.tuples(st.just("ack"), st.integers(0, 9)),
        st.tuples(st.just("ack"), st.just(0)),
        st.tuples(st.just("refuse"), st.integers(0, 9)),
        st.tuples(st.just("fails"), st.booleans()),
        st.tuples(st.just("turn"), st.none()),
    ),
    max_size=40,
)


def course(ways: tuple[Way, Way], actions: list[tuple[str, int]]) -> None:
    """The same happens to both."""
    number = 0
    for name, value in actions:
        for way in ways:
            if name == "live":
                for each in range(number + 1, number + value + 1):
                    way.live(each)
            elif name == "fails":
                way.area.fails = bool(value)
            elif name == "turn":
                way.turn()
            elif value < len(way.kept):
                message = way.kept.pop(value)
                (message.ack if name == "ack" else message.nack)()
        number += value if name == "live" else 0
        assert ways[0].got == ways[1].got
    for way in ways:
        way.area.fails = False
        way.now_ns += 1_000_000_000
        way.turn()
        way.turn()
    assert ways[0].state() == ways[1].state()


def test_a_receiver_is_in_the_same_state(domain: str) -> None:
    stage = PipeStage(domain)
    pipes = [opened(stage) for _ in range(2)]

    def both(*, auto: bool) -> tuple[Way, Way]:
        return Way(pipes[0], compiled=True, auto=auto), Way(pipes[1], compiled=False, auto=auto)

    @settings(max_examples=100, deadline=None)
    @given(ACTIONS, st.booleans())
    def any_course(actions: list[tuple[str, int]], auto: bool) -> None:
        course(both(auto=auto), actions)

    try:
        compiled, plain = both(auto=True)
        for way in (compiled, plain):
            for number in range(1, 8):
                way.live(number)
        compiled.read()
        assert (list(compiled.acknowledged), list(plain.acknowledged)) == ([(1, 6)], [])  # so one goes the compiled way
        any_course()
    finally:
        stage.close()
