"""Evicting the receivers that keep the sources of a session waiting for too long."""

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
    """Looks for them on one session. No clock; whoever looks holds a lock against others that look."""

    def __init__(self, session: SendingSession, patience_ms: int) -> None:
        """For a session whose ring evicts.

        Args:
            session: the session.
            patience_ms: how long a receiver may keep a source waiting.
        """
        self._session = session
        self._patience_ms = patience_ms
        self._holdups = SlowReceivers(patience_ms * 1_000_000)
        self._needed = 0
        # An eviction that is seen in the slots is in this list as well, for who takes the lock afterwards.
        self._telling = threading.Lock()
        self._evicted: deque[Identity] = deque(maxlen=SLOTS_MAX)
        self.count = 0
        self._blocked = 0

    def look(self, now_ns: int, need: int | None = None) -> list[Identity]:
        """Returns a source waits; evicts who has been in its way for too long.

        Args:
            now_ns: the time.
            need: bytes for which it finds no room; None when they are the same as at the last look.

        Returns:
            Who was evicted; to be given to `warn` when the lock is released.
        """
        writer, slots = self._session.channel.writer, self._session.channel.slots
        if need is not None:
            self._needed = writer.position_needed(need)
        twin = self._session.udp_sender.slot if self._session.udp_sender is not None else -1
        positions = {
            (index, generation): position
            for index, shown in slots.positions().items()
            # Whom the writer does not believe it does not wait for.
            if index != twin
            and (position := writer.believed(index, shown, generation := slots.generation(index))) is not None
        }
        late = self._holdups.look(self._needed, positions, now_ns)
        return [who for reader in late if (who := self._evict(*reader)) is not None]

    def warn(self, evicted: list[Identity]) -> None:
        """Logs who was evicted; not under a lock, because a handler of the log may send, even on this session."""
        for who in evicted:
            log.warning(
                "%s has evicted the receiving context %r of pid %d, which kept it waiting for %d ms; let that one "
                "receive faster, raise slow_receiver_timeout or the transmission window, or use "
                "slow_receiver_behavior=block",
                self._session.source_string,
                who.context_name,
                who.pid,
                self._patience_ms,
            )

    @contextlib.contextmanager
    def wait(self) -> Iterator[None]:
        """Around a send that waits, and looks by itself."""
        with self._telling:
            self._blocked += 1
        try:
            yield
        finally:
            with self._telling:
                self._blocked -= 1
            self.go_on()

    def go_on(self) -> None:
        """No source waits any more, except for those that look by themselves."""
        if not self._blocked:
            self._holdups.go_on()

    @property
    def next_look_ns(self) -> int:
        """After how many ns to look again while a source waits."""
        return self._holdups.next_look_ns

    def since(self, count: int) -> tuple[int, list[Identity]]:
        """Returns how many were evicted, and who after the first `count`, as far as it is remembered."""
        with self._telling:
            new = self.count - count
            return self.count, list(self._evicted)[-new:] if new else []

    def _evict(self, index: int, generation: int) -> Identity | None:
        session = self._session
        slots = session.channel.slots
        who = slots.identity(index)
        position = slots.positions().get(index)
        if session.udp_sender is not None and session.udp_sender.twin and position is not None:
            session.udp_sender.take_over(position, who)
        with self._telling:
            if not session.channel.slots.evict(index, generation):
                return None
            self._evicted.append(who)
            self.count += 1
        session.channel.writer.count_evicted()
        session.call(index)
        return who
