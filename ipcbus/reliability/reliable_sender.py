"""The protocol of a session over UDP at its source: takes packets, returns packets to send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ipcbus.reliability.clients import TABLE, Answer, Cause, State
from ipcbus.reliability.send_state import SendState
from ipcbus.reliability.session_sender import SessionSender
from ipcbus.reliability.source_filter import SourceFilter
from ipcbus.wire import udp_packets
from ipcbus.wire.udp_packets import (
    ACK,
    CONNECT,
    DATA_BODY,
    FRAME,
    FRAME_ACK,
    LEAVE,
    NAK,
    Frame,
    FrameAck,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence, Set

    from ipcbus.reliability.clients import Client
    from ipcbus.reliability.rate_limiter import RateLimiter
    from ipcbus.reliability.retransmit_window import RetransmitWindow
    from ipcbus.reliability.send_state import Datagram, Refusal
    from ipcbus.reliability.session_sender import SenderSettings

ALL: Final = None
"""The address of a packet for all clients: it goes to the group, or to each of `addresses`."""

_WithCookie = udp_packets.Ack | udp_packets.Numbers | udp_packets.Client | Frame | FrameAck

FINAL_TIMES: Final = 10
"""The largest number of session messages that announce the end of a session."""
FINAL_INTERVAL: Final = 200_000_000
"""The time between two of them, in ns."""


class ReliableSender(SessionSender):
    """The protocol of one session at its source."""

    def __init__(
        self,
        session_id: int,
        settings: SenderSettings,
        secret: bytes,
        now_ns: int,
        multicast: bool,
        topic_numbers: Callable[[int], tuple[int, int] | None] = lambda topic: None,
        topics_of: Callable[[bytes], Set[int] | None] | None = None,
        is_exempt: Callable[[Hashable], bool] = lambda address: False,
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
            is_exempt: whether the way to an address needs no congestion control, as on one host.
        """
        super().__init__(session_id, settings, secret, topic_numbers)
        self.settings, self._multicast = settings, multicast
        self._send_state = SendState(
            settings.sending,
            now_ns,
            self.counts,
            DATA_BODY.size,
            self._clients,
            multicast=multicast,
            is_exempt=is_exempt,
        )
        self._send_state.has_no_receivers = not multicast
        sending = settings.sending
        self._filter = (
            SourceFilter(session_id, self._clients, topics_of, sending.sm_minimum, sending.sm_maximum)
            if topics_of is not None and not multicast
            else None
        )
        if self._filter is not None:  # a client may ask for what went past it
            self._send_state.drops_received = False
        self._finals_sent: int | None = None
        self._final_ns = 0

    @property
    def source_paced(self) -> bool:
        """Whether the source may overtake its clients."""
        return not self.settings.sending.receiver_paced

    # ---- calls of the session's owner

    def send(self, datagram: bytes, messages: int, send_time_ns: int, now_ns: int) -> None:
        """Takes a datagram of the topic layer, to be sent now or as soon as clients have room and the rate allows it.

        Args:
            datagram: its bytes.
            messages: the number of messages in it.
            send_time_ns: its send time, ns since the epoch.
            now_ns: the time.
        """
        send_state = self._send_state
        body = DATA_BODY.pack(messages, send_time_ns) + datagram
        topics = self._topics_of(body)
        wanted = self._filter is None or self._filter.wanted(topics)
        number = send_state.send(body, now_ns, wanted=wanted)
        if number >= 0:
            self._put_new(number, send_state.window.trail, body, topics, now_ns)
            if send_state.paths is not None:
                self._ask(now_ns)

    @property
    def open_until(self) -> int:
        """The usual case: the position of `window` up to which datagrams may be sent to all at once.

        `sent` takes note of them. 0 when each one has to go to `send`.
        """
        if self._filter is not None or self._packets_out or self._send_state.has_no_receivers:
            return 0
        return self._send_state.open_until

    def renew_limit(self) -> None:
        """Brings `open_until` up to date with what clients have said; otherwise that is left until it is reached."""
        if self._send_state.credit is not None and not self.blocked:
            self._send_state.credit.renew()

    @property
    def window(self) -> RetransmitWindow:
        """The datagrams that can be sent again, each behind DATA_BODY."""
        return self._send_state.window

    def sent(self, count: int, size: int, now_ns: int) -> None:
        """Takes note of datagrams that were added to the window and sent to all.

        Args:
            count: their number.
            size: their bytes, without headers.
            now_ns: the time.
        """
        self._send_state.sent(count, size, now_ns)

    def clear_window(self) -> None:
        """Removes all datagrams from the retransmit window; only while no client is registered."""
        self._send_state.window.clear()

    @property
    def blocked(self) -> bool:
        """Whether a datagram waits for room or for the data rate; the caller should not send another one now."""
        return self._send_state.blocked

    @property
    def is_behind(self) -> bool:
        """Whether a client has yet to get what others have got, since the way to it takes less."""
        return self._send_state.paths is not None and bool(self._send_state.paths.behind)

    @property
    def rate_limited(self) -> bool:
        """Whether a datagram waits for the data rate."""
        return self._send_state.waiting > 0

    @property
    def slowest(self) -> Client | None:
        """The client for whose room the source waits; None when it does not wait for any."""
        return self._send_state.slowest

    def overtake(self, client: Client) -> None:
        """Does not wait for a client any more until it has caught up; it loses what leaves the window."""
        if self._send_state.credit is not None:
            self._send_state.credit.overtake(client)
            self.counts.clients_evicted += 1
            self._evicted.append(client)
            self._put_session_message(client, 0)

    def take(self) -> list[tuple[bytes, Hashable]]:
        """Returns, once, the packets to send now, each with its address, or ALL."""
        found, self._packets_out = self._packets_out, []
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
        if self._finals_sent is None or self.blocked or self.is_behind or self._still_needed:
            return False
        return self._finals_sent >= FINAL_TIMES or not (self._multicast or self.addresses)

    # ---- clients

    def forget(self, client: Client) -> None:
        """Drops a client whose context has died."""
        self._clients.forget(client)
        self._note_receivers()

    @property
    def retransmit_limiter(self) -> RateLimiter:
        """The limit of retransmissions, which frames of control channels share."""
        return self._send_state.retransmit_limiter

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
        if silent := self._clients.turn(now_ns):
            self.counts.clients_silent += silent
            self._send_state.drops_received = False  # they may come back, and go on where they have stopped
        self._note_receivers()
        if self._send_state.paths is not None and self._send_state.paths.turn(now_ns) and self._send_state.credit:
            self._send_state.credit.limit = 0
        self._wait_for_room(now_ns)
        datagrams, session_message_due = self._send_state.turn(now_ns)
        for sent in datagrams:
            self._put_data(sent, now_ns)
        self._put_behind(now_ns)
        self._ask(now_ns)
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
        known = self._clients.get(address)
        begins = known is not None and known.begins
        answer, cookie = self._clients.connect(address, found.cookie, now_ns)
        self._note_receivers()
        if answer is Answer.RESET:
            self.counts.clients_refused += 1
            self._reset(found, address, 0)
            return
        flags = udp_packets.WELCOME | (udp_packets.ADMITTED if answer is Answer.ADMITTED else 0)
        client = self._clients.get(address)
        if client is not None and answer is Answer.ADMITTED:
            client.admitted_ns = now_ns
            if self._send_state.credit is not None:
                self._send_state.credit.admit(client, again=begins)
            if self._send_state.paths is not None and (begins or client.path is None):
                self._send_state.paths.admit(client, now_ns)
            self._put_notice(client)
            flags |= udp_packets.FILTERS if self._filter is not None else 0
            flags |= udp_packets.BEHIND if self._is_behind_question(client, found.nonce) else 0
        self._packets_out.append((self._session_message(flags, cookie, found.nonce, client), address))

    def _from_client(self, found: udp_packets.Packet, address: Hashable, now_ns: int) -> None:
        cookie = found.cookie if isinstance(found, _WithCookie) else 0
        client = self._clients.authenticate(address, cookie, now_ns)
        if client is None:
            self.counts.dgrams_dropped_unproven += 1
            if found.type != LEAVE and TABLE[State.UNKNOWN, Cause.UNPROVEN].answer is Answer.RESET:
                self._reset(found, address, 0)
        elif isinstance(found, udp_packets.Ack):
            self._ack(found, client, now_ns)
        elif isinstance(found, udp_packets.Numbers):
            self._nak(found.numbers, client, now_ns)
        elif isinstance(found, Frame | FrameAck):
            self._take_frame(found, client)
        else:
            self._send_state.drops_received = False
            self._clients.leave(client)
            self._note_receivers()
            self._send_waiting(now_ns)

    def _ack(self, found: udp_packets.Ack, client: Client, now_ns: int) -> None:
        self._answer_about_topics(client, self._take_ack(found, client, self.lead))
        before = client.next, client.limit
        credit, paths = self._send_state.credit, self._send_state.paths
        may_send = paths is not None and paths.answered(client, found.lead, now_ns)
        if credit is None:
            client.next = max(client.next, min(found.next, self.lead))
        elif credit.take(client, found.next, found.room) or may_send:
            self._put_behind(now_ns, client)
            self._send_waiting(now_ns)
        if before != (client.next, client.limit):
            client.progress_ns = now_ns
            self._send_state.drop_received()
        if client.evicted:  # an earlier one may be lost
            self._put_session_message(client, 0)

    def _answer_about_topics(self, client: Client, listed: list[tuple[int, int, int]]) -> None:
        """Answers what a client asks about topics; again when the datagrams that wait now have numbers."""
        if not (listed or client.unsent):
            return
        read, published = self.ring_positions()  # after the numbers of the topics: what they count has been published
        read_lead = self._send_state.read_lead
        # What an earlier stay at this address has asked is not for this one.
        asked = [place for place in client.unsent.values() if client.starts.get(place[1][0]) == place[1][1]]
        client.unsent = {each[0]: (until, each) for until, each in asked if until > read}
        self._put_topics(client, read_lead, [each for until, each in asked if until <= read])
        if read == published:
            self._put_topics(client, read_lead, listed)
            return
        self._put_topics(client, udp_packets.NO_TOPIC, listed)
        for each in listed:
            if each[2] <= udp_packets.NUMBER_MAX:
                client.unsent.setdefault(each[0], (published, each))

    def _is_behind_question(self, client: Client, nonce: int) -> bool:
        """Returns whether a client has yet to get datagrams that were published when it first asked with a nonce."""
        read, published = self.ring_positions()
        if client.question[0] != nonce:
            client.question = nonce, published, -1
        _, until, lead = client.question
        if lead < 0 and read >= until:
            lead = self._send_state.read_lead
            client.question = nonce, until, lead
        return lead < 0 or client.lead_of(self.lead) < lead

    def _send_waiting(self, now_ns: int) -> None:
        for sent in self._send_state.send_waiting(now_ns):
            self._put_data(sent, now_ns)
        self._ask(now_ns)

    def _ask(self, now_ns: int) -> None:
        """Asks the clients for an ACK whose answers tell congestion control how much it may send."""
        paths = self._send_state.paths
        if paths is not None:
            for client in paths.due(now_ns):
                self._put_question(client)

    def _put_question(self, client: Client) -> None:
        self._put_session_message(client, udp_packets.WAITS)

    def _wait_for_room(self, now_ns: int) -> None:
        """Asks the client for which the source waits for an ACK, or lets it fall behind, when that is due."""
        credit, slowest = self._send_state.credit, self._send_state.slowest
        if credit is None or slowest is None:
            return
        if credit.is_too_slow(now_ns):
            self.overtake(slowest)
        elif credit.asks(now_ns):
            if self._send_state.paths is not None:
                self._send_state.paths.asked(slowest, now_ns)
            self._put_question(slowest)

    def _nak(self, numbers: Sequence[int], client: Client, now_ns: int) -> None:
        too_old = self.counts.naks_too_old
        if self._filter is not None:
            answers, numbers = self._filter.answer(client, numbers, self._send_state.window.get)
            self._packets_out += answers
        to = ALL if self._multicast else client.address
        paths = self._send_state.paths
        if paths is not None and paths.lost(client, numbers, now_ns) and self._send_state.credit is not None:
            self._send_state.credit.limit = 0
        sent, refused = self._send_state.nak(numbers, now_ns, to, client.round_trip_ns)
        for each in sent:
            self._put_data(each, now_ns)
        for refusal in refused:
            self._put_refusal(refusal, to)
        self._ask(now_ns)
        if self.counts.naks_too_old != too_old:
            # A client that asks for a datagram that is not held does not know the trail.
            self._put_session_message(client, 0)

    # ---- packets out

    def _put_data(self, sent: Datagram, now_ns: int) -> None:
        if sent.retransmitted:
            if sent.to is ALL or self._clients.get(sent.to) is not None:
                packet = self._data(sent.number, sent.trail, sent.data, udp_packets.AGAIN)
                self._packets_out.append((packet, sent.to))
        else:
            self._put_new(sent.number, sent.trail, sent.data, self._topics_of(sent.data), now_ns)

    def _data(self, number: int, trail: int, body: bytes, flags: int = 0) -> bytes:
        return udp_packets.data_front(self.session_id, number, trail, flags) + body

    def _topics_of(self, body: bytes) -> Set[int] | None:
        return self._filter.topics_of(body) if self._filter is not None else None

    def _put_new(self, number: int, trail: int, body: bytes, topics: Set[int] | None, now_ns: int) -> None:
        """Puts out a new datagram for the clients that are not behind."""
        if self._filter is not None:
            self._packets_out += self._filter.send(number, trail, body, topics, now_ns)
        elif not self._send_state.has_no_receivers:
            packet = self._data(number, trail, body)
            if not self.is_behind:
                self._packets_out.append((packet, ALL))
                return
            clients = self._clients.registered
            self._packets_out += [(packet, client.address) for client in clients if client.lead_of(number + 1) > number]

    def _put_behind(self, now_ns: int, client: Client | None = None) -> None:
        """Puts out what the ways to the clients that are behind take now, or the way to one of them."""
        paths = self._send_state.paths
        if paths is None or not paths.behind:
            return
        if client is None:
            for released, place in paths.behind.release(paths.waits_for):
                if self._filter is not None:
                    self._packets_out += self._filter.notice(released, place)
                    released.filter.passed = 0
            found = paths.behind.next(now_ns)
        elif client.place is not None and client.path is not None:
            found = paths.behind.next_of(client, client.path, now_ns)
        else:
            return
        window = self._send_state.window
        for each, number in found:
            body = window.get(number)
            if body is None:
                continue  # it would have to leave the window before the source waits for the client
            if self._filter is not None:
                self._packets_out += self._filter.send_to(each, number, window.trail, body, now_ns)
            else:
                self._packets_out.append((self._data(number, window.trail, body), each.address))

    def _put_notice(self, client: Client) -> None:
        """Puts out which datagrams are not for a client, before a packet that shows that they were sent."""
        if self._filter is not None:
            self._packets_out += self._filter.notice(client, client.lead_of(self.lead))

    def _put_refusal(self, refusal: Refusal, to: Hashable) -> None:
        for packet in udp_packets.ncfs(self.session_id, refusal.reason, refusal.numbers):
            self._packets_out.append((packet, to))

    def _session_message(self, flags: int, cookie: int, nonce: int, client: Client | None = None) -> bytes:
        lead = self.lead if client is None else max(client.lead_of(self.lead), self.trail)
        ends = self._finals_sent is not None and not self.blocked and lead == self.lead
        flags = flags & ~udp_packets.FINAL | (udp_packets.FINAL if ends else 0)
        return udp_packets.session_message(self.session_id, lead, self.trail, flags, cookie, nonce)

    def _put_session_messages(self, flags: int, each: bool = False) -> None:
        """Puts out a session message for all; for each client, with its cookie, without a group or if `each`."""
        if self._multicast:
            self._packets_out.append((self._session_message(flags, 0, 0), ALL))
        if each or not self._multicast:
            for address in self.addresses:
                client = self._clients.get(address)
                if client is not None:
                    self._put_session_message(client, flags)

    def _put_session_message(self, client: Client, flags: int) -> None:
        """Puts out a session message for one client, which also says whether the source waits for it."""
        self._put_notice(client)
        flags |= udp_packets.EVICTED if client.evicted else 0
        self._packets_out.append((self._session_message(flags, client.cookie, 0, client), client.address))

    def _put_final(self, now_ns: int) -> None:
        if self._finals_sent is None or self.over or self.blocked or now_ns < self._final_ns:
            return
        # A client that is behind has yet to hear of the end for the first time.
        self._finals_sent += not self.is_behind
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
        if self._send_state.paths is not None and self._send_state.paths.behind:
            self._send_state.paths.behind.prune()
