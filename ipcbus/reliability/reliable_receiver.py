"""The protocol of a session over UDP at its receiver: takes packets, returns datagrams and packets to send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.reliability.catch_up import CATCH_UP_AT, REQUESTS_MAX, CatchUp
from ipcbus.reliability.receive_state import ReceiveState
from ipcbus.reliability.receiver_settings import ReceiverCounts
from ipcbus.reliability.registration import OVER, TABLE, Cause, State
from ipcbus.reliability.topic_subscriptions import TopicSubscriptions
from ipcbus.wire import udp_packets
from ipcbus.wire.udp_packets import (
    AGAIN,
    DATA,
    DATA_HEAD,
    DATA_HEADER,
    NUMBER_MAX,
    PASSED_SHIFT,
    VERSION,
    Frame,
    FrameAck,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable
    from random import Random

    from ipcbus.reliability.receiver_settings import ReceiverSettings


class ReliableReceiver:
    """The protocol of one session at one receiving context.

    After each call with `now_ns`, `take` returns the packets to send to the source.
    """

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
            multicast: whether the session has a group. Its datagrams are delivered before the source knows the
                receiver.
            resume_at: the number of the first datagram to receive, if the source still holds it: 0 asks for all that
                the source holds, None only for those that are sent from now on. With a number no datagram is delivered
                before the source knows the receiver.
        """
        self.counts = ReceiverCounts()
        self.state = State.CONNECTING
        self.reason = ""
        """Why the session is over, in words; empty while it is not."""
        self._session_id, self._address, self._settings, self._random = session_id, address, settings, random
        self._identity, self._multicast, self._resume_at = identity, multicast, resume_at
        self._receive_state: ReceiveState | None = None
        self._catch_up: CatchUp | None = None
        self._ready: list[tuple[bytes, int]] = []
        if multicast and resume_at is None:
            self._receive_state = ReceiveState(settings.receiving, random, now_ns, None, self.counts)
        self._packets_out: list[bytes] = []
        self.subscriptions = TopicSubscriptions(now_ns)
        self._cookie = 0
        self._nonce = random.getrandbits(64)
        self._attempts = 0
        self._refused = self._admitted = self._end_announced = False
        self._connect_ns = self._ack_ns = self.heard_ns = now_ns
        """The time of the last sign of life of the source; at first, the time of construction."""
        self.answers = 0
        """The number of answers of the source to the question how far it has sent."""
        self._channel_packets: list[Frame | FrameAck] = []
        self.for_good = False
        """Whether it cannot be joined again: it has ended or was left, and is not only silent."""

    # ---- calls of the session's owner

    def ask(self, now_ns: int) -> None:
        """Asks the source how far it has sent (`answers` grows then), and for the numbers of topics (`asks`)."""
        if self.state in (State.JOINED, State.ENDING):
            self.subscriptions.ask()
            self._send_connect(now_ns, self._settings.connect_interval)
            self._ack(now_ns)

    def ready(self, now_ns: int) -> list[tuple[bytes, int]]:
        """Returns datagrams to deliver, besides those of `receive`, while the receiver catches up."""
        self._end_if_complete(now_ns)
        found, self._ready = self._ready, []
        return found

    @property
    def catches_up(self) -> bool:
        """Whether the receiver is behind and gets datagrams in order, in small steps."""
        return self._catch_up is not None or (self._resume_at is not None and self._receive_state is None)

    def limit_requests(self, room: int) -> None:
        """Limits the datagrams to ask for at a time to `room`, while the receiver catches up."""
        if self._catch_up is not None:
            self._catch_up.requests_max = min(REQUESTS_MAX, room)

    def shed(self, now_ns: int) -> None:
        """Takes note of a datagram that was dropped for want of room, and begins to catch up."""
        self.heard_ns = now_ns
        if self._receive_state is not None:
            self._receive_state.note_life(now_ns)
            if self._catch_up is None and self.state is State.JOINED:
                self._catch_up = CatchUp(self._receive_state)

    def topics(self, numbers: Iterable[int], now_ns: int) -> None:
        """Replaces the list of topics; sends it at once, and again with every ACK."""
        self.subscriptions.subscribe(numbers, now_ns)
        if self.state in (State.JOINED, State.ENDING):
            self._ack(now_ns)

    def leave(self, now_ns: int) -> None:
        """Leaves the session and tells the source."""
        self._step(Cause.LEAVE, now_ns)

    def take(self) -> list[bytes]:
        """Returns, once, the packets to send to the source."""
        found, self._packets_out = self._packets_out, []
        return found

    def take_channel_packets(self) -> list[Frame | FrameAck]:
        """Returns, once, the packets of the control channel that came."""
        found, self._channel_packets = self._channel_packets, []
        return found

    # ---- state

    @property
    def channel_cookie(self) -> int:
        """The cookie for the packets of the control channel; 0 while the source has not registered the receiver."""
        return self._cookie if self.state in (State.JOINED, State.ENDING) else 0

    @property
    def over(self) -> bool:
        """Whether the session is over for this receiver."""
        return self.state in OVER

    @property
    def joined_at(self) -> int | None:
        """The number of the first datagram to receive; None before it is known."""
        return self._receive_state.first if self._receive_state is not None else None

    @property
    def stopped_at(self) -> int | None:
        """The number of the first datagram that did not come; None while the source has not registered the receiver."""
        return self._receive_state.base if self._receive_state is not None and self._admitted else self._resume_at

    @property
    def lead(self) -> int:
        """The number after the highest known one."""
        return (self._receive_state.lead or 0) if self._receive_state is not None else 0

    @property
    def missing(self) -> int:
        """The number of datagrams that are missing and not given up."""
        return self._receive_state.missing if self._receive_state is not None else 0

    @property
    def held(self) -> int:
        """The number of datagrams that have come and wait for earlier ones."""
        return (len(self._catch_up) if self._catch_up is not None else 0) + len(self._ready)

    @property
    def asks(self) -> bool:
        """Whether the source still has to send numbers of topics."""
        return self.subscriptions.asks and self.state not in OVER

    # ---- time

    def turn(self, now_ns: int) -> None:
        """Runs the timers that have expired."""
        if self.state in OVER:
            return
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
        elif self.state not in OVER and self._cookie and now_ns >= self._ack_ns:
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
            return []
        version, _, flags, session_id, number, back, _, send_time_ns = DATA_HEAD.unpack_from(packet)
        receive_state = self._receive_state
        if (
            version != VERSION
            or session_id != self._session_id
            or address != self._address
            or receive_state is None
            or back > number
            or self.state in OVER
        ):
            self._drop(packet, address)
            return []
        self.heard_ns = now_ns
        lead = receive_state.lead if self._catch_up is None else self._catch_up.lead
        if number > NUMBER_MAX or (lead is not None and number - lead > self._settings.jump_max):
            self.counts.dgrams_dropped_other += 1
            self._ask_if_due(now_ns)
            return []
        first = number - (flags >> PASSED_SHIFT) if flags > AGAIN else number
        if (catch_up := self._catch_up_for(receive_state, first)) is not None:
            receive_state.note_life(now_ns)
            body = packet[DATA_HEADER:]
            self._ready += catch_up.receive_data(number, number - back, body, send_time_ns, now_ns)
            return self.ready(now_ns)
        if first < number:
            receive_state.pass_over(first, number, number - back, now_ns)
        if not receive_state.receive_data(number, number - back, len(packet) - DATA_HEADER, now_ns):
            return []
        if self._end_announced:
            self._end_if_complete(now_ns)
        return [(packet[DATA_HEADER:], send_time_ns)]

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
        elif isinstance(found, udp_packets.Topics) and self._cookie and found.cookie == self._cookie:
            self.subscriptions.answered(found)
        elif isinstance(found, Frame | FrameAck) and found.cookie == self.channel_cookie != 0:
            self._channel_packets.append(found)
        elif isinstance(found, udp_packets.Passed) and self._cookie and found.cookie == self._cookie:
            self._pass_over(found.ranges, now_ns)
        else:
            self.counts.dgrams_dropped_other += 1
        self._end_if_complete(now_ns)

    def _end_if_complete(self, now_ns: int) -> None:
        if self._catch_up is not None:
            self._ready += self._catch_up.release(now_ns)
            if self._catch_up.over:
                self._catch_up = None
        if self._end_announced and not self.missing and not self.catches_up:
            self._step(Cause.COMPLETE, now_ns)

    def _welcome(self, found: udp_packets.SessionMessage, now_ns: int) -> None:
        """Takes the answer to a CONNECT: only the source can know its nonce."""
        if found.nonce != self._nonce:
            self.counts.dgrams_dropped_other += 1
            return
        if not found.flags & udp_packets.ADMITTED:
            if (self.state, Cause.WELCOME) in TABLE:
                self._cookie = found.cookie
                self._step(Cause.WELCOME, now_ns)
            return
        if found.cookie != self._cookie:
            self.counts.dgrams_dropped_other += 1
            return
        self._admit(found, now_ns)
        self.answers += 1
        # An end that was announced to the group only may be forged.
        self._admitted, self._end_announced = True, bool(found.flags & udp_packets.FINAL)
        self._step(Cause.ADMITTED, now_ns)
        if self._end_announced:
            self._step(Cause.FINAL, now_ns)

    def _admit(self, found: udp_packets.SessionMessage, now_ns: int) -> None:
        """Takes how far the source has sent, from a packet that proves its source."""
        receive_state = self._receive_state
        is_implausible = receive_state is not None and (receive_state.first or 0) > found.lead + self._settings.jump_max
        if receive_state is None or (is_implausible and self.state is State.PROVING):
            # A receiver that began this far above its source began with a forged datagram.
            first = found.lead if self._resume_at is None else min(max(found.trail, self._resume_at), found.lead)
            self._receive_state = receive_state = ReceiveState(
                self._settings.receiving, self._random, now_ns, first, self.counts
            )
            if self._resume_at is not None:
                self._catch_up = CatchUp(receive_state)
        self._note_position(receive_state, found.lead, found.trail, now_ns)

    def _note_position(self, receive_state: ReceiveState, lead: int, trail: int, now_ns: int) -> None:
        """Takes note that the source has sent all numbers below `lead` and holds those from `trail` on."""
        if (catch_up := self._catch_up_for(receive_state, lead)) is None:
            receive_state.receive_session_message(lead, trail, now_ns)
        else:
            receive_state.note_life(now_ns)
            self._ready += catch_up.receive_session_message(lead, trail, now_ns)

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
            self.counts.dgrams_dropped_other += 1
            return
        lead = receive_state.lead if self._catch_up is None else self._catch_up.lead
        if not proven and lead is not None and found.lead - lead > self._settings.jump_max:
            self.counts.dgrams_dropped_other += 1
            self._ask_if_due(now_ns)
            return
        # A trail makes the receiver give up datagrams, so it needs a proof; a lead does not.
        self._note_position(receive_state, found.lead, found.trail if proven else 0, now_ns)
        if found.flags & udp_packets.FINAL and (proven or not self._admitted):
            if not self._end_announced and self.missing:
                self.subscriptions.ask()  # a missing datagram may hold the last messages of a topic
                self._ack_ns = now_ns
            self._end_announced = True
            self._step(Cause.FINAL, now_ns)

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
            self._finish(cause)

    def _finish(self, cause: Cause) -> None:
        if self._catch_up is not None:
            self._ready += self._catch_up.remaining()
            self._catch_up = None
        self.for_good = cause not in (Cause.ATTEMPTS, Cause.SILENCE)
        refused = "the source has no room for another client" if self._refused else Cause.ATTEMPTS.value
        self.reason = {Cause.ATTEMPTS: refused, Cause.COMPLETE: Cause.FINAL.value}.get(cause, cause.value)
        # A receiver that finds its source silent comes back: the source keeps datagrams for it for a while.
        if self._cookie and cause not in (Cause.GONE, Cause.SILENCE):
            self._packets_out.append(udp_packets.leave(self._session_id, self._cookie))

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
        if self.state in (State.JOINED, State.ENDING) and now_ns >= self._connect_ns:
            self._send_connect(now_ns, self._settings.connect_interval)

    def _send_connect(self, now_ns: int, wait: int) -> None:
        self._connect_ns = now_ns + wait
        self.counts.connects_sent += 1
        self._packets_out.append(udp_packets.connect(self._session_id, self._cookie, self._nonce))

    def _ack(self, now_ns: int) -> None:
        settings, subscriptions = self._settings, self.subscriptions
        if self.missing:
            subscriptions.ask()  # if the source is never heard again, the answer says what its receivers miss
        flags = udp_packets.ASKS if self.asks else 0
        often = settings.connect_interval if flags else settings.acknowledgement_interval
        self._ack_ns = now_ns + min(often, settings.acknowledgement_interval)
        acks = udp_packets.acks(
            self._session_id,
            self._cookie,
            self.lead,
            self._identity,
            subscriptions.revision,
            subscriptions.numbers,
            flags,
        )
        self.counts.acks_sent += len(acks)
        self._packets_out += acks
