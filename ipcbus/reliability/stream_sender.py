"""The protocol of a session over TCP at its source: takes packets, returns packets to send.

A connection neither loses nor reorders, so that nothing is asked for again: the source keeps one buffer of datagrams,
and for each client the number of the next one to send to it. A client that comes back goes on where it was cut off, as
far as the buffer still holds that. In both directions an empty packet stands for the end of the connection.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ipcbus.reliability.clients import State
from ipcbus.reliability.rate_limiter import RateLimiter
from ipcbus.reliability.session_messages import SessionMessages
from ipcbus.reliability.session_sender import SenderSettings, SessionSender
from ipcbus.wire import udp_packets
from ipcbus.wire.udp_packets import (
    ACK,
    CONNECT,
    DATA_BODY,
    DATA_FRONT,
    DATA_HEADER,
    FRAME,
    FRAME_ACK,
    LEAVE,
    PASSED_MAX,
    PASSED_SHIFT,
    Ack,
    Frame,
    FrameAck,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Set
    from typing import Literal

    from ipcbus.reliability.clients import Client

CLOSE: Final = b""
"""The packet that stands for the end of a connection."""
UNSENT_MAX: Final = 1 << 18
"""Bytes that a connection has taken and not sent, above which it gets no more datagrams."""
_CONTROL_MAX: Final = UNSENT_MAX + (1 << 20)
"""Bytes that a connection has not sent, above which it is ended: its client asks and does not read the answers."""
_ANSWERS_MAX: Final = 64
"""Answers that wait for a client; what it asks beyond that it has to ask again."""
_ENDING_NS: Final = 10_000_000_000
"""Longest time for which a session that has ended waits for a client that takes nothing of what is buffered."""
_FIRST_ACK_NS: Final = 1_000_000_000
"""Time for which a client that has not proven itself keeps its place although others want one."""


@dataclass(frozen=True, slots=True)
class StreamSettings(SenderSettings):
    """The settings of a session over TCP.

    Attributes:
        behavior: what happens when a client has `buffer_max` bytes to take. `normal`: nothing more is sent to
            anyone until it has taken some; `source_paced`: it does not get what comes then, until it has taken what is
            buffered; `bounded_latency`: it does not get the oldest of what is buffered.
        buffer_max: largest number of bytes that wait for a client, beside those in its connection.
    """

    behavior: Literal["normal", "bounded_latency", "source_paced"] = "normal"
    buffer_max: int = 65536


@dataclass(slots=True)
class _Answer:
    """An answer that waits for what was published before it.

    Attributes:
        position: the position in the ring up to which the source has to read first.
        packet: its bytes.
        number: the number up to which the client gets datagrams first; -1 while they are not all read.
    """

    position: int
    packet: bytes
    number: int = -1


@dataclass(slots=True)
class _Place:
    """How far a client has got.

    Attributes:
        next: the number of the next datagram to send to it.
        end: the number after the last one that it may get; None without a limit.
        taken: the bytes of all datagrams before `next`.
        begun_ns: when it asked to be registered.
        passed: the number of datagrams just before `next` that were not for it.
        is_told: whether it has got the end of the session.
        proven: whether it has read an answer and sent the cookie in it back: a client that does not read gets no
            datagrams, and the source does not wait for it.
        resumes: whether it goes on where an earlier connection was cut off.
        overtaken: whether it has kept the source waiting for too long: the source does not wait for it until it has
            caught up, and it loses what leaves the window.
        seen: what showed at the last look how far it is.
        blocks_since_ns: when it began to keep the source waiting without taking anything; None while it does not.
        answers: what it has asked for, behind what was published then.
        shown: the topics of which it has heard where they begin, before data that waited for it.
    """

    next: int
    taken: int
    begun_ns: int
    end: int | None = None
    passed: int = 0
    is_told: bool = False
    proven: bool = False
    resumes: bool = False
    overtaken: bool = False
    seen: tuple[int, int, int] = (-1, 0, 0)
    blocks_since_ns: int | None = None
    answers: deque[_Answer] = field(default_factory=deque)
    shown: Set[int] = field(default_factory=frozenset)


class StreamSender(SessionSender):
    """The protocol of one session at its source; its owner calls it like a `ReliableSender`."""

    def __init__(
        self,
        session_id: int,
        settings: StreamSettings,
        secret: bytes,
        now_ns: int,
        unsent: Callable[[Hashable], int],
        topic_numbers: Callable[[int], tuple[int, int] | None] = lambda topic: None,
        topics_of: Callable[[bytes], Set[int] | None] | None = None,
    ) -> None:
        """Starts before the first datagram, without clients.

        Args:
            session_id: 32 bits that no other session at this address had lately.
            settings: limits and times.
            secret: the key of the cookies: 16 to 64 bytes that no other process knows.
            now_ns: the time.
            unsent: returns how many bytes the connection to a client has taken and not sent.
            topic_numbers: as in `ReliableSender`.
            topics_of: for source-side filtering: returns the topics of a DATA packet, or None when they are not known.
        """
        super().__init__(session_id, settings, secret, topic_numbers)
        self.settings = settings
        self.retransmit_limiter = RateLimiter(0, settings.sending.rate_interval)
        """Frames of control channels have no limit."""
        self.lead = 0
        """The number that the next datagram gets."""
        self.trail = 0
        """The oldest number that is held."""
        self._held: dict[int, bytes] = {}
        self._held_bytes = self._bytes = 0
        self._held_max = max(settings.sending.window_size, settings.buffer_max + UNSENT_MAX)
        self._unsent, self._topics_of = unsent, topics_of
        self._places: dict[Hashable, _Place] = {}
        self._session_messages = SessionMessages(settings.sending.sm_minimum, settings.sending.sm_maximum, now_ns)
        self._waits = settings.behavior == "normal"
        self._blocks_ns: int | None = None
        """When the first client for which the source waits has kept it waiting for too long."""
        self._ended_ns: int | None = None
        self._filtered = 0

    @property
    def source_paced(self) -> bool:
        """Whether the source may overtake its clients."""
        return not self._waits

    # ---- calls of the session's owner

    def send(self, datagram: bytes, messages: int, send_time_ns: int, now_ns: int) -> None:
        """Takes a datagram of the topic layer; the arguments are those of `ReliableSender.send`."""
        number = self.lead
        # Nothing older is offered: what a client has not got by now it does not get over this connection.
        front = udp_packets.data_front(self.session_id, number, number, 0)
        self.add(b"".join((front, DATA_BODY.pack(messages, send_time_ns), datagram)), now_ns)

    def add(self, packet: bytes, now_ns: int) -> bool:
        """Takes the DATA packet with the number `lead`; returns whether to call `take` before the next one."""
        number, size = self.lead, len(packet)
        self._held[number] = packet
        self.lead = number + 1
        self._held_bytes += size
        self._bytes += size
        self._trim()
        self.counts.msgs_sent += 1
        self.counts.bytes_sent += size - DATA_HEADER
        self._session_messages.sent(now_ns)
        if self._waits:
            return self.blocked
        self._limit_buffers(number)
        return True

    @property
    def is_level(self) -> bool:
        """Whether there are clients, and each has got all there is: datagrams may go to all at once (`sent`)."""
        if self._topics_of is not None or self._packets_out:
            return False
        for place in self._places.values():
            if place.next != self.lead or not place.proven or place.answers or place.passed:
                return False
        return bool(self._places)

    @property
    def targets(self) -> list[Hashable]:
        """The addresses to which datagrams go."""
        return list(self._places)

    def sent(self, packets: list[bytes], now_ns: int) -> None:
        """Takes the DATA packets with the numbers from `lead` on, which were sent to all clients."""
        self._held.update(enumerate(packets, self.lead))
        self.lead += len(packets)
        size = sum(map(len, packets))
        self._bytes += size
        self._held_bytes += size
        self._trim()
        self.counts.msgs_sent += len(packets)
        self.counts.bytes_sent += size - DATA_HEADER * len(packets)
        self._session_messages.sent(now_ns)
        for place in self._places.values():
            place.next, place.taken = self.lead, self._bytes

    def _trim(self) -> None:
        """Drops the oldest datagrams above the size of the window, but not the last one."""
        while self._held_bytes > self._held_max and self.trail < self.lead - 1:
            self.trail += 1  # first: Ctrl-C may raise between any two lines
            self._held_bytes -= len(self._held.pop(self.trail - 1, b""))

    def _limit_buffers(self, number: int) -> None:
        """Takes from clients that have too much to take what the behavior says."""
        most = self.settings.buffer_max
        for address, place in self._places.items():
            if self._bytes - place.taken <= most or place.next == number or not place.proven:
                continue
            if self.settings.behavior == "source_paced":
                place.end = number if place.end is None else place.end
                continue
            self._put_passed(address, place, self._packets_out)
            while self._bytes - place.taken > most and place.next < number:
                place.taken += len(self._held[place.next])
                place.next += 1

    def clear_window(self) -> None:
        """Forgets all datagrams; only while there are no clients."""
        self._held.clear()
        self._held_bytes, self.trail = 0, self.lead

    @property
    def blocked(self) -> bool:
        """Whether a client has too much to take; the caller should not send another datagram now."""
        if not self._waits:
            return False
        least = self._bytes - self.settings.buffer_max
        for place in self._places.values():  # noqa: SIM110 - for each datagram; `any` takes four times as long
            if place.taken < least and place.proven and not place.overtaken:
                return True
        return False

    rate_limited = is_behind = False  # TCP paces itself

    @property
    def slowest(self) -> Client | None:
        """The client for which the source waits and that has got least; None when it does not wait for any."""
        if not self.blocked:
            return None
        waited = [(place.next, address) for address, place in self._places.items() if self._blocks(place)]
        return self._clients.get(min(waited, key=lambda each: each[0])[1])

    def _blocks(self, place: _Place) -> bool:
        """Returns whether the source waits for a client."""
        has_much = place.taken < self._bytes - self.settings.buffer_max
        return self._waits and has_much and place.proven and not place.overtaken

    def overtake(self, client: Client) -> None:
        """Does not wait for a client any more until it has caught up; it loses what leaves the window."""
        self._places[client.address].overtaken = True
        self.counts.clients_evicted += 1
        self._evicted.append(client)

    def take(self) -> list[tuple[bytes, Hashable]]:
        """Returns, once, the packets to send now, each with its address."""
        found, self._packets_out = self._packets_out, []
        for address, place in self._places.items():
            if place.next < self.lead and place.proven:
                self._take_datagrams(address, place, found)
            if place.answers and self._unsent(address) < UNSENT_MAX:
                self._take_answers(address, place, found)
        return found

    def _take_answers(self, address: Hashable, place: _Place, found: list[tuple[bytes, Hashable]]) -> None:
        """Takes what a client has asked for, behind what was published then: it counts what does not come before."""
        position, _ = self.ring_positions()
        for answer in place.answers:
            if answer.number < 0 and answer.position <= position:
                answer.number = self.lead
        while place.answers and 0 <= place.answers[0].number <= place.next:
            found.append((place.answers.popleft().packet, address))

    def _answer(self, place: _Place, packet: bytes) -> None:
        if len(place.answers) < _ANSWERS_MAX:
            place.answers.append(_Answer(self.ring_positions()[1], packet))

    def _take_datagrams(self, address: Hashable, place: _Place, found: list[tuple[bytes, Hashable]]) -> None:
        room = UNSENT_MAX - self._unsent(address)
        client = self._clients.get(address) if self._topics_of is not None else None
        while room > 0 and place.next < self.lead:
            if place.next == place.end or place.next < self.trail:
                self._put_passed(address, place, found)
                first = self.trail if place.end is None else self.lead - 1
                place.next, place.end = first, None
                place.taken = self._bytes - (len(self._held[first]) if first > self.trail else self._held_bytes)
            number = place.next
            packet = self._held[number]
            place.taken += len(packet)
            if client is not None and self._topics_of is not None:
                if not client.filter.wants(self._topics_of(packet)):
                    place.passed += 1
                    place.next = number + 1
                    self._filtered += 1
                    continue
                if place.passed > PASSED_MAX:
                    self._put_passed(address, place, found)
                if place.passed:
                    flags = place.passed << PASSED_SHIFT
                    packet = udp_packets.data_front(self.session_id, number, number, flags) + packet[DATA_FRONT.size :]
                    place.passed = 0
            place.next = number + 1
            found.append((packet, address))
            room -= len(packet)

    def _put_passed(self, address: Hashable, place: _Place, found: list[tuple[bytes, Hashable]]) -> None:
        """Puts out which datagrams just before the next one are not for a client."""
        client = self._clients.get(address)
        if place.passed and client is not None:
            ranges = [(place.next - place.passed, place.passed)]
            found += [(packet, address) for packet in udp_packets.passed(self.session_id, client.cookie, ranges)]
            place.passed = 0

    def end(self, now_ns: int, *, still_needed: bool = False) -> None:
        """Announces the end of the session to each client, behind the last datagram.

        Args:
            now_ns: the time.
            still_needed: whether a receiver may still come back; each call sets it.
        """
        self._still_needed = still_needed
        if self._ended_ns is None:
            self._ended_ns = now_ns
        self.turn(now_ns)

    @property
    def over(self) -> bool:
        """Whether the session is done: after `end`, when all clients have left."""
        return self._ended_ns is not None and not self._still_needed and not self._places

    # ---- clients

    def forget(self, client: Client) -> None:
        """Drops a client whose context has died, and its connection."""
        self._clients.forget(client)
        self._keep_places()

    def snapshot(self) -> dict[str, int]:
        """Returns the counters and the present values, by their names in the statistics."""
        counts = {name: getattr(self.counts, name) for name in self.counts.__dataclass_fields__}
        waiting = [
            self._bytes - place.taken + self._unsent(address) for address, place in self._places.items() if place.proven
        ]
        return counts | {
            "dgrams_filtered": self._filtered,
            "num_clients": len(self._places),
            "bytes_buffered": sum(waiting),
            "lead": self.lead,
            "trail": self.trail,
            "txw_msgs": len(self._held),
            "txw_bytes": self._held_bytes,
        }

    # ---- time and packets

    def turn(self, now_ns: int) -> None:
        """Runs the timers that have expired."""
        self.counts.clients_silent += self._clients.turn(now_ns)
        self._look_at_clients(now_ns)
        if self._ended_ns is not None:
            self._tell_end(now_ns)
        self._keep_places()
        if self._places and self._session_messages.due(now_ns):
            self.counts.sms_sent += 1
            for address, place in self._places.items():
                client = self._clients.get(address)
                if client is not None and place.next == self.lead:
                    self._put_passed(address, place, self._packets_out)
                    self._put_session_message(client, 0)

    def _look_at_clients(self, now_ns: int) -> None:
        """Notes who takes something; drops who does not prove that it reads, overtakes who takes nothing."""
        self._blocks_ns = None
        evict_after = self.settings.sending.evict_after
        for address, place in self._places.items():
            client, unsent = self._clients.get(address), self._unsent(address)
            if client is None:
                continue
            if unsent > _CONTROL_MAX:
                self._clients.forget(client)
                continue
            if not place.proven:
                if now_ns - place.begun_ns >= self.settings.clients.activity_timeout:
                    self.counts.clients_silent += 1
                    self._clients.forget(client)
                continue
            seen = (place.next, unsent, min(client.lead, place.next))
            moves, place.seen = seen != place.seen, seen
            if moves:
                client.progress_ns = now_ns
            if not self._blocks(place):
                place.blocks_since_ns = None
                place.overtaken &= place.taken < self._bytes - self.settings.buffer_max
                continue
            if moves or place.blocks_since_ns is None:
                place.blocks_since_ns = now_ns
            if evict_after:
                if now_ns - place.blocks_since_ns >= evict_after:
                    self.overtake(client)
                    continue
                due_ns = place.blocks_since_ns + evict_after
                self._blocks_ns = due_ns if self._blocks_ns is None else min(self._blocks_ns, due_ns)

    def _tell_end(self, now_ns: int) -> None:
        """Tells the clients that have everything that the session has ended; drops those that take nothing any more."""
        for address, place in self._places.items():
            client = self._clients.get(address)
            if client is None:
                continue
            has_all = place.next == self.lead or not (place.proven or place.resumes)
            if has_all and not place.is_told:
                place.is_told = True
                self._put_passed(address, place, self._packets_out)
                self._put_session_message(client, udp_packets.FINAL)
            elif self._ended_ns is not None and now_ns - max(self._ended_ns, client.progress_ns) > _ENDING_NS:
                self._clients.forget(client)

    def next_ns(self, now_ns: int) -> int | None:
        """Returns when to call `turn`; None when nothing is due before the next datagram or packet."""
        del now_ns
        times = (self._clients.next_ns, self._session_messages.next_ns if self._places else None, self._blocks_ns)
        return min((time for time in times if time is not None), default=None)

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> None:
        """Takes a packet of a connection; invalid ones are counted, and end the connection."""
        if packet == CLOSE:
            client = self._clients.get(address)
            if client is not None:
                self._clients.leave(client)
            self._places.pop(address, None)
            return
        found = udp_packets.parse(packet)
        if found is None or found.type not in (CONNECT, ACK, LEAVE, FRAME, FRAME_ACK):
            self.counts.dgrams_dropped_malformed += 1
            self._close(address)
        elif found.session_id != self.session_id:
            self.counts.dgrams_dropped_sid += 1
            self._refuse(found, address)
        elif isinstance(found, udp_packets.Connect):
            self._connect(found, address, now_ns)
        else:
            self._from_client(found, address, now_ns)

    def _connect(self, found: udp_packets.Connect, address: Hashable, now_ns: int) -> None:
        """Registers a client, or answers one that asks how far the source has sent."""
        if self.over:
            self._refuse(found, address)
            return
        known = self._clients.get(address)
        proof = self._clients.cookie(address, now_ns) if known is None else known.cookie
        self._clients.connect(address, proof, now_ns)  # the handshake of TCP has proven the address
        client = self._clients.get(address)
        if client is None and self._make_room(now_ns):
            self._clients.connect(address, proof, now_ns)
            client = self._clients.get(address)
        if client is None:
            self.counts.clients_refused += 1
            self._packets_out.append((udp_packets.reset(self.session_id, found.nonce, 0), address))
            self._close(address)
            return
        place = self._places.get(address)
        if place is None:
            first = self.lead if not found.cookie else max(self.trail, min(found.cookie - 1, self.lead))
            later = sum(len(self._held[number]) for number in range(first, self.lead))
            place = self._places[address] = _Place(first, self._bytes - later, now_ns, resumes=bool(found.cookie))
            # To this client, the trail is the first number that is still to come.
            filters = udp_packets.FILTERS if self._topics_of is not None else 0
            self._put_session_message(client, udp_packets.WELCOME | udp_packets.ADMITTED | filters, first, found.nonce)
        else:
            self._put_passed(address, place, self._packets_out)
            self._put_session_message(client, udp_packets.WELCOME | udp_packets.ADMITTED, place.next, found.nonce)
            self._answer(place, self._packets_out.pop()[0])
            read, published = self.ring_positions()
            if read < published and place.next == self.lead and self._unsent(address) < UNSENT_MAX:
                # The answer waits with the source, perhaps for another client. This one hears that the source lives.
                self._put_session_message(client, 0)

    def _make_room(self, now_ns: int) -> bool:
        """Lets the first client go that was to prove itself and has not; returns whether there was one."""
        for address, place in self._places.items():
            if not place.proven and now_ns - place.begun_ns >= _FIRST_ACK_NS:
                self.counts.clients_silent += 1
                self._close(address)
                return True
        return False

    def _from_client(self, found: udp_packets.Packet, address: Hashable, now_ns: int) -> None:
        cookie = found.cookie if isinstance(found, Ack | Frame | FrameAck | udp_packets.Client) else 0
        client = self._clients.authenticate(address, cookie, now_ns)
        if client is None:
            self.counts.dgrams_dropped_unproven += 1
            self._close(address)
        elif isinstance(found, Ack):
            self._acked(found, client, self._places[address])
        elif isinstance(found, Frame | FrameAck):
            self._take_frame(found, client)
        else:
            self._clients.leave(client)
            self._keep_places()

    def _acked(self, found: Ack, client: Client, place: _Place) -> None:
        """Takes an ACK; with the first one, a client begins to get datagrams."""
        listed = self._take_ack(found, client, self.lead)
        if not place.proven and client.state is State.KNOWN:
            place.proven = True
            if not place.resumes:
                place.passed, place.next = self.lead - place.next, self.lead  # what came before its topics are known
                place.taken = self._bytes
                self._put_passed(client.address, place, self._packets_out)
            elif place.next < self.trail:
                place.next, place.taken = self.trail, self._bytes - self._held_bytes
        if place.next < self.lead:
            # Where topics begin, it hears at once: it holds back what comes until it knows that. Once, as it may not
            # read for long, and ask often.
            begun = [(topic, start, udp_packets.NO_TOPIC) for topic, start, _ in listed if topic not in place.shown]
            self._put_topics(client, 0, begun)
            place.shown = (place.shown | {topic for topic, _, _ in begun}) & client.topics
        for packet in udp_packets.topics(self.session_id, client.cookie, 0, listed):
            self._answer(place, packet)

    # ---- packets out

    def _put_session_message(self, client: Client, flags: int, trail: int | None = None, nonce: int = 0) -> None:
        oldest = self.trail if trail is None else trail
        packet = udp_packets.session_message(self.session_id, self.lead, oldest, flags, client.cookie, nonce)
        self._packets_out.append((packet, client.address))

    def _refuse(self, found: udp_packets.Packet, address: Hashable) -> None:
        """Says that the session does not exist any more."""
        nonce = found.nonce if isinstance(found, udp_packets.Connect) else 0
        self._packets_out.append((udp_packets.reset(found.session_id, nonce, udp_packets.GONE), address))
        self._close(address)

    def _close(self, address: Hashable) -> None:
        client = self._clients.get(address)
        if client is not None:
            self._clients.leave(client)
        self._places.pop(address, None)
        self._packets_out.append((CLOSE, address))

    def _keep_places(self) -> None:
        """Ends the connections of clients that are not registered any more."""
        if len(self._places) != len(self._clients.addresses):
            for address in [address for address in self._places if self._clients.get(address) is None]:
                del self._places[address]
                self._packets_out.append((CLOSE, address))
