"""The way of a session's datagrams from its ring to receivers over UDP.

A session over UDP alone has a small ring that only its uplink reads. A session over a ring has one as a twin, which
reads the ring as one more receiver does, in a slot that is kept for it, and only while somebody receives over UDP.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from ipcbus.reliability.reliable_sender import ALL
from ipcbus.wire.wire_layout import UPLINK
from ringbuf.relay import take
from ringbuf.ring import RingReader
from ringbuf.slots import Identity

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ipcbus.reliability.clients import Client
    from ipcbus.reliability.reliable_sender import ReliableSender
    from ipcbus.transport.udp.mmsg import Address
    from ipcbus.transport.udp.session_socket import SessionSocket
    from ipcbus.transport.udp.stats_blocks import SenderStatsBlock
    from ringbuf.channel import OwnedChannel

_LINGER_LOOK_NS = 50_000_000
_SILENT_NS = 1_500_000_000
"""A client that misses something asks more often than that."""
_LINGER_NS = 10_000_000_000
"""Longest time for which an ended session repairs what clients miss."""


class UdpSender:
    """One session's. Called by senders from any thread, and by whoever drives the context."""

    def __init__(
        self,
        channel: OwnedChannel,
        port: SessionSocket,
        end: ReliableSender,
        *,
        name: str,
        group: Address | None,
        twin: bool,
        patience_ns: int,
    ) -> None:
        """Takes the last slot of the session; begins to read at `start`.

        Args:
            channel: the session's ring.
            port: where it sends from, and is asked.
            end: what it speaks.
            name: of the transport, for who looks at the slots.
            group: multicast group that everybody hears; None sends to each client.
            twin: it is read only while there are clients.
            patience_ns: how long a receiver that was evicted is waited for.
        """
        self.port, self.end, self.group, self.twin = port, end, group, twin
        self._patience_ns = patience_ns
        self._channel = channel
        who = Identity(os.getpid(), os.geteuid(), UPLINK, name)
        self.slot = channel.slots.claim(who, time.time_ns(), only=channel.slots.slots_max - 1)
        self._reader = RingReader(channel.ring, channel.control, self.slot)
        self._lock = threading.RLock()
        self.active = self.closing = False
        self.board: SenderStatsBlock | None = None
        """Where it shows what statistics tell of it."""
        self._owes_board = False
        self._closed_ns = 0
        self._awaited: dict[int, tuple[int, Client | None]] = {}
        """Contexts that were evicted and have not registered since: until when each is waited for, and the registration
        that it had then, which it may be about to give up."""
        self._changes = 0
        self.on_change: Callable[[], object] = lambda: None
        """Called when a client has come, gone, or receives other topics."""
        self.on_room: Callable[[], object] = lambda: None
        """Called when there is room for a send that was refused."""
        self.on_due: Callable[[], object] = lambda: None
        """Called when `turn` has to come earlier than `next_ns` has said, by whatever thread."""
        port.add(self, end.session_id)
        # Who asks for an older session at this address is answered that it is gone.
        port.all_for = self
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

    def take_over(self, position: int, context_id: int) -> None:
        """Keeps what a receiver that is evicted has not read, until the receiver comes over UDP to get it.

        Args:
            position: where the receiver stands; it still holds its slot.
            context_id: of the receiver's context.
        """
        with self._lock:
            now_ns = time.monotonic_ns()
            registered = next((each for each in self.end.clients if each.context_id == context_id), None)
            self._awaited[context_id] = now_ns + self._patience_ns, registered
            if not self.active:
                # The receiver has read everything that is held from before. It resumes with the oldest datagram that is
                # held: if those came first, the source could overwrite the missing ones before the receiver gets there.
                self.end.forget()
            self.start(position)
            self._pump(now_ns)
        self.on_due()

    def stop(self) -> None:
        """Reads no more; what is published keeps nobody waiting for it."""
        with self._lock:
            if self.active:
                self.active = False
                self._reader.arm(False)
                if self._channel.slots.pause(self.slot):
                    self.on_room()

    # ------------------------------------------------------------------ what goes out

    def pump(self) -> None:
        """Sends what was published."""
        with self._lock:
            if self.active or self.closing:
                now_ns = time.monotonic_ns()
                self._pump(now_ns)
                owed, following = self._owes_board, self._show(now_ns)
                if self.end.blocked or (following is not None and not owed):
                    self.on_due()

    def _pump(self, now_ns: int) -> None:
        end, reader = self.end, self._reader
        room = False
        while not end.blocked:
            found = take(reader)
            if found is None:
                if reader.broken and reader.mend() is not None:
                    continue  # clients find by the numbers of messages what was in the damaged part of the ring
                break
            end.send(*found, now_ns)
            # Shown at once: a source that waits for room need not wait for all of it.
            room |= reader.show()
            self._flush()
        self._flush()
        if room:
            self.on_room()

    def _flush(self) -> None:
        pairs: list[tuple[bytes, Address]] = []
        for packet, to in self.end.take():
            if to is not ALL:
                pairs.append((packet, to))  # type: ignore[arg-type]
            elif self.group is not None:
                pairs.append((packet, self.group))
            else:
                pairs += [(packet, address) for address in self.end.addresses]  # type: ignore[misc]
        if pairs:
            self.port.send(pairs)

    # ------------------------------------------------------------------ what comes in, and time

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> None:
        """Takes a packet of a client."""
        with self._lock:
            self.end.receive(packet, address, now_ns)
            self._look_at_clients(now_ns)
            self._pump(now_ns) if self.active else self._flush()

    def turn(self, now_ns: int) -> int | None:
        """Does what is due; returns when to call again, None when nothing will be before something happens."""
        with self._lock:
            self.end.turn(now_ns)
            self._look_at_clients(now_ns)
            self._pump(now_ns) if self.active else self._flush()
            if self.closing:
                self._end(now_ns)
                return now_ns + _LINGER_LOOK_NS
            waited = min((until_ns for until_ns, _ in self._awaited.values()), default=None)
            times = (self.end.next_ns(now_ns), waited, self._show(now_ns))
            return min((time for time in times if time is not None), default=None)

    def _show(self, now_ns: int) -> int | None:
        """Shows what statistics tell; when that is not due yet, says when it will be."""
        if self.board is None or (self.twin and not self.active and self.end.changes == 0):
            return None  # a twin that nobody has asked for shows nothing
        self.board.limited(now_ns)
        due_ns = self.board.due_ns
        self._owes_board = now_ns < due_ns
        if self._owes_board:
            return due_ns
        self.board.show(self.port, self.active, now_ns)
        return None

    def _look_at_clients(self, now_ns: int) -> None:
        # Before the answer goes out: what is published after it is sent to the one who was answered.
        if self.twin and not self.closing:
            came = {client.context_id: client for client in self.end.clients}
            self._awaited = {
                who: (until_ns, before)
                for who, (until_ns, before) in self._awaited.items()
                if now_ns < until_ns and came.get(who) in (None, before)
            }
            if self.end.addresses or self._awaited:
                self.start()
            else:
                self.stop()
        if self.end.changes != self._changes:
            self._changes = self.end.changes
            self.on_change()

    def joined(self, number: int) -> list[Client]:
        """Returns the clients that receive a topic."""
        return [client for client in self.end.clients if number in client.topics]

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
        if not self.end.blocked:
            self.end.end(now_ns)
            self._flush()

    def over(self, now_ns: int) -> bool:
        """After `close`, whether all clients have everything, or those that have not show no life any more."""
        with self._lock:
            if self.end.blocked or not self.closing:
                return False
            # Counted from the end at least: who was cut off before it may be on his way back.
            live = any(now_ns - max(client.heard_ns, self._closed_ns) < _SILENT_NS for client in self.end.clients)
            return not self.end.addresses or not live or now_ns - self._closed_ns > _LINGER_NS

    def let_go(self) -> None:
        """The last step: the socket goes."""
        self.port.remove(self)

    def abandon(self) -> None:
        """For a child after a fork."""
        self.port.close()
