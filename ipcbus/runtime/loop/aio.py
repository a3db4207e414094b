"""Waiting for messages in asyncio, without a thread of its own.

A task reads the rings itself as long as there are messages (`ipcbus.delivery.async_messages`); what is here begins when
no more come. In embedded mode the context's thread drives then, wakes the asyncio loop, and leaves the driver lock to
it. Otherwise the asyncio loop watches the context's descriptor and drives the context itself.

This module imports asyncio only in functions that run in an asyncio loop, where asyncio is loaded already: its import
takes half as long as that of ipcbus, and most programs never need it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import weakref
from typing import TYPE_CHECKING, Protocol

from ipcbus.delivery.pump import TASKS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sized

    from ipcbus.runtime.loop.event_loop import EventLoop


_IN_VAIN_MAX = 3
"""How often in a row the asyncio loop calls while no task waits, before it watches the descriptor no longer."""


class Awaited(Protocol):
    """What a task waits for: a receiver's sink, or a request."""

    @property
    def queue(self) -> Sized:
        """The messages that have come."""

    @property
    def closed(self) -> bool:
        """Whether no more messages come."""


class AsyncWaiters:
    """The tasks that wait for a message of one context."""

    def __init__(self, event_loop: EventLoop, work: Callable[[], object] | None) -> None:
        """Begins without waiting tasks.

        Args:
            event_loop: the event loop of the context.
            work: does the context's work without waiting; None if the context's own thread does the work.
        """
        self._event_loop = event_loop
        self._work = work
        self._waiting: dict[Awaited, list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]]] = {}
        self._watching: asyncio.AbstractEventLoop | None = None
        """The asyncio loop that watches; it goes on when no task waits, as the next wait is likely to come soon."""
        self._watched = -1
        self._in_vain = 0

    def any(self) -> bool:
        """Returns whether a task waits."""
        return bool(self._waiting)

    def delivered(self) -> None:
        """Wakes the tasks whose messages have come."""
        for sink in list(self._waiting):
            if sink.queue:
                self.wake(sink)
                if self._work is None:
                    self._event_loop.stand_back()

    def wake(self, sink: Awaited) -> None:
        """Wakes the tasks that wait for this sink, for example when the sink is closed."""
        waiting = list(self._waiting.get(sink, ()))
        running = _running_loop() if waiting else None
        for loop, future in waiting:
            if loop is running:
                _resolve(future)
                continue
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(_resolve, future)

    async def wait(self, sink: Awaited) -> None:
        """Waits until the sink's queue is not empty, or the sink is closed."""
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(sink, []).append((loop, future))
        self._event_loop.pump.want(TASKS)
        try:
            if self._work is None:
                self._event_loop.hand_over()
            else:
                self._watch(loop)
            if not sink.queue and not sink.closed:
                await future
        finally:
            self._waiting[sink].remove((loop, future))
            if not self._waiting[sink]:
                del self._waiting[sink]
            if not self._waiting:
                self._event_loop.pump.unwant(TASKS)
                if self._watching is not None:
                    self._event_loop.ignore_descriptor()

    def close(self) -> None:
        """Wakes every task and stops watching, before the context's descriptors are closed."""
        for sink in list(self._waiting):
            self.wake(sink)
        if self._watching is not None:
            self._event_loop.ignore_descriptor()
        self._unwatch()

    def abandon(self) -> None:
        """Closes the copy of the descriptor; for the child of a fork, where no asyncio loop of the parent runs."""
        if self._watching is not None:
            self._watching = None
            os.close(self._watched)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._watching is not loop and not self._waits_in(self._watching):
            self._unwatch()
        self._in_vain = 0
        fd = self._event_loop.watch_descriptor()
        if self._watching is None:
            # A copy, which the asyncio loop may close later than the context closes its descriptor.
            self._watching, self._watched = loop, os.dup(fd)
            # The asyncio loop must not keep a context alive that is not used any more.
            loop.add_reader(self._watched, functools.partial(_readable, weakref.ref(self)))
        self.run_turn()

    def _waits_in(self, loop: asyncio.AbstractEventLoop | None) -> bool:
        """Returns whether a task of this asyncio loop waits."""
        if loop is None or loop.is_closed():
            return False
        return any(each is loop for waiting in self._waiting.values() for each, _ in waiting)

    def readable(self) -> None:
        """Runs a turn when the descriptor is readable; arms it afterwards only if a task still waits.

        A task that has its message arms the descriptor when it waits again, after it has handled the message.
        """
        if not self._waiting:
            self._in_vain += 1
            if self._in_vain > _IN_VAIN_MAX:
                self._unwatch()
            return
        self._event_loop.ignore_descriptor()
        try:
            self.run_turn()
        finally:
            waiting = (future for each in self._waiting.values() for _, future in each)
            if not self._event_loop.closing and any(not future.done() for future in waiting):
                self._event_loop.watch_descriptor()
                self.run_turn()

    def _unwatch(self) -> None:
        """Has the asyncio loop watch the descriptor no longer."""
        loop, self._watching = self._watching, None
        if loop is None:
            return
        if loop is _running_loop():
            _let_go(loop, self._watched)
            return
        try:
            loop.call_soon_threadsafe(_let_go, loop, self._watched)
        except RuntimeError:  # the loop was closed
            os.close(self._watched)

    def run_turn(self) -> None:
        """Runs a turn of the context without waiting, and wakes the tasks whose messages have come."""
        if self._event_loop.closing:
            return
        if self._work is None:
            self._event_loop.help()
        else:
            self._work()
        self.delivered()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _readable(found: weakref.ref[AsyncWaiters]) -> None:
    waiters = found()
    if waiters is not None:
        waiters.readable()


def _let_go(loop: asyncio.AbstractEventLoop, fd: int) -> None:
    loop.remove_reader(fd)
    os.close(fd)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
