"""Blocks in which a thread or a task that pulls looks at a message in the ring."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ipcbus.delivery.leasing import LeasedMessage, leased
from ipcbus.runtime.loop.timerfd import bounded

if TYPE_CHECKING:
    from types import TracebackType

    from ipcbus.delivery.received_message import Message
    from ipcbus.receiver import Receiver

Got = TypeVar("Got")
"""What a block gets: a message, or None too if the wait has a timeout."""


class Lease(Generic[Got]):
    """A block with the next message in its place in the ring; made by `Receiver.lease`."""

    def __init__(self, receiver: Receiver, timeout: float | None) -> None:
        """Use `Receiver.lease` instead."""
        self._receiver = receiver
        self._timeout = timeout
        self._message: LeasedMessage | None = None

    def __enter__(self) -> Got:
        """Waits for a message or event; returns None when the time ran out."""
        found: Any = self._enter()
        return found  # type: ignore[no-any-return]

    def _enter(self) -> Message | None:
        receiver, queue = self._receiver, self._receiver._sink.queue
        # Another thread that leases at the same time gets a copy.
        first = receiver._lease_lock.acquire(blocking=False)
        if first:
            queue.lessee = threading.get_ident()
        queue.set_leases(True)
        queue.count_leasing(1)
        try:
            message = receiver.receive(self._timeout)
        finally:
            queue.count_leasing(-1)
            if first:
                queue.lessee = 0
                receiver._lease_lock.release()
        self._message = leased(message) if message is not None else None
        return message if self._message is None else self._message

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends what the block had of the message."""
        message, self._message = self._message, None
        if message is not None and message.end():
            self._receiver._context._event_loop.kick()


class AsyncLease(Generic[Got]):
    """The same in asyncio; made by `Receiver.alease`."""

    def __init__(self, receiver: Receiver, timeout: float | None) -> None:
        """Use `Receiver.alease` instead."""
        self._receiver = receiver
        self._timeout = timeout
        self._lease: Lease[Message | None] = Lease(receiver, 0)

    async def __aenter__(self) -> Got:
        """Waits for a message or event; returns None when the time ran out."""
        found: Any = await self._enter()
        return found  # type: ignore[no-any-return]

    async def _enter(self) -> Message | None:
        import asyncio

        sink, waiters = self._receiver._sink, self._receiver._context._waiters
        sink.queue.count_leasing(1)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(bounded(self._timeout)):
                    while (message := self._lease.__enter__()) is None:
                        await waiters.wait(sink)
                return message
            return self._lease.__enter__()  # what came meanwhile
        finally:
            sink.queue.count_leasing(-1)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends what the block had of the message."""
        self._lease.__exit__(kind, error, trace)
