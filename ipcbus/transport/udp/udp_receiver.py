"""The receiver of a session over UDP: it writes the datagrams to a ring of this context, which is read as any other."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from ipcbus.reliability.catch_up import REQUESTS_MAX
from ipcbus.reliability.info_requests import InfoRequests
from ipcbus.reliability.registration import State
from ipcbus.reliability.reliable_receiver import ReliableReceiver
from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.adverts import TRANSPORT_NAMES
from ipcbus.transport.udp.stats_blocks import ReceiverStatsBlock
from ipcbus.transport.udp.udp_link import ReceiverEnd, UdpLink, counters
from ipcbus.wire.udp_packets import DATA, DATA_HEADER
from ipcbus.wire.wire_layout import MESSAGE_HEADER_BYTES, RECEPTION_BOARD, TRANSPORT_LBTRM, TRANSPORT_LBTRU
from ringbuf.channel import OwnedChannel, Shape
from ringbuf.layout import RECORD_ALIGN, RECORD_HEADER
from ringbuf.relay import put
from ringbuf.ring import RingReader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable
    from random import Random

    from ipcbus.reliability.receiver_settings import ReceiverSettings
    from ipcbus.resolution.local.adverts import SessionAdvert
    from ipcbus.transport.ring.topic_lines import TopicLines
    from ipcbus.transport.udp.mmsg import Address
    from ipcbus.transport.udp.session_socket import SessionSocket
    from ringbuf.slots import Identity

_DATAGRAM_MAX = 65_535
_WINDOW = 1 << 19
_RETRY_NS = 1_000_000
_START_TIMEOUT_NS = 1_000_000_000
"""Longest time to hold datagrams back until the source has sent the first numbers of the topics."""
_BACKLOG_MAX = 1024
"""Largest number of datagrams that are held back for that; later ones are asked for again."""
_NUMBERS_MAX = 1 << 62
_ASK_NS = 100_000_000
"""Time after which a question without an answer is repeated."""
_SILENCE_NS = 1_000_000_000
"""A source that is not offered any more and has been silent for this time is dead."""


class UdpReceiver:
    """The UDP receiver of one session (transport.datagram_source.DatagramSource). The driver calls all its methods."""

    counts_messages = False

    def __init__(
        self,
        domain: str,
        local: int,
        advert: SessionAdvert,
        identity: Identity,
        session_sockets: tuple[SessionSocket, ...],
        address: Address,
        settings: ReceiverSettings,
        random: Random,
        *,
        multicast: bool,
        resume_at: int | None,
        group: str,
        sample_every: int,
        on_leave: Callable[[], object],
        on_mark: Callable[[], object],
        on_due: Callable[[], object],
    ) -> None:
        """Begins to join.

        Args:
            domain: the bus domain.
            local: the number of the ring in this context.
            advert: the session.
            identity: the identity of the context.
            session_sockets: the sockets that it receives from; it sends from the first one.
            address: the source's address.
            settings: limits and times of the protocol.
            random: draws backoffs.
            multicast: whether the session has a group.
            resume_at: the number of the first datagram to receive, see `ReliableReceiver`.
            group: system group that may use the ring too, or empty.
            sample_every: one datagram in this many is timed.
            on_leave: called once, when the session is left.
            on_mark: called when a mark may have been reached.
            on_due: called when `turn` is due earlier than it said.

        Raises:
            ringbuf.ring_errors.SegmentFull, ringbuf.ring_errors.SegmentRefused: as `OwnedChannel`.
        """
        self._passes_over = advert.source_paced or advert.transport not in (TRANSPORT_LBTRU, TRANSPORT_LBTRM)
        self.recovery_ns = settings.receiving.naks.generation
        self.owner_pid = 0
        self.begun = False
        self.reason = ""
        self.lines: TopicLines | None = None
        self._session_sockets, self._address = session_sockets, address
        board = RECEPTION_BOARD.itemsize
        shape = Shape(advert.session_id, _WINDOW, RECORD_HEADER + _DATAGRAM_MAX + 1, False, 1, board, 0, group)
        names = [kind(domain, identity.context_id, local) for kind in (object_names.ring, object_names.control)]
        self._channel = channel = OwnedChannel(names[0], names[1], shape)
        self._index = channel.slots.claim(identity, time.time_ns())
        self._reader = RingReader(channel.ring, channel.control, self._index, sample_every)
        channel.slots.join(self._index, self._reader)
        introduced = (identity.context_id, identity.pid, identity.context_name)
        self.reliable_receiver = ReliableReceiver(
            advert.session_id, address, settings, random, time.monotonic_ns(), introduced, multicast, resume_at
        )
        transport = TRANSPORT_LBTRM if multicast else TRANSPORT_LBTRU
        self._stats_block = ReceiverStatsBlock(channel.ring, transport, address, self.reliable_receiver)
        self.layer = TRANSPORT_NAMES[transport]
        self._on_leave, self._on_mark, self._on_due = on_leave, on_mark, on_due
        self._link_end = ReceiverEnd(advert.session_id, random)
        self._link_due_ns: int | None = None
        self.on_links: Callable[[], object] = lambda: None
        """Called when the link was opened or broken, or has frames or room."""
        self._info_requests = InfoRequests(settings.info_request_interval, settings.info_request_maximum)
        self._marked = False
        self._topics: set[int] = set()
        self._awaiting_start: dict[int, Callable[[int], object]] = {}
        self._start_deadline_ns = 0
        self._backlog: list[tuple[bytes, int]] = []
        self._withdrawn = False
        self._silence_ns = _SILENCE_NS
        self._longest_packet = 0
        self._position_before = -1
        self.has_left = False
        self.shed = 0
        """Datagrams that were dropped for want of room in the ring; a NAK asks for them again."""
        for session_socket in session_sockets:
            session_socket.add(self, advert.session_id, address)

    # ------------------------------------------------------------------ packets, timers

    @property
    def congested(self) -> bool:
        """Whether more than half of its ring waits to be read, and the reader makes progress."""
        if self._channel.writer.has_room(_WINDOW // 2):
            return False
        position, self._position_before = self._position_before, self._reader.position
        return position != self._position_before

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> None:
        """Takes a packet from the network; invalid ones are counted."""
        self._longest_packet = max(self._longest_packet, len(packet))
        self._limit_requests()
        writer = self._channel.writer
        most = _BACKLOG_MAX if self._holds_back(now_ns) else 1
        full = not writer.has_room(len(packet)) or len(self._backlog) >= most
        if len(packet) > DATA_HEADER and packet[1] == DATA and full:
            # As if it had not come: a NAK asks for it again. A receiver that stays slow for longer loses it, counted.
            self.shed += 1
            self.reliable_receiver.shed(now_ns)
            return
        self._write_to_ring(self.reliable_receiver.receive(packet, address, now_ns), now_ns)
        self._send_packets()
        if self._marked:
            self._on_mark()

    def turn(self, now_ns: int) -> int | None:
        """Runs the timers that have expired; returns when to call again."""
        limited = self._limit_requests()
        self.reliable_receiver.turn(now_ns)
        self._write_to_ring(self.reliable_receiver.ready(now_ns), now_ns)
        self._send_packets()
        self._send_frames(now_ns)
        times = [
            self._link_due_ns,
            self.reliable_receiver.next_ns,
            now_ns + _RETRY_NS if self._backlog or limited else None,
        ]
        if now_ns < self._stats_block.due_ns:
            times.append(self._stats_block.due_ns)
        else:
            links = counters(self._link_end.counts)
            self._stats_block.show(self._session_sockets, links, self.shed, self.reason, now_ns)
        return min((time for time in times if time is not None), default=None)

    def _limit_requests(self) -> bool:
        """Limits the datagrams to ask for to the room in the ring; returns whether that is less than usual."""
        if not self.reliable_receiver.catches_up:
            return False
        writer = self._channel.writer
        room = (writer.capacity - (writer.head - self._reader.position)) // (
            self._longest_packet + RECORD_HEADER + RECORD_ALIGN
        )
        # The end of the ring may take one more record, and one datagram is in hand.
        self.reliable_receiver.limit_requests(room - 2 - len(self._backlog))
        return room - 2 < REQUESTS_MAX

    def _write_to_ring(self, datagrams: list[tuple[bytes, int]], now_ns: int) -> None:
        """Writes datagrams to the ring; those that find no room wait in the backlog."""
        if self._awaiting_start:
            self._report_starts(now_ns, bool(datagrams))
        self._backlog += datagrams
        if not self._backlog or self._holds_back(now_ns):
            return
        self._awaiting_start.clear()  # the wait is over, with or without an answer
        done = 0
        for datagram, sent_ns in self._backlog:
            if put(self._channel.writer, datagram, 0, 1, sent_ns) < 0:
                break
            done += 1
        if done:
            del self._backlog[:done]

    def _report_starts(self, now_ns: int, comes: bool) -> None:
        """Reports the first numbers of topics, as far as the source has sent them.

        Datagrams that come before wait: the first message that comes of a topic need not be the first that was sent.
        """
        starts = self.reliable_receiver.subscriptions.starts
        for number in [number for number in self._awaiting_start if number in starts]:
            begins, start = self._awaiting_start.pop(number), starts[number]
            if start is not None:
                begins(start)
        if self._awaiting_start and comes and not self._start_deadline_ns:
            self._start_deadline_ns = now_ns + _START_TIMEOUT_NS

    def _holds_back(self, now_ns: int) -> bool:
        """Returns whether datagrams are held back until the first numbers of the topics are known."""
        in_time = not self._start_deadline_ns or now_ns < self._start_deadline_ns
        return bool(self._awaiting_start) and in_time and not self.reliable_receiver.over

    def _send_packets(self) -> None:
        if packets := self.reliable_receiver.take():
            self._session_sockets[0].send([(packet, self._address) for packet in packets])
        if self.reliable_receiver.over and not self._backlog:
            self._channel.writer.close()

    # ------------------------------------------------------------------ control channel

    def open_link(self) -> UdpLink:
        """Opens the control channel to the source; one that is open is broken by that."""
        window = self._link_end.open(time.monotonic_ns())
        self._flush()
        return UdpLink(window, self._flush, contextlib.nullcontext())

    def _flush(self) -> None:
        """Sends what the link has to send; sees to it that its timer runs."""
        due_ns = self._link_due_ns
        self._send_frames(time.monotonic_ns())
        if self._link_due_ns is not None and (due_ns is None or self._link_due_ns < due_ns):
            self._on_due()

    def _send_frames(self, now_ns: int) -> None:
        came = self.reliable_receiver.take_channel_packets()
        if not came and self._link_end.window is None:
            return
        for packet in came:
            self._link_end.receive(packet, now_ns)
        if self.reliable_receiver.over or self.has_left:
            self._link_end.end("the session has ended for this context")
        packets = self._link_end.turn(self.reliable_receiver.channel_cookie, now_ns)
        if packets:
            self._session_sockets[0].send([(packet, self._address) for packet in packets])
        self._link_due_ns = self._link_end.next_ns
        if self._link_end.has_news:
            self._link_end.has_news = False
            self.on_links()

    # ------------------------------------------------------------------ interface of `DatagramSource`

    @property
    def reader(self) -> RingReader:
        """The reader of this receiver's ring."""
        return self._reader

    @property
    def index(self) -> int:
        """The number of this context's slot."""
        return self._index

    def join_topic(self, number: int, begins: Callable[[int], object] | None = None) -> bool:
        """Shows the source that this context receives a topic."""
        self._topics.add(number)
        if begins is not None:
            self._awaiting_start[number] = begins
            self._start_deadline_ns = 0
        self._send_topics()
        return True

    def leave_topic(self, number: int) -> None:
        """Shows the source that this context does not receive the topic any more."""
        self._topics.discard(number)
        self._awaiting_start.pop(number, None)
        self._send_topics()

    def _send_topics(self) -> None:
        now_ns = time.monotonic_ns()
        self.reliable_receiver.topics(sorted(self._topics), now_ns)
        self._send_packets()

    def floor(self, number: int) -> int | None:
        """Returns the number of the first message of a topic, once the source has sent it."""
        return self.reliable_receiver.subscriptions.starts.get(number)

    def published(self, number: int) -> int:
        """Returns a number below which all messages of a topic are published, as the source has sent it last."""
        return self.reliable_receiver.subscriptions.published.get(number, 0)

    def at_end(self, number: int) -> int:
        """Returns the number of `published`, or that of the source's ring: on this host, the ring is up to date."""
        published = self.published(number)
        return published if self.lines is None else max(published, self.lines.published(number))

    def may_say_more(self) -> bool:
        """The ring is this context's own: its source knows nothing of that."""
        return False

    def sequence_limit(self, number: int) -> int:
        """Returns a number above all: the source is asked rarely, and its last answer may be old."""
        del number
        return _NUMBERS_MAX

    def missed_messages(self) -> int:
        """Returns an upper bound of the lost messages: whole datagrams, and more where messages had no datagram.

        A source-paced source passes over messages. A UDP twin without clients sends nothing, and a receiver that
        resumes begins at the oldest datagram in the window.
        """
        counts = self.reliable_receiver.counts
        passed_over = counts.msgs_rcved << 24 if self._passes_over else 0
        return passed_over + counts.lost * (_DATAGRAM_MAX // MESSAGE_HEADER_BYTES)

    def newest_arrival_ns(self) -> int:
        """Returns the time of the last sign of life; the recovery time of missing messages begins then."""
        return self.reliable_receiver.heard_ns

    def request_infos(self, silent: Collection[int], now_ns: int) -> int | None:
        """Asks, if due, how far the source has sent, and for the next numbers of topics; see `DatagramSource`."""
        if self.reliable_receiver.state is not State.JOINED:
            return now_ns + _ASK_NS if silent else None
        if self._info_requests.due(silent, now_ns):
            self.reliable_receiver.ask(now_ns)
            self._send_packets()
        return self._info_requests.next_ns

    def mark(self) -> Callable[[], bool]:
        """Returns a function that says whether all that the source has sent by now has come and been read."""
        answers = self.reliable_receiver.answers
        asked_ns = time.monotonic_ns()
        self.reliable_receiver.ask(asked_ns)
        self._send_packets()
        self._marked = True

        def is_through() -> bool:
            nonlocal asked_ns
            now_ns = time.monotonic_ns()
            answered = self.reliable_receiver.answers != answers or self.reliable_receiver.over
            if not answered and now_ns - asked_ns >= _ASK_NS:
                asked_ns = now_ns
                self.reliable_receiver.ask(now_ns)
                self._send_packets()
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
        """Whether the receiver is behind its source and gets datagrams in order, in small steps."""
        return self.reliable_receiver.catches_up

    @property
    def stopped_at(self) -> int | None:
        """The number of the datagram at which a later stay in the session begins; None for the next one."""
        return self.reliable_receiver.stopped_at

    def may_lose(self) -> bool:
        """Returns True: datagrams may be given up."""
        return True

    def life_signs(self) -> tuple[int, int]:
        """Returns the time of the last sign of life; the protocol has the activity timeout."""
        return self.reliable_receiver.heard_ns, 0

    def note_withdrawn(self, *, died: bool = False) -> None:
        """Takes note that the session is not offered any more: it has ended, or its source died; surely with `died`."""
        if died:
            self._silence_ns = 0  # no more packets come, though a registry may offer the session for a while
        if not self._withdrawn:
            self._withdrawn = True
            self.reliable_receiver.ask(time.monotonic_ns())

    def owner_lives(self) -> bool:
        """Returns whether the source is offered, or was heard of late."""
        return not self._withdrawn or time.monotonic_ns() - self.reliable_receiver.heard_ns < self._silence_ns

    @property
    def closed(self) -> bool:
        """Whether the session is over at this receiver."""
        return self.reliable_receiver.over

    @property
    def for_good(self) -> bool:
        """Whether the session has ended, and is not only silent."""
        return self.reliable_receiver.for_good or not self._silence_ns

    def counters(self) -> dict[str, int]:
        """Returns the counters of the protocol, and of dropped datagrams."""
        counts = self.reliable_receiver.counts
        found = {name: int(getattr(counts, name)) for name in counts.__dataclass_fields__}
        # The slot counts the datagrams that were read from the ring by these names.
        for name in ("msgs_rcved", "bytes_rcved", "lost"):
            found.pop(name, None)
        return found | counters(self._link_end.counts) | {"dgrams_shed": self.shed}

    def leave(self) -> bool:
        """Leaves the session, tells the source, and removes the ring."""
        if self.has_left:
            return False
        self.has_left = True
        now_ns = time.monotonic_ns()
        self.reliable_receiver.leave(now_ns)
        self._send_packets()
        self._send_frames(now_ns)
        self._on_leave()
        for session_socket in self._session_sockets:
            session_socket.remove(self)
        self._channel.slots.leave(self._index)
        self._channel.close()
        return False

    def abandon(self) -> None:
        """Closes descriptors only; for the child process after a fork."""
        self._channel.abandon()
