"""The receiver's end of a session over UDP: whole packets in, datagrams to deliver and whole packets out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.reliability.catch_up import AHEAD, BEHIND, CatchUp
from ipcbus.reliability.receive_state import ReceiveState
from ipcbus.reliability.receiver_settings import ReceiverCounts
from ipcbus.reliability.registration import OVER, TABLE, Cause, State
from ipcbus.reliability.topic_subscriptions import TopicSubscriptions
from ipcbus.wire import udp_packets
from ipcbus.wire.udp_packets import DATA, DATA_HEAD, DATA_HEADER, NUMBER_MAX, VERSION

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable
    from random import Random

    from ipcbus.reliability.receiver_settings import ReceiverSettings


class ReliableReceiver:
    """One session at one receiving context.

    After each call that takes `now_ns`, `take` has what is to be sent to the source.
    """

    def __init__(
        self,
        session_id: int,
        address: Hashable,
        settings: ReceiverSettings,
        random: Random,
        now_ns: int,
        who: tuple[int, int, str],
        multicast: bool,
        resume: bool = False,
    ) -> None:
        """Not joined; `turn` begins.

        Args:
            session_id: the session's.
            address: the source's; what comes from another one is dropped.
            settings: how it behaves.
            random: draws backoffs and nonces.
            now_ns: the time.
            who: id, pid and name of the receiving context, for the source.
            multicast: the session has a group. What is heard there is delivered before the source knows the receiver.
            resume: it is to have all that the source still holds, not only what is sent from now on. Then nothing is
                delivered before the source knows it.
        """
        self.counts = ReceiverCounts()
        self.state = State.CONNECTING
        self.reason = ""
        """Why it is over, in words; empty while it is not."""
        self._session_id, self._address, self._settings, self._random = session_id, address, settings, random
        self._who, self._multicast, self._resume = who, multicast, resume
        self._receive_state: ReceiveState | None = None
        self._catch_up: CatchUp | None = None
        self._ready: list[tuple[bytes, int]] = []
        if multicast and not resume:
            self._receive_state = ReceiveState(settings.receiving, random, now_ns, None, self.counts)
        self._out: list[bytes] = []
        self.subscriptions = TopicSubscriptions(now_ns)
        self._cookie = 0
        self._nonce = random.getrandbits(64)
        self._attempts = 0
        self._refused = self._admitted = self._final = False
        self._connect_ns = self._ack_ns = self.heard_ns = now_ns
        """When the source gave a sign of life last; when it was made, before the first."""
        self.answers = 0
        """How often the source has said where it is, because it was asked."""
        self.for_good = False
        """Whether it is over because the session is, or it was left; not only for want of answers or signs."""

    # ---- what the session's owner does

    def ask(self, now_ns: int) -> None:
        """Asks the source where it is (`answers` moves, `lead` is what it had sent) and its topics are (`asks`)."""
        if self.state in (State.JOINED, State.ENDING):
            self.subscriptions.ask()
            self._send_connect(now_ns, self._settings.connect_interval)
            self._ack(now_ns)

    def ready(self, now_ns: int) -> list[tuple[bytes, int]]:
        """Datagrams to be delivered beside those that `receive` gives, while it catches up."""
        self._settle(now_ns)
        found, self._ready = self._ready, []
        return found

    @property
    def catches_up(self) -> bool:
        """Whether it is behind, and gets what is missing in order, a little at a time."""
        return self._catch_up is not None or (self._resume and self._receive_state is None)

    def make_way(self, room: int) -> None:
        """There is room for so many datagrams: it asks for no more at once, as far as it is up to it what comes."""
        if self._catch_up is not None:
            self._catch_up.ahead = min(AHEAD, room)

    def shed(self, now_ns: int) -> None:
        """A datagram came for which there was no room: from now on it is up to this end how much comes."""
        self.heard_ns = now_ns
        if self._receive_state is not None:
            self._receive_state.heard(now_ns)
            if self._catch_up is None and self.state is State.JOINED:
                self._catch_up = CatchUp(self._receive_state)

    def topics(self, numbers: Iterable[int], now_ns: int) -> None:
        """From now on it receives these topics; the source is told at once, and again with every ACK."""
        self.subscriptions.want(numbers, now_ns)
        if self.state in (State.JOINED, State.ENDING):
            self._ack(now_ns)

    def leave(self, now_ns: int) -> None:
        """Nothing more is received; the source is told."""
        self._step(Cause.LEAVE, now_ns)

    def take(self) -> list[bytes]:
        """Packets for the source."""
        found, self._out = self._out, []
        return found

    # ---- what is known

    @property
    def over(self) -> bool:
        """Whether nothing will come any more."""
        return self.state in OVER

    @property
    def joined_at(self) -> int | None:
        """The first number that it is to have; None before that is known."""
        return self._receive_state.first if self._receive_state is not None else None

    @property
    def lead(self) -> int:
        """The number after the highest that it knows of."""
        return (self._receive_state.lead or 0) if self._receive_state is not None else 0

    @property
    def missing(self) -> int:
        """How many numbers are waited for."""
        return self._receive_state.missing if self._receive_state is not None else 0

    @property
    def held(self) -> int:
        """How many datagrams have come and wait for those before them."""
        return (len(self._catch_up) if self._catch_up is not None else 0) + len(self._ready)

    @property
    def asks(self) -> bool:
        """Whether the source has still to say where topics are."""
        return self.subscriptions.asks and self.state not in OVER

    # ---- time

    def turn(self, now_ns: int) -> None:
        """Does what is due."""
        if self.state in OVER:
            return
        if self._receive_state is not None:
            known = self.state in (State.JOINED, State.ENDING) and self._cookie != 0
            asks = self._receive_state.turn(now_ns, known)
            if asks:
                naks = udp_packets.naks(self._session_id, self._cookie, asks)
                self.counts.nak_pckts_sent += len(naks)
                self._out += naks
            if self._receive_state.over(now_ns):
                self._step(Cause.SILENCE, now_ns)
                return
        self._settle(now_ns)
        if self.state in (State.CONNECTING, State.PROVING):
            if now_ns >= self._connect_ns:
                self._connect(now_ns)
        elif self.state not in OVER and self._cookie and now_ns >= self._ack_ns:
            self._ack(now_ns)

    @property
    def next_ns(self) -> int | None:
        """When to call `turn`; None when it is over."""
        if self.state in OVER:
            return None
        due_ns = self._receive_state.next_ns if self._receive_state is not None else self._connect_ns
        if self.state in (State.CONNECTING, State.PROVING):
            return min(due_ns, self._connect_ns)
        return min(due_ns, self._ack_ns) if self._cookie else due_ns

    # ---- packets

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> list[tuple[bytes, int]]:
        """Takes a packet, whatever it is.

        Args:
            packet: it.
            address: where it comes from.
            now_ns: the time.

        Returns:
            Datagrams to be delivered now, each with its sending time, ns since the epoch.
        """
        if len(packet) <= DATA_HEADER or packet[1] != DATA:
            self._receive_other(packet, address, now_ns)
            return []
        version, _, _, session_id, number, back, _, send_time_ns = DATA_HEAD.unpack_from(packet)
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
            self._doubt(now_ns)
            return []
        if (behind := self._behind(receive_state, number)) is not None:
            body = packet[DATA_HEADER:]
            self._ready += behind.data(number, number - back, body, send_time_ns, now_ns)
            return self.ready(now_ns)
        if not receive_state.data(number, number - back, len(packet) - DATA_HEADER, now_ns):
            return []
        if self._final:
            self._settle(now_ns)
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
            self._receive_state.ncf(found.numbers, found.reason, now_ns)
        elif isinstance(found, udp_packets.Client) and found.type == udp_packets.RESET:
            self._reset(found, now_ns)
        elif isinstance(found, udp_packets.Topics) and self._cookie and found.cookie == self._cookie:
            self.subscriptions.told(found)
        else:
            self.counts.dgrams_dropped_other += 1
        self._settle(now_ns)

    def _settle(self, now_ns: int) -> None:
        if self._catch_up is not None:
            self._ready += self._catch_up.release(now_ns)
            if self._catch_up.over:
                self._catch_up = None
        if self._final and not self.missing and not self.catches_up:
            self._step(Cause.COMPLETE, now_ns)

    def _welcome(self, found: udp_packets.SessionMessage, now_ns: int) -> None:
        """The answer to a CONNECT: only the source can know its nonce."""
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
        # An end that only the group was told may be forged.
        self._admitted, self._final = True, bool(found.flags & udp_packets.FINAL)
        self._step(Cause.ADMITTED, now_ns)
        if self._final:
            self._step(Cause.FINAL, now_ns)

    def _admit(self, found: udp_packets.SessionMessage, now_ns: int) -> None:
        """The source's own word on where it is."""
        receive_state = self._receive_state
        astray = receive_state is not None and (receive_state.first or 0) > found.lead + self._settings.jump_max
        if receive_state is None or (astray and self.state is State.PROVING):
            # When it began so far ahead of its source, it began with something forged.
            first = found.trail if self._resume else found.lead
            self._receive_state = receive_state = ReceiveState(
                self._settings.receiving, self._random, now_ns, first, self.counts
            )
            if self._resume:
                self._catch_up = CatchUp(receive_state)
        self._know(receive_state, found.lead, found.trail, now_ns)

    def _know(self, receive_state: ReceiveState, lead: int, trail: int, now_ns: int) -> None:
        """The source has sent all below `lead`, and holds what is not below `trail`."""
        if (behind := self._behind(receive_state, lead)) is None:
            receive_state.session_message(lead, trail, now_ns)
        else:
            self._ready += behind.hear(lead, trail, now_ns)

    def _behind(self, receive_state: ReceiveState, lead: int) -> CatchUp | None:
        """What comes while it catches up; it begins to when it turns out that too much is missing."""
        known = receive_state.lead
        asks = self._admitted and self.state in (State.PROVING, State.JOINED)
        if self._catch_up is None and asks and known is not None and lead - known + receive_state.missing > BEHIND:
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
            self._doubt(now_ns)
            return
        # What would take something away needs a proof. Without one it may be news, no more.
        self._know(receive_state, found.lead, found.trail if proven else 0, now_ns)
        if found.flags & udp_packets.FINAL and (proven or not self._admitted):
            if not self._final and self.missing:
                self.subscriptions.ask()  # what is not repaired may be the end of a topic
                self._ack_ns = now_ns
            self._final = True
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
            # A new try, whose answers are told from those of the tries before.
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
            self._ready += self._catch_up.rest()
            self._catch_up = None
        self.for_good = cause not in (Cause.ATTEMPTS, Cause.SILENCE)
        refused = "the source has no room for another client" if self._refused else Cause.ATTEMPTS.value
        self.reason = {Cause.ATTEMPTS: refused, Cause.COMPLETE: Cause.FINAL.value}.get(cause, cause.value)
        if self._cookie and cause is not Cause.GONE:
            self._out.append(udp_packets.leave(self._session_id, self._cookie))

    def _connect(self, now_ns: int) -> None:
        enough = self._attempts >= self._settings.maximum_connect_attempts
        if enough and (self._receive_state is None or not self._multicast):
            self._step(Cause.ATTEMPTS, now_ns)
            return
        self._attempts += 1
        wait = self._settings.receiving.activity_timeout if enough else self._settings.connect_interval
        self._send_connect(now_ns, wait)

    def _doubt(self, now_ns: int) -> None:
        """Asks the source where it is, when something strange came in its name."""
        if self.state in (State.JOINED, State.ENDING) and now_ns >= self._connect_ns:
            self._send_connect(now_ns, self._settings.connect_interval)

    def _send_connect(self, now_ns: int, wait: int) -> None:
        self._connect_ns = now_ns + wait
        self.counts.connects_sent += 1
        self._out.append(udp_packets.connect(self._session_id, self._cookie, self._nonce))

    def _ack(self, now_ns: int) -> None:
        settings, subscriptions = self._settings, self.subscriptions
        flags = udp_packets.ASKS if self.asks else 0
        often = settings.connect_interval if flags else settings.acknowledgement_interval
        self._ack_ns = now_ns + min(often, settings.acknowledgement_interval)
        acks = udp_packets.acks(
            self._session_id, self._cookie, self.lead, self._who, subscriptions.revision, subscriptions.numbers, flags
        )
        self.counts.acks_sent += len(acks)
        self._out += acks
