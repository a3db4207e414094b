"""A socket that sessions over UDP share, and the handlers of the packets that come there."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Protocol

from ipcbus.wire.udp_packets import newest_acks

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from ipcbus.transport.udp.datagram_socket import DatagramSocket
    from ipcbus.transport.udp.mmsg import Address, Batched
    from ipcbus.transport.udp.sealing import Seal

_SESSION = struct.Struct("!4xI")
"""The place of the session id in every packet (wire.udp_packets)."""
_BATCH = 64
_BYTES_AT_ONCE = 1 << 19
"""Most bytes to read in one go; the ring of a receiver holds several times as many."""

ANSWERS_MAX = 8
"""Most packets that a thread reads that waits for an answer."""

_KEPT_MAX = 4096
"""Most packets that wait for room in the send buffer; later ones are lost, and sent again by the protocol."""

_SHARE_MIN = 1 << 17
"""Room for any datagram, also where many sessions share a socket."""


class PacketHandler(Protocol):
    """A handler of packets: a UDP sender, a UDP receiver, or topic resolution."""

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> None:
        """Takes a packet from the network, valid or not."""

    def turn(self, now_ns: int) -> int | None:
        """Runs the timers that have expired; returns when to call again."""


class DatagramHandler(PacketHandler, Protocol):
    """A handler that can take the usual datagrams of its session without `receive`."""

    def take_datagrams(self, arrivals: Batched, now_ns: int) -> int:
        """Takes datagrams out of those that have come; returns how many."""


class SessionSocket:
    """One socket and the handlers that use it. The driver of the context reads, and threads that wait for answers."""

    def __init__(
        self,
        socket: DatagramSocket,
        seal: Seal | None = None,
        default_handler: PacketHandler | None = None,
        on_unused: Callable[[SessionSocket], object] | None = None,
    ) -> None:
        """Starts without handlers.

        Args:
            socket: the UDP socket.
            seal: seals and opens the packets, where the domain has a key.
            default_handler: gets the packets that no other handler gets.
            on_unused: called with this socket when the last handler has left; by default that closes the socket.
        """
        self.socket = socket
        self._seal, self.default_handler = seal, default_handler
        self.sealed_dropped = 0
        """Packets that were not sealed with the key of the domain, or had come before."""
        self.unknown = 0
        """Packets for which there was no handler."""
        self._on_unused = on_unused or SessionSocket.close
        self._handlers: dict[tuple[Address | None, int], PacketHandler] = {}
        self._takers: dict[tuple[Address | None, int], DatagramHandler] = {}
        self._batch = 1
        self.rest_waits = False
        """Whether the system keeps all that a `read` leaves. False: a full socket drops what comes."""
        self.may_have_more = False
        """Whether packets may still wait in the socket."""
        self._kept: tuple[tuple[bytes, Address], ...] = ()

    def add(self, handler: PacketHandler, session_id: int, sender: Address | None = None) -> None:
        """Adds a handler for the packets of a session.

        Args:
            handler: gets the packets.
            session_id: the id of the session.
            sender: the address that the packets have to come from; None for any.
        """
        self._handlers[sender, session_id] = handler

    def add_taker(self, handler: DatagramHandler, session_id: int, sender: Address) -> None:
        """Adds a handler that takes the usual datagrams of a session by itself, and gets the other packets."""
        self.add(handler, session_id, sender)
        if self.arrivals is not None:
            self._takers[sender, session_id] = handler

    def remove(self, handler: PacketHandler) -> None:
        """Removes a handler from all its sessions."""
        for key in [key for key, each in self._handlers.items() if each is handler]:
            del self._handlers[key]
            self._takers.pop(key, None)
        if not self._handlers:
            self._on_unused(self)

    @property
    def arrivals(self) -> Batched | None:
        """What has come, for handlers that take datagrams by themselves; None where each packet is looked at."""
        return self.socket.arrivals if self._seal is None else None

    @property
    def share(self) -> int:
        """The bytes of the receive buffer for each of its sessions."""
        return max(self.socket.receive_buffer // max(1, len(self._handlers)), _SHARE_MIN)

    def read(self, now_ns: int) -> set[PacketHandler]:
        """Reads packets and hands them to their handlers; returns the handlers that got any."""
        if self._kept:
            self._send(())
        served: set[PacketHandler] = set()
        if self._takers:
            come = self._take(served, now_ns)
            found = self.socket.receive(0)
        else:
            found = self.socket.receive(self._batch)
            come = len(found)
        self.may_have_more = come >= self._batch
        if come:
            # By the longest one read: the packets of a session are of similar sizes.
            self._batch = min(_BATCH, max(1, _BYTES_AT_ONCE // max(1, self.socket.longest_read)))
        for datagram, sender in found:
            packet = datagram if self._seal is None else self._seal.open(datagram)
            if packet is None:
                self.sealed_dropped += 1
                continue
            handler = self._hand_on(packet, sender, now_ns)
            if handler is not None:
                served.add(handler)
        return served

    def read_answers(self, now_ns: int) -> list[bytes]:
        """Reads a few packets and hands them to their handlers, in a thread that waits for what they say.

        Any thread may call this. It does nothing where packets are sealed. Of ACKs that differ only in their numbers,
        the newest one is handed on.

        Returns:
            The packets.
        """
        found = self.socket.receive(ANSWERS_MAX) if self._seal is None else []
        for packet, sender in newest_acks(found) if len(found) > 1 else found:
            self._hand_on(packet, sender, now_ns)
        return [packet for packet, _ in found]

    def _hand_on(self, packet: bytes, sender: Address, now_ns: int) -> PacketHandler | None:
        """Hands a packet to its handler, which it returns; None without one."""
        session_id = _SESSION.unpack_from(packet)[0] if len(packet) >= _SESSION.size else 0
        handler = self._handlers.get((sender, session_id)) or self._handlers.get((None, session_id))
        handler = handler or self.default_handler
        if handler is None:
            self.unknown += 1
        else:
            handler.receive(packet, sender, now_ns)
        return handler

    def _take(self, served: set[PacketHandler], now_ns: int) -> int:
        """Reads, and has handlers take the first packets that have come; returns how many reads brought any."""
        arrivals = self.socket.arrivals
        if arrivals is None:
            return 0
        come = arrivals.fetch(self._batch)
        while (head := arrivals.peek()) is not None:
            handler = self._takers.get(head)
            if handler is None or not handler.take_datagrams(arrivals, now_ns):
                break
            served.add(handler)
        return come

    def send(self, packets: Iterable[tuple[bytes, Address]]) -> None:
        """Sends each packet to its address; those that find no room in the send buffer wait (`waits`)."""
        if self._seal is None:
            self._send(packets)
            return
        sealed: list[tuple[bytes, Address]] = []
        last, last_sealed = b"", b""
        for packet, to in packets:
            if packet is not last:
                # One seal for all receivers of a packet: each of them gets it once.
                last, last_sealed = packet, self._seal.seal(packet)
            sealed.append((last_sealed, to))
        self._send(sealed)

    def _send(self, packets: Iterable[tuple[bytes, Address]]) -> None:
        self._kept = self.socket.send_pairs((*self._kept, *packets) if self._kept else packets)[:_KEPT_MAX]

    @property
    def direct(self) -> Batched | None:
        """What sends packets as they are; None while packets wait, and where packets are sealed."""
        return None if self._kept or self._seal is not None else self.socket.batched

    def keep(self, packets: Iterable[tuple[bytes, Address]]) -> None:
        """Keeps packets that `direct` found no room for; the next `send` or `read` tries again."""
        self._kept = (*self._kept, *packets)[:_KEPT_MAX]

    @property
    def waits(self) -> bool:
        """Whether packets wait for room in the send buffer; the next `send` or `read` tries again."""
        return bool(self._kept)

    def close(self) -> None:
        """Closes the socket."""
        self.socket.close()

    abandon = close
    """Closes descriptors only; for the child process after a fork."""
