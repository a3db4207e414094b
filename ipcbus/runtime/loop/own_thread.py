"""The context's own thread, which keeps no part of the context alive while it rests.

The garbage collector treats each object that the thread refers to as in use. So between two turns the thread refers
only to the object on which it rests: an epoll descriptor, or the readers of the rings. The garbage collector then finds
a context to which nothing else refers, and the context's finalizer hands the context to this thread to be closed.
"""

from __future__ import annotations

import logging
import os
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.config import ContextOptions
    from ipcbus.runtime.loop.event_loop import EventLoop, Rest

log = logging.getLogger("ipcbus")

_RETRY_S = 0.001


class OwnThread:
    """The loop of the thread, until its context is closed or handed to it."""

    def __init__(self, find: Callable[[], EventLoop | None], options: ContextOptions, domain: str) -> None:
        """Begins without a thread.

        Args:
            find: returns the event loop; None when the application does not use the context any more.
            options: the options of the context.
            domain: the bus domain.
        """
        self._find, self._options, self._domain = find, options, domain
        self.handed: list[Callable[[], object]] = []
        """A function that closes the context; put here by the finalizer, which takes no lock."""

    def run(self) -> None:
        """Runs turns until the context is closed; the target of the thread."""
        self._pin()
        rest: Rest | None = None
        while True:
            woken = rest() if rest is not None else None
            goes_on, rest = self._turn(woken)
            if not goes_on:
                return
            if self.handed:
                self.handed.pop()()
                return

    def _turn(self, woken: object) -> tuple[bool, Rest | None]:
        """Runs one turn; returns whether another follows, and the rest before it. The frame is gone before the rest."""
        event_loop = self._find()
        if event_loop is None:
            return True, _a_moment  # the finalizer is under way, in another thread
        if event_loop.closing:
            event_loop.rouse()
            return False, None
        try:
            return True, event_loop.turn(woken)
        except BaseException:  # not of a callback; only the end of its context stops this thread
            name = self._options.context_name
            log.exception("an error in the thread of context %r in domain %r; the thread goes on", name, self._domain)
            event_loop.wait_changed(0.01)
            return True, None

    def _pin(self) -> None:
        cpu = self._options.thread_cpu
        if cpu >= 0:
            try:
                os.sched_setaffinity(0, {cpu})
            except OSError as error:
                log.warning("thread_cpu = %d cannot be used (%s); the thread runs on any processor", cpu, error)


def _a_moment() -> None:
    select.select((), (), (), _RETRY_S)
