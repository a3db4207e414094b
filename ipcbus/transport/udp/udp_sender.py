"""The way of a session's datagrams from its ring to receivers over UDP.

A session over UDP alone has a small ring that only its uplink reads. A session over a ring has one as a twin, which
reads the ring as one more receiver does, in a slot that is kept for it, and only while somebody receives over UDP.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ipcbus.reliability.reliable_sender import ALL
from ipcbus.wire.wire_layout import UPLINK
from ringbuf.relay import take
from ringbuf.ring import RingReader
from ringbuf.slots import Identity

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from ipcbus.reliability.clients import Client
    from ipcbus.reliability.reliable_sender import ReliableSender
    from ipcbus.transport.udp.mmsg import Address
    from ipcbus.transport.udp.session_socket import SessionSocket
    from ipcbus.transport.udp.stats_blocks import SenderStatsBlock
    from ringbuf.channel import OwnedChannel

_LINGER_LOOK_NS = 50_000_000
_SILENT_NS = 1_500_000_000
"""A client of this process that misses something asks more often than that, unless it is driven by who waits here."""
_LINGER_NS = 10_000_000_000
"""Longest time for which an ended session repairs what clients miss."""


class UdpSenderListener(Protocol):
    """What the context does when something happens to a session that it sends over UDP; called by any thread."""

    def clients_changed(self) -> None:
        """Takes note that a client has come, gone, or receives other topics."""

    def ring_has_room(self) -> None:
        """Lets a send go on that found no room in the ring."""

    def turn_is_due(self) -> None:
        """Has `UdpSender.turn` called earlier than that has asked for."""

    def context_lives(self, context_id: int) -> bool | None:
        """Returns whether a context lives; None where that is not known, as on another host."""


@dataclass(frozen=True, slots=True)
class _Awaited:
    """A receiving context that was evicted and has not registered since.

    Attributes:
        until_ns: so long its datagrams are kept.
        pid: its process.
        before: the registration that it had then, which it may be about to give up.
    """

    until_ns: int
    pid: int
    before: Client | None


class UdpSender:
    """One session's. Called by senders from any thread, and by whoever drives the context."""

    def __init__(
        self,
        channel: OwnedChannel,
        session_socket: SessionSocket,
        reliable_sender: ReliableSender,
        stats_block: SenderStatsBlock,
        listener: UdpSenderListener,
        *,
        name: str,
        group: Address | None,
        twin: bool,
        return_timeout_ns: int,
    ) -> None:
        """Takes the last slot of the session; begins to read at `start`.

        Args:
            channel: the session's ring.
            session_socket: where it sends from, and is asked.
            reliable_sender: the protocol's state.
            stats_block: where statistics of it stand.
            listener: who learns what happens.
            name: of the transport, for who looks at the slots.
            group: multicast group that everybody hears; None sends to each client.
            twin: it is read only while there are clients.
            return_timeout_ns: how long datagrams are kept for a receiver that was evicted and has not registered;
                after the end, also for a client that is silent.
        """
        self.session_socket, self.reliable_sender, self.group, self.twin = session_socket, reliable_sender, group, twin
        self._return_timeout_ns = return_timeout_ns
        self._stats_block, self._listener = stats_block, listener
        self._channel = channel
        who = Identity(os.getpid(), os.geteuid(), UPLINK, name)
        self.slot = channel.slots.claim(who, time.time_ns(), only=channel.slots.slots_max - 1)
        self._reader = RingReader(channel.ring, channel.control, self.slot)
        self._lock = threading.RLock()
        self.active = self.closing = False
        self._stats_pending = False
        self._closed_ns = 0
        self._awaited: dict[int, _Awaited] = {}
        """Contexts that were evicted and have not registered since, by their ids."""
        self._local_contexts: set[int] = set()
        """Clients of which it was known once whether they live."""
        self._changes = 0
        session_socket.add(self, reliable_sender.session_id)
        # Who asks for an older session at this address is answered that it is gone.
        session_socket.default_handler = self
        if not twin:
            self.start()

    @property
    def bit(self) -> int:
        """Its bit in the masks of slots."""
        return 1 << self.slot

    def start(self, at: int | None = None) -> None:
        """Reads from now on what is published.

        Args:
            at: position of the first record to read, which another reader keeps in the ring; None: the next one.
        """
        with self._lock:
            if not self.active:
                self._channel.slots.join(self.slot, self._reader, at)
                self.active = True
                # For good: whoever publishes is told, and carries on here what he has published.
                self._reader.arm(True)

    def take_over(self, position: int, who: Identity) -> None:
        """Keeps what a receiver that is evicted has not read, until the receiver comes over UDP to get it.

        Args:
            position: where the receiver stands; it still holds its slot.
            who: the receiver's context.
        """
        with self._lock:
            now_ns = time.monotonic_ns()
            registered = next(
                (each for each in self.reliable_sender.clients if each.context_id == who.context_id), None
            )
            self._awaited[who.context_id] = _Awaited(now_ns + self._return_timeout_ns, who.pid, registered)
            self._note_local([who.context_id])
            if not self.active:
                # The receiver has read everything that is held from before. It resumes with the oldest datagram that is
                # held: if those came first, the source could overwrite the missing ones before the receiver gets there.
                self.reliable_sender.clear_window()
            self.start(position)
            self._pump(now_ns)
        self._listener.turn_is_due()

    def stop(self) -> None:
        """Reads no more; what is published keeps nobody waiting for it."""
        with self._lock:
            if self.active:
                self.active = False
                self._reader.arm(False)
                if self._channel.slots.pause(self.slot):
                    self._listener.ring_has_room()

    # ------------------------------------------------------------------ what goes out

    def pump(self) -> None:
        """Sends what was published."""
        with self._lock:
            if self.active or self.closing:
                now_ns = time.monotonic_ns()
                self._pump(now_ns)
                owed, following = self._stats_pending, self._show(now_ns)
                if self.reliable_sender.blocked or (following is not None and not owed):
                    self._listener.turn_is_due()

    def _pump(self, now_ns: int) -> None:
        reliable_sender, reader = self.reliable_sender, self._reader
        room = False
        while not reliable_sender.blocked:
            found = take(reader)
            if found is None:
                if reader.broken and reader.mend() is not None:
                    continue  # clients find by the numbers of messages what was in the damaged part of the ring
                break
            reliable_sender.send(*found, now_ns)
            # Shown at once: a source that waits for room need not wait for all of it.
            room |= reader.show()
            self._flush()
        self._flush()
        if room:
            self._listener.ring_has_room()

    def _flush(self) -> None:
        pairs: list[tuple[bytes, Address]] = []
        for packet, to in self.reliable_sender.take():
            if to is not ALL:
                pairs.append((packet, to))  # type: ignore[arg-type]
            elif self.group is not None:
                pairs.append((packet, self.group))
            else:
                pairs += [(packet, address) for address in self.reliable_sender.addresses]  # type: ignore[misc]
        if pairs:
            self.session_socket.send(pairs)

    # ------------------------------------------------------------------ what comes in, and time

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> None:
        """Takes a packet of a client."""
        with self._lock:
            self.reliable_sender.receive(packet, address, now_ns)
            self._look_at_clients(now_ns)
            self._pump(now_ns) if self.active else self._flush()

    def turn(self, now_ns: int) -> int | None:
        """Does what is due; returns when to call again, None when nothing will be before something happens."""
        with self._lock:
            self.reliable_sender.turn(now_ns)
            self._look_at_clients(now_ns)
            self._pump(now_ns) if self.active else self._flush()
            if self.closing:
                self._end(now_ns)
                return now_ns + _LINGER_LOOK_NS
            waited = min((each.until_ns for each in self._awaited.values()), default=None)
            times = (self.reliable_sender.next_ns(now_ns), waited, self._show(now_ns))
            return min((time for time in times if time is not None), default=None)

    def _show(self, now_ns: int) -> int | None:
        """Shows what statistics tell; when that is not due yet, says when it will be."""
        if self.twin and not self.active and self.reliable_sender.changes == 0:
            return None  # a twin that nobody has asked for shows nothing
        self._stats_block.limited(now_ns)
        due_ns = self._stats_block.due_ns
        self._stats_pending = now_ns < due_ns
        if self._stats_pending:
            return due_ns
        self._stats_block.show(self.session_socket, self.active, now_ns)
        return None

    def _look_at_clients(self, now_ns: int) -> None:
        # Before the answer goes out: what is published after it is sent to the one who was answered.
        if self._awaited:
            came = {client.context_id: client for client in self.reliable_sender.clients}
            self._awaited = {
                who: each
                for who, each in self._awaited.items()
                if now_ns < each.until_ns and came.get(who) in (None, each.before)
            }
        if self.twin and not self.closing:
            if self.reliable_sender.addresses or self._awaited:
                self.start()
            else:
                self.stop()
        if self.reliable_sender.changes != self._changes:
            self._changes = self.reliable_sender.changes
            self._note_local(client.context_id for client in self.reliable_sender.clients)
            self._listener.clients_changed()

    def joined(self, number: int) -> list[Client]:
        """Returns the clients that receive a topic."""
        return [client for client in self.reliable_sender.clients if number in client.topics]

    # ------------------------------------------------------------------ end

    def close(self) -> None:
        """The session ends: all that is published is sent; `turn` goes on until `over`, to tell and to repair."""
        with self._lock:
            if not self.closing:
                self.closing = True
                now_ns = self._closed_ns = time.monotonic_ns()
                if self.active:
                    self._pump(now_ns)
                self._end(now_ns)

    def _end(self, now_ns: int) -> None:
        # What waits for the data rate goes first.
        if not self.reliable_sender.blocked:
            self.reliable_sender.expects = self._expects(now_ns)
            self.reliable_sender.end(now_ns)
            self._flush()

    def over(self, now_ns: int, *, context_closes: bool = False) -> bool:
        """After `close`, whether all clients have everything, or those that have not are dead, or silent for too long.

        Args:
            now_ns: the time.
            context_closes: the caller waits for it, and may be who drives clients of this process.
        """
        with self._lock:
            if self.reliable_sender.blocked or not self.closing:
                return False
            return not self._expects(now_ns, context_closes=context_closes)

    def _expects(self, now_ns: int, *, context_closes: bool = False) -> bool:
        """Whether a receiver may still come and get what it misses: a receiver that has everything has left."""
        if now_ns - self._closed_ns > _LINGER_NS:
            return False
        # Counted from the end at least: a receiver that was cut off before it may be on its way back.
        silent_until_ns = self._closed_ns + self._return_timeout_ns
        waited_for = [
            (each.context_id, each.pid, each.heard_ns, silent_until_ns) for each in self.reliable_sender.clients
        ]
        waited_for += [(who, each.pid, 0, each.until_ns) for who, each in self._awaited.items()]
        for context_id, pid, heard_ns, until_ns in waited_for:
            if context_closes and pid == os.getpid():
                until_ns = max(heard_ns, self._closed_ns) + _SILENT_NS
            if now_ns < until_ns and not self._is_dead(context_id):
                return True
        return False

    def _note_local(self, contexts: Iterable[int]) -> None:
        known = self._local_contexts
        known.update(who for who in contexts if who not in known and self._listener.context_lives(who) is not None)

    def _is_dead(self, context_id: int) -> bool:
        """Returns whether a context of this host does not live any more; what it left may have been removed."""
        return context_id in self._local_contexts and not self._listener.context_lives(context_id)

    def let_go(self) -> None:
        """The last step: the socket goes."""
        self.session_socket.remove(self)

    def abandon(self) -> None:
        """For a child after a fork."""
        self.session_socket.close()
