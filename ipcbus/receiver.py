"""The receiving handle of one topic."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any, overload

from ipcbus.delivery.async_messages import AsyncMessages
from ipcbus.delivery.message_types import MessageFlag
from ipcbus.delivery.puller import Puller
from ipcbus.delivery.sink import Sink
from ipcbus.errors import ClosedError, ConfigError, IpcBusError, WrongProcess
from ipcbus.event_queue import event_buffer_of
from ipcbus.lease import AsyncLease, Lease
from ipcbus.runtime.error_mapping import check_callbacks, check_count, not_a_value
from ipcbus.runtime.loop.interrupts import shorten
from ipcbus.runtime.loop.timerfd import FOREVER_NS, bounded
from ipcbus.runtime.receiving.history_archives import open_history
from ipcbus.runtime.receiving.source_notifications import SourceNotifications
from ipcbus.runtime.receiving.subscriptions import Subscription
from ipcbus.wait_for_joining import wait_until_joined

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from typing import Never

    from ipcbus.config import ReceiverOptions
    from ipcbus.context import Context
    from ipcbus.delivery.received_message import Message
    from ipcbus.event_queue import EventQueue
    from ipcbus.gmd.gmd_events import GmdReceiverStatistics
    from ipcbus.runtime.receiving.receiver_callback import ReceiverCallback
    from ipcbus.runtime.receiving.session_info import SessionInfo, SourceNotification


class Receiver(Puller):
    """Gets the messages of one topic; made by `Context.receiver`.

    With a callback, the context's thread (or `process_events`) delivers the messages. Without a callback the
    application pulls them: `receive`, `receive_many`, `receive_into`, `for`, `async for`; the thread that pulls reads
    the rings itself. With a callback and an event queue, the thread that dispatches the queue calls back.

    Several threads may use a receiver at the same time. Close it, or close its context.

    Attributes:
        topic: the name of the topic, or the pattern of a wildcard receiver.
    """

    _same = "the same topic"

    def __init__(
        self,
        context: Context,
        topic: str,
        callback: ReceiverCallback,
        options: ReceiverOptions,
        *,
        event_queue: EventQueue | None = None,
        source_notification: Callable[[SourceNotification], object] | None = None,
    ) -> None:
        """Use `Context.receiver` instead."""
        check_callbacks(source_notification=source_notification)
        callback.check(options)
        self.topic = topic
        self._context = context
        self._queue = event_queue
        event_buffer = event_buffer_of(event_queue, context._event_loop, callback.function)
        self._sink = Sink(
            callback.function,
            options.receive_queue_maximum,
            event_buffer,
            queue_bytes_max=options.receive_queue_bytes_maximum,
            takes=callback.takes,
            events=callback.events,
        )
        self._sink.owner = self
        callback.watch_losses(self._sink)
        self._subscription = Subscription(topic, self._sink, options)
        self._subscription.archive = open_history(options.history_archive)
        if source_notification is not None:
            self._subscription.notifications = SourceNotifications(
                self._sink, context._receiving_sessions.notifier, on_source=source_notification
            )
        acks = (options.gmd_name or options.share) and options.ipc_gmd_auto_ack and callback.function is None
        # The guaranteed messages that each thread has pulled, until its next pull.
        self._pulled: dict[int, list[Message]] | None = {} if acks else None
        self._acks_at_the_end = options.ipc_gmd_auto_ack_policy == "last"
        self._rows_lock = threading.Lock()
        super().__init__(context._event_loop.pump, self._sink, self._rows_lock, shorten, self._pulled is not None)
        self._lease_lock = threading.Lock()
        self._awaited = self._steps(self._wait_for_message)

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
        """The number of messages reported lost so far; each fragment of a message in fragments counts."""
        return self._sink.lost

    @property
    def dropped(self) -> int:
        """The number of this receiver's messages and events that its event queue has dropped so far."""
        return self._sink.dropped

    def gmd_statistics(self) -> GmdReceiverStatistics:
        """Returns figures of the guaranteed messages, of all topics and sessions since the receiver was made.

        Raises:
            ConfigError: the receiver has no `gmd_name`, or it is closed.
        """
        found = self._context._receiving_sessions.receptions.statistics(self._subscription)
        if found is None:
            raise ConfigError(
                f"{self!r} has no gmd_name, so that it acknowledges no guaranteed messages, or it is closed; make it "
                "with ctx.receiver(topic, gmd_name=...)"
            )
        return found

    def wait_for_sources(self, n: int = 1, timeout: float | None = None) -> None:
        """Waits until this receiver has joined `n` sources of its topic, or of the topics that match its pattern.

        The receiver gets every message that these sources send afterwards. Over UDP and TCP their contexts have to run
        meanwhile: a sequential one in another thread.

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
            wait_until_joined(
                self._context,
                n,
                timeout,
                self._joined,
                lambda count: f"{self._named()}: this receiver had joined {count} sources",
                same=self._same,
                hint="; rcv.sessions names the sessions that the receiver could not join",
            )
        except KeyboardInterrupt as error:
            shorten(error)
            raise

    def _take_into_slowly(self, array: Any, timeout: float | None, filled: int) -> int:  # noqa: ANN401
        """Does what `receive_into` does besides filling rows in compiled code, which has filled some already."""
        if not filled:
            self._check_pull()
            timeout = bounded(timeout)
        with self._rows_lock, self._context._driver_for(self._sink, timeout) as event_loop:
            rows = self._sink.start_rows(array, filled)
            try:
                waited = bool(self._sink.queue)
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
                        self._error = event_loop.take_pending()
            # A message that another thread has queued since then waits for the next call.
            refused = self._refused_row() if filled == 0 and (waited or event_loop is not None) else None
        self._made_room()
        if filled == 0 and not self._sink.queue:
            self._check_pull()  # closed meanwhile
        if refused is not None:
            raise ValueError(
                f"topic {self.topic!r}: the next message has {refused} and does not fit in a row of the array; "
                "take it with receive()"
            )
        return filled

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
            self._note_pulled(message, in_row=True)

    async def areceive(self) -> Message:
        """Returns the next message or event, in asyncio; `asyncio.wait_for` limits the wait.

        Raises:
            ClosedError, IpcBusError, WrongProcess: as in `receive`.
        """
        try:
            return await self._awaited.__anext__()
        except BaseException as error:
            shorten(error)
            raise

    async def _wait_for_message(self) -> Message:
        if self._pulled is not None:
            self._acknowledge_pulled(1)
        while True:
            message = self._take()
            if message is not None:
                return message
            self._check_pull()
            await self._context._waiters.wait(self._sink)

    def __aiter__(self) -> AsyncIterator[Message]:
        """Yields messages and events until the receiver is closed, in asyncio; awaiting a step takes the next one."""
        return self._steps(self._receive_for_step)

    def _steps(self, wait: Callable[[], Coroutine[Any, Any, Message]]) -> AsyncMessages:
        context = self._context
        run_turn = context._waiters.run_turn
        return AsyncMessages(
            context._event_loop.pump, self._sink, wait, run_turn, self._made_room, direct=self._pulled is None
        )

    async def _receive_for_step(self) -> Message:
        try:
            return await self._wait_for_message()
        except ClosedError:
            raise StopAsyncIteration from None
        except BaseException as error:
            shorten(error)
            raise

    @overload
    def lease(self, timeout: None = None) -> Lease[Message]: ...
    @overload
    def lease(self, timeout: float | None) -> Lease[Message | None]: ...
    def lease(self, timeout: float | None = None) -> Lease[Any]:
        """Returns a context manager that gives the next message or event in its place in the ring, without a copy.

        `with rcv.lease(1) as msg:` gives what `receive(1)` gives; None when the time ran out. `msg.view` and
        `msg.array` show the ring until the end of the block. Then the views are released, the arrays are empty, and
        `msg.data`, `msg.view` and `msg.array` raise ClosedError. What was made of an array and is kept gets memory of
        its own, which takes longer than a copy.

        In the block the source may be ahead by half of its ring. When this receiver's context has read that far, the
        message gets memory of its own at the same address, and the source goes on. While nothing reads on, the source
        waits when its ring is full.

        The message has bytes of its own from the start where it cannot stay: on sessions that are source-paced or
        evict, in fragments or with headers, when older messages wait in the queue of the receiver, and with guaranteed
        messages and shares, which stay valid after the block.

        Args:
            timeout: as of `receive`; the wait begins with the block.
        """
        return Lease(self, timeout)

    @overload
    def alease(self, timeout: None = None) -> AsyncLease[Message]: ...
    @overload
    def alease(self, timeout: float | None) -> AsyncLease[Message | None]: ...
    def alease(self, timeout: float | None = None) -> AsyncLease[Any]:
        """Does in asyncio what `lease` does: `async with rcv.alease(1) as msg:`.

        Args:
            timeout: seconds to wait; 0, or less, does not wait, None waits for ever.
        """
        return AsyncLease(self, timeout)

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
        if self._context._closed:
            return ClosedError(f"the context of the receiver of {self._named()} is closed; make a new Context")
        return ClosedError(f"the receiver of {self._named()} is closed; make a new one with ctx.receiver")

    def _joined(self) -> int:
        self._check()
        return self._context._sources_of(self._subscription)

    def _check_pull(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
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
                self._wait(deadline - time.monotonic())
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
                if self._wait(deadline - time.monotonic()) >= 0:
                    self._run_turn(deadline)
            if not queue:
                self._check_pull()
            if queue.has_long() and 0 < len(queue) < limit:  # so far only a few of those that are there were read
                self._read_all()
        taken: list[Message] = []
        # Another thread may pull from the same receiver, so the queue's length promises nothing.
        while len(taken) < limit and (message := self._take()) is not None:
            taken.append(message)
        return taken

    def _read_all(self) -> None:
        """Reads the messages that are there already, however long they are."""
        with self._context._event_loop.guest(lambda: self._sink.closed, 0) as event_loop:
            if event_loop is not None:
                event_loop.pump.copies_all = True
                try:
                    event_loop.poll()
                finally:
                    event_loop.pump.copies_all = False

    def _take_acknowledging(self, timeout: float | None) -> Message | None:
        """Does what `receive` does, where each pull acknowledges those before it."""
        self._acknowledge_pulled(1)
        return self._take_slowly(timeout)

    def _take_many_acknowledging(self, limit: int, timeout: float | None) -> list[Message]:
        """Does what `receive_many` does, where each pull acknowledges those before it."""
        limit = min(limit, self._subscription.options.gmd_unrecorded_maximum)
        self._acknowledge_pulled(limit)
        return self._take_many_slowly(limit, timeout)

    def _take_into_acknowledging(self, array: Any, timeout: float | None) -> int:  # noqa: ANN401
        """Does what `receive_into` does, where each pull acknowledges those before it."""
        most: int = self._subscription.options.gmd_unrecorded_maximum
        with memoryview(array) as whole, whole[:most] as rows:
            self._acknowledge_pulled(len(rows))
            return self._take_into_slowly(rows, timeout, 0)

    def _check_limit(self, limit: object) -> None:
        check_count("limit", limit)

    def _check_timeout(self, timeout: object) -> None:
        bounded(timeout)

    def _take(self) -> Message | None:
        try:
            message = self._sink.queue.popleft()
        except IndexError:
            return None
        if self._pulled is not None:
            self._note_pulled(message)
        if self._context._receiving_sessions.blocked:
            self._made_room()
        return message

    def _note_pulled(self, message: Message, *, in_row: bool = False) -> None:
        # Of a row there is no reference that the application could drop.
        acknowledges = message.gmd_sequence_number or message.flags & MessageFlag.UMQ_ULB
        if self._pulled is not None and acknowledges and (in_row or not self._acks_at_the_end):
            self._pulled.setdefault(threading.get_ident(), []).append(message)

    def _acknowledge_pulled(self, coming: int) -> None:
        """Acknowledges the guaranteed messages that this thread has pulled; `coming` may follow."""
        if self._pulled:
            for message in self._pulled.pop(threading.get_ident(), ()):
                message.ack()
        for gate in list(self._subscription.gates):
            gate.acknowledge_rows()
            gate.make_room(coming)

    def _made_room(self) -> None:
        if self._context._receiving_sessions.blocked and self._sink.queue.has_room_again():
            self._context._event_loop.kick()
