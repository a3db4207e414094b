"""The receiver of a session over UDP: it writes the datagrams to a ring of this context, which is read as any other."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, cast

from ipcbus.reliability.info_requests import InfoRequests
from ipcbus.reliability.registration import State
from ipcbus.reliability.reliable_receiver import ReliableReceiver
from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.adverts import TRANSPORT_NAMES
from ipcbus.transport.udp.datagram_relay import DatagramFetcher, relay
from ipcbus.transport.udp.ring_order import RingOrder, settling
from ipcbus.transport.udp.session_socket import SessionSocket
from ipcbus.transport.udp.stats_blocks import INTERVAL_NS, ReceiverStatsBlock
from ipcbus.transport.udp.udp_link import ReceiverEnd, UdpLink, counters, frame_settings
from ipcbus.wire.udp_packets import CHARGE, DATA, DATA_HEADER, FRAME
from ipcbus.wire.wire_layout import MESSAGE_HEADER_BYTES, RECEPTION_BOARD
from ringbuf.channel import OwnedChannel, Shape
from ringbuf.layout import RECORD_ALIGN, RECORD_HEADER
from ringbuf.relay import put
from ringbuf.ring import RingReader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable
    from random import Random

    from ipcbus.reliability.receiver_settings import ReceiverSettings
    from ipcbus.reliability.stream_receiver import StreamReceiver
    from ipcbus.resolution.local.adverts import SessionAdvert
    from ipcbus.transport.ring.topic_lines import TopicLines
    from ipcbus.transport.tcp.stream_port import StreamPort
    from ipcbus.transport.udp.mmsg import Address, Batched
    from ringbuf.slots import Identity

_DATAGRAM_MAX = 65_535
WINDOW = 1 << 22
"""Bytes of the ring: an ACK, which costs the source 0.2 ms, comes for each quarter."""
RETRY_NS = 1_000_000
_START_TIMEOUT_NS = 10_000_000_000
"""Longest time to hold datagrams back until the source has sent the first numbers of the topics."""
_LONGEST_AT_FIRST = 8192
BACKLOG_BYTES = 1 << 22
"""Most bytes of datagrams that wait for that, or for room in the ring; later ones are asked for again."""
_NUMBERS_MAX = 1 << 62
_ASK_NS = 100_000_000
"""Time after which a question without an answer is repeated."""
_EARLY_NS = INTERVAL_NS - 10_000_000
"""An ACK that is due before the next stats block comes with this one, and needs no turn of its own."""
_SILENCE_NS = 1_000_000_000
"""A source that is not offered any more and has been silent for this time is dead."""

_OF_SLOT = ("msgs_rcved", "bytes_rcved", "lost")  # as which the slot counts the datagrams that were read from the ring


class UdpReceiver:
    """The UDP receiver of one session (transport.datagram_source.DatagramSource). The driver calls all its methods."""

    counts_messages = False
    protocol: type[ReliableReceiver] | type[StreamReceiver] = ReliableReceiver
    """What decides what to send and to deliver."""
    _fetches = False
    """Whether datagrams may have been fetched without the protocol."""
    awaits_room = False
    """Whether more is to do when its ring has been read, without a packet; as of the last read or turn."""
    idle_until_ns = 0
    """When `turn` is due; 0 if a packet has come since the last turn, or if no timer runs."""
    _asked_ns = 0  # when the source was last asked for a mark
    spare = 0
    """Bytes of room beyond the ring, while no thread reads the ring (`UdpEndpoints.read_for_undriven`)."""
    rest_max = BACKLOG_BYTES
    """As `spare`, for the rest of a session that has ended."""

    def __init__(
        self,
        domain: str,
        local: int,
        advert: SessionAdvert,
        identity: Identity,
        session_sockets: tuple[SessionSocket | StreamPort, ...],
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
        self.is_twin = not advert.over_udp  # there is a ring, which this context cannot read
        self._passes_over = advert.source_paced or self.is_twin
        self.recovery_ns = settings.receiving.naks.generation
        self.session_id, self.owner_pid = advert.session_id, 0
        self.begun, self.reason = False, ""
        self.lines: TopicLines | None = None
        self._session_sockets, self._address = session_sockets, address
        longest, board = RECORD_HEADER + _DATAGRAM_MAX + 1, RECEPTION_BOARD.itemsize
        shape = Shape(advert.session_id, WINDOW, longest, False, 1, board, 0, group)
        names = [kind(domain, identity.context_id, local) for kind in (object_names.ring, object_names.control)]
        self._channel = channel = OwnedChannel(names[0], names[1], shape)
        self.index = channel.slots.claim(identity, time.time_ns())
        self.reader = RingReader(channel.ring, channel.control, self.index, sample_every)
        """The reader of this receiver's ring."""
        channel.slots.join(self.index, self.reader)
        self._order = RingOrder(self.reader, channel.writer)
        introduced = (identity.context_id, identity.pid, identity.context_name)
        self._receiver = self.protocol(
            advert.session_id, address, settings, random, time.monotonic_ns(), introduced, multicast, resume_at
        )
        self._stats_block = ReceiverStatsBlock(channel.ring, advert.over_network, address, self._receiver)
        self.layer = TRANSPORT_NAMES[advert.over_network]
        self._on_leave, self._on_mark, self._on_due = on_leave, on_mark, on_due
        self._link_end = ReceiverEnd(advert.session_id, random, frame_settings(advert.over_network, address[0]))
        self._link_due_ns: int | None = None
        self.on_links: Callable[[], object] = lambda: None  # called when the link was opened or broken, or has news
        self._info_requests = InfoRequests(settings.info_request_interval, settings.info_request_maximum)
        self._marked = self.has_left = False
        self._topics: set[int] = set()
        self._awaiting_start: dict[int, Callable[[int], object]] = {}
        self._backlog: list[tuple[bytes, int]] = []
        self.is_withdrawn, self._probed_ns, self._silence_ns = False, 0, _SILENCE_NS
        self._longest_packet, self._position_before = _LONGEST_AT_FIRST, -1
        self._untold = self._room_window = self._backlog_bytes = self._start_deadline_ns = 0
        self.shed = 0
        """Datagrams that were dropped for want of room in the ring; a NAK asks for them again."""
        self._fetcher = self._make_fetcher()
        for each in session_sockets:
            (each.add_taker if isinstance(each, SessionSocket) else each.add)(self, self.session_id, address)

    def _make_fetcher(self) -> DatagramFetcher | None:
        port = self._session_sockets[-1]
        arrivals = port.arrivals if isinstance(port, SessionSocket) else None
        return DatagramFetcher(arrivals, self._address, self.session_id) if arrivals is not None else None

    @property
    def reliable_receiver(self) -> ReliableReceiver | StreamReceiver:
        """The protocol; it takes note first of what was fetched without it, which changes no numbers of topics."""
        if self._fetches:
            self._fetches = False
            self._settle()
        return self._receiver

    def _settle(self) -> None:
        """Has the protocol take note of what was fetched."""
        if self._fetcher is not None:
            count, size, longest, acks = self._fetcher.settle()
            if count:
                self._took(count, size, longest, time.monotonic_ns())
            if acks is not None:
                count, room, self._untold = acks
                cast("ReliableReceiver", self._receiver).acknowledged(count, room)

    def _took(self, count: int, size: int, longest: int, now_ns: int) -> None:
        """Takes note of datagrams that are in the ring."""
        self._receiver.took(count, size, now_ns)
        self._longest_packet = max(self._longest_packet, longest)
        self._untold += size + count * (DATA_HEADER + CHARGE)
        if self._marked:
            self._on_mark()

    @property
    def first_fetch(self) -> Callable[[], int] | None:
        """Moves the usual datagrams that have come to the ring, and does nothing else; None where that cannot be.

        It returns as `DatagramFetcher.fetch`; where it HAS_MORE, `read_rest` is to be called.
        """
        return self._fetcher.fetch if self._fetches and self._fetcher is not None else None

    def read_rest(self, now_ns: int) -> None:
        """Handles packets that were read with the datagrams of `first_fetch`."""
        port = self._session_sockets[-1]
        if self._fetcher is not None and self._fetcher.has_packet and isinstance(port, SessionSocket):
            port.read(now_ns)

    def _direct(self) -> None:
        """Lets `first_fetch` work until something asks for the state of this receiver."""
        receiver = self.reliable_receiver
        if self._fetcher is None or self._backlog or self._awaiting_start or not isinstance(receiver, ReliableReceiver):
            return
        expected = receiver.expected
        if expected is not None:
            _, number, trail_max = expected
            sockets = cast("tuple[SessionSocket, ...]", self._session_sockets)
            share = min(self._room_window, sockets[-1].share)  # smaller when another session has joined the socket
            self._fetcher.direct(self._channel.writer, number, trail_max, share // 4 - self._untold, WINDOW // 2)
            ack, sender = receiver.plain_ack, sockets[0].direct
            if ack is not None and sender is not None and share > 4 and not self.spare:
                room = receiver.told_room
                self._fetcher.acknowledge_by(ack, sender, self.reader, room, self._longest_packet, share, share // 4)
            self._fetches = True

    # ------------------------------------------------------------------ packets, timers

    @property
    def congested(self) -> bool:
        """Whether more than half of its ring waits to be read, and the reader makes progress."""
        if self._channel.writer.has_room(WINDOW // 2):
            return False
        position, self._position_before = self._position_before, self.reader.position
        return position != self._position_before

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> None:
        """Takes a packet from the network; invalid ones are counted."""
        self._longest_packet = max(self._longest_packet, len(packet))
        self.idle_until_ns = 0
        kind = packet[1] if len(packet) > DATA_HEADER else -1
        if kind == FRAME and address == self._address and self.reliable_receiver.take_frame(packet, now_ns):
            return
        if kind == DATA and self._backlog_bytes >= BACKLOG_BYTES:
            # As if it had not come: a NAK asks for it again. A receiver that stays slow for longer loses it, counted.
            self.shed += 1
            self.reliable_receiver.shed(now_ns)
            return
        self._write_to_ring(self.reliable_receiver.receive(packet, address, now_ns), now_ns)
        self._untold += len(packet) + CHARGE
        if self._untold >= self._room_window // 4:
            self._tell_room(now_ns)
        self._send_packets()
        if self._marked:
            self._on_mark()

    def take_datagrams(self, arrivals: Batched, now_ns: int) -> int:
        """Moves datagrams that come in order to the ring; returns how many."""
        receiver = self.reliable_receiver
        if self._backlog or self._awaiting_start or not isinstance(receiver, ReliableReceiver):
            return 0
        expected = receiver.expected
        if expected is None:
            return 0
        count, size, longest = relay(arrivals, self._channel.writer, *expected)
        if count:
            self._took(count, size, longest, now_ns)
            if self._untold >= self._room_window // 4:
                self._tell_room(now_ns)
                self._send_packets()
        return count

    def turn(self, now_ns: int, *, shows: bool = True) -> int | None:
        """Runs the timers that have expired; returns when to call again. `shows` is as in `UdpSender.turn`."""
        limited = self._limit_asks()
        is_due = self._stats_block.is_due(now_ns)
        self.reliable_receiver.turn(now_ns, _EARLY_NS if is_due else 0)
        self._write_to_ring(self.reliable_receiver.ready(now_ns), now_ns)
        self._tell_room(now_ns)
        self._send_packets()
        self._send_frames(now_ns)
        self.awaits_room = bool(self._backlog) or limited or self._awaits_reading
        shows_ns = None if is_due else self._stats_block.due_ns
        if shows:
            self.show_stats(now_ns)
        retry_ns = now_ns + RETRY_NS if self.awaits_room else None
        times = (self._link_due_ns, self.reliable_receiver.next_ns, retry_ns, shows_ns)
        following = min((time for time in times if time is not None), default=None)
        self.idle_until_ns = following or 0
        self._direct()
        return following

    def show_stats(self, now_ns: int) -> None:
        """Writes the stats block if it is due; while nothing comes, no timer has it written again."""
        if self._stats_block.is_due(now_ns):
            links = counters(self._link_end.counts)
            self._stats_block.show(self._session_sockets, links, self.shed, self.reason, now_ns)

    def needs_turn(self, now_ns: int) -> bool:
        """Returns whether `turn` has anything to do after datagrams were taken."""
        is_idle = now_ns < min(self.idle_until_ns, self._stats_block.due_ns)
        self.awaits_room = bool(self._backlog) or self._awaits_reading
        if not is_idle or self.awaits_room or 0 < self._room_window <= 4 * self._untold:
            return True
        self._direct()
        return False

    def _limit_asks(self) -> bool:
        """Limits the datagrams to ask for to the room in the ring; returns whether that is less than usual."""
        if not self.reliable_receiver.missing:
            return False
        writer = self._channel.writer
        room = (writer.capacity - (writer.head - self.reader.position)) // (
            self._longest_packet + RECORD_HEADER + RECORD_ALIGN
        )
        # The end of the ring may take one more record, and one datagram is in hand.
        return self.reliable_receiver.limit_asks(room - 2 - len(self._backlog))

    def _tell_room(self, now_ns: int) -> None:
        """Tells the source how much can come: each datagram on its way has a place in the ring and in the socket."""
        receiver, writer = cast("ReliableReceiver", self.reliable_receiver), self._channel.writer
        # The end of the ring may take one more record, and one datagram is in hand.
        most = self.spare + writer.capacity - 2 * (self._longest_packet + RECORD_HEADER + RECORD_ALIGN)
        share = cast("SessionSocket", self._session_sockets[-1]).share
        taken = writer.head - self.reader.position + self._backlog_bytes + CHARGE * len(self._backlog)
        self._untold, self._room_window = 0, min(most, share)
        receiver.take_room(max(0, min(most - taken, share)), self._room_window, now_ns)

    @property
    def _awaits_reading(self) -> bool:
        """Whether the source may soon wait for room that the reader of the ring makes."""
        receiver = cast("ReliableReceiver", self.reliable_receiver)
        return not receiver.over and receiver.told_room < self._room_window // 2

    def _write_to_ring(self, datagrams: list[tuple[bytes, int]], now_ns: int) -> None:
        """Writes datagrams to the ring; those that find no room wait in the backlog."""
        if self._awaiting_start:
            self._report_starts(now_ns, bool(datagrams))
        self._backlog += datagrams
        self._backlog_bytes += sum(len(datagram) for datagram, _ in datagrams)
        if self._backlog and not self._holds_back(now_ns):
            self._write_backlog()
        self._order.wrote(misses=bool(self._receiver.missing), waits=bool(self._backlog))

    def _write_backlog(self) -> None:
        self._awaiting_start.clear()  # the wait is over, with or without an answer
        done = 0
        for datagram, sent_ns in self._backlog:
            if put(self._channel.writer, datagram, 0, 1, sent_ns) < 0:
                break
            done += 1
            self._backlog_bytes -= len(datagram)
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
        ends = self.reliable_receiver.over or self.reliable_receiver.is_unregistered
        return bool(self._awaiting_start) and in_time and not ends

    def _send_packets(self) -> None:
        if packets := self.reliable_receiver.take():
            self.idle_until_ns = 0  # what was sent may be sent again earlier than planned
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
        self.reliable_receiver.topics(sorted(self._topics), time.monotonic_ns())
        self._send_packets()

    def floor(self, number: int) -> int | None:
        """Returns the number of the first message of a topic, once the source has sent it."""
        return self._receiver.subscriptions.starts.get(number)

    def precedes(self, number: int, sequence: int) -> bool:
        """As in `DatagramSource`: what has come before the topic was joined may still wait in the ring."""
        is_early = number in self._awaiting_start or (self.floor(number) or 0) > sequence
        return self._receiver.is_filtered and is_early

    def receives(self, number: int) -> bool:
        """As in `DatagramSource`."""
        return self._receiver.receives(number)

    @property
    def refusal(self) -> str:
        """As in `DatagramSource`."""
        return self._receiver.refusal

    def published(self, number: int) -> int:
        """Returns a number below which all messages of a topic are published, in datagrams that are known."""
        return self._receiver.subscriptions.published_below(number, lambda: self.reliable_receiver.lead)

    def at_end(self, number: int) -> int:
        """Returns what the source has said last, or the number of its ring: on this host, the ring is up to date."""
        said = self._receiver.subscriptions.said.get(number, 0)
        return said if self.lines is None else max(said, self.lines.published(number))

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
        if self._receiver.state is not State.JOINED:
            return now_ns + _ASK_NS if silent else None
        if self._info_requests.due(silent, now_ns):
            self.reliable_receiver.ask(now_ns)
            self._send_packets()
        return self._info_requests.next_ns

    def mark(self) -> Callable[[], bool]:
        """Returns a function that says whether all that the source has sent by now has come and been read."""
        self._asked_ns = time.monotonic_ns()
        question = self.reliable_receiver.ask(self._asked_ns, anew=True)
        self._send_packets()
        self._marked = True

        def is_through() -> bool:
            receiver, now_ns = self.reliable_receiver, time.monotonic_ns()
            answered = receiver.answers >= question or receiver.over
            if not answered and now_ns - self._asked_ns >= _ASK_NS:  # one answer serves all marks before it
                self._asked_ns = now_ns
                receiver.ask(now_ns)
                self._send_packets()
            through = not (receiver.asks or receiver.missing or self._backlog or receiver.catches_up)
            return answered and through and self.reader.position >= self._channel.writer.head

        return is_through

    def settling(self) -> Callable[[int], bool | None]:
        """Returns a function that says whether the datagrams that are known now have come or are gone, and are read."""
        return settling(self.reliable_receiver, self.reader, self._channel.writer, self._backlog)

    def take_lines(self, lines: TopicLines | None) -> None:
        """As in `DatagramSource`."""
        self.lines = self.lines or lines

    @property
    def is_in_order(self) -> bool:
        """As in `DatagramSource`."""
        return self._order.holds

    @property
    def catches_up(self) -> bool:
        """Whether the receiver is behind its source and gets datagrams in order, in small steps."""
        # What is fetched without the protocol only ends that.
        return (self._receiver.catches_up and self.reliable_receiver.catches_up) or bool(self._backlog)

    @property
    def stopped_at(self) -> int | None:
        """The number of the datagram at which a later stay in the session begins; None for the next one."""
        return self.reliable_receiver.stopped_at

    def may_lose(self) -> bool:
        """Returns True: datagrams may be given up."""
        return True

    def life_signs(self) -> tuple[int, int]:
        """Returns the time of the last sign of life; for the reader, what waits beside the ring comes now."""
        return time.monotonic_ns() if self._backlog else self.reliable_receiver.heard_ns, 0

    def note_withdrawn(self, *, died: bool = False) -> None:
        """Takes note that the session is not offered any more: it has ended, or its source died; surely with `died`."""
        if died:
            self._silence_ns = 0  # no more packets come, though a registry may offer the session for a while
        if not self.is_withdrawn:
            self.is_withdrawn, self.idle_until_ns = True, 0
            self.reliable_receiver.ask(time.monotonic_ns())

    def owner_lock(self) -> None:
        """Returns None: no lock of this session shows that a source on another host lives."""

    def owner_lives(self) -> bool:
        """Returns whether the source is offered, answers, or has sent what still waits beside the ring."""
        # A source that closes may wait for another receiver, and sends nothing meanwhile unless it is asked.
        if not self.is_withdrawn or self._backlog:
            return True
        now_ns, heard_ns = time.monotonic_ns(), self.reliable_receiver.heard_ns
        if now_ns - heard_ns < self._silence_ns // 2:
            return True
        if heard_ns >= self._probed_ns:
            self._probed_ns = now_ns  # the first question since it was heard
        lives = now_ns - self._probed_ns < self._silence_ns
        if lives:
            self.reliable_receiver.ask(now_ns)
            self._send_packets()
        return lives

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
        found = {name: int(getattr(counts, name)) for name in counts.__dataclass_fields__ if name not in _OF_SLOT}
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
        self._channel.slots.leave(self.index)
        self._channel.close()
        return False

    def abandon(self) -> None:
        """Closes descriptors only; for the child process after a fork."""
        self._channel.abandon()
