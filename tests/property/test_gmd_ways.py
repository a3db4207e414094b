"""Acknowledgements that go the compiled way, and those that only the machines in Python treat, have the same effect."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from ipcbus.delivery.received_message import Origin
from ipcbus.gmd.delivery_modes import ALL, SOME
from ipcbus.gmd.gmd_events import Confirmed
from ipcbus.gmd.gmd_settings import SenderSettings
from ipcbus.runtime.sending.ack_inlet import AckInlet
from ipcbus.runtime.sending.guaranteed_source import GuaranteedSource
from ipcbus.wire import gmd_messages
from tests.kit.gmd_areas import INCARNATION, disk, opened
from tests.kit.pipe_stage import PipeStage, channel

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ipcbus.recovery.control_channel import ControlChannel

TOPIC = 5
NAMES = ("one", "two")
ORIGIN = Origin("orders", "LBT-IPC:1:1")


class Way:
    """A source and what becomes of it."""

    def __init__(self, *, compiled: bool, confirms: bool) -> None:
        self.compiled, self.settings = compiled, SenderSettings(confirms=confirms)
        self.disk = disk()
        self.now_ns = time.monotonic_ns()
        self.sent: list[bytes] = []
        self.confirmed: set[int] = set()
        self.events: list[object] = []
        self.taken = 0
        self.open()

    def open(self) -> None:
        """Opens the area."""
        self.area = opened(self.disk)
        self.source = GuaranteedSource(self.area, TOPIC, self.settings, ORIGIN, lambda: None, opening=1)
        if not self.compiled:
            self.source.sender.ordered.begin = lambda *_: None  # type: ignore[method-assign]
        self.inlet = AckInlet(self.receive)
        self.inlet.add(TOPIC, self.source, self.area, self.source.sender.ordered.acks, lambda: None)

    def receive(self, peer: Hashable, whole: bytes) -> None:
        """A message that the compiled way leaves."""
        found = gmd_messages.decode(whole)
        if found is not None and isinstance(found, gmd_messages.GmdRequest) and found.topic == TOPIC:
            self.source.receive(peer, found, self.now_ns)

    def turn(self) -> None:
        """A turn of the driver."""
        self.source.turn(self.now_ns, self._send)
        while (event := self.source.sender.next_event()) is not None:
            if isinstance(event, Confirmed):
                self.confirmed.update(range(event.first, event.last + 1))
            else:
                self.events.append(event)

    def _send(self, peer: Hashable, message: bytes, bulk: bool) -> bool:
        self.sent.append(message)
        return True

    def kill(self) -> None:
        """The process ends; another one opens the area."""
        self.disk = self.disk.killed()
        self.open()

    def seen(self) -> tuple[object, ...]:
        """What can be seen without a call that ends the compiled way."""
        sender = self.source.sender
        return sender.pending, sender.acknowledgements, sender.oldest, self.area.size, self.sent

    def state(self) -> tuple[object, ...]:
        """All of it."""
        sender = self.source.sender
        return (
            *self.seen(),
            [sender.status(number) for number in range(1, self.area.last_number + 2)],
            sorted(self.confirmed),
            self.events,
            sender.ignored,
        )


SMALL = st.integers(0, 9)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("save"), st.integers(1, 4)),
        st.tuples(st.just("flow"), st.integers(1, 4)),
        st.tuples(st.just("ack"), st.integers(0, 1), st.integers(1, 4)),
        st.tuples(st.just("turn")),
        st.tuples(
            st.just("frame"),
            st.integers(0, 1),  # channel
            st.sampled_from([TOPIC, TOPIC, TOPIC, 6]),
            st.sampled_from([0, 1, 0, 1, 7]),  # instance
            st.sampled_from([INCARNATION, INCARNATION, 3]),
            st.lists(st.tuples(SMALL, SMALL), min_size=1, max_size=2),
            st.sampled_from([0, 0, 0, 1]),  # detail
            st.integers(0, 12),  # bytes that are cut
        ),
        st.tuples(st.just("lost"), st.integers(0, 1)),
        st.tuples(st.just("register"), st.integers(0, 1)),
        st.tuples(st.just("forget"), st.integers(0, 1)),
        st.tuples(st.just("delete"), st.integers(1, 9)),
        st.tuples(st.just("kill")),
    ),
    max_size=40,
)


class Both:
    """The two ways, with the channels of two receivers."""

    def __init__(self, stage: PipeStage, channels: list[tuple[ControlChannel, int]], mode: int, confirms: bool) -> None:
        self.stage, self.channels, self.mode = stage, channels, mode
        self.compiled, self.plain = Way(compiled=True, confirms=confirms), Way(compiled=False, confirms=confirms)
        self.ways = (self.compiled, self.plain)
        self.floors = [0, 0]
        for place in range(2):
            self.register(place)
        self.turn()

    def register(self, place: int) -> None:
        """A receiver registers."""
        self._both(place, gmd_messages.register(TOPIC, place, gmd_messages.WARM, NAMES[place]))

    def _both(self, place: int, whole: bytes) -> None:
        for way in self.ways:
            way.receive(self.channels[place][1], whole)

    def save(self, count: int) -> None:
        """Messages are sent."""
        for way in self.ways:
            if way.source.sender.current_terms[0] != self.mode:
                way.source.sender.terms(self.mode, 0)
            for _ in range(count):
                way.area.save(self.mode, 0, 1, b"", b"x")

    def ack(self, place: int, count: int) -> None:
        """A receiver acknowledges the next messages."""
        first = self.floors[place] + 1
        last = self.floors[place] = min(first + count, self.plain.area.last_number)
        if last >= first:
            self.put(place, gmd_messages.ack(TOPIC, place, INCARNATION, [(first, last)]))

    def flow(self, count: int) -> None:
        """Messages are sent, and come back acknowledged."""
        self.save(count)
        self.turn()
        for step in (1, count):
            for place in range(2):
                self.ack(place, step)

    def frame(
        self, place: int, topic: int, instance: int, incarnation: int, ranges: list[tuple[int, int]], *rest: int
    ) -> None:
        """Anything that has the kind of an acknowledgement."""
        whole = bytearray(gmd_messages.ack(topic, instance, incarnation, ranges))
        whole[1] = rest[0]
        self.put(place, bytes(whole[: len(whole) - max(0, rest[1] - 8)]))

    def put(self, place: int, whole: bytes) -> None:
        """Puts a frame into the pipe; the inlet takes it, as in a pass of the driver."""
        way, (pipe, peer) = self.compiled, self.channels[place]
        before = way.source.sender.acknowledgements
        self.stage.pipes.inlet.hand(gmd_messages.GMD_ACK, way.inlet)
        assert pipe.send_now(whole)
        self.stage.pipes.inlet.take_now()
        way.taken += way.source.sender.ordered.acks.is_ready and way.source.sender.acknowledgements > before
        self.plain.receive(peer, whole)

    def turn(self) -> None:
        """Both take a turn."""
        for way in self.ways:
            way.turn()

    def lost(self, place: int) -> None:
        """A channel ends."""
        for way in self.ways:
            way.source.lost(self.channels[place][1], way.now_ns)

    def forget(self, place: int) -> None:
        """The application forgets a name."""
        for way in self.ways:
            way.source.forget(NAMES[place])

    def delete(self, number: int) -> None:
        """The application deletes a message."""
        for way in self.ways:
            way.source.delete(number)

    def kill(self) -> None:
        """The source is killed, and starts again."""
        for way in self.ways:
            way.kill()
        for place in range(2):
            self.register(place)

    def compare(self) -> None:
        """Both have the same state, and find it again."""
        assert self.compiled.seen() == self.plain.seen()

    def close(self) -> None:
        """Both have the same state, also after a kill."""
        self.turn()
        assert self.compiled.state() == self.plain.state()
        self.kill()
        self.turn()
        assert self.compiled.state() == self.plain.state()
        for way in self.ways:
            way.source.close()


def test_a_source_is_in_the_same_state(domain: str) -> None:
    stage = PipeStage(domain)
    opened_links = [stage.open() for _ in range(2)]
    channels = [(channel(link), id(source)) for _, link, source in opened_links]

    @settings(max_examples=100, deadline=None)
    @given(ACTIONS, st.sampled_from([ALL, ALL, SOME]), st.booleans())
    def course(actions: list[tuple[object, ...]], mode: int, confirms: bool) -> None:
        both = Both(stage, channels, mode, confirms)
        for name, *arguments in actions:
            getattr(both, str(name))(*arguments)
            both.compare()
        both.close()

    try:
        for mode, expected in ((ALL, 4), (SOME, 2)):
            both = Both(stage, channels, mode, confirms=True)
            both.flow(4)
            both.close()
            assert both.compiled.taken == expected  # so it is the compiled way that is compared
        course()
    finally:
        stage.close()
