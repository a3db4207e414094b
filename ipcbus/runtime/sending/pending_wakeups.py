"""Sends that were refused for want of room, and the WAKEUP events that are owed for them.

In Ultra Messaging the event may come before the send has returned LBM_EWOULDBLOCK. Here it comes once every
`WouldBlock` of the session is dealt with, that is, once its exception is gone, so that whoever sets a flag in the
`except` block never misses the event.
"""

from __future__ import annotations

import functools
import time
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.errors import WouldBlock
    from ipcbus.transport.sending_session import SendingSession

GRACE_NS = 100_000_000
"""So long after it was raised an exception counts as dealt with, as somebody may keep it."""


class PendingWakeups:
    """Those of a context's sessions.

    Senders add to it from any thread and exceptions vanish in any thread, so there is no lock: the order of the steps
    keeps an event from being lost, and each step is one operation of a dict or a set.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        """Without refusals.

        Args:
            wake: has the driver ask `served` soon; called from any thread.
        """
        self._wake = wake
        self._wanting: set[SendingSession] = set()
        self._held: set[SendingSession] = set()
        self._raised: dict[SendingSession, dict[weakref.ref[WouldBlock], int]] = {}
        self._swept_ns = 0

    def expect(self, session: SendingSession, error: WouldBlock) -> None:
        """Owes an event for an error about to be raised; to be called before the ring is asked for the event."""
        now = time.monotonic_ns()
        if now - self._swept_ns > GRACE_NS:
            self._swept_ns = now
            self._sweep(now)
        raised = self._raised.setdefault(session, {})
        raised[weakref.ref(error, functools.partial(self._gone, session))] = now
        self._wanting.add(session)

    def served(self, now_ns: int) -> tuple[set[SendingSession], int | None]:
        """Sessions that have room again and whose refusals are dealt with; each is told once.

        Returns:
            The sessions, and when to ask again for those whose exceptions somebody keeps; None without such.
        """
        done: set[SendingSession] = set()
        again: int | None = None
        for session in list(self._wanting):
            # Taken away first and put back: a refusal in between adds it again.
            self._wanting.discard(session)
            if session.writer_waits():
                self._wanting.add(session)
                continue
            # Held first and looked at then: an exception that vanishes in between either is seen or wakes.
            self._held.add(session)
            until = max(list(self._raised.get(session, {}).values()), default=0) + GRACE_NS
            if until > GRACE_NS and until > now_ns:
                self._wanting.add(session)
                again = until if again is None else min(again, until)
            else:
                self._held.discard(session)
                done.add(session)
        return done, again

    def forget(self, session: SendingSession) -> None:
        """The session ends."""
        for owed in (self._wanting, self._held):
            owed.discard(session)
        self._raised.pop(session, None)

    def _gone(self, session: SendingSession, error: weakref.ref[WouldBlock]) -> None:
        raised = self._raised.get(session)
        if raised is not None:
            raised.pop(error, None)
            if not raised and session in self._held:
                self._wake()

    def _sweep(self, now_ns: int) -> None:
        for raised in list(self._raised.values()):
            for error, since in list(raised.items()):
                if now_ns - since > GRACE_NS:
                    raised.pop(error, None)
