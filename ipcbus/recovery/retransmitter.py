"""The source side of recovery: answers what receivers ask for with what the sources of a session retain.

A receiver asks through its control channel. Its requests for numbers become ranges, which wait here; the messages
themselves are read when the channel takes them. So a receiver that asks for everything all the time costs a bounded
number of ranges, and its share of the turns. The ranges of all receivers take turns, message by message, and within
one receiver those of its topics.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ipcbus.wire import control_messages
from ipcbus.wire.control_messages import InfoRequest, RangeRequest, TsniRequest
from ipcbus.wire.number_ranges import NumberRanges

if TYPE_CHECKING:
    from collections.abc import Hashable

_STEP_BYTES = 256
"""What a step costs of the bytes of a turn, beside its entries."""


class RetainedTopic(Protocol):
    """What one source retains: a `Retention`."""

    def info(self, history: int | None = None, before: int | None = None) -> tuple[int, int]:
        """Returns the first published number of what it holds, or of its last messages, and the one after the last."""

    def read(self, first: int, last: int, bytes_max: int, *, epoch: bool = False) -> tuple[int, int, bytes]:
        """Returns the first number of the entries, the number after the last one, and the entries."""


class PeerChannel(Protocol):
    """Takes messages for one receiving context; a `ControlChannel`."""

    def send(self, message: bytes, *, bulk: bool = False) -> bool:
        """Takes a message; returns False when there is no room now."""


@dataclass(frozen=True, slots=True)
class RetransmitterSettings:
    """The settings of a retransmitter; times in ns.

    Attributes:
        piece_bytes: most bytes of entries in one RETRANSMISSION; a longer entry goes alone.
        turn_bytes: most bytes of entries in one turn.
        time_share: greatest share of the time that turns may take beside live messages, more than 0 and at most 1.
        live: how long after a live message turns leave time to others.
        message_max: longest RETRANSMISSION in bytes; a longer message is answered as if it were gone.
        ranges_max: most ranges of one receiver that wait.
        info_interval: least time between two infos of a topic that receivers ask for.
        quiet: a receiver that has asked for nothing for this time does not recover any more.
        slow: `quiet` for a receiver that has asked for a part of what it was promised: its callbacks may take long.
    """

    piece_bytes: int = 32768
    turn_bytes: int = 262144
    message_max: int = 1 << 26
    time_share: float = 0.25
    live: int = 10_000_000
    ranges_max: int = 1024
    info_interval: int = 100_000_000
    quiet: int = 1_000_000_000
    slow: int = 10_000_000_000


@dataclass(slots=True)
class RetransmitterCounts:
    """What a retransmitter has counted.

    Attributes:
        info_requests: INFO_REQUESTs received.
        range_requests: RANGE_REQUESTs received.
        tsni_requests: TSNI_REQUESTs received.
        messages: messages that were sent again; each fragment counts.
        bytes: bytes of their entries.
        gone: numbers that were asked for and are not retained any more.
        shed: requests that were dropped because too many ranges wait; the receiver asks again.
        ignored: requests for numbers that are not published.
        unknown: requests for topics that have no source.
    """

    info_requests: int = 0
    range_requests: int = 0
    tsni_requests: int = 0
    messages: int = 0
    bytes: int = 0
    gone: int = 0
    shed: int = 0
    ignored: int = 0
    unknown: int = 0


@dataclass(slots=True)
class _Recovery:
    """The recovery of one topic by one receiver."""

    asked_ns: int
    ranges: NumberRanges = field(default_factory=NumberRanges)
    promised: int = 0
    """`next` of the last INFO to the receiver; 0 before the first one."""
    is_complete: bool = False
    has_begun: bool = False
    """Whether the receiver has asked for messages since the INFO."""


@dataclass(slots=True)
class _Peer:
    """A receiving context."""

    channel: PeerChannel
    epoch: bool
    recoveries: dict[int, _Recovery] = field(default_factory=dict)
    turns: deque[int] = field(default_factory=deque)
    """The topics with ranges; the first one is next."""
    infos: dict[tuple[int, int], InfoRequest] = field(default_factory=dict)
    """The requests whose INFO the channel did not take, by topic and number."""
    waiting: tuple[int, bytes] | None = None
    """A topic and its RETRANSMISSION that the channel did not take."""
    is_in_order: bool = False

    @property
    def has_work(self) -> bool:
        """Whether something waits for its channel."""
        return bool(self.waiting or self.turns or self.infos)

    @property
    def ranges(self) -> int:
        """The number of its ranges."""
        return sum(len(recovery.ranges) for recovery in self.recoveries.values())


class Retransmitter:
    """Answers the requests of all receivers for the topics of one session or context.

    It has no clock. Its user holds a lock, or uses it from one thread only, and calls:

    * `receive` for each request that comes through a channel;
    * `turn` when `due_ns` says so, then flushes the channels, and says with `spent` how long all of it took, and how
      many live messages there were;
    * `turn` again when a channel has room again, if the last one returned False;
    * `infos_due` after requests have come, and sends these infos in the session.
    """

    def __init__(self, settings: RetransmitterSettings) -> None:
        if not 0 < settings.time_share <= 1:
            raise ValueError(f"time_share = {settings.time_share}, but it must be more than 0 and at most 1")
        self.settings = settings
        self.counts = RetransmitterCounts()
        self._topics: dict[int, RetainedTopic] = {}
        self._peers: dict[Hashable, _Peer] = {}
        self._order: deque[Hashable] = deque()
        self._rest_until = 0
        self._live_messages, self._live_until = -1, 0
        self._infos_wanted: set[int] = set()
        self._info_sent: dict[int, int] = {}

    def add_topic(self, topic: int, retained: RetainedTopic) -> None:
        """Answers for a topic from now on, also if its source retains nothing."""
        self._topics[topic] = retained

    def remove_topic(self, topic: int) -> None:
        """Says from now on that the numbers of a topic are gone."""
        self._topics.pop(topic, None)
        self._infos_wanted.discard(topic)
        self._info_sent.pop(topic, None)
        for peer in self._peers.values():
            peer.infos = {key: asked for key, asked in peer.infos.items() if key[0] != topic}
            if topic not in peer.turns:
                peer.recoveries.pop(topic, None)

    def add_peer(self, key: Hashable, channel: PeerChannel, *, epoch: bool = False) -> None:
        """Adds a receiving context; one of the same key is forgotten first, as its channel was replaced.

        Args:
            key: names it in the other calls.
            channel: goes to it.
            epoch: give send times in ns since the epoch, as it is on another host.
        """
        self.remove_peer(key)
        self._peers[key] = _Peer(channel, epoch)

    def remove_peer(self, key: Hashable) -> None:
        """Forgets a receiving context and what it asked for."""
        peer = self._peers.pop(key, None)
        if peer is not None and peer.is_in_order:
            self._order.remove(key)

    def receive(self, key: Hashable, message: InfoRequest | RangeRequest | TsniRequest, now_ns: int) -> None:
        """Takes the request of a receiver, and answers at once what needs no messages."""
        peer = self._peers.get(key)
        if peer is None:
            return
        if isinstance(message, InfoRequest):
            self.counts.info_requests += 1
            self._asked_for_info(key, peer, message, now_ns)
        elif isinstance(message, RangeRequest):
            self.counts.range_requests += 1
            self._asked_for_range(key, peer, message, now_ns)
        else:
            self.counts.tsni_requests += 1
            if message.topic in self._topics:
                self._infos_wanted.add(message.topic)
            else:
                self.counts.unknown += 1

    def _asked_for_info(self, key: Hashable, peer: _Peer, request: InfoRequest, now_ns: int) -> None:
        """Answers an INFO_REQUEST."""
        topic = request.topic
        if topic not in self._topics:
            self.counts.unknown += 1
            peer.channel.send(control_messages.info(topic, 0, 0, request.request))
            return
        recovery = self._recovery(peer, topic, now_ns)
        if not self._send_info(peer, request, recovery) and len(peer.infos) < self.settings.ranges_max:
            peer.infos[topic, request.request] = request
            self._has_work(key, peer)

    def _asked_for_range(self, key: Hashable, peer: _Peer, request: RangeRequest, now_ns: int) -> None:
        """Answers a RANGE_REQUEST as far as its numbers are gone, and keeps the rest as a range.

        All numbers below the lowest retained one are gone, also those that the receiver will ask for next: so it can
        report the whole gap in one event, and need not ask for the rest.
        """
        retained = self._topics.get(request.topic)
        if retained is None:
            self.counts.unknown += 1
            peer.channel.send(control_messages.retransmission(request.topic, request.first, request.last, b""))
            return
        low, following = retained.info()
        first, last = request.first, min(request.last, following - 1)
        if first > last:
            self.counts.ignored += 1
            return
        recovery = self._recovery(peer, request.topic, now_ns)
        # Behind a message that waits for the channel: it may have numbers that have left since.
        if first < low and peer.waiting is None and self._send_gone(peer, request.topic, first, low - 1):
            self.counts.gone += min(last + 1, low) - first
            first = low
        if first > last:
            self._check_complete(recovery, first)
            return
        if peer.ranges >= self.settings.ranges_max and not recovery.ranges.touches(first, last):
            self.counts.shed += 1
            return
        if not recovery.ranges:
            peer.turns.append(request.topic)
        recovery.ranges.add(first, last)
        recovery.has_begun = recovery.promised > 0
        self._has_work(key, peer)

    def _recovery(self, peer: _Peer, topic: int, now_ns: int) -> _Recovery:
        recovery = peer.recoveries.get(topic)
        if recovery is None:
            recovery = peer.recoveries[topic] = _Recovery(now_ns)
        recovery.asked_ns = now_ns
        recovery.is_complete = False
        return recovery

    def _has_work(self, key: Hashable, peer: _Peer) -> None:
        if not peer.is_in_order:
            peer.is_in_order = True
            self._order.append(key)

    def turn(self, now_ns: int) -> bool:
        """Sends what the channels take, within the limits of one turn.

        Returns:
            Whether more can be sent at once; `due_ns` says when.
        """
        left = self.settings.turn_bytes
        blocked: list[Hashable] = []
        if now_ns < self._rest_until:
            return bool(self._order)
        while self._order and left > 0:
            key = self._order.popleft()
            peer = self._peers[key]
            sent = self._step(peer, now_ns)
            if sent is None:
                blocked.append(key)
                continue
            left -= sent + _STEP_BYTES
            peer.is_in_order = peer.has_work
            if peer.is_in_order:
                self._order.append(key)
        has_more = bool(self._order)
        self._order.extend(blocked)
        return has_more

    def spent(self, begun_ns: int, ended_ns: int, live_messages: int) -> None:
        """Notes how long a turn took, with the flush of the channels; then live messages have their share of the time.

        Args:
            begun_ns: when the turn began.
            ended_ns: when it ended.
            live_messages: a number that changes with the live messages of the context. While it does not change, the
                next turn may follow at once.
        """
        if live_messages != self._live_messages:
            self._live_messages, self._live_until = live_messages, ended_ns + self.settings.live
        share = self.settings.time_share if ended_ns < self._live_until else 1
        self._rest_until = ended_ns + int((ended_ns - begun_ns) * (1 - share) / share)

    def due_ns(self, now_ns: int) -> int | None:
        """Returns when the next turn may begin; None while no receiver waits for messages.

        A receiver whose channel has no room waits too: after a turn that returned False, the next one makes sense only
        when a channel has room.
        """
        return max(now_ns, self._rest_until) if self._order else None

    def infos_due(self, now_ns: int) -> list[int]:
        """Returns the topics whose sequence number info is to be sent now, as receivers have asked for it."""
        oldest = now_ns - self.settings.info_interval
        due = [topic for topic in self._infos_wanted if self._info_sent.get(topic, oldest) <= oldest]
        for topic in due:
            self._infos_wanted.discard(topic)
            self._info_sent[topic] = now_ns
        return due

    def busy(self, now_ns: int, topic: int | None = None, key: Hashable = None) -> bool:
        """Returns whether recoveries are running; a close waits for them.

        Args:
            now_ns: the time.
            topic: the topic; None for any.
            key: the receiving context; None for any.
        """
        for peer in list(self._peers.values()) if key is None else filter(None, [self._peers.get(key)]):
            if (
                (peer.waiting and topic in (None, peer.waiting[0]))
                or (topic is None and peer.infos)
                or any(topic == asked[0] for asked in list(peer.infos))
            ):
                return True
            for number, recovery in list(peer.recoveries.items()):
                if topic in (None, number) and self._is_running(number, recovery, now_ns):
                    return True
        return False

    @property
    def recovering(self) -> int:
        """The number of recoveries with ranges that wait: one for each receiving context and topic."""
        return sum(len(peer.turns) for peer in self._peers.values())

    def _is_running(self, topic: int, recovery: _Recovery, now_ns: int) -> bool:
        if recovery.ranges:
            return True
        retained = self._topics.get(topic)
        # A receiver may have skipped what was sent after the last INFO, to ask for it later.
        knows_all = retained is None or retained.info()[1] <= recovery.promised
        if recovery.is_complete and knows_all:
            return False
        takes_part = recovery.has_begun and not recovery.is_complete
        return now_ns - recovery.asked_ns < (self.settings.slow if takes_part else self.settings.quiet)

    def _step(self, peer: _Peer, now_ns: int) -> int | None:
        """Sends the next message to a receiver; returns the bytes of its entries, or None when there is no room."""
        for key, asked in list(peer.infos.items()):
            if not self._send_info(peer, asked, peer.recoveries[asked.topic]):
                return None
            del peer.infos[key]
        if peer.waiting is None:
            if not peer.turns:
                return 0
            peer.waiting = self._next_message(peer, peer.turns.popleft(), now_ns)
        message = peer.waiting[1]
        if not peer.channel.send(message, bulk=True):
            return None
        peer.waiting = None
        return len(message)

    def _next_message(self, peer: _Peer, topic: int, now_ns: int) -> tuple[int, bytes]:
        """Takes the lowest numbers out of the ranges of a topic, and returns it and them as a RETRANSMISSION."""
        recovery = peer.recoveries[topic]
        recovery.asked_ns = now_ns
        first, last = recovery.ranges.front
        retained = self._topics.get(topic)
        low, following, entries = first, first, b""
        if retained is not None:
            low, following, entries = retained.read(first, last, self.settings.piece_bytes, epoch=peer.epoch)
        if entries:
            last = following - 1
        if len(entries) > self.settings.message_max - control_messages.RETRANSMISSION_HEADER:
            low, entries = following, b""
        self.counts.messages += following - low
        self.counts.bytes += len(entries)
        self.counts.gone += last + 1 - first - (following - low)
        if retained is not None and not entries:
            last = max(last, retained.info()[0] - 1)
        recovery.ranges.drop_below(last + 1)
        if recovery.ranges:
            peer.turns.append(topic)
        elif retained is None:
            del peer.recoveries[topic]
        self._check_complete(recovery, last + 1)
        return topic, control_messages.retransmission(topic, first, last, entries)

    def _send_info(self, peer: _Peer, asked: InfoRequest, recovery: _Recovery) -> bool:
        low, following = self._topics[asked.topic].info(asked.history, asked.before)
        if not peer.channel.send(control_messages.info(asked.topic, low, following, asked.request)):
            return False
        recovery.promised = following
        recovery.is_complete = low == following
        return True

    def _send_gone(self, peer: _Peer, topic: int, first: int, last: int) -> bool:
        """Says that a range is gone, in the order of the messages that were read before."""
        return peer.channel.send(control_messages.retransmission(topic, first, last, b""), bulk=True)

    def _check_complete(self, recovery: _Recovery, following: int) -> None:
        """Notes that a receiver has got what its last INFO promised; it need not ask again."""
        if recovery.promised and following >= recovery.promised and not recovery.ranges:
            recovery.is_complete = True
