"""The receiver of a session over TCP: as over UDP it writes datagrams to a ring; what finds no room stays unread."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

from ipcbus.reliability.stream_receiver import StreamReceiver
from ipcbus.transport.udp.udp_receiver import BACKLOG_BYTES, RETRY_NS, WINDOW, UdpReceiver

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from ipcbus.transport.tcp.inflow import Inflow
    from ipcbus.transport.tcp.stream_port import StreamPort

_LAST_NS: Final = 1_000_000_000
"""Time without input after which a dead source is no longer heard: another process may hold its connection open."""


class TcpReceiver(UdpReceiver):
    """The receiver of one session over TCP (transport.datagram_source.DatagramSource)."""

    protocol = StreamReceiver
    _inflow: Inflow | None = None
    """What fetches without the protocol."""
    _came = -1
    """The bytes that had come when it was last asked whether its dead source is still heard."""
    _came_ns = 0
    """When that was last another number, or there was no room for more."""
    congested = False  # its socket is not read while it has no room
    rest_max = 1 << 62  # what an ended source of this process still has, which its own limits bound

    @cached_property
    def port(self) -> StreamPort:
        """Its connection."""
        return cast("StreamPort", self._session_sockets[0])

    def _make_fetcher(self) -> None:
        """Makes nothing: the connection has what fetches."""

    def _settle(self) -> None:
        if self._inflow is not None:
            inflow, self._inflow = self._inflow, None
            count, size, came = inflow.settle()
            counts = self.port.socket.counts
            counts.dgrams_rcved += count
            counts.bytes_rcved += came
            if count:
                self._took(count, size, 0, time.monotonic_ns())

    def owner_lives(self) -> bool:
        """As in `UdpReceiver`; also where what a dead source has sent still comes, with the end behind it."""
        if super().owner_lives():
            return True
        stream, now_ns = self.port.socket, time.monotonic_ns()
        came = stream.counts.bytes_rcved
        if stream.is_paused or came != self._came or not self.takes_more():
            self._came, self._came_ns = came, now_ns
        return stream.is_connected and now_ns - self._came_ns < _LAST_NS

    @property
    def first_fetch(self) -> Callable[[], int] | None:
        """As in `UdpReceiver`."""
        return self._inflow.fetch if self._inflow is not None else None

    def read_rest(self, now_ns: int) -> None:
        """Handles packets that were read with the datagrams of `first_fetch`."""
        if self.port.socket.has_packet:
            self.port.read(now_ns)

    def _direct(self) -> None:
        """Lets `first_fetch` work until something asks for the state of this receiver."""
        expected = cast("StreamReceiver", self.reliable_receiver).expected
        if expected is not None and not self._backlog and not self._awaiting_start:
            self._inflow = self.port.socket.direct(self._channel.writer, *expected, WINDOW // 2)
            self._fetches = self._inflow is not None

    def relay(self, inflow: Inflow) -> int:
        """Moves datagrams from the connection to the ring, as long as nothing else comes; returns how many."""
        receiver = cast("StreamReceiver", self.reliable_receiver)
        expected = receiver.expected
        if expected is None or self._backlog or self._awaiting_start:
            return 0
        count, size = inflow.relay(self._channel.writer, *expected)
        if count:
            receiver.took(count, size, time.monotonic_ns())
            if self._marked:
                self._on_mark()
        return count

    def takes_more(self) -> bool:
        """Returns whether there is room for all that one read may bring, in the ring or beside it."""
        if self._backlog_bytes < self.spare:
            return True
        if self._backlog:
            now_ns = time.monotonic_ns()
            if not self._holds_back(now_ns):
                return False
            if self._backlog_bytes < BACKLOG_BYTES:
                return True
            # The first numbers of topics come behind all that: it is not to wait for them any longer.
            self._start_deadline_ns = now_ns
            return False
        return self._channel.writer.has_room(WINDOW // 2)

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> None:
        """Takes a packet of the connection, or its end; invalid ones are counted."""
        self.receive_all([(packet, address)], now_ns)

    def receive_all(self, packets: Iterable[tuple[bytes, Hashable]], now_ns: int) -> None:
        """Takes the packets of one read, and writes their datagrams to the ring in one go."""
        self.idle_until_ns = 0  # a timer may be due earlier than planned
        receive = self.reliable_receiver.receive
        datagrams = [each for packet, address in packets for each in receive(packet, address, now_ns)]
        self._write_to_ring(datagrams, now_ns)
        self._send_packets()
        if self._marked:
            self._on_mark()

    def needs_turn(self, now_ns: int) -> bool:
        """Returns whether anything is to do after a read: room for what the connection holds back is looked for."""
        needs = super().needs_turn(now_ns)
        self.awaits_room = self.awaits_room or self.port.socket.is_paused
        return needs or self.awaits_room

    def _tell_room(self, now_ns: int) -> None:
        """Tells nothing: a connection waits for room by itself."""

    @property
    def _awaits_reading(self) -> bool:
        return False

    def turn(self, now_ns: int, *, shows: bool = True) -> int | None:
        """As in `UdpReceiver`."""
        is_paused = self.port.socket.is_paused
        if is_paused:
            self.reliable_receiver.shed(now_ns)
        if not self.is_twin:
            self.reason = self.port.failure
        following = super().turn(now_ns, shows=shows)
        if not (is_paused and self.port.look_for_room()):
            return following
        self.awaits_room = True
        return now_ns + RETRY_NS if following is None else min(following, now_ns + RETRY_NS)
