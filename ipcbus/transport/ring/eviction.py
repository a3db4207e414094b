"""Eviction of receivers that keep the sources of a session waiting for too long."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

from ipcbus.topic.slow_receivers import SlowReceivers
from ringbuf.layout import SLOTS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.transport.sending_session import SendingSession
    from ringbuf.slots import Identity

log = logging.getLogger("ipcbus")


class Evictor:
    """Evicts the slow receivers of one session. Callers of `evict_slow` hold a lock, and pass in the time."""

    def __init__(self, session: SendingSession, timeout_ms: int) -> None:
        """Watches a session whose ring evicts.

        Args:
            session: the session.
            timeout_ms: how long a receiver may keep a source waiting, in ms.
        """
        self._session = session
        self._timeout_ms = timeout_ms
        self._slow_receivers = SlowReceivers(timeout_ms * 1_000_000)
        self._needed = 0
        # Under the lock, an eviction that the slots show is in this list as well.
        self._lock = threading.Lock()
        self._evicted: deque[Identity] = deque(maxlen=SLOTS_MAX)
        self.count = 0
        self._blocked = 0

    def evict_slow(self, now_ns: int, need: int | None = None) -> list[Identity]:
        """Evicts the receivers that have kept a source waiting for too long.

        Args:
            now_ns: the time.
            need: the bytes for which the source finds no room; None for the bytes of the last call.

        Returns:
            The evicted receivers, to be passed to `warn` when the lock is released.
        """
        writer, slots = self._session.channel.writer, self._session.channel.slots
        if need is not None:
            self._needed = writer.position_needed(need)
        twin = self._session.udp_sender.slot if self._session.udp_sender is not None else -1
        positions = {
            (index, generation): position
            for index, shown in slots.positions().items()
            # The writer does not wait for a position that it does not believe.
            if index != twin
            and (position := writer.accepted_position(index, shown, generation := slots.generation(index))) is not None
        }
        late = self._slow_receivers.find_late(self._needed, positions, now_ns)
        return [identity for reader in late if (identity := self._evict(*reader)) is not None]

    def warn(self, evicted: list[Identity]) -> None:
        """Logs the evicted receivers; not under a lock, because a log handler may send, even on this session."""
        for identity in evicted:
            log.warning(
                "%s has evicted the receiving context %r of pid %d, which kept it waiting for %d ms; let that one "
                "receive faster, raise slow_receiver_timeout or the transmission window, or use "
                "slow_receiver_behavior=block",
                self._session.source_string,
                identity.context_name,
                identity.pid,
                self._timeout_ms,
            )

    @contextlib.contextmanager
    def wait(self) -> Iterator[None]:
        """Encloses a send that waits and calls `evict_slow` itself."""
        with self._lock:
            self._blocked += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocked -= 1
            self.stop_waiting()

    def stop_waiting(self) -> None:
        """Takes note that no source waits any more, except inside of `wait`."""
        if not self._blocked:
            self._slow_receivers.resume()

    @property
    def next_check_ns(self) -> int:
        """The time in ns after which to call `evict_slow` again while a source waits."""
        return self._slow_receivers.next_check_ns

    def evicted_since(self, count: int) -> tuple[int, list[Identity]]:
        """Returns the number of evictions, and the receivers of those after the first `count`, as far as known."""
        with self._lock:
            new = self.count - count
            return self.count, list(self._evicted)[-new:] if new else []

    def _evict(self, index: int, generation: int) -> Identity | None:
        session = self._session
        slots = session.channel.slots
        identity = slots.identity(index)
        position = slots.positions().get(index)
        if session.udp_sender is not None and session.udp_sender.twin and position is not None:
            session.udp_sender.take_over(position, identity)
        with self._lock:
            if not session.channel.slots.evict(index, generation):
                return None
            self._evicted.append(identity)
            self.count += 1
        session.channel.writer.count_evicted()
        session.notify(index)
        return identity
