"""The protocol of a session over UDP at its receiver: takes packets, returns datagrams and packets to send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ipcbus.reliability.catch_up import CATCH_UP_AT, CatchUp
from ipcbus.reliability.credit import UNLIMITED
from ipcbus.reliability.receive_state import ReceiveState
from ipcbus.reliability.registration import OVER, TABLE, Cause, State
from ipcbus.reliability.round_trip import RoundTrip
from ipcbus.reliability.session_receiver import SessionReceiver
from ipcbus.wire import udp_packets
from ipcbus.wire.udp_packets import (
    AGAIN,
    CHARGE,
    DATA,
    DATA_HEAD,
    DATA_HEADER,
    NUMBER_MAX,
    PASSED_SHIFT,
    VERSION,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable
    from random import Random

    from ipcbus.reliability.receiver_settings import ReceiverSettings

_DOUBTED_JUMP_MAX: Final = 1 << 16
"""A datagram whose number is farther ahead than this is dropped at once."""
_DOUBTED_MAX: Final = 1024
"""Most datagrams that wait until the source has said how far it has sent."""
_UNREGISTERED_NS: Final = 10_000_000_000
"""A receiver of a group that the source has not registered by then takes what comes, without that."""


class ReliableReceiver(SessionReceiver):
    """The protocol of one session at one receiving context."""

    def __init__(
        self,
        session_id: int,
        address: Hashable,
        settings: ReceiverSettings,
        random: Random,
        now_ns: int,
        identity: tuple[int, int, str],
        multicast: bool,
        resume_at: int | None = None,
    ) -> None:
        """Starts outside the session; the first `turn` begins to join.

        Args:
            session_id: the session's id.
            address: the source's address; packets from other addresses are dropped.
            settings: limits and times.
            random: draws backoffs and nonces.
            now_ns: the time.
            identity: id, pid and name of the receiving context, for the source.
            multicast: whether the session has a group. Its datagrams also come to a receiver that the source does not
                register, because it has no room or is not reached; such a receiver begins with the next one that comes.
            resume_at: the number of the first datagram to receive, if the source still holds it: 0 asks for all that
                the source holds, None only for those that are sent after the source has registered the receiver. With
                a number no datagram is delivered before that.
        """
        super().__init__(session_id, settings, random, now_ns, identity, resume_at)
        self._address, self._random, self._multicast = address, random, multicast
        self._receive_state: ReceiveState | None = None
        self._catch_up: CatchUp | None = None
        self._ready: list[tuple[bytes, int]] = []
        self._doubted: dict[int, bytes] = {}
        self._round_trip = RoundTrip()
        self._began_ns = now_ns
        self._admitted = self._end_announced = self._awaits_answer = self._asks_next = False
        # The CONNECT since the last answer: when the first was sent, and how many there were.
        self._asked_ns = self._asked = 0
        self._connect_ns = now_ns
        # Both count as `_arrived` does: what can come in all, and what can come by the last ACK.
        self._room_end, self._told = UNLIMITED, 0
        self._told_missing = False
        self._plain_ack: tuple[tuple[int, int], bytes] = ((0, 0), b"")
        self.is_evicted = False
        """Whether the source goes on without waiting for this receiver, which had kept it waiting for too long."""

    # ---- calls of the session's owner

    def ask(self, now_ns: int, *, anew: bool = False) -> int:
        """Asks the source how far it has sent, and for the numbers of topics (`asks`).

        Args:
            now_ns: the time.
            anew: whether this is another question; else it repeats the last one, and its answer may say less than what
                is published by now. While a question is not answered, the next one waits.

        Returns:
            The number that `answers` has reached when that is answered. The source says with BEHIND that
            it has yet to send what was published when the question came; then the question has to be repeated.
        """
        question = self.answers + 1
        if self.state in (State.JOINED, State.ENDING):
            if anew and self._awaits_answer:
                self._asks_next, question = True, question + 1
            elif anew:
                self._begin_question()
            self.subscriptions.ask()
            self._send_connect(now_ns, self._settings.connect_interval)
            self._ack(now_ns)
        return question

    def _begin_question(self) -> None:
        """Begins a question with a nonce of its own: answers to earlier ones do not count."""
        self._nonce, self._asked = self._random.getrandbits(64), 0
        self._awaits_answer, self._asks_next = True, False

    def ready(self, now_ns: int) -> list[tuple[bytes, int]]:
        """Returns datagrams to deliver, besides those of `receive`, while the receiver catches up."""
        self._end_if_complete(now_ns)
        found, self._ready = self._ready, []
        return found

    @property
    def catches_up(self) -> bool:
        """Whether the receiver is behind and gets datagrams in order, in small steps."""
        return self._catch_up is not None or (self._resume_at is not None and self._receive_state is None)

    def limit_asks(self, room: int) -> bool:
        """Limits the datagrams to ask for at a time to `room`; returns whether that is less than usual."""
        return self._receive_state is not None and self._receive_state.limit_asks(room)

    def take_room(self, room: int, window: int, now_ns: int) -> None:
        """Takes how many bytes can come now; tells the source when a quarter more can come, or a gap was filled.

        Args:
            room: bytes of datagrams, each with CHARGE, after those that have come.
            window: the largest possible room.
            now_ns: the time.
        """
        self._room_end = self._arrived + room
        grown = self._room_end - self._told >= window // 4
        if (grown or (self._told_missing and not self.missing)) and self.state in (State.JOINED, State.ENDING):
            self._ack(now_ns, listed=False)

    @property
    def plain_ack(self) -> bytes | None:
        """An ACK without topics, for one who knows the numbers and the room; None where none may be sent now."""
        if self.state not in (State.JOINED, State.ENDING) or self._told_missing or self.missing:
            return None
        key = self._cookie, self.subscriptions.revision
        if self._plain_ack[0] != key:
            acks = udp_packets.acks(self._session_id, self._cookie, 0, self._identity, key[1], None, 0, (0, 0))
            self._plain_ack = key, acks[0]
        return self._plain_ack[1]

    def acknowledged(self, count: int, room: int) -> None:
        """Takes note of ACKs that were sent as `plain_ack`.

        Args:
            count: their number.
            room: the bytes that can still come by the last one.
        """
        self.counts.acks_sent += count
        self._told = self._room_end = self._arrived + room

    @property
    def told_room(self) -> int:
        """The bytes that can still come by the last ACK."""
        return self._told - self._arrived

    @property
    def _arrived(self) -> int:
        return self.counts.bytes_rcved + CHARGE * self.counts.msgs_rcved

    def shed(self, now_ns: int) -> None:
        """Takes note of a datagram that was dropped for want of room, as if it had not come."""
        self.heard_ns = now_ns
        if self._receive_state is not None:
            self._receive_state.note_life(now_ns)

    def settled(self, now_ns: int) -> int:
        """Returns the number below which each datagram has come, or is known to be gone."""
        return self._receive_state.settled(now_ns) if self._receive_state is not None else 0

    def leave(self, now_ns: int) -> None:
        """Leaves the session and tells the source."""
        self._step(Cause.LEAVE, now_ns)

    # ---- state

    @property
    def joined_at(self) -> int | None:
        """The number of the first datagram to receive; None before it is known."""
        return self._receive_state.first if self._receive_state is not None else None

    @property
    def is_unregistered(self) -> bool:
        """As in `SessionReceiver`."""
        return self._receive_state is not None and not self._admitted

    @property
    def stopped_at(self) -> int | None:
        """The number of the first datagram that did not come; None while the source has not registered the receiver."""
        return self._receive_state.base if self._receive_state is not None and self._admitted else self._resume_at

    @property
    def lead(self) -> int:
        """The number after the highest known one."""
        return (self._receive_state.lead or 0) if self._receive_state is not None else 0

    @property
    def _known_lead(self) -> int | None:
        """The number after the highest that the source has said, also while the receiver catches up."""
        if self._catch_up is not None:
            return self._catch_up.lead
        return self._receive_state.lead if self._receive_state is not None else None

    @property
    def missing(self) -> int:
        """The number of datagrams that are missing and not given up."""
        return self._receive_state.missing if self._receive_state is not None else 0

    @property
    def held(self) -> int:
        """The number of datagrams that have come and wait for earlier ones."""
        return (len(self._catch_up) if self._catch_up is not None else 0) + len(self._ready)

    # ---- time

    def turn(self, now_ns: int, early_ns: int = 0) -> None:
        """Runs the timers that have expired.

        Args:
            now_ns: the time.
            early_ns: time by which an ACK may come early, so that it needs no turn of its own.
        """
        if self.state in OVER:
            return
        if self._receive_state is None and self._goes_unregistered(now_ns):
            self._receive_state = self._make_receive_state(now_ns, None)
        if self._receive_state is not None:
            known = self.state in (State.JOINED, State.ENDING) and self._cookie != 0
            asks = self._receive_state.turn(now_ns, known)
            if asks:
                naks = udp_packets.naks(self._session_id, self._cookie, asks)
                self.counts.nak_pckts_sent += len(naks)
                self._packets_out += naks
            if self._receive_state.timed_out(now_ns):
                self._step(Cause.SILENCE, now_ns)
                return
        self._end_if_complete(now_ns)
        if self.state in (State.CONNECTING, State.PROVING):
            if now_ns >= self._connect_ns:
                self._connect(now_ns)
        elif self.state not in OVER and self._cookie and now_ns + early_ns >= self._ack_ns:
            self._ack(now_ns)

    @property
    def next_ns(self) -> int | None:
        """The time at which to call `turn`; None when the session is over."""
        if self.state in OVER:
            return None
        due_ns = self._receive_state.next_ns if self._receive_state is not None else self._connect_ns
        if self.state in (State.CONNECTING, State.PROVING):
            return min(due_ns, self._connect_ns)
        return min(due_ns, self._ack_ns) if self._cookie else due_ns

    # ---- packets

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> list[tuple[bytes, int]]:
        """Takes a packet from the network; invalid ones are counted.

        Args:
            packet: its bytes.
            address: the address that it comes from.
            now_ns: the time.

        Returns:
            The datagrams to deliver now, each with its send time, ns since the epoch.
        """
        if len(packet) <= DATA_HEADER or packet[1] != DATA:
            self._receive_other(packet, address, now_ns)
            return self.ready(now_ns) if self._ready else []
        version, _, flags, session_id, number, back, _, send_time_ns = DATA_HEAD.unpack_from(packet)
        receive_state = self._receive_state
        if (
            version != VERSION
            or session_id != self._session_id
            or address != self._address
            or back > number
            or self.state in OVER
            or (flags > AGAIN and not self.is_filtered)
        ):
            self._drop(packet, address)
            return []
        self.heard_ns = now_ns
        if receive_state is None or number < (receive_state.first or 0):
            return []  # sent before the source has registered the receiver; else it is missing, and comes again
        lead = self._known_lead
        first, again = number - (flags >> PASSED_SHIFT) if flags > AGAIN else number, bool(flags & AGAIN)
        if number > NUMBER_MAX or (lead is not None and first - lead > self._jump_max):
            self._doubt(number, packet, lead or 0, now_ns)
            return []
        if (catch_up := self._catch_up_for(receive_state, first)) is not None:
            receive_state.note_life(now_ns)
            body = packet[DATA_HEADER:]
            self._ready += catch_up.receive_data(number, number - back, body, send_time_ns, now_ns, again=again)
            return self.ready(now_ns)
        if first < number:
            receive_state.pass_over(first, number, number - back, now_ns)
        if not receive_state.receive_data(number, number - back, len(packet) - DATA_HEADER, now_ns, again=again):
            return []
        if self._end_announced:
            self._end_if_complete(now_ns)
        return [(packet[DATA_HEADER:], send_time_ns)]

    @property
    def expected(self) -> tuple[int, int, int] | None:
        """The usual case: session id and number of the next datagram, and the highest trail that changes nothing.

        None when every packet has to go to `receive`.
        """
        receive_state = self._receive_state
        if receive_state is None or self._catch_up is not None or self._end_announced or self.state in OVER:
            return None
        lead, base = receive_state.lead, receive_state.base
        return None if lead is None or base is None else (self._session_id, lead, base)

    def took(self, count: int, size: int, now_ns: int) -> None:
        """Takes note of datagrams that came as `expected` says, and were delivered.

        Args:
            count: their number.
            size: their bytes, without headers.
            now_ns: the time.
        """
        if self._receive_state is not None:
            self.heard_ns = now_ns
            self._receive_state.take_in_order(count, size, now_ns)

    @property
    def _jump_max(self) -> int:
        """How far ahead a number is believed at once; farther while the source cannot be asked."""
        return self._settings.jump_max if self._admitted else _DOUBTED_JUMP_MAX

    def _doubt(self, number: int, packet: bytes, lead: int, now_ns: int) -> None:
        """Keeps a datagram until the source says how far it has sent, as a number so far ahead may be forged."""
        if number - lead > _DOUBTED_JUMP_MAX or len(self._doubted) >= _DOUBTED_MAX:
            self.counts.dgrams_dropped_other += 1
        else:
            self._doubted.setdefault(number, packet)
        self._ask_if_due(now_ns)

    def _settle_doubts(self, now_ns: int) -> None:
        """Takes the datagrams that the source has confirmed, and those close behind them; drops the others."""
        doubted, self._doubted = sorted(self._doubted.items()), {}
        for _, packet in doubted:
            found = self.receive(packet, self._address, now_ns)
            self._ready += found
        self.counts.dgrams_dropped_other += len(self._doubted)
        self._doubted.clear()

    def _drop(self, packet: bytes, address: Hashable) -> None:
        self.counts.dropped(packet, self._session_id if address == self._address else None)

    def _receive_other(self, packet: bytes, address: Hashable, now_ns: int) -> None:
        found = udp_packets.parse(packet)
        if found is None or found.session_id != self._session_id or address != self._address or self.state in OVER:
            self._drop(packet, address)
            return
        self.heard_ns = now_ns
        if isinstance(found, udp_packets.SessionMessage):
            if found.flags & udp_packets.WELCOME:
                self._welcome(found, now_ns)
            else:
                self._session_message(found, now_ns)
        elif (
            isinstance(found, udp_packets.Numbers) and found.type == udp_packets.NCF and self._receive_state is not None
        ):
            self._receive_state.receive_ncf(found.numbers, found.reason, now_ns)
        elif isinstance(found, udp_packets.Client) and found.type == udp_packets.RESET:
            self._reset(found, now_ns)
        elif isinstance(found, udp_packets.Passed) and self._cookie and found.cookie == self._cookie:
            self._pass_over(found.ranges, now_ns)
        elif not self._take_answer(found):
            self.counts.dgrams_dropped_other += 1
        self._end_if_complete(now_ns)

    def _end_if_complete(self, now_ns: int) -> None:
        if self._catch_up is not None:
            self._ready += self._catch_up.release(now_ns)
            if self._catch_up.over:
                self._catch_up = None
        if self._end_announced and not (self.missing or self.catches_up or self._awaits_starts):
            self._step(Cause.COMPLETE, now_ns)

    @property
    def _awaits_starts(self) -> bool:
        """Whether the source, which knows this receiver, has yet to say with which messages the topics begin."""
        return self.subscriptions.awaits_starts and self.state in (State.JOINED, State.ENDING)

    def _welcome(self, found: udp_packets.SessionMessage, now_ns: int) -> None:
        """Takes the answer to a CONNECT: only the source can know its nonce."""
        if found.nonce != self._nonce:
            self.counts.dgrams_dropped_other += 1
            return
        if self._asked == 1:
            self._round_trip.note_answer(now_ns - self._asked_ns)
        self._asked = 0
        if not found.flags & udp_packets.ADMITTED:
            if (self.state, Cause.WELCOME) in TABLE:
                self._cookie = found.cookie
                self._step(Cause.WELCOME, now_ns)
            return
        if found.cookie != self._cookie:
            self.counts.dgrams_dropped_other += 1
            return
        self.is_filtered = bool(found.flags & udp_packets.FILTERS)
        self._admit(found, now_ns)
        if not found.flags & udp_packets.BEHIND:
            self._note_answer(now_ns)
        # An end that was announced to the group only may be forged.
        self._admitted, self._end_announced = True, bool(found.flags & udp_packets.FINAL)
        self._step(Cause.ADMITTED, now_ns)
        if self._end_announced:
            self._step(Cause.FINAL, now_ns)

    def _note_answer(self, now_ns: int) -> None:
        """Takes note that the last question is answered; asks the next one."""
        self.answers += 1
        self._awaits_answer = False
        if self._asks_next and self.state is not State.PROVING:
            self._begin_question()
            self._send_connect(now_ns, self._settings.connect_interval)

    def _admit(self, found: udp_packets.SessionMessage, now_ns: int) -> None:
        """Takes how far the source has sent, from a packet that proves its source."""
        receive_state = self._receive_state
        is_implausible = receive_state is not None and (receive_state.first or 0) > found.lead + self._settings.jump_max
        if receive_state is None or (is_implausible and self.state is State.PROVING):
            # A receiver that began this far above its source began with a forged datagram.
            first = found.lead if self._resume_at is None else min(max(found.trail, self._resume_at), found.lead)
            self._receive_state = receive_state = self._make_receive_state(now_ns, first)
            if self._resume_at is not None:
                self._catch_up = CatchUp(receive_state)
        self._note_position(receive_state, found.lead, found.trail, now_ns)
        self._settle_doubts(now_ns)

    def _note_position(self, receive_state: ReceiveState, lead: int, trail: int, now_ns: int) -> None:
        """Takes note that the source has sent all numbers below `lead` and holds those from `trail` on."""
        if (catch_up := self._catch_up_for(receive_state, lead)) is None:
            receive_state.receive_session_message(lead, trail, now_ns)
        else:
            receive_state.note_life(now_ns)
            self._ready += catch_up.receive_session_message(lead, trail, now_ns)

    def _goes_unregistered(self, now_ns: int) -> bool:
        """Returns whether to take the datagrams of the group without waiting for the registration any longer."""
        tried = self._attempts >= self._settings.maximum_connect_attempts and now_ns >= self._connect_ns
        waited = self._refused or tried or now_ns - self._began_ns >= _UNREGISTERED_NS
        return self._multicast and self._resume_at is None and waited

    def _make_receive_state(self, now_ns: int, first: int | None) -> ReceiveState:
        return ReceiveState(self._settings.receiving, self._random, now_ns, first, self.counts, self._round_trip)

    def _pass_over(self, ranges: Iterable[tuple[int, int]], now_ns: int) -> None:
        """Takes note of datagrams that the source does not send to this receiver."""
        receive_state = self._receive_state
        if receive_state is None:
            return
        for first, count in ranges:
            if (catch_up := self._catch_up_for(receive_state, first)) is None:
                receive_state.pass_over(first, first + count, 0, now_ns)
            else:
                receive_state.pass_over(first, min(first + count, receive_state.lead or 0), 0, now_ns)
                self._ready += catch_up.receive_session_message(first + count, 0, now_ns)

    def _catch_up_for(self, receive_state: ReceiveState, lead: int) -> CatchUp | None:
        """Returns the state of catching up; begins it when too many datagrams are missing; None when not behind."""
        known = receive_state.lead
        asks = self._admitted and self.state in (State.PROVING, State.JOINED)
        if self._catch_up is None and asks and known is not None and lead - known + receive_state.missing > CATCH_UP_AT:
            self._catch_up = CatchUp(receive_state)
        return self._catch_up

    def _session_message(self, found: udp_packets.SessionMessage, now_ns: int) -> None:
        receive_state = self._receive_state
        proven = self._cookie != 0 and found.cookie == self._cookie
        if receive_state is None or not (proven or self._multicast):
            self.counts.dgrams_dropped_other += not self._multicast  # a group's is not for this receiver yet
            return
        lead = self._known_lead
        if not proven and lead is not None and found.lead - lead > self._jump_max:
            self.counts.dgrams_dropped_other += 1
            self._ask_if_due(now_ns)
            return
        # A trail makes the receiver give up datagrams, so it needs a proof; a lead does not.
        self._note_position(receive_state, found.lead, found.trail if proven else 0, now_ns)
        if proven:
            self._note_eviction(bool(found.flags & udp_packets.EVICTED))
            self._settle_doubts(now_ns)
            if found.flags & udp_packets.WAITS:
                self._ack(now_ns, listed=False)
        if found.flags & udp_packets.FINAL and (proven or not self._admitted):
            if not self._end_announced and (self.missing or self._awaits_starts):
                # A missing datagram may hold the last messages of a topic; its first number may be unknown.
                self.subscriptions.ask()
                self._ack_ns = now_ns
            self._end_announced = True
            self._step(Cause.FINAL, now_ns)

    def _note_eviction(self, evicted: bool) -> None:
        self.counts.evictions_rcved += evicted and not self.is_evicted
        self.is_evicted = evicted

    def _reset(self, found: udp_packets.Client, now_ns: int) -> None:
        connecting = self.state in (State.CONNECTING, State.PROVING)
        if found.cookie != self._nonce if connecting else found.cookie != self._cookie:
            self.counts.dgrams_dropped_other += 1
            return
        self.counts.resets_rcved += 1
        self._refused = connecting
        self._step(Cause.GONE if found.flags & udp_packets.GONE else Cause.RESET, now_ns)

    # ---- steps

    def _step(self, cause: Cause, now_ns: int) -> None:
        following = TABLE.get((self.state, cause))
        if following is None:
            return
        self.state = following
        if cause in (Cause.WELCOME, Cause.RESET):
            # The next attempt has a nonce of its own: answers to earlier ones do not count.
            self._cookie = self._cookie if cause is Cause.WELCOME else 0
            self._nonce = self._random.getrandbits(64)
            self._connect_ns = now_ns
            self.turn(now_ns)
        elif cause is Cause.ADMITTED:
            self._refused, self._attempts = False, 0
            self._ack(now_ns)
        elif following in OVER:
            if self._catch_up is not None:
                self._ready += self._catch_up.remaining(now_ns)
                self._catch_up = None
            self._finish(cause)

    def _connect(self, now_ns: int) -> None:
        enough = self._attempts >= self._settings.maximum_connect_attempts
        if enough and (self._receive_state is None or not self._multicast):
            self._step(Cause.ATTEMPTS, now_ns)
            return
        self._attempts += 1
        wait = self._settings.receiving.activity_timeout if enough else self._settings.connect_interval
        self._send_connect(now_ns, wait)

    def _ask_if_due(self, now_ns: int) -> None:
        """Asks the source how far it has sent, after a packet with an incredible number."""
        if self.state in (State.JOINED, State.ENDING) and (now_ns >= self._connect_ns or not self._asked):
            self._send_connect(now_ns, self._settings.connect_interval)

    def _send_connect(self, now_ns: int, wait: int) -> None:
        self._connect_ns = now_ns + wait
        self._asked_ns, self._asked = now_ns, self._asked + 1
        self.counts.connects_sent += 1
        self._packets_out.append(udp_packets.connect(self._session_id, self._cookie, self._nonce))

    def _ack(self, now_ns: int, *, listed: bool = True) -> None:
        """Puts out a sign of life with the room for datagrams, and with the list of topics if `listed`."""
        room, flags = max(0, self._room_end - self._arrived), 0
        self._told, self._told_missing = self._arrived + room, bool(self.missing)
        if listed:
            if self.missing:
                self.subscriptions.ask()  # if the source is never heard again, the answer says what its receivers miss
            flags = self._plan_ack(now_ns)
        base = self._receive_state.base if self._receive_state is not None else None
        self._put_acks(self._known_lead or 0, flags, listed=listed, room=(min(base or 0, self.lead), room))
