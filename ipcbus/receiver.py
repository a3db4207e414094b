"""The receiving handle of one topic."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any

from ipcbus.delivery.puller import Puller
from ipcbus.delivery.sink import Sink
from ipcbus.errors import ClosedError, IpcBusError, WrongProcess
from ipcbus.event_queue import event_buffer_of
from ipcbus.runtime.error_mapping import check_callbacks, check_count, not_a_value
from ipcbus.runtime.loop.interrupts import shorten
from ipcbus.runtime.loop.timerfd import FOREVER_NS, bounded
from ipcbus.runtime.receiving.history_archives import open_history
from ipcbus.runtime.receiving.source_notifications import SourceNotifications
from ipcbus.runtime.receiving.subscriptions import Subscription

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from typing import Never

    from ipcbus.config import ReceiverOptions
    from ipcbus.context import Context
    from ipcbus.delivery.received_message import Message
    from ipcbus.event_queue import EventQueue
    from ipcbus.runtime.receiving.session_info import SessionInfo, SourceNotification


class Receiver:
    """Gets the messages of one topic; made by `Context.receiver`.

    With a callback, the context's thread (or `process_events`) delivers the messages. Without a callback the
    application pulls them: `receive`, `receive_many`, `receive_into`, `for`, `async for`; the thread that pulls reads
    the rings itself. With a callback and an event queue, the thread that dispatches the queue calls back.

    Several threads may use a receiver at the same time. Close it, or close its context.

    Attributes:
        topic: the name of the topic, or the pattern of a wildcard receiver.
    """

    def __init__(
        self,
        context: Context,
        topic: str,
        on_message: Callable[[Message], object] | None,
        options: ReceiverOptions,
        *,
        event_queue: EventQueue | None = None,
        source_notification: Callable[[SourceNotification], object] | None = None,
    ) -> None:
        """Use `Context.receiver` instead."""
        check_callbacks(on_message=on_message, source_notification=source_notification)
        self.topic = topic
        self._context = context
        self._queue = event_queue
        event_buffer = event_buffer_of(event_queue, context._event_loop, on_message)
        self._sink = Sink(on_message, options.receive_queue_maximum, event_buffer)
        self._sink.owner = self
        self._half_maximum = options.receive_queue_maximum // 2
        self._subscription = Subscription(topic, self._sink, options)
        self._subscription.archive = open_history(options.history_archive)
        if source_notification is not None:
            self._subscription.notifications = SourceNotifications(
                self._sink, context._receiving_sessions.notifier, on_source=source_notification
            )
        self._rows_lock = threading.Lock()
        acks = options.gmd_name and options.ipc_gmd_auto_ack and options.ipc_gmd_auto_ack_policy == "first"
        # The guaranteed messages that each thread has pulled, until its next pull.
        self._pulled: dict[int, list[Message]] | None = {} if acks and on_message is None else None
        self._filler = Puller(context._event_loop.pump, self._sink, self._take_slowly, self._take_many_slowly)
        self._puller = self._filler if self._pulled is None else _AcknowledgingPuller(self)

    @property
    def sessions(self) -> list[SessionInfo]:
        """The sessions that this receiver has joined, and those that it cannot join, with the reason."""
        return self._context._sessions_of(self._subscription)

    @property
    def closed(self) -> bool:
        """Whether the receiver, or its context, is closed."""
        return bool(self._sink.closed)

    @property
    def delivered(self) -> int:
        """The number of messages delivered, or queued for a pull, so far."""
        return self._sink.delivered

    @property
    def lost(self) -> int:
        """The number of messages reported lost so far."""
        return self._sink.lost

    @property
    def dropped(self) -> int:
        """The number of this receiver's messages and events that its event queue has dropped so far."""
        return self._sink.dropped

    def wait_for_sources(self, n: int = 1, timeout: float | None = None) -> None:
        """Waits until this receiver has joined `n` sources of its topic, or of the topics that match its pattern.

        The receiver gets every message that these sources send afterwards.

        Args:
            n: the number of sources; sources of this context count too.
            timeout: seconds; None waits for ever.

        Raises:
            TimeoutError: the receiver had joined fewer sources; the text says how many.
            ClosedError: the receiver is closed.
            WrongThread: the call would have to wait inside a callback of the same context.
            WrongProcess: the context was made before a fork, in the parent.
            TypeError, ValueError: `n` is not a whole number, or negative; `timeout` is not a number, or NaN.
        """
        try:
            self._context._wait_until_joined(
                n,
                timeout,
                self._joined,
                lambda count: f"{self._named()}: this receiver had joined {count} sources",
                "; rcv.sessions names the sessions that the receiver could not join",
            )
        except KeyboardInterrupt as error:
            shorten(error)
            raise

    def receive(self, timeout: float | None = None) -> Message | None:
        """Returns the next message or event.

        Args:
            timeout: seconds to wait; 0, or less, does not wait, None waits for ever.

        Returns:
            The message with its own copy of the bytes, or None when the time ran out.

        Raises:
            ClosedError: the receiver is closed, and its queue is empty.
            IpcBusError: the receiver has a callback, or the caller is inside a callback.
            WrongProcess: the context was made before a fork, in the parent.
            TypeError, ValueError: `timeout` is not a number, or NaN; not checked when a message is there already.
        """
        try:
            return self._puller.take(timeout)
        except KeyboardInterrupt as error:
            shorten(error)
            raise

    def receive_many(self, limit: int, timeout: float | None = None) -> list[Message]:
        """Waits for a message or event, and returns it with those that are there already.

        Args:
            limit: the most messages and events to return; 0 or more.
            timeout: seconds to wait for the first; 0, or less, does not wait, None waits for ever.

        Returns:
            The messages and events in their order; an empty list when the time ran out.

        Raises:
            TypeError, ValueError: `limit` is not a whole number, or negative; otherwise as in `receive`.
            ClosedError, IpcBusError, WrongProcess: as in `receive`.
        """
        if type(limit) is not int or limit < 0:
            check_count("limit", limit)
        try:
            return self._puller.take_many(limit, timeout)
        except KeyboardInterrupt as error:
            shorten(error)
            raise

    def receive_into(self, array: Any, timeout: float | None = None) -> int:  # noqa: ANN401 - any writable buffer
        """Writes messages of equal length straight into the rows of an array.

        The call waits for the first message, then takes those that are there already. It stops before an event, before
        a message of another length, and before a message with headers, which do not fit in a row; the next `receive`
        returns that message or event.

        Args:
            array: writable and C-contiguous: 2-D of uint8, or 1-D with items of the messages' length in bytes.
            timeout: seconds to wait; 0, or less, does not wait, None waits for ever.

        Returns:
            The number of rows that were filled; 0 when the time ran out or an event is next.

        Raises:
            ValueError: the next message has another length, or has headers.
            TypeError: `array` is not such an array.
            ClosedError, IpcBusError, WrongProcess: as in `receive`.
        """
        try:
            self._check_pull()
            timeout = bounded(timeout)
            if self._pulled is not None:
                self._acknowledge_pulled()
            with self._rows_lock, self._context._driver_for(self._sink, timeout) as event_loop:
                rows = self._sink.start_rows(array)
                try:
                    filled = self._queued_rows()
                    if not self._sink.queue and filled < rows and event_loop is not None:
                        self._sink.open_rows()
                        self._drive_rows(event_loop, rows, filled, timeout)
                finally:
                    # In this order: the thread that drives fills rows until they are done.
                    self._sink.end_rows()
                    filled = self._sink.rows_filled()
                    if event_loop is not None:
                        event_loop.attend_now()
                        if filled:  # the call returns these rows first, and the next one raises
                            self._puller.error = event_loop.take_pending()
                refused = self._refused_row() if filled == 0 else None
            self._made_room()
            if filled == 0 and not self._sink.queue:
                self._check_pull()  # closed meanwhile
            if refused is not None:
                raise ValueError(
                    f"topic {self.topic!r}: the next message has {refused} and does not fit in a row of the array; "
                    "take it with receive()"
                )
            return filled
        except KeyboardInterrupt as error:
            shorten(error)
            raise

    def _refused_row(self) -> str | None:
        """Returns the size of the next queued message, which a row cannot take; None if an event is next."""
        try:
            message = self._sink.queue[0]
        except IndexError:
            return None
        if message.type != 0:
            return None
        return f"{len(message)} bytes and headers" if message.properties_block else f"{len(message)} bytes"

    def _drive_rows(self, event_loop: Any, rows: int, filled: int, timeout: float | None) -> None:  # noqa: ANN401
        wait_ns = FOREVER_NS if timeout is None else int(timeout * 1e9)
        deadline = time.monotonic_ns() + wait_ns
        sink = self._sink
        while filled == 0 and not sink.queue and not sink.closed:
            event_loop.drive(max(0, deadline - time.monotonic_ns()), once=True)
            filled = sink.rows_filled()
            if time.monotonic_ns() >= deadline:
                break
        while filled and filled < rows and not sink.queue and event_loop.poll():
            filled = sink.rows_filled()

    def _queued_rows(self) -> int:
        queue = self._sink.queue
        while True:
            try:
                message = queue.popleft()
            except IndexError:
                return self._sink.rows_filled()
            if not self._sink.put_row(message):
                queue.appendleft(message)
                return self._sink.rows_filled()
            self._note_pulled(message)

    async def areceive(self) -> Message:
        """Returns the next message or event, in asyncio; `asyncio.wait_for` limits the wait.

        Raises:
            ClosedError, IpcBusError, WrongProcess: as in `receive`.
        """
        try:
            if self._pulled is not None:
                self._acknowledge_pulled()
            while True:
                message = self._take()
                if message is not None:
                    return message
                self._check_pull()
                await self._context._waiters.wait(self._sink)
        except BaseException as error:
            shorten(error)
            raise

    def __iter__(self) -> Iterator[Message]:
        """Yields messages and events until the receiver is closed."""
        take = self._puller.take
        while True:
            try:
                message = take(None)
            except ClosedError:
                return
            except KeyboardInterrupt as error:
                shorten(error)
                raise
            if message is not None:
                yield message

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Yields messages and events until the receiver is closed, in asyncio."""
        import asyncio

        take = self._filler.take_queued if self._pulled is None else _nothing
        while True:
            message = take()
            if message is None:
                try:
                    if self._sink.queue:
                        await asyncio.sleep(0)  # other tasks run between messages that never end
                    message = await self.areceive()
                except ClosedError:
                    return
                except BaseException as error:
                    shorten(error)
                    raise
            yield message

    def close(self) -> None:
        """Ends the receiver. After the call returns, no callback of the receiver begins.

        Messages that wait in an event queue are dropped there and counted. A thread that dispatches the queue may still
        be inside a callback. If a callback of this receiver calls `close`, that callback still runs to its end.
        Closing twice does nothing.
        """
        self._sink.silent = True
        self._context._close_receiver(self)

    def __reduce__(self) -> Never:
        """Raises TypeError: a receiver cannot be pickled or copied."""
        raise not_a_value(self, "ctx.receiver(topic)")

    def __repr__(self) -> str:
        """Returns a text with the topic."""
        return f"<Receiver {self.topic!r}{' (closed)' if self.closed else ''}>"

    def _serve(self, serves: bool) -> None:
        """Sets whether the event queue, if there is one, keeps this receiver and its context alive."""
        if self._queue is not None:
            (self._queue._receivers.add if serves else self._queue._receivers.discard)(self)

    def _named(self) -> str:
        return f"topic {self.topic!r}"

    def _check_process(self) -> None:
        if self._context._forked:
            raise WrongProcess(
                f"the receiver of {self._named()} belongs to the parent of this fork; make a new Context here"
            )

    def _check(self) -> None:
        self._check_process()
        if self.closed:
            raise self._closed_error()

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"the receiver of {self._named()} is closed; make a new one with ctx.receiver")

    def _joined(self) -> int:
        self._check()
        return self._context._sources_of(self._subscription)

    def _check_pull(self) -> None:
        if self._puller.error is not None:
            error, self._puller.error = self._puller.error, None
            raise error
        self._check_process()
        if not self._sink.pulls or self._sink.event_queue is not None:
            raise IpcBusError(f"the receiver of {self._named()} has a callback; make one without a callback to pull")
        if self._sink.closed and not self._sink.queue:
            raise self._closed_error()

    def _run_turn(self, deadline: float) -> None:
        """Runs a turn of the context, or waits for the thread that drives it, until a time in s."""
        left = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
        with self._context._driver_for(self._sink, left) as event_loop:
            if event_loop is not None:
                event_loop.run_turn_once(FOREVER_NS if left is None else int(left * 1e9))

    def _take_slowly(self, timeout: float | None) -> Message | None:
        """Does what `receive` does besides taking messages in compiled code."""
        message = self._take()
        if message is not None:
            return message
        self._check_pull()
        timeout = bounded(timeout)
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            self._run_turn(deadline)
            message = self._take()
            if message is None and time.monotonic() < deadline:
                self._filler.wait(deadline - time.monotonic())
                message = self._take()
            if message is not None:
                return message
            self._check_pull()  # closed meanwhile
            if time.monotonic() >= deadline:
                return None

    def _take_many_slowly(self, limit: int, timeout: float | None) -> list[Message]:
        """Does what `receive_many` does besides taking messages in compiled code."""
        queue = self._sink.queue
        if len(queue) < limit:
            self._check_pull()
            timeout = bounded(timeout if not queue else 0)
            deadline = math.inf if timeout is None else time.monotonic() + timeout
            self._run_turn(deadline)
            while not queue and time.monotonic() < deadline:
                self._check_pull()  # closed meanwhile
                if self._filler.wait(deadline - time.monotonic()) >= 0:
                    self._run_turn(deadline)
            if not queue:
                self._check_pull()
        taken: list[Message] = []
        # Another thread may pull from the same receiver, so the queue's length promises nothing.
        while len(taken) < limit and (message := self._take()) is not None:
            taken.append(message)
        return taken

    def _take(self) -> Message | None:
        try:
            message: Message = self._sink.queue.popleft()
        except IndexError:
            return None
        if self._pulled is not None:
            self._note_pulled(message)
        if self._context._receiving_sessions.blocked:
            self._made_room()
        return message

    def _note_pulled(self, message: Message) -> None:
        if self._pulled is not None and message.gmd_sequence_number:
            self._pulled.setdefault(threading.get_ident(), []).append(message)

    def _acknowledge_pulled(self) -> None:
        """Acknowledges the guaranteed messages that this thread has pulled before."""
        if self._pulled:
            for message in self._pulled.pop(threading.get_ident(), ()):
                message.ack()
        for gate in list(self._subscription.gates):
            gate.acknowledge_rows()

    def _made_room(self) -> None:
        if self._context._receiving_sessions.blocked and len(self._sink.queue) <= self._half_maximum:
            self._context._event_loop.kick()


def _nothing() -> None:
    """Stands in the place of `Puller.take_queued` of a named receiver."""


class _AcknowledgingPuller:
    """Stands in the place of the compiled puller of a named receiver: each pull acknowledges those before it."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.error: BaseException | None = None

    def take(self, timeout: float | None) -> Message | None:
        """Takes the next message or event as `Puller.take` does."""
        self._receiver._acknowledge_pulled()
        return self._receiver._take_slowly(timeout)

    def take_many(self, limit: int, timeout: float | None) -> list[Message]:
        """Takes messages and events as `Puller.take_many` does."""
        self._receiver._acknowledge_pulled()
        return self._receiver._take_many_slowly(limit, timeout)
