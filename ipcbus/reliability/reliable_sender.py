"""The protocol of a session over UDP at its source: takes packets, returns packets to send."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ipcbus.reliability.clients import TABLE, Answer, Cause, Client, Clients, ClientSettings, State
from ipcbus.reliability.send_state import SendCounts, SendSettings, SendState
from ipcbus.reliability.source_filter import SourceFilter
from ipcbus.wire import udp_packets
from ipcbus.wire.udp_packets import (
    ACK,
    ASKS,
    CONNECT,
    DATA_BODY,
    FRAME,
    FRAME_ACK,
    LEAVE,
    NAK,
    NO_TOPIC,
    Frame,
    FrameAck,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence, Set

    from ipcbus.reliability.rate_limiter import RateLimiter
    from ipcbus.reliability.send_state import Datagram, Refusal

ALL: Final = None
"""The address of a packet for all clients: it goes to the group, or to each of `addresses`."""

_WithCookie = udp_packets.Ack | udp_packets.Numbers | udp_packets.Client | Frame | FrameAck

FINAL_TIMES: Final = 10
"""The largest number of session messages that announce the end of a session."""
FINAL_INTERVAL: Final = 200_000_000
"""The time between two of them, in ns."""


@dataclass(frozen=True, slots=True)
class SenderSettings:
    """The settings of a reliable sender.

    Attributes:
        sending: window, rates, session messages.
        clients: limits and timeouts of clients.
    """

    sending: SendSettings = field(default_factory=SendSettings)
    clients: ClientSettings = field(default_factory=ClientSettings)


@dataclass(slots=True)
class SenderCounts(SendCounts):
    """The counters of a reliable sender.

    Attributes:
        dgrams_dropped_malformed: packets that are invalid, or of a type that a source does not get.
        dgrams_dropped_sid: packets of another session.
        dgrams_dropped_unproven: packets without the cookie of their address: not registered, or forged.
        clients_refused: registrations that were refused, since the session had its largest number of clients.
        clients_silent: clients that were dropped, since no packet came from them.
    """

    dgrams_dropped_malformed: int = 0
    dgrams_dropped_sid: int = 0
    dgrams_dropped_unproven: int = 0
    clients_refused: int = 0
    clients_silent: int = 0


class ReliableSender:
    """The protocol of one session at its source.

    After each call with `now_ns`, `take` returns the packets to send.
    """

    def __init__(
        self,
        session_id: int,
        settings: SenderSettings,
        secret: bytes,
        now_ns: int,
        multicast: bool,
        topic_numbers: Callable[[int], tuple[int, int] | None] = lambda topic: None,
        topics_of: Callable[[bytes], Set[int] | None] | None = None,
    ) -> None:
        """Starts before the first datagram, without clients.

        Args:
            session_id: 32 bits that no other session at this address had lately.
            settings: limits and times.
            secret: the key of the cookies: 16 to 64 bytes that no other process knows.
            now_ns: the time.
            multicast: whether packets for all clients go to a multicast group, not to each client.
            topic_numbers: returns, for a topic, the number that its next message will have, and one below which all
                its messages are published; None for a topic that the session does not carry.
            topics_of: for source-side filtering of a session without a group: returns the topics of a datagram behind
                DATA_BODY, or None when they are not known. Without it each client gets every datagram.
        """
        self.session_id, self.settings = session_id, settings
        self.counts = SenderCounts()
        self._multicast = multicast
        self._send_state = SendState(settings.sending, now_ns, self.counts, DATA_BODY.size)
        self._send_state.has_no_receivers = not multicast
        self._clients = Clients(session_id, settings.clients, secret)
        sending = settings.sending
        self._filter = (
            SourceFilter(session_id, self._clients, topics_of, sending.sm_minimum, sending.sm_maximum)
            if topics_of is not None and not multicast
            else None
        )
        self._packets_out: list[tuple[bytes, Hashable]] = []
        self._channel_packets: list[tuple[Frame | FrameAck, Client]] = []
        self._topic_numbers = topic_numbers
        self._finals_sent: int | None = None
        self._final_ns = 0
        self._still_needed = False

    # ---- calls of the session's owner

    def send(self, datagram: bytes, messages: int, send_time_ns: int, now_ns: int) -> None:
        """Takes a datagram of the topic layer, to be sent now or as soon as the data rate allows it.

        Args:
            datagram: its bytes.
            messages: the number of messages in it.
            send_time_ns: its send time, ns since the epoch.
            now_ns: the time.
        """
        send_state = self._send_state
        body = DATA_BODY.pack(messages, send_time_ns) + datagram
        if self._filter is not None:
            topics = self._filter.topics_of(body)
            number = send_state.send(body, now_ns, wanted=self._filter.wanted(topics))
            if number >= 0:
                self._packets_out += self._filter.send(number, send_state.window.trail, body, topics, now_ns)
            return
        number = send_state.send(body, now_ns)
        if number >= 0 and not send_state.has_no_receivers:
            self._packets_out.append(
                (udp_packets.data_front(self.session_id, number, send_state.window.trail, 0) + body, ALL)
            )

    def clear_window(self) -> None:
        """Removes all datagrams from the retransmit window; only while no client is registered."""
        self._send_state.window.clear()

    @property
    def blocked(self) -> bool:
        """Whether a datagram waits for the data rate; the caller should not send another one now."""
        return self._send_state.blocked

    def take(self) -> list[tuple[bytes, Hashable]]:
        """Returns, once, the packets to send now, each with its address, or ALL."""
        found, self._packets_out = self._packets_out, []
        return found

    def take_channel_packets(self) -> list[tuple[Frame | FrameAck, Client]]:
        """Returns, once, the packets of control channels that came, with their clients."""
        found, self._channel_packets = self._channel_packets, []
        return found

    def end(self, now_ns: int, *, still_needed: bool = False) -> None:
        """Announces the end of the session to the clients, several times while `turn` is called.

        Args:
            now_ns: the time.
            still_needed: whether to go on after the last time, because a receiver may still register, or still miss
                datagrams; each call sets it.
        """
        self._still_needed = still_needed
        if self._finals_sent is None:
            self._finals_sent, self._final_ns = 0, now_ns
            self.turn(now_ns)

    @property
    def over(self) -> bool:
        """Whether the session is done: after `end`, when all clients have left or got enough announcements."""
        if self._finals_sent is None or self.blocked or self._still_needed:
            return False
        return self._finals_sent >= FINAL_TIMES or not (self._multicast or self.addresses)

    # ---- clients

    @property
    def addresses(self) -> tuple[Hashable, ...]:
        """The addresses to which a packet for ALL goes when the session has no group."""
        return self._clients.addresses

    @property
    def clients(self) -> tuple[Client, ...]:
        """The registered clients whose context is known."""
        return self._clients.known

    def client_at(self, address: Hashable) -> Client | None:
        """Returns the client that is registered at an address."""
        return self._clients.get(address)

    def forget(self, client: Client) -> None:
        """Drops a client whose context has died."""
        self._clients.forget(client)
        self._note_receivers()

    @property
    def retransmit_limiter(self) -> RateLimiter:
        """The limit of retransmissions, which frames of control channels share."""
        return self._send_state.retransmit_limiter

    @property
    def changes(self) -> int:
        """A number that grows when a client comes, goes, or receives other topics."""
        return self._clients.changes

    # ---- window, for statistics

    @property
    def lead(self) -> int:
        """The number that the next datagram gets."""
        return self._send_state.window.lead

    @property
    def trail(self) -> int:
        """The oldest number in the retransmit window."""
        return self._send_state.window.trail

    def snapshot(self) -> dict[str, int]:
        """Returns the counters and the present values, by their names in the statistics."""
        send_state = self._send_state
        counts = {name: getattr(self.counts, name) for name in self.counts.__dataclass_fields__}
        filtered = self._filter.filtered if self._filter is not None else 0
        return counts | {
            "dgrams_filtered": filtered,
            "num_clients": len(self.addresses),
            "lead": self.lead,
            "trail": self.trail,
            "txw_msgs": len(send_state.window),
            "txw_bytes": send_state.window.bytes,
            "rctlr_data_msgs": send_state.waiting,
            "rctlr_rx_msgs": send_state.queued,
        }

    # ---- time and packets

    def turn(self, now_ns: int) -> None:
        """Runs the timers that have expired."""
        self.counts.clients_silent += self._clients.turn(now_ns)
        self._note_receivers()
        datagrams, session_message_due = self._send_state.turn(now_ns)
        for sent in datagrams:
            self._put_data(sent, now_ns)
        if self._filter is not None:
            self._packets_out += self._filter.turn(self.lead, now_ns)
        if self._finals_sent is not None:
            self._put_final(now_ns)
        elif session_message_due:
            self._put_session_messages(0)

    def next_ns(self, now_ns: int) -> int | None:
        """Returns when to call `turn`; None when nothing is due before the next datagram or packet."""
        if self.over:
            return None
        final = self._final_ns if self._finals_sent is not None and not self.blocked else None
        notice = self._filter.next_ns if self._filter is not None else None
        times = (self._send_state.next_ns(now_ns), self._clients.next_ns, final, notice)
        return min((time for time in times if time is not None), default=None)

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> None:
        """Takes a packet from the network; invalid ones are counted."""
        found = udp_packets.parse(packet)
        if found is None or found.type not in (CONNECT, ACK, NAK, LEAVE, FRAME, FRAME_ACK):
            self.counts.dgrams_dropped_malformed += 1
        elif found.session_id != self.session_id:
            self.counts.dgrams_dropped_sid += 1
            self._reset(found, address, udp_packets.GONE)
        elif isinstance(found, udp_packets.Connect):
            self._connect(found, address, now_ns)
        else:
            self._from_client(found, address, now_ns)

    def _connect(self, found: udp_packets.Connect, address: Hashable, now_ns: int) -> None:
        if self.over:
            self._reset(found, address, udp_packets.GONE)
            return
        answer, cookie = self._clients.connect(address, found.cookie, now_ns)
        self._note_receivers()
        if answer is Answer.RESET:
            self.counts.clients_refused += 1
            self._reset(found, address, 0)
            return
        flags = udp_packets.WELCOME | (udp_packets.ADMITTED if answer is Answer.ADMITTED else 0)
        client = self._clients.get(address)
        if client is not None and answer is Answer.ADMITTED:
            self._put_notice(client)
        self._packets_out.append((self._session_message(flags, cookie, found.nonce), address))

    def _from_client(self, found: udp_packets.Packet, address: Hashable, now_ns: int) -> None:
        cookie = found.cookie if isinstance(found, _WithCookie) else 0
        client = self._clients.authenticate(address, cookie, now_ns)
        if client is None:
            self.counts.dgrams_dropped_unproven += 1
            if found.type != LEAVE and TABLE[State.UNKNOWN, Cause.UNPROVEN].answer is Answer.RESET:
                self._reset(found, address, 0)
        elif isinstance(found, udp_packets.Ack):
            self._ack(found, client)
        elif isinstance(found, udp_packets.Numbers):
            self._nak(found.numbers, client, now_ns)
        elif isinstance(found, Frame | FrameAck):
            if client.state is State.KNOWN:
                self._channel_packets.append((found, client))
        else:
            self._clients.leave(client)
            self._note_receivers()

    def _ack(self, found: udp_packets.Ack, client: Client) -> None:
        # Looked up before the client counts as a receiver: messages that are sent to it have no lower numbers.
        asked = found.topics if found.flags & ASKS else ()
        places = [(topic, *(self._topic_numbers(topic) or (NO_TOPIC, NO_TOPIC))) for topic in asked]
        self._clients.ack(client, found, self.lead)
        listed = [(topic, client.starts.setdefault(topic, start), published) for topic, start, published in places]
        self._packets_out += [
            (packet, client.address) for packet in udp_packets.topics(self.session_id, client.cookie, listed)
        ]

    def _nak(self, numbers: Sequence[int], client: Client, now_ns: int) -> None:
        too_old = self.counts.naks_too_old
        if self._filter is not None:
            answers, numbers = self._filter.answer(client, numbers, self._send_state.window.get)
            self._packets_out += answers
        sent, refused = self._send_state.nak(numbers, now_ns)
        for each in sent:
            self._put_data(each, now_ns)
        for refusal in refused:
            self._put_refusal(refusal)
        if self.counts.naks_too_old != too_old:
            # A client that asks for a datagram that is not held does not know the trail.
            self._put_notice(client)
            self._packets_out.append((self._session_message(0, client.cookie, 0), client.address))

    # ---- packets out

    def _put_data(self, sent: Datagram, now_ns: int) -> None:
        if self._filter is not None:
            if sent.retransmitted:
                self._packets_out += self._filter.send_again(sent.number, sent.trail, sent.data)
            else:
                topics = self._filter.topics_of(sent.data)
                self._packets_out += self._filter.send(sent.number, sent.trail, sent.data, topics, now_ns)
        elif not self._send_state.has_no_receivers:
            front = udp_packets.data_front(
                self.session_id, sent.number, sent.trail, udp_packets.AGAIN if sent.retransmitted else 0
            )
            self._packets_out.append((front + sent.data, ALL))

    def _put_notice(self, client: Client) -> None:
        """Puts out which datagrams are not for a client, before a packet that shows that they were sent."""
        if self._filter is not None:
            self._packets_out += self._filter.notice(client, self.lead)

    def _put_refusal(self, refusal: Refusal) -> None:
        for packet in udp_packets.ncfs(self.session_id, refusal.reason, refusal.numbers):
            self._packets_out.append((packet, ALL))

    def _session_message(self, flags: int, cookie: int, nonce: int) -> bytes:
        final = udp_packets.FINAL if self._finals_sent is not None and not self.blocked else 0
        return udp_packets.session_message(self.session_id, self.lead, self.trail, flags | final, cookie, nonce)

    def _put_session_messages(self, flags: int, each: bool = False) -> None:
        """Puts out a session message for all; for each client, with its cookie, without a group or if `each`."""
        if self._multicast:
            self._packets_out.append((self._session_message(flags, 0, 0), ALL))
        if each or not self._multicast:
            for address in self.addresses:
                client = self._clients.get(address)
                if client is not None:
                    self._put_notice(client)
                    self._packets_out.append((self._session_message(flags, client.cookie, 0), address))

    def _put_final(self, now_ns: int) -> None:
        if self._finals_sent is None or self.over or self.blocked or now_ns < self._final_ns:
            return
        self._finals_sent += 1
        self.counts.sms_sent += 1
        self._final_ns = now_ns + FINAL_INTERVAL
        self._put_session_messages(udp_packets.FINAL, each=True)

    def _reset(self, found: udp_packets.Packet, address: Hashable, flags: int) -> None:
        if isinstance(found, udp_packets.Connect):
            self._packets_out.append((udp_packets.reset(found.session_id, found.nonce, flags), address))
        elif isinstance(found, udp_packets.Ack | udp_packets.Numbers | Frame | FrameAck):
            self._packets_out.append((udp_packets.reset(found.session_id, found.cookie, flags), address))

    def _note_receivers(self) -> None:
        self._send_state.has_no_receivers = not (self._multicast or self._clients.addresses)
