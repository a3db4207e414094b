"""Waiting for messages in asyncio, without a thread of its own.

In embedded mode the context's thread wakes the asyncio loop. Otherwise the asyncio loop watches the context's
descriptor and drives the context itself.

This module imports asyncio only in functions that run in an asyncio loop, where asyncio is loaded already: its import
takes half as long as that of ipcbus, and most programs never need it.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Protocol

from ipcbus.delivery.pump import TASKS

if TYPE_CHECKING:
    import asyncio
    from collections import deque
    from collections.abc import Callable, Sequence

    from ipcbus.delivery.received_message import Message
    from ipcbus.runtime.loop.event_loop import EventLoop


class Awaited(Protocol):
    """What a task waits for: a receiver's sink, or a request."""

    @property
    def queue(self) -> Sequence[Message] | deque[Message]:
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
        self._watched = -1

    def any(self) -> bool:
        """Returns whether a task waits."""
        return bool(self._waiting)

    def delivered(self) -> None:
        """Wakes the tasks whose messages have come."""
        for sink in list(self._waiting):
            if sink.queue:
                self.wake(sink)

    def wake(self, sink: Awaited) -> None:
        """Wakes the tasks that wait for this sink, for example when the sink is closed."""
        for loop, future in list(self._waiting.get(sink, ())):
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
                self._event_loop.interrupt()
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
                self._unwatch()

    def close(self) -> None:
        """Wakes every task and stops watching, before the context's descriptors are closed."""
        for sink in list(self._waiting):
            self.wake(sink)
        self._unwatch()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._watching is None:
            # A copy, which the asyncio loop may close later than the context closes its descriptor.
            self._watching, self._watched = loop, os.dup(self._event_loop.fileno())
            loop.add_reader(self._watched, self._turn)
        self._turn()

    def _unwatch(self) -> None:
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

    def _turn(self) -> None:
        if self._work is not None and not self._event_loop.closing:
            self._work()
            self.delivered()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _let_go(loop: asyncio.AbstractEventLoop, fd: int) -> None:
    loop.remove_reader(fd)
    os.close(fd)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
