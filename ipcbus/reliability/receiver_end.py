"""The receiver's end of a session over UDP: whole packets in, datagrams to deliver and whole packets out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipcbus.reliability.joining import OVER, TABLE, Cause, State
from ipcbus.reliability.reception import Reception, ReceptionCounts, ReceptionTerms
from ipcbus.wire import packets
from ipcbus.wire.packets import DATA, DATA_HEAD, DATA_HEADER, NUMBER_MAX, VERSION

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable
    from random import Random


@dataclass(frozen=True, slots=True)
class ReceiverTerms:
    """How the receiver's end behaves; named as the options, times in ns.

    Attributes:
        reception: losses, requests, activity.
        connect_interval: between two CONNECT.
        maximum_connect_attempts: so many in vain end it; on a multicast session, where what comes is delivered without
            registration, those that follow are only rare.
        acknowledgement_interval: between two ACK.
        jump_max: a number so far above all that is known is believed only when the source has proven it.
    """

    reception: ReceptionTerms = field(default_factory=ReceptionTerms)
    connect_interval: int = 100_000_000
    maximum_connect_attempts: int = 600
    acknowledgement_interval: int = 500_000_000
    jump_max: int = 1 << 16


@dataclass(slots=True)
class ReceiverCounts(ReceptionCounts):
    """What the receiver's end counts; Ultra Messaging's names.

    Attributes:
        dgrams_dropped_size: packets that are too short for one.
        dgrams_dropped_type: of an unknown type.
        dgrams_dropped_version: of another version.
        dgrams_dropped_hdr: packets that contradict themselves.
        dgrams_dropped_sid: of another session.
        dgrams_dropped_other: from elsewhere, unproven, with a number too far away, or before the session was joined.
        connects_sent: times that it asked to be registered.
        acks_sent: ACK packets.
        resets_rcved: times that the source did not know it.
    """

    dgrams_dropped_size: int = 0
    dgrams_dropped_type: int = 0
    dgrams_dropped_version: int = 0
    dgrams_dropped_hdr: int = 0
    dgrams_dropped_sid: int = 0
    dgrams_dropped_other: int = 0
    connects_sent: int = 0
    acks_sent: int = 0
    resets_rcved: int = 0


class ReceiverEnd:
    """One session at one receiving context.

    After each call that takes `now_ns`, `take` has what is to be sent to the source.
    """

    def __init__(
        self,
        session_id: int,
        address: Hashable,
        terms: ReceiverTerms,
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
            terms: how it behaves.
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
        self._session_id, self._address, self._terms, self._random = session_id, address, terms, random
        self._who, self._multicast, self._resume = who, multicast, resume
        self._reception: Reception | None = None
        if multicast and not resume:
            self._reception = Reception(terms.reception, random, now_ns, None, self.counts)
        self._out: list[bytes] = []
        self._topics: tuple[int, ...] = ()
        self._revision = now_ns
        self._cookie = 0
        self._nonce = random.getrandbits(64)
        self._attempts = 0
        self._refused = self._admitted = self._final = False
        self._connect_ns = self._ack_ns = now_ns

    # ---- what the session's owner does

    def topics(self, numbers: Iterable[int], now_ns: int) -> None:
        """From now on it receives these topics; the source is told at once, and again with every ACK."""
        self._topics = tuple(numbers)
        # Later than that of any list before, also of an earlier membership in the same session.
        self._revision = max(self._revision + 1, now_ns)
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
        return self._reception.first if self._reception is not None else None

    @property
    def lead(self) -> int:
        """The number after the highest that it knows of."""
        return (self._reception.lead or 0) if self._reception is not None else 0

    @property
    def missing(self) -> int:
        """How many numbers are waited for."""
        return self._reception.missing if self._reception is not None else 0

    # ---- time

    def turn(self, now_ns: int) -> None:
        """Does what is due."""
        if self.state in OVER:
            return
        if self._reception is not None:
            known = self.state in (State.JOINED, State.ENDING) and self._cookie != 0
            asks = self._reception.turn(now_ns, known)
            if asks:
                naks = packets.naks(self._session_id, self._cookie, asks)
                self.counts.nak_pckts_sent += len(naks)
                self._out += naks
            if self._reception.over(now_ns):
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
        reception = self._reception.next_ns if self._reception is not None else self._connect_ns
        if self.state in (State.CONNECTING, State.PROVING):
            return min(reception, self._connect_ns)
        return min(reception, self._ack_ns) if self._cookie else reception

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
        reception = self._reception
        if (
            version != VERSION
            or session_id != self._session_id
            or address != self._address
            or reception is None
            or back > number
            or self.state in OVER
        ):
            self._drop(packet, address)
            return []
        lead = reception.lead
        if number > NUMBER_MAX or (lead is not None and number - lead > self._terms.jump_max):
            self.counts.dgrams_dropped_other += 1
            self._doubt(now_ns)
            return []
        if not reception.data(number, number - back, len(packet) - DATA_HEADER, now_ns):
            return []
        if self._final:
            self._settle(now_ns)
        return [(packet[DATA_HEADER:], send_time_ns)]

    def _drop(self, packet: bytes, address: Hashable) -> None:
        """Counts a packet that is not for this session, or not one at all."""
        found = packets.parse(packet)
        if found is None:
            name = f"dgrams_dropped_{packets.fault(packet)}"
            setattr(self.counts, name, getattr(self.counts, name) + 1)
        elif found.session_id != self._session_id and address == self._address:
            self.counts.dgrams_dropped_sid += 1
        else:
            self.counts.dgrams_dropped_other += 1

    def _receive_other(self, packet: bytes, address: Hashable, now_ns: int) -> None:
        found = packets.parse(packet)
        if found is None or found.session_id != self._session_id or address != self._address or self.state in OVER:
            self._drop(packet, address)
        elif isinstance(found, packets.SessionMessage):
            if found.flags & packets.WELCOME:
                self._welcome(found, now_ns)
            else:
                self._session_message(found, now_ns)
        elif isinstance(found, packets.Numbers) and found.type == packets.NCF and self._reception is not None:
            self._reception.ncf(found.numbers, found.reason, now_ns)
        elif isinstance(found, packets.Client) and found.type == packets.RESET:
            self._reset(found, now_ns)
        else:
            self.counts.dgrams_dropped_other += 1
        self._settle(now_ns)

    def _settle(self, now_ns: int) -> None:
        if self._final and not self.missing:
            self._step(Cause.COMPLETE, now_ns)

    def _welcome(self, found: packets.SessionMessage, now_ns: int) -> None:
        """The answer to a CONNECT: only the source can know its nonce."""
        if found.nonce != self._nonce:
            self.counts.dgrams_dropped_other += 1
            return
        if not found.flags & packets.ADMITTED:
            if (self.state, Cause.WELCOME) in TABLE:
                self._cookie = found.cookie
                self._step(Cause.WELCOME, now_ns)
            return
        if found.cookie != self._cookie:
            self.counts.dgrams_dropped_other += 1
            return
        self._admit(found, now_ns)
        # An end that only the group was told may be forged.
        self._admitted, self._final = True, bool(found.flags & packets.FINAL)
        self._step(Cause.ADMITTED, now_ns)
        if self._final:
            self._step(Cause.FINAL, now_ns)

    def _admit(self, found: packets.SessionMessage, now_ns: int) -> None:
        """The source's own word on where it is."""
        reception = self._reception
        astray = reception is not None and (reception.first or 0) > found.lead + self._terms.jump_max
        if reception is None or (astray and self.state is State.PROVING):
            # When it began so far ahead of its source, it began with something forged.
            first = found.trail if self._resume else found.lead
            self._reception = reception = Reception(self._terms.reception, self._random, now_ns, first, self.counts)
        reception.session_message(found.lead, found.trail, now_ns)

    def _session_message(self, found: packets.SessionMessage, now_ns: int) -> None:
        reception = self._reception
        proven = self._cookie != 0 and found.cookie == self._cookie
        if reception is None or not (proven or self._multicast):
            self.counts.dgrams_dropped_other += 1
            return
        if not proven and reception.lead is not None and found.lead - reception.lead > self._terms.jump_max:
            self.counts.dgrams_dropped_other += 1
            self._doubt(now_ns)
            return
        # What would take something away needs a proof. Without one it may be news, no more.
        reception.session_message(found.lead, found.trail if proven else 0, now_ns)
        if found.flags & packets.FINAL and (proven or not self._admitted):
            self._final = True
            self._step(Cause.FINAL, now_ns)

    def _reset(self, found: packets.Client, now_ns: int) -> None:
        connecting = self.state in (State.CONNECTING, State.PROVING)
        if found.cookie != self._nonce if connecting else found.cookie != self._cookie:
            self.counts.dgrams_dropped_other += 1
            return
        self.counts.resets_rcved += 1
        self._refused = connecting
        self._step(Cause.GONE if found.flags & packets.GONE else Cause.RESET, now_ns)

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
        refused = "the source has no room for another client" if self._refused else Cause.ATTEMPTS.value
        self.reason = {Cause.ATTEMPTS: refused, Cause.COMPLETE: Cause.FINAL.value}.get(cause, cause.value)
        if self._cookie and cause is not Cause.GONE:
            self._out.append(packets.leave(self._session_id, self._cookie))

    def _connect(self, now_ns: int) -> None:
        enough = self._attempts >= self._terms.maximum_connect_attempts
        if enough and (self._reception is None or not self._multicast):
            self._step(Cause.ATTEMPTS, now_ns)
            return
        self._attempts += 1
        wait = self._terms.reception.activity_timeout if enough else self._terms.connect_interval
        self._send_connect(now_ns, wait)

    def _doubt(self, now_ns: int) -> None:
        """Asks the source where it is, when something strange came in its name."""
        if self.state in (State.JOINED, State.ENDING) and now_ns >= self._connect_ns:
            self._send_connect(now_ns, self._terms.connect_interval)

    def _send_connect(self, now_ns: int, wait: int) -> None:
        self._connect_ns = now_ns + wait
        self.counts.connects_sent += 1
        self._out.append(packets.connect(self._session_id, self._cookie, self._nonce))

    def _ack(self, now_ns: int) -> None:
        self._ack_ns = now_ns + self._terms.acknowledgement_interval
        acks = packets.acks(self._session_id, self._cookie, self.lead, self._who, self._revision, self._topics)
        self.counts.acks_sent += len(acks)
        self._out += acks
