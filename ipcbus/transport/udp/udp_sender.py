"""The sender of a session over UDP: it reads the datagrams from the session's ring and sends them.

A session over UDP alone has a small ring that only its UDP sender reads. In a ring session the UDP sender is the UDP
twin: it reads the ring like one more receiver, in a slot of its own, and only while the twin has clients.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from random import SystemRandom
from typing import TYPE_CHECKING, Final, Protocol, cast

from ipcbus.reliability.reliable_sender import ALL, ReliableSender
from ipcbus.transport.udp.ack_watch import AckWatch
from ipcbus.transport.udp.datagram_relay import CAME, HAS_MORE, LEFT, NOTHING_CAME, TARGETS_MAX, RecordSender
from ipcbus.transport.udp.evicted_receivers import EvictedReceivers
from ipcbus.transport.udp.local_contexts import LocalContexts
from ipcbus.transport.udp.session_socket import ANSWERS_MAX
from ipcbus.transport.udp.stats_blocks import next_write_ns
from ipcbus.transport.udp.udp_link import SenderLinks, UdpLink
from ipcbus.wire.udp_packets import is_ack
from ipcbus.wire.wire_layout import UPLINK
from ringbuf.relay import take
from ringbuf.ring import RingReader
from ringbuf.slots import Identity

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ipcbus.recovery.frame_window import FrameSettings, FrameWindow
    from ipcbus.reliability.clients import Client
    from ipcbus.reliability.stream_sender import StreamSender
    from ipcbus.transport.tcp.outflow import RecordStream
    from ipcbus.transport.udp.mmsg import Address
    from ipcbus.transport.udp.session_socket import SessionSocket
    from ipcbus.transport.udp.stats_blocks import SenderStatsBlock
    from ringbuf.answer_wait import AnswerWait
    from ringbuf.channel import OwnedChannel

log = logging.getLogger("ipcbus")

_LINGER_CHECK_NS = 50_000_000
_OFTEN_NS = 10_000_000
"""Where a source waits for clients again and again, a timer runs at this interval: starting one wakes the driver."""
_SLOW_NS = 150_000_000
"""A timer that runs for this time and more may be late by the rest of the interval between two stats blocks."""
_RETRY_NS = 1_000_000
"""Time after which packets that found no room in the send buffer are tried again."""
_FOREVER_NS: Final = 1 << 62
_OVERTAKEN: Final = (
    "the receiving context %r of pid %d kept a session over %s waiting for too long, and loses what it does not take "
    "in time; let it receive faster, raise slow_receiver_timeout or the transmission window, or use "
    "slow_receiver_behavior=block"
)
_SILENT_NS = 1_500_000_000
"""A client of this process that misses datagrams sends NAKs more often, unless the waiting thread drives it."""
_LINGER_NS = 10_000_000_000
"""Longest time without progress for which an ended session waits for its clients and sends datagrams again."""


class UdpSenderListener(Protocol):
    """What the context does when something happens to a session that it sends over UDP; called by any thread."""

    def clients_changed(self) -> None:
        """Takes note that a client has come, gone, or receives other topics."""

    def ring_has_room(self) -> None:
        """Lets a send go on that found no room in the ring."""

    def turn_is_due(self, by_ns: int = 0) -> None:
        """Has `UdpSender.turn` called earlier than that has asked for: at once, or at the latest at this time."""

    def context_lives(self, context_id: int) -> bool | None:
        """Returns whether a context lives, as `LocalContexts` asks."""


class UdpSender:
    """The UDP sender of one session. Sending threads and the driver of the context call it."""

    network = "UDP"
    """What carries the session, in log texts."""

    def __init__(
        self,
        channel: OwnedChannel,
        session_socket: SessionSocket,
        reliable_sender: ReliableSender | StreamSender,
        stats_block: SenderStatsBlock,
        listener: UdpSenderListener,
        *,
        name: str,
        group: Address | None,
        twin: bool,
        return_timeout_ns: int,
        frames: FrameSettings | None = None,
    ) -> None:
        """Takes the last slot of the session; a twin begins to read at `start`, others at once.

        Args:
            channel: the session's ring and control block.
            session_socket: the socket that it sends from and that gets the clients' packets.
            reliable_sender: the protocol.
            stats_block: the stats block to write.
            listener: what it reports to.
            name: the name of the transport, shown in the slot.
            group: the address of the multicast group; None sends to each client.
            twin: whether it reads the ring only while it has clients.
            return_timeout_ns: how long datagrams are kept for a receiver that was evicted and has not registered;
                after the end, also for a client that is silent.
            frames: the settings of the control channels; None for the defaults.
        """
        self.session_socket, self.group, self.twin = session_socket, group, twin
        self._reliable_sender = reliable_sender
        self._group_addresses: tuple[Hashable, ...] = () if group is None else (group,)
        self._stats_block, self._listener = stats_block, listener
        self._channel = channel
        identity = Identity(os.getpid(), os.geteuid(), UPLINK, name)
        self.slot = channel.slots.claim(identity, time.time_ns(), only=channel.slots.slots_max - 1)
        self._reader = reader = RingReader(channel.ring, channel.control, self.slot)
        reliable_sender.ring_positions = lambda: (reader.position, reader.tail)
        self._lock = threading.RLock()
        self._records = self._make_records()
        """What sends without the protocol; None where there is no such way."""
        self.active = self.closing = self._sends_all = False
        self._stats_pending = False
        self._shown_lead = self._closed_ns = self._changes = 0
        self._waited_ns, self._watch, self._evicted = -_OFTEN_NS, AckWatch(), EvictedReceivers(return_timeout_ns)
        self._local_contexts = LocalContexts(listener.context_lives)
        self.links = SenderLinks(reliable_sender.session_id, SystemRandom(), reliable_sender.retransmit_limiter, frames)
        """The control channels of the clients."""
        self.on_links: Callable[[], object] = lambda: None
        """Called, by any thread with the lock of this object, when a client came or went, or a link has changed."""
        self._links_due_ns: int | None = None
        session_socket.add(self, reliable_sender.session_id)
        # A receiver that asks for an older session at this address gets the answer that it has ended.
        session_socket.default_handler = self
        if not twin:
            self.start()

    @property
    def reliable_sender(self) -> ReliableSender | StreamSender:
        """The protocol; it takes note first of what was sent without it, and what is published next goes through it."""
        records = self._records
        # Only a thread that sends has the lock now; it takes note itself with its next call.
        if records is not None and records.unsettled and self._lock.acquire(blocking=False):
            try:
                self._take_note()
            finally:
                self._lock.release()
        return self._reliable_sender

    def _make_records(self) -> RecordSender | RecordStream | None:
        sender = self._reliable_sender
        if not isinstance(sender, ReliableSender):
            return None
        return RecordSender(self._reader, sender.window, sender.session_id)

    def _take_note(self) -> None:
        """Has the protocol take note of what was sent without it."""
        count, size, sent_ns = cast("RecordSender", self._records).settle()
        if count:
            cast("ReliableSender", self._reliable_sender).sent(count, size, sent_ns)

    def _go_on_directly(self) -> None:
        """Lets records be sent without the protocol until something else of this object is called."""
        if isinstance(self._records, RecordSender):
            self._records.ready = True

    def direct(self, published: Callable[[int], object], answers: AnswerWait | None) -> Callable[[int], object]:
        """Returns the compiled code that sends each record; it leaves some to `published`, and tells `answers`."""
        if not isinstance(self._records, RecordSender):
            return published
        self._records.allow(
            self.bit, self._lock, published, self.session_socket.keep, self._listener.ring_has_room, answers
        )
        return self._records

    @property
    def bit(self) -> int:
        """The bit of its slot in masks of slots."""
        return 1 << self.slot

    def start(self, at: int | None = None) -> None:
        """Begins to read the ring.

        Args:
            at: the position of the first record to read, which another reader keeps in the ring; None for the next one.
        """
        with self._lock:
            if not self.active:
                self._channel.slots.join(self.slot, self._reader, at)
                self.active = True
                # For good: each thread that publishes a record calls `send_published`.
                self._reader.arm(True)

    def take_over(self, position: int, receiver: Identity) -> None:
        """Reads on for a receiver that is evicted, and keeps the datagrams until it registers.

        Args:
            position: the position of the receiver, which still holds its slot.
            receiver: the receiver's context.
        """
        with self._lock:
            now_ns = time.monotonic_ns()
            clients = self.reliable_sender.clients
            known = next((each for each in clients if each.context_id == receiver.context_id), None)
            self._await_return(receiver.context_id, receiver.pid, known, now_ns)
            if not self.active:
                # The receiver has read all datagrams that the window still holds. It resumes with the oldest one in the
                # window: if it got those first, the source could overwrite the missing ones meanwhile.
                self.reliable_sender.clear_window()
            self.start(position)
            self._send_published(now_ns)
        self._listener.turn_is_due()

    def _await_return(self, context_id: int, pid: int, registered: Client | None, now_ns: int) -> None:
        """Keeps datagrams for a receiving context until it registers; `registered` is a registration that is over."""
        self._evicted.add(context_id, pid, registered, now_ns)
        self._local_contexts.note([context_id])

    def stop(self) -> None:
        """Stops reading the ring; sources do not wait for this reader any more."""
        with self._lock:
            if self.active:
                self.active = False
                if self._records is not None:
                    self._records.ready = False
                self._reader.arm(False)
                if self._channel.slots.pause(self.slot):
                    self._listener.ring_has_room()

    # ------------------------------------------------------------------ sending

    def send_published(self) -> None:
        """Sends all that is published over UDP, as far as clients have room and the data rate allows it."""
        self._send_new()
        if isinstance(self._records, RecordSender) and self._reliable_sender.blocked:
            # Answers of clients may have come; the driver of the context may have to wait for this thread's processor.
            self._look_for_acks(time.monotonic_ns())

    def _send_new(self) -> None:
        with self._lock:
            if self.active or self.closing:
                now_ns = time.monotonic_ns()
                if isinstance(self._records, RecordSender) and self._records.acks_due:
                    self._look_for_acks(now_ns)
                    cast("ReliableSender", self.reliable_sender).renew_limit()
                    if not (self.active or self.closing):
                        return  # the last client of a twin has left
                if self._send_records(now_ns) and self._stats_pending:
                    self._go_on_directly()
                    return
                was_blocked = self._waits
                self._sends_all = self._send_published(now_ns)
                was_pending = self._stats_pending
                following = self._show_stats(now_ns, writes=was_pending and self._stats_block.is_late(now_ns))
                if self._waits and not was_blocked:
                    self._waited_ns = now_ns
                    retry_ns = now_ns + _RETRY_NS if self.session_socket.waits else _FOREVER_NS
                    self._listener.turn_is_due(min(retry_ns, self.reliable_sender.next_ns(now_ns) or 0))
                elif following is not None and not was_pending:
                    self._stats_block.due_ns = following
                    self._listener.turn_is_due(following)

    @property
    def _waits(self) -> bool:
        """Whether datagrams wait for clients, for the data rate, or for the send buffer."""
        return self.reliable_sender.blocked or self.session_socket.waits

    def _send_published(self, now_ns: int) -> bool:
        """Sends what waits; returns whether the protocol may be left out from now on."""
        reliable_sender, reader = self.reliable_sender, self._reader
        room = sends_all = False
        while True:
            # First: what clients take now may end the wait for them, and no other event would come then.
            self._send_packets()
            if self._waits:
                break
            if sends_all := self._send_records(now_ns):
                break
            found = take(reader)
            # Shown after each record, or skipped ones: a source that waits for room need not wait for all of them.
            room |= reader.show()
            if found is None:
                if reader.broken and reader.resync() is not None:
                    continue  # the numbers of messages show clients what was in the damaged part
                break
            reliable_sender.send(*found, now_ns)
        if room:
            self._listener.ring_has_room()
        return sends_all

    def _send_records(self, now_ns: int) -> bool:
        """Sends the records that may be sent to all clients at once; returns whether these were all there are."""
        reliable_sender = self.reliable_sender
        if not (isinstance(self._records, RecordSender) and isinstance(reliable_sender, ReliableSender)):
            return False
        if not (until := reliable_sender.open_until):
            return False
        direct = self.session_socket.direct
        addresses = self._group_addresses or reliable_sender.addresses
        if direct is None or len(addresses) > TARGETS_MAX:
            return False
        self._records.aim(direct, addresses, until)  # type: ignore[arg-type]  # they are those of the socket
        room, drained, left = self._records.send()
        count, size, _ = self._records.settle()
        if count:
            reliable_sender.sent(count, size, now_ns)
        if left:
            self.session_socket.keep(left)
        if room:
            self._listener.ring_has_room()
        return drained

    def _send_packets(self) -> None:
        pairs: list[tuple[bytes, Address]] = []
        for packet, to in self.reliable_sender.take():
            if to is not ALL:
                pairs.append((packet, to))  # type: ignore[arg-type]
            elif self.group is not None:
                pairs.append((packet, self.group))
            else:
                pairs += [(packet, address) for address in self.reliable_sender.addresses]  # type: ignore[misc]
        if pairs or self.session_socket.waits:
            self.session_socket.send(pairs)

    # ------------------------------------------------------------------ receiving, timers

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> None:
        """Takes a packet from a client."""
        with self._lock:
            self.reliable_sender.receive(packet, address, now_ns)
            self._update_clients(now_ns)
            for found, client in self.reliable_sender.take_channel_packets():
                self.links.receive(found, client, now_ns)
            self._send_published(now_ns) if self.active else self._send_packets()

    def take_acks(self, *, may_leave: bool = False) -> int:
        """Takes the ACKs that have come, and whatever has come with them; for the driver of the context.

        Args:
            may_leave: whether it may leave all to a thread that sends a stream, and looks before it has to wait.

        Returns:
            CAME where nothing is to do but what timers do, NOTHING_CAME, HAS_MORE, or LEFT where it has left all.
        """
        now_ns = time.monotonic_ns()
        may_leave &= isinstance(self._records, RecordSender) and not self._reliable_sender.blocked
        leaves = may_leave and self._watch.leaves(cast("RecordSender", self._records), now_ns)
        return LEFT if leaves else self._look_for_acks(now_ns)

    def _look_for_acks(self, now_ns: int) -> int:
        """Takes what has come; returns as `take_acks`."""
        with self._lock:
            changes, waited = self._changes, self._waits
            packets = self.session_socket.read_answers(now_ns)
            if len(packets) < ANSWERS_MAX and isinstance(self._records, RecordSender):
                self._watch.looked(self._records, now_ns)
            # A source that begins to wait has to ask in time; the timer of one that has waited before runs.
            is_usual = changes == self._changes and (waited or not self._waits) and not self.reliable_sender.is_behind
        if not all(map(is_ack, packets)):
            self._watch.more_came(now_ns)
        elif is_usual:
            return CAME if packets else NOTHING_CAME
        self._listener.turn_is_due()
        return HAS_MORE

    def settle(self) -> None:
        """Has the protocol take note of what was sent without it."""
        with self._lock:
            self.reliable_sender  # noqa: B018 - takes note

    def turn(self, now_ns: int, *, shows: bool = True) -> int | None:
        """Runs the timers that have expired.

        Args:
            now_ns: the time.
            shows: whether to write the stats block if it is due; if not, the caller calls `show_stats` later.

        Returns:
            When to call again; None when no timer runs.
        """
        with self._lock:
            following = self._turn(now_ns, shows=shows)
            overtaken = self.reliable_sender.take_evicted()
            if self._sends_all and self._stats_pending and not self.closing:
                self._go_on_directly()  # last, as all that asks for the protocol ends it
        for client in overtaken:  # not under the lock: a log handler may send, even on this session
            log.warning(_OVERTAKEN, client.name, client.pid, self.network)
        return following

    def _turn(self, now_ns: int, *, shows: bool) -> int | None:
        if self.closing:
            self._forget_dead(now_ns)  # the context does not look after a session that has ended
        self.reliable_sender.turn(now_ns)
        self._update_clients(now_ns)
        self._sends_all = self.active and self._send_published(now_ns)
        if not self.active:
            self._send_packets()
        self._send_frames(now_ns)
        retry_ns = now_ns + _RETRY_NS if self.session_socket.waits else None
        often_ns = now_ns + _OFTEN_NS if now_ns - self._waited_ns < _OFTEN_NS else None
        if self.closing:
            self._announce_end(now_ns)
            times = (now_ns + _LINGER_CHECK_NS, self.reliable_sender.next_ns(now_ns), self._links_due_ns, retry_ns)
            return min(time for time in times if time is not None)
        following_ns, stats_ns = self.reliable_sender.next_ns(now_ns), self._show_stats(now_ns, writes=shows)
        if following_ns is not None and stats_ns is not None and following_ns - now_ns >= _SLOW_NS:
            # While datagrams are sent, such a timer would only find that it has been started again.
            following_ns = max(following_ns, stats_ns)
        due = (following_ns, self._evicted.due_ns, stats_ns, self._links_due_ns, retry_ns, often_ns)
        return min((time for time in due if time is not None), default=None)

    def show_stats(self, now_ns: int) -> int | None:
        """Writes the stats block if it is due; returns when to call again, None while nothing is sent."""
        with self._lock:
            following = None if self.closing else self._show_stats(now_ns)
            if self._sends_all and self._stats_pending and not (self.closing or self._waits):
                self._go_on_directly()  # unless another thread has sent something since the turn that waits
        return following

    def _show_stats(self, now_ns: int, *, writes: bool = True) -> int | None:
        """Writes the stats block if it is due; returns when it is due next, None where nothing has been sent since.

        Args:
            now_ns: the time.
            writes: whether to write it; if not, the caller calls again soon.
        """
        reliable_sender = self.reliable_sender
        if self.twin and not self.active and reliable_sender.changes == 0:
            return None  # a twin that never had a client shows nothing
        self._stats_block.limited(now_ns)
        self._stats_pending = not self._stats_block.is_due(now_ns)
        if self._stats_pending:
            return self._stats_block.due_ns
        # While datagrams are sent, the timer goes on, or the first one after each write would start it again.
        goes_on = reliable_sender.lead != self._shown_lead or reliable_sender.slowest is not None
        if not writes:
            self._stats_pending = goes_on
            return next_write_ns(now_ns) if goes_on else None
        self._stats_block.show(self.session_socket, self.links.counters(), self.active, now_ns)
        self._stats_pending, self._shown_lead = goes_on, reliable_sender.lead
        return self._stats_block.due_ns if goes_on else None

    def _update_clients(self, now_ns: int) -> None:
        # Before the answer goes out: records that are published after it are sent to the new client.
        if self._evicted:
            self._evicted.drop_returned(self.reliable_sender.clients, now_ns)
        if self.twin and not self.closing:
            if self.reliable_sender.addresses or self._evicted:
                self.start()
            else:
                self.stop()
        if self.reliable_sender.changes != self._changes:
            self._changes = self.reliable_sender.changes
            self.links.keep(self.reliable_sender.client_at)
            self.links.has_news = True
            self._local_contexts.note(client.context_id for client in self.reliable_sender.clients)
            self._listener.clients_changed()

    @property
    def awaits_evicted(self) -> bool:
        """Whether a receiver that was evicted and lives has not registered yet."""
        return any(not self._local_contexts.is_dead(each.context_id) for each in self._evicted)

    def joined(self, number: int) -> list[Client]:
        """Returns the clients that receive a topic."""
        return [client for client in self.reliable_sender.clients if number in client.topics]

    def reclaim(self) -> int:
        """Drops the clients of this host whose contexts have died; returns their number."""
        with self._lock:
            return self._forget_dead(time.monotonic_ns())

    def local_clients(self) -> set[int]:
        """Returns the ids of the contexts of this host that are clients."""
        return self._local_contexts.among(each.sure_context_id for each in self.reliable_sender.clients)

    def _forget_dead(self, now_ns: int) -> int:
        # Without taking note of what was sent, which changes no client.
        dead = [
            client for client in self._reliable_sender.clients if self._local_contexts.is_dead(client.sure_context_id)
        ]
        for client in dead:
            self.reliable_sender.forget(client)
        if dead:
            self._update_clients(now_ns)
        return len(dead)

    # ------------------------------------------------------------------ control channels

    def take_opened(self) -> list[tuple[int, UdpLink]]:
        """Returns, once, the links that clients have opened, each with the id of the receiving context."""
        with self._lock:
            found = []
            while self.links.opened:
                opened = self.links.opened.popleft()
                flush = functools.partial(self._flush, opened.window)
                found.append((opened.context_id, UdpLink(opened.window, flush, self._lock)))
            return found

    def end_link(self, epoch: int) -> int:
        """Ends a link that its client has replaced; returns how many of its frames have come (`SenderLinks.end`)."""
        with self._lock:
            return self.links.end(epoch)

    def close_links(self) -> None:
        """Ends all links, and refuses others from now on."""
        with self._lock:
            self.links.close()
            self._send_frames(time.monotonic_ns())

    def _flush(self, window: FrameWindow) -> None:
        """Sends what a link has to send; sees to it that its timer runs."""
        due_ns = self._links_due_ns
        self.links.wake(window)
        self._send_frames(time.monotonic_ns())
        if self._links_due_ns is not None and (due_ns is None or self._links_due_ns < due_ns):
            self._listener.turn_is_due()

    def _send_frames(self, now_ns: int) -> None:
        if not (self.links or self.links.has_news):
            return
        packets = self.links.turn(now_ns)
        if packets:
            self.session_socket.send(packets)  # type: ignore[arg-type]  # the addresses are those of the socket
        self._links_due_ns = self.links.next_ns
        if self.links.has_news:
            self.links.has_news = False
            self.on_links()

    # ------------------------------------------------------------------ end

    def close(self) -> None:
        """Sends all that is published and announces the end; `turn` is called until `over`, to send datagrams again."""
        with self._lock:
            if not self.closing:
                self.closing = True
                now_ns = self._closed_ns = time.monotonic_ns()
                if self.active:
                    self._send_published(now_ns)
                self._announce_end(now_ns)

    def _announce_end(self, now_ns: int) -> None:
        slowest = self.reliable_sender.slowest
        if slowest is not None and now_ns - max(self._closed_ns, slowest.progress_ns) > _LINGER_NS:
            self.reliable_sender.overtake(slowest)
        # Datagrams that wait for the data rate go first.
        if not self.reliable_sender.blocked:
            self.reliable_sender.end(now_ns, still_needed=self._expects(now_ns))
            self._send_packets()

    def over(self, now_ns: int, *, context_closes: bool = False) -> bool:
        """Returns whether, after `close`, each client has all datagrams, is dead, or is silent for too long.

        Args:
            now_ns: the time.
            context_closes: whether the context closes: the calling thread waits, and may be the one that drives
                clients of this process.
        """
        with self._lock:
            if not self.closing or self.reliable_sender.blocked:
                return False
            return not self._expects(now_ns, context_closes=context_closes)

    def _expects(self, now_ns: int, *, context_closes: bool = False) -> bool:
        """Returns whether a receiver may still ask for datagrams: one that has all of them has left."""
        clients = self.reliable_sender.clients
        # A slow client that goes on taking datagrams is alive.
        if now_ns - max([self._closed_ns, *(each.progress_ns for each in clients)]) > _LINGER_NS:
            return False
        # Counted from the end at the earliest: a receiver that was cut off before may be about to return.
        silent_until_ns = self._closed_ns + (timeout_ns := self._evicted.timeout_ns)
        expected = [
            (each.sure_context_id, each.pid, each.heard_ns, max(silent_until_ns, each.progress_ns + timeout_ns))
            for each in clients
        ]
        expected += [(0, 0, 0, each.heard_ns + _SILENT_NS) for each in self.reliable_sender.newcomers]
        expected += [(each.context_id, each.pid, 0, each.until_ns) for each in self._evicted]
        for context_id, pid, heard_ns, until_ns in expected:
            if context_closes and pid == os.getpid():
                until_ns = max(heard_ns, self._closed_ns) + _SILENT_NS
            if now_ns < until_ns and not self._local_contexts.is_dead(context_id):
                return True
        return False

    def detach(self) -> None:
        """Removes it from its socket; the last step."""
        if self._records is not None:
            self._records.ready = False
        self.close_links()
        self.session_socket.remove(self)

    def abandon(self) -> None:
        """Closes descriptors only; for the child process after a fork."""
        self.session_socket.abandon()
