"""What a session over UDP and one over TCP share at the source: clients, topics, packets of control channels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipcbus.reliability.clients import Client, Clients, ClientSettings, State
from ipcbus.reliability.send_state import SendCounts, SendSettings
from ipcbus.wire import udp_packets
from ipcbus.wire.udp_packets import ASKS, NO_TOPIC, Frame, FrameAck

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


@dataclass(frozen=True, slots=True)
class SenderSettings:
    """The settings of the protocol at a source.

    Attributes:
        sending: window, rates, session messages.
        clients: limits and timeouts of clients.
    """

    sending: SendSettings = field(default_factory=SendSettings)
    clients: ClientSettings = field(default_factory=ClientSettings)


@dataclass(slots=True)
class SenderCounts(SendCounts):
    """The counters of the protocol at a source.

    Attributes:
        dgrams_dropped_malformed: packets that are invalid, or of a type that a source does not get.
        dgrams_dropped_sid: packets of another session.
        dgrams_dropped_unproven: packets without the cookie of their address: not registered, or forged.
        clients_refused: registrations that were refused, since the session had its largest number of clients.
        clients_silent: clients that were dropped, since no packet came from them, or none that proves that they read.
        clients_evicted: clients that kept the source waiting for too long, and were overtaken.
    """

    dgrams_dropped_malformed: int = 0
    dgrams_dropped_sid: int = 0
    dgrams_dropped_unproven: int = 0
    clients_refused: int = 0
    clients_silent: int = 0
    clients_evicted: int = 0


class SessionSender:
    """The part of the protocol at one source that does not depend on the network.

    After each call with `now_ns`, `take` returns the packets to send.
    """

    def __init__(
        self,
        session_id: int,
        settings: SenderSettings,
        secret: bytes,
        topic_numbers: Callable[[int], tuple[int, int] | None],
    ) -> None:
        """Starts without clients; the arguments are those of `ReliableSender`."""
        self.session_id = session_id
        self.counts = SenderCounts()
        self._clients = Clients(session_id, settings.clients, secret)
        self._topic_numbers = topic_numbers
        self._packets_out: list[tuple[bytes, Hashable]] = []
        self._channel_packets: list[tuple[Frame | FrameAck, Client]] = []
        self._still_needed = False
        self._evicted: list[Client] = []
        self.ring_positions: Callable[[], tuple[int, int]] = lambda: (0, 0)
        """Returns the positions in the session's ring up to which the owner has read, and to which is published."""

    def take_channel_packets(self) -> list[tuple[Frame | FrameAck, Client]]:
        """Returns, once, the packets of control channels that came, with their clients."""
        found, self._channel_packets = self._channel_packets, []
        return found

    # ---- clients

    @property
    def addresses(self) -> tuple[Hashable, ...]:
        """The addresses of all clients; a packet for all goes to each of them when the session has no group."""
        return self._clients.addresses

    @property
    def clients(self) -> tuple[Client, ...]:
        """The registered clients whose context is known."""
        return self._clients.known

    @property
    def newcomers(self) -> tuple[Client, ...]:
        """The registered clients that have yet to say who they are."""
        return self._clients.newcomers

    def client_at(self, address: Hashable) -> Client | None:
        """Returns the client that is registered at an address."""
        return self._clients.get(address)

    def take_evicted(self) -> list[Client]:
        """Returns, once, the clients that were overtaken because they kept the source waiting for too long."""
        found, self._evicted = self._evicted, []
        return found

    @property
    def changes(self) -> int:
        """A number that grows when a client comes, goes, or receives other topics."""
        return self._clients.changes

    # ---- packets

    def _take_ack(self, found: udp_packets.Ack, client: Client, lead: int) -> list[tuple[int, int, int]]:
        """Takes who a client is and what it receives; returns what it asks about topics, as `Topics.topics`."""
        # Looked up before the client counts as a receiver: messages that are sent to it have no lower numbers.
        asked = found.topics if found.flags & ASKS else ()
        places = [(topic, *(self._topic_numbers(topic) or (NO_TOPIC, NO_TOPIC))) for topic in asked]
        self._clients.ack(client, found, lead)
        return [(topic, client.starts.setdefault(topic, start), published) for topic, start, published in places]

    def _put_topics(self, client: Client, lead: int, listed: list[tuple[int, int, int]]) -> None:
        """Answers a client that asks about topics; `lead` is as in `Topics`."""
        self._packets_out += [
            (packet, client.address) for packet in udp_packets.topics(self.session_id, client.cookie, lead, listed)
        ]

    def _take_frame(self, found: Frame | FrameAck, client: Client) -> None:
        """Keeps a packet of the control channel of a client whose context is known."""
        if client.state is State.KNOWN:
            self._channel_packets.append((found, client))
