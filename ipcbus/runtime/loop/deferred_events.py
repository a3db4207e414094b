"""What is left to be told to receivers as long as the driver may not call them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipcbus.runtime.loop.event_loop import EventLoop
    from ipcbus.runtime.receiving.notifier import Notifier
    from ipcbus.transport.receiving_session import ReceivingSession


class DeferredEvents:
    """Those of one context. Runs on the driver."""

    def __init__(self, event_loop: EventLoop, notifier: Notifier) -> None:
        """Nothing is owed."""
        self._event_loop, self._notifier = event_loop, notifier
        self.any = False

    def owe(self) -> bool:
        """Leaves what would call receivers back to the next `attend`, as long as the driver is quiet."""
        if self._event_loop.quiet:
            self.any = self._event_loop.pump.attention = True
        return self._event_loop.quiet

    def pay(self, sessions: Iterable[ReceivingSession]) -> None:
        """Tells what was left to be told; comes before everything else that is told.

        Args:
            sessions: those that are joined; asked for one by one, as callbacks may have some left.
        """
        if not self.any:
            return
        self.any = False
        for session in sessions:
            self._notifier.introduce_all(session)
            session.begin_topics()
        self._notifier.tell_missing()
