"""The doorbells that a source rings to wake the contexts that receive its session."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from ipcbus.resolution.local import object_names
from ringbuf.doorbell import DoorbellRinger
from ringbuf.ring_errors import SegmentRefused

if TYPE_CHECKING:
    from ringbuf.slot_doorbells import SlotDoorbells

log = logging.getLogger("ipcbus")


class Doorbells:
    """The open doorbells of a session: one for each slot whose context was ever woken.

    Any thread may ring: sources of one session send in several threads.
    """

    def __init__(self, domain: str, session: str, compiled: SlotDoorbells) -> None:
        """Starts without an open doorbell.

        Args:
            domain: the bus domain.
            session: the source string, for the log.
            compiled: rings the doorbells that are open here, as long as they are.
        """
        self._domain, self._session, self._compiled = domain, session, compiled
        self._lock = threading.Lock()
        self._ringers: dict[int, tuple[int, DoorbellRinger | None]] = {}
        self._closed = False

    def ring(self, slot: int, context_id: int, what: bytes) -> bool:
        """Wakes the context in a slot.

        Returns:
            Whether its doorbell could be rung; False when it does not exist any more, or belongs to another user.
        """
        # Held while it rings: if another thread closed the descriptor now, its number could belong to another file.
        with self._lock:
            ringer = None if self._closed else self._ringer(slot, context_id)
            if ringer is not None:
                self._compiled.put(slot, context_id, ringer.fd)  # the next time without this call
                ringer.ring(what)
        return ringer is not None

    def close(self) -> None:
        """Closes all doorbells; `ring` does nothing from now on."""
        with self._lock:
            self._compiled.forget()
            self.abandon()

    def abandon(self) -> None:
        """As `close`, without the lock, which a thread of the parent may hold; for the child process after a fork."""
        self._closed = True
        self._compiled.abandon()
        for _, ringer in self._ringers.values():
            if ringer is not None:
                ringer.close()
        self._ringers.clear()

    def _ringer(self, slot: int, context_id: int) -> DoorbellRinger | None:
        known = self._ringers.get(slot)
        if known is not None and known[0] == context_id:
            return known[1]
        if known is not None and known[1] is not None:
            self._compiled.forget()
            known[1].close()
        ringer: DoorbellRinger | None = None
        with suppress(OSError, ValueError):
            try:
                ringer = DoorbellRinger(object_names.bell(self._domain, context_id & 0xFFFFFFFF))
            except SegmentRefused as error:
                log.warning("%s: a receiver cannot be woken: %s", self._session, error)
        self._ringers[slot] = (context_id, ringer)
        return ringer
