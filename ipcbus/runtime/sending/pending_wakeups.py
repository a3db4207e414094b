"""WAKEUP events that sources get after sends that raised `WouldBlock`.

In Ultra Messaging the event may come before the send has returned LBM_EWOULDBLOCK. Here the event comes when every
`WouldBlock` exception of the session is gone, so that an application that sets a flag in the `except` block never
misses the event.
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
"""Time in ns after which an exception counts as gone, because an application may keep it."""


class PendingWakeups:
    """The pending WAKEUP events of a context's sessions.

    Senders add to it in any thread, and exceptions end in any thread. There is no lock: each step is one operation of a
    dict or a set, and their order keeps events from being lost.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        """Begins without pending events.

        Args:
            wake: makes the driver call `take_ready` soon; called in any thread.
        """
        self._wake = wake
        self._refused: set[SendingSession] = set()
        self._awaiting: set[SendingSession] = set()
        self._raised: dict[SendingSession, dict[weakref.ref[WouldBlock], int]] = {}
        self._swept_ns = 0

    def expect(self, session: SendingSession, error: WouldBlock) -> None:
        """Notes an error that is about to be raised; call it before the ring is asked for the event."""
        now = time.monotonic_ns()
        if now - self._swept_ns > GRACE_NS:
            self._swept_ns = now
            self._sweep(now)
        raised = self._raised.setdefault(session, {})
        raised[weakref.ref(error, functools.partial(self._forget_error, session))] = now
        self._refused.add(session)

    def take_ready(self, now_ns: int) -> tuple[set[SendingSession], int | None]:
        """Returns each session once that has room again and whose exceptions are gone.

        Returns:
            The sessions, and when to call again for sessions whose exceptions still exist; None without such.
        """
        done: set[SendingSession] = set()
        again: int | None = None
        for session in list(self._refused):
            # First removed, then put back: an error in between adds the session again.
            self._refused.discard(session)
            if session.writer_waits() or session.held:
                self._refused.add(session)
                continue
            # First added, then checked: an exception that ends in between is either seen here or calls `wake`.
            self._awaiting.add(session)
            until = max(list(self._raised.get(session, {}).values()), default=0) + GRACE_NS
            if until > GRACE_NS and until > now_ns:
                self._refused.add(session)
                again = until if again is None else min(again, until)
            else:
                self._awaiting.discard(session)
                done.add(session)
        return done, again

    def released(self, session: SendingSession) -> None:
        """Takes note that the members of shares may have caught up."""
        if session in self._refused and not session.held:
            self._wake()

    def forget(self, session: SendingSession) -> None:
        """Forgets a session that ends."""
        for owed in (self._refused, self._awaiting):
            owed.discard(session)
        self._raised.pop(session, None)

    def _forget_error(self, session: SendingSession, error: weakref.ref[WouldBlock]) -> None:
        raised = self._raised.get(session)
        if raised is not None:
            raised.pop(error, None)
            if not raised and session in self._awaiting:
                self._wake()

    def _sweep(self, now_ns: int) -> None:
        for raised in list(self._raised.values()):
            for error, since in list(raised.items()):
                if now_ns - since > GRACE_NS:
                    raised.pop(error, None)
