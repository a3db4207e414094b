"""A source and a receiver with a wire between them that tests can cut."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from ipcbus.reliability.loss_detector import NakSettings
from ipcbus.reliability.receive_state import ReceiveSettings
from ipcbus.reliability.receiver_settings import ReceiverSettings
from ipcbus.reliability.reliable_receiver import ReliableReceiver
from ipcbus.reliability.reliable_sender import ALL, ReliableSender
from ipcbus.reliability.send_state import SendSettings
from ipcbus.reliability.session_sender import SenderSettings
from ipcbus.wire import udp_packets

if TYPE_CHECKING:
    from collections.abc import Hashable

MS = 1_000_000
SECOND = 1000 * MS
SESSION = 7
AT = ("127.0.0.1", 14380)
HERE = ("127.0.0.1", 5000)
WHO = (11, 22, "there")
SECRET = b"0123456789abcdef"
NO_ROOM = "the source has no room for another client, see its option transport_..._maximum_clients_per_transport"
"""The reason of a receiver whose source refuses to register it."""


def source(multicast: bool = False, topics_of: Any = None, **terms: Any) -> ReliableSender:  # noqa: ANN401
    found = {"sending": SendSettings(data_rate=0, retransmit_rate=0), **terms}
    return ReliableSender(SESSION, SenderSettings(**found), SECRET, 0, multicast, topics_of=topics_of)


def receiver(multicast: bool = False, resume_at: int | None = None, **terms: Any) -> ReliableReceiver:  # noqa: ANN401
    found = {"receiving": ReceiveSettings(NakSettings(initial_backoff=0)), **terms}
    return ReliableReceiver(SESSION, AT, ReceiverSettings(**found), Random(1), 0, WHO, multicast, resume_at)


class Pair:
    """One of each, without delay; `got` is what was delivered."""

    def __init__(self, there: ReliableSender, here: ReliableReceiver) -> None:
        self.there, self.here = there, here
        self.got: list[bytes] = []

    def send(self, *datagrams: bytes, now_ns: int = 0) -> None:
        """The source sends; what it does is still to be exchanged."""
        for datagram in datagrams:
            self.there.send(datagram, 1, 5, now_ns)

    def exchange(self, now_ns: int = 0) -> None:
        """Both do what is due, and get what the other sends, until nothing is left."""
        for _ in range(20):
            self.there.turn(now_ns)
            self.here.turn(now_ns)
            up, down = self.here.take(), self.there.take()
            if not up and not down:
                return
            for packet in up:
                self.there.receive(packet, HERE, now_ns)
            for packet, to in down:
                self.deliver(packet, to, now_ns)
        raise AssertionError("they talk without end")

    def deliver(self, packet: bytes, to: Hashable, now_ns: int) -> None:
        """The receiver gets what is for it."""
        if to == HERE or to is ALL:
            self.got += [datagram for datagram, _ in self.here.receive(packet, AT, now_ns)]

    def lose(self) -> list[udp_packets.Packet | None]:
        """What both wanted to send is lost; returns what it was."""
        return [
            udp_packets.parse(packet) for packet in (*self.here.take(), *(packet for packet, _ in self.there.take()))
        ]


def joined(multicast: bool = False, **terms: Any) -> Pair:  # noqa: ANN401
    """A receiver that has joined."""
    found = Pair(source(multicast), receiver(multicast, **terms))
    found.exchange()
    return found
