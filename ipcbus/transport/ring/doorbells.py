"""The doorbells of a session's receivers, as its source rings them."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

from ipcbus.resolution.local import object_names
from ringbuf.doorbell import DoorbellRinger
from ringbuf.ring_errors import SegmentRefused

log = logging.getLogger("ipcbus")


class Doorbells:
    """A rope for each slot whose context was ever rung.

    Sources of one session send in threads of their own, and every one of them may be who finds a receiver asleep.
    """

    def __init__(self, domain: str, session: str) -> None:
        """Ropes to nobody yet.

        Args:
            domain: the bus domain.
            session: the source string, for the log.
        """
        self._domain, self._session = domain, session
        self._lock = threading.Lock()
        self._doorbells: dict[int, tuple[int, DoorbellRinger | None]] = {}
        self._closed = False

    def ring(self, slot: int, context_id: int, what: bytes) -> bool:
        """Wakes the context in a slot.

        Returns:
            Whether its doorbell could be rung; not when it is gone, or another user's.
        """
        # Held while it rings: a descriptor that another thread closes meanwhile could be somebody else's by then.
        with self._lock:
            rope = None if self._closed else self._rope(slot, context_id)
            if rope is not None:
                rope.ring(what)
        return rope is not None

    def close(self) -> None:
        """Lets go of all; nobody is rung after it."""
        with self._lock:
            self.abandon()

    def abandon(self) -> None:
        """As `close`; for a child after a fork, where the lock may be in the hands of a thread that is not there."""
        self._closed = True
        for _, rope in self._doorbells.values():
            if rope is not None:
                rope.close()
        self._doorbells.clear()

    def _rope(self, slot: int, context_id: int) -> DoorbellRinger | None:
        known = self._doorbells.get(slot)
        if known is not None and known[0] == context_id:
            return known[1]
        if known is not None and known[1] is not None:
            known[1].close()
        rope: DoorbellRinger | None = None
        with suppress(OSError, ValueError):
            try:
                rope = DoorbellRinger(object_names.bell(self._domain, context_id & 0xFFFFFFFF))
            except SegmentRefused as error:
                log.warning("%s: a receiver cannot be woken: %s", self._session, error)
        self._doorbells[slot] = (context_id, rope)
        return rope
