"""The thread of a context's own, which keeps nothing of the context alive while it rests.

Whatever the thread has in hand when the garbage collector looks counts as in use. So between two turns it has in hand
only what it rests on: an epoll descriptor, or the readers of the rings. A context that nobody else refers to is found
then, and hands itself to this thread to be closed.
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
    """What the thread does until its context is closed, or handed to it."""

    def __init__(self, find: Callable[[], EventLoop | None], options: ContextOptions, domain: str) -> None:
        """Not running yet.

        Args:
            find: gives the driver, or None when it is not in use any more.
            options: of the context.
            domain: the bus domain.
        """
        self._find, self._options, self._domain = find, options, domain
        self.handed: list[Callable[[], object]] = []
        """Closes the context; put there by its finalizer, which takes no lock."""

    def run(self) -> None:
        """The thread's whole life."""
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
        """One turn; whether another follows, and what comes in between. Its frame is gone before the rest."""
        event_loop = self._find()
        if event_loop is None:
            return True, _a_moment  # the finalizer is under way, in another thread
        if event_loop.closing:
            event_loop.rouse()
            return False, None
        try:
            return True, event_loop.turn(woken)
        except BaseException:  # none that a callback raised; only its own context's end stops this thread
            name = self._options.context_name
            log.exception("the thread of context %r in domain %r goes on after", name, self._domain)
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
