"""What a session over UDP and one over TCP share at the receiver: registration, topics, control channel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from ipcbus.reliability.receiver_settings import ReceiverCounts
from ipcbus.reliability.registration import OVER, Cause, State
from ipcbus.reliability.topic_subscriptions import TopicSubscriptions
from ipcbus.wire import udp_packets
from ipcbus.wire.udp_packets import Frame, FrameAck

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from ipcbus.reliability.receiver_settings import ReceiverSettings

_NO_ROOM = "the source has no room for another client, see its option transport_..._maximum_clients_per_transport"
_NO_REPAIRS = "; until it has, nothing that is lost on the way is sent again"


class SessionReceiver(ABC):
    """The part of the protocol at one receiving context that does not depend on the network.

    After each call with `now_ns`, `take` returns the packets to send to the source.
    """

    silence = Cause.SILENCE.value
    """Why a session is over that may be joined again, in words."""

    def __init__(
        self,
        session_id: int,
        settings: ReceiverSettings,
        random: Random,
        now_ns: int,
        identity: tuple[int, int, str],
        resume_at: int | None,
    ) -> None:
        """Starts outside the session; the arguments are those of `ReliableReceiver`."""
        self.counts = ReceiverCounts()
        self.state = State.CONNECTING
        self.reason = ""
        """Why the session is over, in words; empty while it is not."""
        self._session_id, self._settings = session_id, settings
        self._identity, self._resume_at = identity, resume_at
        self._packets_out: list[bytes] = []
        self.subscriptions = TopicSubscriptions(now_ns)
        self._cookie = 0
        self._nonce = random.getrandbits(64)
        self._attempts = 0
        self._refused = False
        self._acked_ns = self._ack_ns = self.heard_ns = now_ns
        """The time of the last sign of life of the source; at first, the time of construction."""
        self.answers = 0
        """The number of the last question how far the source has published that is answered to the end, see `ask`."""
        self.is_filtered = False
        """Whether the source leaves out datagrams of which this context receives no topic."""
        self._channel_packets: list[Frame | FrameAck] = []
        self.for_good = False
        """Whether it cannot be joined again: it has ended or was left, and is not only silent or cut off."""

    # ---- calls of the session's owner

    def topics(self, numbers: Iterable[int], now_ns: int) -> None:
        """Replaces the list of topics; sends it at once, and again with every ACK."""
        self.subscriptions.subscribe(numbers, now_ns)
        if self.state in (State.JOINED, State.ENDING):
            self._ack(now_ns)

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
    def is_unregistered(self) -> bool:
        """Whether the receiver began to take datagrams without being registered, and has not been registered since."""
        return False

    def receives(self, topic: int) -> bool:
        """Returns whether every message of a topic that is sent from now on comes, or is known to be lost.

        So it is when the source has confirmed the topic, or when its group's datagrams are taken without that.
        """
        return topic in self.subscriptions.starts or self.is_unregistered

    @property
    def refusal(self) -> str:
        """Why the source has not registered the receiver, when the receiver asked last; empty otherwise."""
        if not self._refused:
            return ""
        return _NO_ROOM + _NO_REPAIRS if self.is_unregistered else _NO_ROOM

    @property
    def asks(self) -> bool:
        """Whether the source still has to send numbers of topics."""
        return self.subscriptions.asks and self.state not in OVER

    # ---- packets

    def take_frame(self, packet: bytes, now_ns: int) -> bool:
        """Takes a frame of the control channel from the source's address; returns False if `receive` has to judge it.

        Frames come by the thousand to a receiver that catches up, and change nothing else.
        """
        found = udp_packets.parse(packet)
        if not isinstance(found, Frame) or not found.cookie == self.channel_cookie != 0:
            return False
        if found.session_id != self._session_id:
            return False
        self.heard_ns = now_ns
        self._channel_packets.append(found)
        return True

    def _take_answer(self, found: udp_packets.Packet) -> bool:
        """Takes numbers of topics, or a packet of the control channel; returns whether it was one with the cookie."""
        if isinstance(found, udp_packets.Topics) and found.cookie == self._cookie != 0:
            self.subscriptions.answered(found)
            if not self.asks:  # the next ACK was planned early, to ask again
                self._ack_ns = max(self._ack_ns, self._acked_ns + self._settings.acknowledgement_interval)
        elif isinstance(found, Frame | FrameAck) and found.cookie == self.channel_cookie != 0:
            self._channel_packets.append(found)
        else:
            return False
        return True

    def _finish(self, cause: Cause) -> None:
        """Says why the session is over, and leaves it where the source may wait for this receiver."""
        self.for_good = cause not in (Cause.ATTEMPTS, Cause.SILENCE)
        reasons = {
            Cause.ATTEMPTS: self.refusal or Cause.ATTEMPTS.value,
            Cause.COMPLETE: Cause.FINAL.value,
            Cause.SILENCE: self.silence,
        }
        self.reason = reasons.get(cause, cause.value)
        # A receiver that finds its source silent comes back: the source keeps datagrams for it for a while.
        if self._cookie and cause not in (Cause.GONE, Cause.SILENCE):
            self._packets_out.append(udp_packets.leave(self._session_id, self._cookie))

    @abstractmethod
    def _ack(self, now_ns: int) -> None:
        """Puts out a sign of life with the list of topics."""

    def _plan_ack(self, now_ns: int) -> int:
        """Plans the next ACK with the list of topics; returns the flags of this one."""
        settings = self._settings
        flags = udp_packets.ASKS if self.asks else 0
        often = settings.connect_interval if flags else settings.acknowledgement_interval
        self._acked_ns, self._ack_ns = now_ns, now_ns + min(often, settings.acknowledgement_interval)
        return flags

    def _put_acks(self, lead: int, flags: int, *, listed: bool = True, room: tuple[int, int] | None = None) -> None:
        """Puts out ACK packets; the arguments are those of `udp_packets.acks`, with the list of topics if `listed`."""
        subscriptions = self.subscriptions
        acks = udp_packets.acks(
            self._session_id,
            self._cookie,
            lead,
            self._identity,
            subscriptions.revision,
            subscriptions.numbers if listed else None,
            flags,
            room,
        )
        self.counts.acks_sent += len(acks)
        self._packets_out += acks
