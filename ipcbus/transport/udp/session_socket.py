"""A socket of a session over UDP, and whom what comes there is for."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from ipcbus.transport.udp.datagram_socket import DatagramSocket
    from ipcbus.transport.udp.mmsg import Address
    from ipcbus.transport.udp.sealing import Seal

_SESSION = struct.Struct("!4xI")
"""Where the session id stands in every packet (wire.udp_packets)."""
_BATCH = 64
_AT_ONCE = 1 << 17
"""So many bytes are read at once; a ring that they are put into holds several times as many."""


class PacketHandler(Protocol):
    """Who gets packets."""

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> None:
        """Takes a packet, whatever it is."""

    def turn(self, now_ns: int) -> int | None:
        """Does what is due; returns when to call again."""


class SessionSocket:
    """One socket and the sessions that use it. Reading belongs to whoever drives the context."""

    def __init__(
        self, socket: DatagramSocket, seal: Seal | None = None, default_handler: PacketHandler | None = None
    ) -> None:
        """Of nobody yet; closed with the last who leaves.

        Args:
            socket: it.
            seal: of what goes out and comes in, where the domain has a key.
            default_handler: who gets everything that is for nobody else.
        """
        self.socket = socket
        self._seal, self.default_handler = seal, default_handler
        self.sealed_dropped = 0
        """Datagrams that were not sealed with the key of the domain, or had come before."""
        self.unknown = 0
        """Packets that were for none of the sessions here."""
        self.on_unused: Callable[[], object] = self.close
        """Called when nobody uses it any more."""
        self._addressees: dict[tuple[Address | None, int], PacketHandler] = {}
        self._batch = 1
        self.may_have_more = False
        """Whether the last reading may have left something."""

    def add(self, addressee: PacketHandler, session_id: int, sender: Address | None = None) -> None:
        """Gives it the packets of a session from now on.

        Args:
            addressee: who gets them.
            session_id: the session's.
            sender: only those from there; None: from anywhere.
        """
        self._addressees[sender, session_id] = addressee

    def remove(self, addressee: PacketHandler) -> None:
        """Gives it nothing any more; who was the last leaves a port that has no use."""
        for key in [key for key, each in self._addressees.items() if each is addressee]:
            del self._addressees[key]
        if not self._addressees:
            self.on_unused()

    def read(self, now_ns: int) -> set[PacketHandler]:
        """Hands over what has come; returns who got something."""
        got: set[PacketHandler] = set()
        found = self.socket.receive(self._batch)
        self.may_have_more = len(found) == self._batch
        if found:
            # By the longest of late: those of one session are much alike.
            self._batch = min(_BATCH, max(1, _AT_ONCE // max(1, max([len(packet) for packet, _ in found]))))
        for came, sender in found:
            packet = came if self._seal is None else self._seal.open(came)
            if packet is None:
                self.sealed_dropped += 1
                continue
            session_id = _SESSION.unpack_from(packet)[0] if len(packet) >= _SESSION.size else 0
            addressee = self._addressees.get((sender, session_id)) or self._addressees.get((None, session_id))
            addressee = addressee or self.default_handler
            if addressee is None:
                self.unknown += 1
            else:
                addressee.receive(packet, sender, now_ns)
                got.add(addressee)
        return got

    def send(self, packets: Iterable[tuple[bytes, Address]]) -> None:
        """Sends each packet to its address; what finds no room is lost, and repaired by the protocol."""
        if self._seal is None:
            self.socket.send_pairs(packets)
            return
        sealed: list[tuple[bytes, Address]] = []
        last, mine = b"", b""
        for packet, to in packets:
            if packet is not last:
                # Once for all who get it: each of them has it once.
                last, mine = packet, self._seal.seal(packet)
            sealed.append((mine, to))
        self.socket.send_pairs(sealed)

    def close(self) -> None:
        """Closes the socket."""
        self.socket.close()
