"""The session of `tests.sim.world` over the real ends of reliable UDP instead of the simple transport there."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from ipcbus.reliability.loss_detector import NakSettings
from ipcbus.reliability.receive_state import ReceiveSettings
from ipcbus.reliability.receiver_settings import ReceiverSettings
from ipcbus.reliability.reliable_receiver import ReliableReceiver
from ipcbus.reliability.reliable_sender import ReliableSender
from ipcbus.reliability.send_state import SendSettings
from ipcbus.reliability.session_sender import SenderSettings
from ipcbus.wire import udp_packets
from tests.sim.world import Receiver, Sender, Terms, World

if TYPE_CHECKING:
    from collections.abc import Callable

AT, HERE = ("10.0.0.1", 14380), ("10.0.0.2", 5000)


class Middle(Random):
    """Draws the middle of each range, so that times are those which a book tells."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


class UdpSender(Sender):
    """The source side: what the topic layer sends goes through a SourceEnd."""

    def __init__(self, world: World, terms: Terms, multicast: bool) -> None:
        super().__init__(world, terms)
        self.multicast = multicast
        self.cut = False
        """Whether nothing that it sends arrives."""
        sending = SendSettings(data_rate=0, sm_minimum=terms.sm_minimum, sm_maximum=terms.sm_maximum)
        self.udp = ReliableSender(7, SenderSettings(sending), bytes(16), world.now_ns, multicast)
        self._planned = -1
        self.serve()

    def end(self) -> None:
        """Ends the session; the receivers are told."""
        self.udp.end(self.world.now_ns)
        self.serve()

    def serve(self) -> None:
        """What the end has to send goes onto the wire, and its next turn is planned."""
        for packet, to in self.udp.take():
            if packet[1] == udp_packets.SM and to is (None if self.multicast else HERE):
                self.journal.append((self.world.now_ns, "session message"))
            for receiver in self.receivers:
                if isinstance(receiver, UdpReceiver) and not self.cut:
                    receiver.packet(packet)
        _plan(self, self.udp.next_ns(self.world.now_ns), self._turn)

    def _turn(self) -> None:
        self.udp.turn(self.world.now_ns)
        self.serve()

    def _transmit(self, number: int) -> None:
        self.udp.send(self.sent[number], 1, self.world.now_ns, self.world.now_ns)
        self.serve()

    def _next_sm(self, turn: int, interval: int) -> None:
        """The end has its own."""


class UdpReceiver(Receiver):
    """The receive side: what comes goes through a ReceiverEnd to the delivery controllers."""

    def __init__(self, sender: UdpSender, loses: Callable[[int], bool]) -> None:
        super().__init__(sender, loses=loses)
        terms = self.terms
        naks = NakSettings(terms.nak_backoff, terms.nak_repeat, generation=terms.nak_generation)
        reception = ReceiveSettings(naks, activity_timeout=terms.activity_timeout)
        self.udp = ReliableReceiver(
            7, AT, ReceiverSettings(reception), Middle(1), self.world.now_ns, (1, 2, "subscriber"), sender.multicast
        )
        self.asked: list[tuple[int, tuple[int, ...]]] = []
        self._sender = sender
        self._planned = -1
        self._serve()

    def packet(self, packet: bytes) -> None:
        """A packet is on its way."""
        found = udp_packets.parse(packet)
        if not (isinstance(found, udp_packets.Data) and self.loses(found.number)):
            self.world.after(self.terms.delay, partial(self._came, packet))

    def _came(self, packet: bytes) -> None:
        now = self.world.now_ns
        for datagram, send_time_ns in self.udp.receive(packet, AT, now):
            self.delivery.demux.feed(datagram, send_time_ns, now)
        self._serve()

    def _turn(self) -> None:
        before = self.udp.counts.unrecovered_tmo
        waited = dict(self.missing)
        self.udp.turn(self.world.now_ns)
        self._serve()
        if self.udp.counts.unrecovered_tmo != before:
            self.lost_datagrams += [(self.world.now_ns, number) for number in waited if number not in self.missing]

    def _serve(self) -> None:
        for packet in self.udp.take():
            found = udp_packets.parse(packet)
            if isinstance(found, udp_packets.Numbers):
                self.asked.append((self.world.now_ns, found.numbers))
            if not (isinstance(found, udp_packets.Numbers) and self.naks_blocked):
                self.world.after(self.terms.delay, partial(self._to_source, packet))
        reception = self.udp._receive_state
        known = reception._loss_detector._missing if reception is not None else {}
        self.missing = {number: missing.since_ns for number, missing in known.items()}
        if self.udp.over and not self.over:
            self.over = True
            for controller in self.delivery.topics():
                self.delivery.end_topic(controller, 0)
        _plan(self, self.udp.next_ns, self._turn)

    def _to_source(self, packet: bytes) -> None:
        if not self._sender.ended:
            self._sender.udp.receive(packet, HERE, self.world.now_ns)
            self._sender.serve()

    def _alive(self) -> None:
        """The end knows when the session has been silent for too long."""


def _plan(side: Any, when: int | None, turn: Callable[[], None]) -> None:  # noqa: ANN401
    """The next turn of one of the two; one that was planned for another time is none."""

    def due() -> None:
        if side._planned == when and not getattr(side, "ended", False):
            side._planned = -1
            turn()

    if when is not None and when != side._planned:
        side._planned = when
        side.world.after(max(0, when - side.world.now_ns), due)
