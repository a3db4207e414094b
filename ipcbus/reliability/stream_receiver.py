"""The protocol of a session over TCP at its receiver: takes packets, returns datagrams and packets to send.

Within a connection all datagrams come, in order: a number that is passed over is one that the source has not sent here.
When the connection breaks, this stay in the session ends; the next one begins where it stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ipcbus.reliability.registration import OVER, TABLE, Cause, State
from ipcbus.reliability.session_receiver import SessionReceiver
from ipcbus.reliability.stream_sender import CLOSE
from ipcbus.wire import udp_packets
from ipcbus.wire.udp_packets import (
    DATA,
    DATA_HEAD,
    DATA_HEADER,
    NUMBER_MAX,
    PASSED_SHIFT,
    VERSION,
)

if TYPE_CHECKING:
    from collections.abc import Hashable
    from random import Random

    from ipcbus.reliability.receiver_settings import ReceiverSettings


_NONCES: Final = (1 << 64) - 1


class StreamReceiver(SessionReceiver):
    """The protocol of one session at one receiving context; its owner calls it like a `ReliableReceiver`."""

    silence = "the connection to the source has ended"

    def __init__(
        self,
        session_id: int,
        address: Hashable,
        settings: ReceiverSettings,
        random: Random,
        now_ns: int,
        identity: tuple[int, int, str],
        multicast: bool = False,
        resume_at: int | None = None,
    ) -> None:
        """Starts outside the session; the first `turn` begins to join; the arguments are as in `ReliableReceiver`."""
        del multicast, address
        super().__init__(session_id, settings, random, now_ns, identity, resume_at)
        self._is_connected = False
        self._questions = 0
        """How many questions have been sent: each has the nonce after that of the one before."""
        self._next = 0
        self.lead = 0
        """The number after the highest one that the source has sent, as far as known."""
        self._connect_ns = now_ns
        self._broken_ns: int | None = None
        """When the stay ends whose connection has broken; None while it has not."""

    # ---- calls of the session's owner

    def ask(self, now_ns: int, *, anew: bool = False) -> int:
        """Asks the source how far it has sent, and for the numbers of topics (`asks`).

        Args:
            now_ns: the time.
            anew: as in `ReliableReceiver`; over a stream, each question is another one.

        Returns:
            The number of the question: it is answered when `answers` has reached that. Answers come behind what was
            published when the question came, so that the answer to an earlier question says too little.
        """
        del anew
        if self.state in (State.JOINED, State.ENDING):
            self.subscriptions.ask()
            # The topics first: their answer is there when `answers` shows the other one.
            self._ack(now_ns)
            self._send_connect()
            return self._questions
        return self._questions + 1

    def ready(self, now_ns: int) -> list[tuple[bytes, int]]:
        """Returns no datagrams: `receive` returns all of them."""
        del now_ns
        return []

    def limit_asks(self, room: int) -> bool:
        """Does nothing, and returns False: a source over TCP sends what the connection takes."""
        del room
        return False

    def settled(self, now_ns: int) -> int:
        """Returns the number below which each datagram has come, or is known to be gone."""
        del now_ns
        return self._next

    def shed(self, now_ns: int) -> None:
        """Takes note that the connection is not read, because there is no room: the source may well live."""
        self.heard_ns = now_ns

    def leave(self, now_ns: int) -> None:
        """Leaves the session and tells the source."""
        del now_ns
        self._step(Cause.LEAVE)

    def take(self) -> list[bytes]:
        """Returns, once, the packets to send to the source; a broken connection can only be closed."""
        found = super().take()
        return found if self._broken_ns is None else [packet for packet in found if packet == CLOSE]

    # ---- state

    @property
    def channel_cookie(self) -> int:
        """The cookie for the packets of the control channel; 0 while no connection takes any."""
        return super().channel_cookie if self._broken_ns is None else 0

    @property
    def stopped_at(self) -> int | None:
        """The number of the first datagram that did not come; None while the source has not registered the receiver."""
        return self._next if self._cookie else self._resume_at

    @property
    def missing(self) -> int:
        """The number of datagrams that are missing: none, in a connection."""
        return 0

    @property
    def catches_up(self) -> bool:
        """Whether datagrams are still to come that the source had sent when it was asked last."""
        is_behind = self._next < self.lead if self._cookie else self._resume_at is not None
        return is_behind and self.state not in OVER

    # ---- time

    def turn(self, now_ns: int, early_ns: int = 0) -> None:
        """Runs the timers that have expired.

        Args:
            now_ns: the time.
            early_ns: time by which an ACK may come early, so that it needs no turn of its own.
        """
        if self.state in OVER:
            return
        if self._broken_ns is not None:
            if now_ns >= self._broken_ns:
                self._step(Cause.SILENCE)
        elif now_ns - self.heard_ns >= self._settings.receiving.activity_timeout:
            self._step(Cause.SILENCE)
        elif self.state is State.CONNECTING:
            if not self._is_connected and now_ns >= self._connect_ns:
                self._is_connected = True
                self._attempts += 1
                self._send_connect()
        elif now_ns + early_ns >= self._ack_ns:
            self._ack(now_ns)

    @property
    def next_ns(self) -> int | None:
        """The time at which to call `turn`; None when the session is over."""
        if self.state in OVER:
            return None
        if self._broken_ns is not None:
            return self._broken_ns
        silent_ns = self.heard_ns + self._settings.receiving.activity_timeout
        if self.state is State.CONNECTING:
            return silent_ns if self._is_connected else min(silent_ns, self._connect_ns)
        return min(silent_ns, self._ack_ns)

    # ---- packets

    @property
    def expected(self) -> tuple[int, int] | None:
        """The session and the number of the next datagram, where its owner may take it by itself and tell `took`."""
        takes = self._cookie and self._broken_ns is None and self.state not in OVER
        return (self._session_id, self._next) if takes else None

    def took(self, count: int, size: int, now_ns: int) -> None:
        """Takes note of datagrams that came from `expected` on, each with the next number and without flags.

        Args:
            count: how many.
            size: their bytes, without headers.
            now_ns: the time.
        """
        self.heard_ns = now_ns
        self._next += count
        self.counts.msgs_rcved += count
        self.counts.bytes_rcved += size
        self.lead = max(self.lead, self._next)

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> list[tuple[bytes, int]]:
        """Takes a packet of the connection; invalid ones are counted, and end it.

        Args:
            packet: its bytes; none when the connection has ended.
            address: the address that it comes from.
            now_ns: the time.

        Returns:
            The datagrams to deliver now, each with its send time, ns since the epoch.
        """
        if self._broken_ns is not None:
            return []
        if len(packet) <= DATA_HEADER or packet[1] != DATA:
            self._receive_other(packet, address, now_ns)
            return []
        version, _, flags, session_id, number, _, _, send_time_ns = DATA_HEAD.unpack_from(packet)
        if version != VERSION or session_id != self._session_id or not self._cookie or self.state in OVER:
            self._drop(packet, now_ns)
            return []
        if number != self._next and not self._pass_over(number - (flags >> PASSED_SHIFT), number):
            self._drop(packet, now_ns)
            return []
        self.heard_ns = now_ns
        self._next = number + 1
        counts = self.counts
        counts.msgs_rcved += 1
        counts.bytes_rcved += len(packet) - DATA_HEADER
        if self._next > self.lead:
            self.lead = self._next
        return [(packet[DATA_HEADER:], send_time_ns)]

    def _pass_over(self, first: int, number: int) -> bool:
        """Goes on at `number`: those from `first` on are not for this receiver, and those before `first` are lost.

        Returns:
            False when the source cannot mean this.
        """
        if not self._next <= first <= number <= NUMBER_MAX:
            return False
        self.counts.lost += first - self._next
        self.counts.unrecovered_txw += first - self._next
        self.counts.dgrams_filtered += number - first
        self._next = number
        self.lead = max(self.lead, number)
        return True

    def _drop(self, packet: bytes, now_ns: int) -> None:
        """Counts a packet that no source sends, and ends the connection."""
        self.counts.dropped(packet, self._session_id)
        if self.state not in OVER:
            self._packets_out.append(CLOSE)
            self._closed(now_ns)

    def _receive_other(self, packet: bytes, address: Hashable, now_ns: int) -> None:
        del address
        if packet == CLOSE:
            self._closed(now_ns)
            return
        found = udp_packets.parse(packet)
        if found is None or found.session_id != self._session_id or self.state in OVER:
            self._drop(packet, now_ns)
            return
        self.heard_ns = now_ns
        if isinstance(found, udp_packets.SessionMessage):
            self._session_message(found, now_ns)
        elif isinstance(found, udp_packets.Client) and found.type == udp_packets.RESET:
            self.counts.resets_rcved += 1
            self._refused = True
            if found.flags & udp_packets.GONE:
                self._step(Cause.GONE)
        elif isinstance(found, udp_packets.Passed) and found.cookie == self._cookie != 0:
            for first, count in found.ranges:
                self._pass_over(first, first + count)
        elif not self._take_answer(found):
            self.counts.dgrams_dropped_other += 1

    def _closed(self, now_ns: int) -> None:
        """Takes note that the connection has ended, or could not be made."""
        if self.state in OVER:
            return
        if self.state is not State.CONNECTING:
            # The kernel ends the connections of a source that was killed before others can see that it is dead: then
            # the stay is not to be followed by another one. And a source that ends each connection gets few of them.
            self._broken_ns = now_ns + self._settings.connect_interval
        elif self._attempts >= self._settings.maximum_connect_attempts:
            self._step(Cause.ATTEMPTS)
        else:
            self._is_connected = False
            self._connect_ns = now_ns + self._settings.connect_interval

    def _session_message(self, found: udp_packets.SessionMessage, now_ns: int) -> None:
        if found.flags & udp_packets.WELCOME:
            question = found.nonce - self._nonce & _NONCES
            if not self.answers < question <= self._questions:
                self.counts.dgrams_dropped_other += 1
                return
            self.answers = question
            if self.state is State.CONNECTING:
                self._refused = False
                self._cookie, self._next = found.cookie, found.trail
                self.is_filtered = bool(found.flags & udp_packets.FILTERS)
                self._note_left_out(found.trail)
                self._step(Cause.WELCOME)
                self._step(Cause.ADMITTED)
                self._ack(now_ns)
        elif found.cookie != self._cookie:
            self.counts.dgrams_dropped_other += 1
            return
        self.lead = max(self.lead, found.lead)
        if found.flags & udp_packets.FINAL:
            self._step(Cause.FINAL)
            self._step(Cause.COMPLETE)

    def _note_left_out(self, first: int) -> None:
        """Counts the datagrams since the stay before that the source does not hold any more."""
        if self._resume_at is not None and first > self._resume_at:
            self.counts.lost += first - self._resume_at
            self.counts.unrecovered_txw += first - self._resume_at

    # ---- steps

    def _step(self, cause: Cause) -> None:
        following = TABLE.get((self.state, cause))
        if following is None:
            return
        self.state = following
        if following in OVER:
            self._finish(cause)
            self._packets_out.append(CLOSE)

    def _send_connect(self) -> None:
        """Asks to be registered, or how far the source has sent."""
        first = 0 if self._resume_at is None else self._resume_at + 1
        self.counts.connects_sent += 1
        self._questions += 1
        nonce = self._nonce + self._questions & _NONCES
        self._packets_out.append(udp_packets.connect(self._session_id, first, nonce))

    def _ack(self, now_ns: int) -> None:
        self._put_acks(self._next, self._plan_ack(now_ns))
