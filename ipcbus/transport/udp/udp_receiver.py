"""A session that comes over UDP: its packets are put in a ring of this context, which is read as every other one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ipcbus.reliability.catch_up import REQUESTS_MAX
from ipcbus.reliability.reliable_receiver import ReliableReceiver
from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.adverts import TRANSPORT_NAMES
from ipcbus.transport.udp.stats_blocks import ReceiverStatsBlock
from ipcbus.wire.udp_packets import DATA, DATA_HEADER
from ipcbus.wire.wire_layout import MESSAGE_HEADER_BYTES, RECEPTION_BOARD, TRANSPORT_LBTRM, TRANSPORT_LBTRU
from ringbuf.channel import OwnedChannel, Shape
from ringbuf.layout import RECORD_ALIGN, RECORD_HEADER
from ringbuf.relay import put
from ringbuf.ring import RingReader

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from random import Random

    from ipcbus.reliability.receiver_settings import ReceiverSettings
    from ipcbus.resolution.local.adverts import SessionAdvert
    from ipcbus.transport.ring.topic_lines import TopicLines
    from ipcbus.transport.udp.mmsg import Address
    from ipcbus.transport.udp.session_socket import SessionSocket
    from ringbuf.memory import Mapping
    from ringbuf.slots import Identity

_DATAGRAM_MAX = 65_535
_WINDOW = 1 << 19
_RETRY_NS = 1_000_000
_PATIENCE_NS = 1_000_000_000
"""So long, and for so many datagrams, it waits for the source's word on where topics begin."""
_HELD_MAX = 64
_NUMBERS_MAX = 1 << 62
_ASK_NS = 100_000_000
"""A question that was not answered for so long is asked again."""
_GONE_NS = 1_000_000_000
"""A source that nobody offers any more and that has been silent for so long is dead."""


class UdpReceiver:
    """One session at this context (transport.DatagramSource). Everything runs on whoever drives the context."""

    counted = False

    def __init__(
        self,
        domain: str,
        local: int,
        advert: SessionAdvert,
        who: Identity,
        ports: tuple[SessionSocket, ...],
        address: Address,
        settings: ReceiverSettings,
        random: Random,
        *,
        multicast: bool,
        resume: bool,
        group: str,
        sample_every: int,
        on_leave: Callable[[], object],
        on_mark: Callable[[], object],
    ) -> None:
        """Begins to join.

        Args:
            domain: the bus domain.
            local: number of the ring in this context.
            advert: the session.
            who: how the context introduces itself.
            ports: what it listens at; what it sends leaves from the first.
            address: the source's.
            settings: how it behaves.
            random: draws backoffs.
            multicast: the session has a group.
            resume: everything is wanted that the source still holds.
            group: system group that may use the ring too, or empty.
            sample_every: one datagram in this many is timed.
            on_leave: called once, when the session is left.
            on_mark: called when a mark may have been reached.

        Raises:
            ringbuf.ring_errors.SegmentFull, ringbuf.ring_errors.SegmentRefused: as `OwnedChannel`.
        """
        self._passes_over = advert.source_paced or advert.transport not in (TRANSPORT_LBTRU, TRANSPORT_LBTRM)
        self.recovery_ns = settings.receiving.naks.generation
        self.owner_pid = 0
        self.begun = False
        self.reason = ""
        self.lines: TopicLines | None = None
        self._ports, self._address = ports, address
        board = RECEPTION_BOARD.itemsize
        shape = Shape(advert.session_id, _WINDOW, RECORD_HEADER + _DATAGRAM_MAX + 1, False, 1, board, 0, group)
        ring, control = (
            object_names.ring(domain, who.context_id, local),
            object_names.control(domain, who.context_id, local),
        )
        self._channel = channel = OwnedChannel(ring, control, shape)
        self._index = channel.slots.claim(who, time.time_ns())
        self._reader = RingReader(channel.ring, channel.control, self._index, sample_every)
        channel.slots.join(self._index, self._reader)
        introduced = (who.context_id, who.pid, who.context_name)
        self.reliable_receiver = ReliableReceiver(
            advert.session_id, address, settings, random, time.monotonic_ns(), introduced, multicast, resume
        )
        transport = TRANSPORT_LBTRM if multicast else TRANSPORT_LBTRU
        self._board = ReceiverStatsBlock(channel.ring, transport, address, self.reliable_receiver)
        self.layer = TRANSPORT_NAMES[transport]
        self._on_leave, self._on_mark = on_leave, on_mark
        self._marked = False
        self._topics: set[int] = set()
        self._beginning: dict[int, Callable[[int], object]] = {}
        self._patient_until_ns = 0
        self._backlog: list[tuple[bytes, int]] = []
        self._withdrawn = False
        self._silence_ns = _GONE_NS
        self._longest = 0
        self._looked_at = -1
        self.left = False
        self.shed = 0
        """Datagrams that came while there was no room for them; they are asked for again."""
        for port in ports:
            port.add(self, advert.session_id, address)

    # ------------------------------------------------------------------ packets and time

    @property
    def crowded(self) -> bool:
        """Whether more than half of its ring waits to be read, and somebody does read it."""
        if self._channel.writer.has_room(_WINDOW // 2):
            return False
        position, self._looked_at = self._looked_at, self._reader.position
        return position != self._looked_at

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> None:
        """Takes a packet, whatever it is."""
        self._longest = max(self._longest, len(packet))
        self._limit_requests()
        writer = self._channel.writer
        full = not writer.has_room(len(packet)) or (self._backlog and not self._waits(now_ns))
        if len(packet) > DATA_HEADER and packet[1] == DATA and full:
            # As if it had not come: it is asked for again, and who is slow for longer than that loses it, counted.
            self.shed += 1
            self.reliable_receiver.shed(now_ns)
            return
        self._put(self.reliable_receiver.receive(packet, address, now_ns), now_ns)
        self._flush()
        if self._marked:
            self._on_mark()

    def turn(self, now_ns: int) -> int | None:
        """Does what is due; returns when to call again."""
        cramped = self._limit_requests()
        self.reliable_receiver.turn(now_ns)
        self._put(self.reliable_receiver.ready(now_ns), now_ns)
        self._flush()
        times = [self.reliable_receiver.next_ns, now_ns + _RETRY_NS if self._backlog or cramped else None]
        if now_ns < self._board.due_ns:
            times.append(self._board.due_ns)
        else:
            self._board.show(self._ports, self.shed, self.reason, now_ns)
        return min((time for time in times if time is not None), default=None)

    def _limit_requests(self) -> bool:
        """Has no more asked for than there is room for; says whether that is less than wanted."""
        if not self.reliable_receiver.catches_up:
            return False
        writer = self._channel.writer
        room = (writer.capacity - (writer.head - self._reader.position)) // (
            self._longest + RECORD_HEADER + RECORD_ALIGN
        )
        # One record more may be needed to reach the end of the ring, and one datagram is in hand.
        self.reliable_receiver.limit_requests(room - 2 - len(self._backlog))
        return room - 2 < REQUESTS_MAX

    def _put(self, datagrams: list[tuple[bytes, int]], now_ns: int) -> None:
        """Puts datagrams into the ring; those for which there is no room now wait."""
        if self._beginning:
            self._begin(now_ns, bool(datagrams))
        self._backlog += datagrams
        if not self._backlog or self._waits(now_ns):
            return
        self._beginning.clear()  # who was waited for so long is not waited for again
        done = 0
        for datagram, sent_ns in self._backlog:
            if put(self._channel.writer, datagram, 0, 1, sent_ns) < 0:
                break
            done += 1
        if done:
            del self._backlog[:done]

    def _begin(self, now_ns: int, comes: bool) -> None:
        """Tells where topics begin, as far as the source has said so.

        What comes before it has said so waits: the first that comes of a topic need not be the first that was sent.
        """
        for number in [number for number in self._beginning if number in self.reliable_receiver.subscriptions.starts]:
            begins, start = self._beginning.pop(number), self.reliable_receiver.subscriptions.starts[number]
            if start is not None:
                begins(start)
        if self._beginning and comes and not self._patient_until_ns:
            self._patient_until_ns = now_ns + _PATIENCE_NS

    def _waits(self, now_ns: int) -> bool:
        """Returns whether what comes is kept until it is known where topics begin."""
        patient = not self._patient_until_ns or now_ns < self._patient_until_ns
        return bool(self._beginning) and patient and len(self._backlog) < _HELD_MAX and not self.reliable_receiver.over

    def _flush(self) -> None:
        if packets := self.reliable_receiver.take():
            self._ports[0].send([(packet, self._address) for packet in packets])
        if self.reliable_receiver.over and not self._backlog:
            self._channel.writer.close()

    # ------------------------------------------------------------------ what the session asks (`DatagramSource`)

    @property
    def reader(self) -> RingReader:
        """Of the own ring."""
        return self._reader

    @property
    def control(self) -> Mapping:
        """Of the own ring."""
        return self._channel.control

    @property
    def index(self) -> int:
        """This context's slot in it."""
        return self._index

    def join_topic(self, number: int, begins: Callable[[int], object] | None = None) -> bool:
        """Tells the source that this context receives a topic."""
        self._topics.add(number)
        if begins is not None:
            self._beginning[number] = begins
            self._patient_until_ns = 0
        self._tell_topics()
        return True

    def leave_topic(self, number: int) -> None:
        """Tells it that it does not any more."""
        self._topics.discard(number)
        self._beginning.pop(number, None)
        self._tell_topics()

    def _tell_topics(self) -> None:
        now_ns = time.monotonic_ns()
        self.reliable_receiver.topics(sorted(self._topics), now_ns)
        self._flush()

    def floor(self, number: int) -> int | None:
        """Known when the source has said so."""
        return self.reliable_receiver.subscriptions.starts.get(number)

    def published(self, number: int) -> int:
        """As the source has said last, when it was asked."""
        return self.reliable_receiver.subscriptions.published.get(number, 0)

    def at_end(self, number: int) -> int:
        """Its word may be old or may never have come: what it has published stands in its ring, on this host."""
        told = self.published(number)
        return told if self.lines is None else max(told, self.lines.published(number))

    def numbers_end(self, number: int) -> int:
        """Returns the source is asked seldom, so that what it has said may be old."""
        del number
        return _NUMBERS_MAX

    def missed(self) -> int:
        """Whole datagrams; and any number where messages may be missing that never had a datagram.

        A source-paced source passes over messages. The twin of a ring sends nothing while nobody is registered, and who
        resumes begins at the oldest datagram that is held.
        """
        counts = self.reliable_receiver.counts
        passed_over = counts.msgs_rcved << 24 if self._passes_over else 0
        return passed_over + counts.lost * (_DATAGRAM_MAX // MESSAGE_HEADER_BYTES)

    def came_ns(self) -> int:
        """Returns when the source was heard; the recovery interval of what is found missing begins then."""
        return self.reliable_receiver.heard_ns

    def mark(self) -> Callable[[], bool]:
        """Says later whether everything that the source has sent by now has come and been read."""
        answers = self.reliable_receiver.answers
        asked_ns = time.monotonic_ns()
        self.reliable_receiver.ask(asked_ns)
        self._flush()
        self._marked = True

        def is_through() -> bool:
            nonlocal asked_ns
            now_ns = time.monotonic_ns()
            answered = self.reliable_receiver.answers != answers or self.reliable_receiver.over
            if not answered and now_ns - asked_ns >= _ASK_NS:
                asked_ns = now_ns
                self.reliable_receiver.ask(now_ns)
                self._flush()
            through = not (
                self.reliable_receiver.asks
                or self.reliable_receiver.missing
                or self._backlog
                or self.reliable_receiver.catches_up
            )
            return answered and through and self._reader.position >= self._channel.writer.head

        return is_through

    @property
    def catches_up(self) -> bool:
        """As the receiver's end says."""
        return self.reliable_receiver.catches_up

    def may_lose(self) -> bool:
        """What is given up is lost."""
        return True

    def signs(self) -> tuple[int, int]:
        """Returns when the source was heard; its silence is looked after by the receiver's end."""
        return self.reliable_receiver.heard_ns, 0

    def withdrawn(self, *, died: bool = False) -> None:
        """Nobody offers the session any more: it has ended, or its source died, which is certain with `died`."""
        if died:
            self._silence_ns = 0  # nothing more comes, though the session may be offered for a while
        if not self._withdrawn:
            self._withdrawn = True
            self.reliable_receiver.ask(time.monotonic_ns())

    def owner_lives(self) -> bool:
        """Returns whether the source is offered, or heard."""
        return not self._withdrawn or time.monotonic_ns() - self.reliable_receiver.heard_ns < self._silence_ns

    @property
    def closed(self) -> bool:
        """Whether the session is over here."""
        return self.reliable_receiver.over

    @property
    def for_good(self) -> bool:
        """Whether it is over because the session is, not only for want of signs or answers."""
        return self.reliable_receiver.for_good or not self._silence_ns

    def counters(self) -> dict[str, int]:
        """What the receiver's end counts."""
        counts = self.reliable_receiver.counts
        found = {name: int(getattr(counts, name)) for name in counts.__dataclass_fields__}
        # The ring counts what was delivered from it under the same names.
        for name in ("msgs_rcved", "bytes_rcved", "lost"):
            found.pop(name, None)
        return found | {"dgrams_shed": self.shed}

    def leave(self) -> bool:
        """Tells the source, and removes the ring."""
        if self.left:
            return False
        self.left = True
        now_ns = time.monotonic_ns()
        self.reliable_receiver.leave(now_ns)
        self._flush()
        self._on_leave()
        for port in self._ports:
            port.remove(self)
        self._channel.slots.leave(self._index)
        self._channel.close()
        return False

    def abandon(self) -> None:
        """Closes descriptors only; for a child after a fork."""
        self._channel.abandon()
