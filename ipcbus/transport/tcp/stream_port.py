"""The socket of one session over TCP, its seal, and the sender or receiver of the session."""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from ipcbus.transport.tcp.outflow import RecordStream
    from ipcbus.transport.tcp.stream_socket import StreamSocket
    from ipcbus.transport.udp.mmsg import Address
    from ipcbus.transport.udp.sealing import Seal
    from ipcbus.transport.udp.session_socket import PacketHandler

log = logging.getLogger("ipcbus")

_REPORT_NS: Final = 60_000_000_000
"""Shortest time between two reports of connections that TLS has ended."""


class StreamPort:
    """What a session over TCP has in the place of a `SessionSocket`. Only the driver of the context reads."""

    waits = False
    """What finds no room waits in the connections."""

    def __init__(
        self,
        socket: StreamSocket,
        seal: Seal | None = None,
        on_unused: Callable[[StreamPort], object] | None = None,
    ) -> None:
        """Starts without a handler.

        Args:
            socket: the connections.
            seal: seals and opens the packets, where the domain has a key.
            on_unused: called when the session has left; by default that closes the socket.
        """
        self.socket = socket
        self._seal = seal.for_stream() if seal is not None else None
        self.takes_more: Callable[[], bool] = lambda: True
        """Whether the handler has room; while it has none, nothing is read."""
        self._receive_all: Callable[[list[tuple[bytes, Address]], int], object] | None = None
        """Takes all packets of a read at once; None where the handler takes single ones."""
        self.sealed_dropped = self.unknown = 0
        self.default_handler: PacketHandler | None = None
        self._handler: PacketHandler | None = None
        self._on_unused = on_unused or StreamPort.close
        self._full_reads = 0
        self.failure = ""
        """Why TLS has ended the last connection, in words; empty once packets come over another one."""
        self._failed = 0
        self._report_ns = 0

    @property
    def rest_waits(self) -> bool:
        """Whether the system keeps what a `read` leaves, and shows that it waits."""
        return not self.socket.has_tls

    @property
    def may_have_more(self) -> bool:
        """Whether more may wait than the last `read` has read."""
        return self.socket.may_have_more

    def add(self, handler: PacketHandler, session_id: int, sender: Address | None = None) -> None:
        """Sets the handler; the arguments are those of `SessionSocket.add`."""
        del session_id, sender
        self._handler = handler
        self.takes_more = getattr(handler, "takes_more", self.takes_more)
        self._receive_all = getattr(handler, "receive_all", None)
        if self._seal is None and hasattr(handler, "relay"):
            self.socket.relay = weakref.WeakMethod(handler.relay)

    def remove(self, handler: PacketHandler) -> None:
        """Removes the handler."""
        if self._handler is handler:
            self._handler = None
            self._on_unused(self)

    def read(self, now_ns: int) -> set[PacketHandler]:
        """Reads packets and hands them to the handler; returns it if it got any, or has room to send again."""
        handler = self._handler
        if handler is None:
            return set()
        if not self.socket.is_paused:
            if not self.takes_more():
                # The pump reads the ring before the next look, unless its receiver takes nothing.
                self._full_reads += 1
                if self._full_reads > 2:
                    self.socket.pause(True)
                return set()
            self._full_reads = 0
        before = self.socket.counts.dgrams_rcved
        found, has_room = self.socket.receive()
        got_packets = self.socket.counts.dgrams_rcved != before
        anything = bool(found) or got_packets
        self._look_at_tls(now_ns, got_packets=got_packets)
        if self._seal is not None:
            found = [(self._opened(framed, sender) if framed else framed, sender) for framed, sender in found]
        if self._receive_all is not None:
            if found:
                self._receive_all(found, now_ns)
        else:
            for packet, sender in found:
                handler.receive(packet, sender, now_ns)
        return {handler} if anything or has_room else set()

    def _look_at_tls(self, now_ns: int, *, got_packets: bool) -> None:
        """Reports connections that TLS has ended."""
        failures = self.socket.take_failures()
        if not failures:
            self.failure = "" if got_packets else self.failure
            return
        self._failed += len(failures)
        address, why = failures[-1]
        self.failure = f"TLS with {address[0]} port {address[1]} failed: {why}"
        if now_ns >= self._report_ns:
            others = f" ({self._failed} connections since the last report)" if self._failed > 1 else ""
            log.warning("%s%s", self.failure, others)
            self._report_ns, self._failed = now_ns + _REPORT_NS, 0

    def _opened(self, framed: bytes, sender: Address) -> bytes:
        """Returns the packet under a seal; ends the connection where the seal is not valid."""
        packet = self._seal.open(framed) if self._seal is not None else framed
        if packet is None:
            # Nothing that follows can be believed.
            self.sealed_dropped += 1
            self.socket.send_pairs([(b"", sender)])
        return packet or b""

    def look_for_room(self) -> bool:
        """Goes on to read where the handler has room again; returns whether nothing is read still."""
        if self.socket.is_paused and self.takes_more():
            self._full_reads = 0
            self.socket.pause(False)
        return self.socket.is_paused

    def send(self, packets: Iterable[tuple[bytes, Hashable]]) -> None:
        """Sends each packet to its address."""
        if self._seal is not None:
            packets = [(self._seal.seal(packet) if packet else packet, to) for packet, to in packets]
        self.socket.send_pairs(packets)  # type: ignore[arg-type]

    def send_records(
        self, stream: RecordStream, addresses: Sequence[Hashable], number: int
    ) -> tuple[list[bytes], bool, bool]:
        """Sends records of a ring to all addresses as `StreamSocket.send_records`; none where packets are sealed."""
        if self._seal is not None:
            return [], False, False
        return self.socket.send_records(stream, addresses, number)  # type: ignore[arg-type]

    def close(self) -> None:
        """Closes the socket."""
        self.socket.close()

    def abandon(self) -> None:
        """Closes descriptors only; for the child process after a fork."""
        self.socket.abandon()
