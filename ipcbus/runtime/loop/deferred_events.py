"""Events that wait for receivers while the driver may not call back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipcbus.runtime.loop.event_loop import EventLoop
    from ipcbus.runtime.receiving.notifier import Notifier
    from ipcbus.transport.receiving_session import ReceivingSession


class DeferredEvents:
    """The deferred events of one context. Runs on the driver."""

    def __init__(self, event_loop: EventLoop, notifier: Notifier) -> None:
        self._event_loop, self._notifier = event_loop, notifier
        self.pending = False

    def defer(self) -> bool:
        """Defers callbacks to the next `attend` if the driver is quiet; returns whether it is."""
        if self._event_loop.quiet:
            self.pending = self._event_loop.pump.attention = True
        return self._event_loop.quiet

    def deliver(self, sessions: Iterable[ReceivingSession]) -> None:
        """Calls back for the deferred events, before any other event.

        Args:
            sessions: the joined sessions; taken one by one, because callbacks may leave some of them.
        """
        if not self.pending:
            return
        self.pending = False
        for session in sessions:
            self._notifier.notify_all_sources(session)
            session.begin_topics()
        self._notifier.notify_missing()
