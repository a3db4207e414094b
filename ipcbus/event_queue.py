"""Event queues: callbacks on threads of the application's choice."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import weakref
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ipcbus.config import Config, ConfigLike
from ipcbus.delivery.event_buffer import EventBuffer
from ipcbus.errors import ClosedError, ConfigError, IpcBusError, WrongProcess
from ipcbus.runtime.error_mapping import not_a_value
from ipcbus.runtime.loop.interrupts import shorten
from ipcbus.runtime.loop.timerfd import bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Never, Self

    from ipcbus.delivery.sink import Sink
    from ipcbus.message import MessageType
    from ipcbus.receiver import Receiver
    from ipcbus.runtime.loop.event_loop import EventLoop

log = logging.getLogger("ipcbus")

POLICIES = ("block", "drop_oldest")
MAXIMUM = 2**31 - 1
DEFAULT_MAXIMUM = 10_000

_queues: weakref.WeakSet[EventQueue] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class EventQueueStatistics:
    """What an event queue has done so far. Messages and events are counted alike; times are seconds.

    Attributes:
        queued: wait now.
        queued_by_kind: the same by kind; empty without option queue_count_enabled.
        total: came; equal to `dispatched` + `dropped` + `queued`. An event that was joined to one that waits is not
            counted again.
        dispatched: given to callbacks.
        dropped: given to none, for want of room or because the receiver or the queue was closed.
        age_min, age_mean, age_max: waited before their callback; None before the first and without option
            queue_age_enabled.
        service_time_min, service_time_mean, service_time_max: time in a callback; None before the first and without
            option queue_service_time_enabled.
    """

    queued: int
    queued_by_kind: Mapping[MessageType, int]
    total: int
    dispatched: int
    dropped: int
    age_min: float | None
    age_mean: float | None
    age_max: float | None
    service_time_min: float | None
    service_time_mean: float | None
    service_time_max: float | None


class EventQueue:
    """Keeps the messages of receivers until a thread of the application dispatches them to their callbacks.

        queue = ipcbus.EventQueue()
        ctx.receiver("orders", on_order, event_queue=queue)
        while running:
            queue.dispatch(1.0)

    A message waits with its own copy of the bytes. One queue may serve many receivers of several contexts; messages and
    events are dispatched in the order in which they came. Several threads may dispatch at the same time; then this is
    the order in which they are taken, and callbacks run side by side.

    A full queue follows its policy:

    - `block`: the sessions of its receivers are not read on, so that a receiver-paced source waits and a source-paced
      one laps the reader. They are read on when half of the queue is free.
    - `drop_oldest`: the oldest message gives its place to the message that comes, and is counted.

    Events (BOS, EOS, loss) take no room from messages and are never dropped. In a full queue the events of a topic are
    joined, so that they stay few however long nobody dispatches: losses that touch become one
    `UNRECOVERABLE_LOSS_BURST` with their range, and a session that ends, begins and ends again while nobody looks ends
    once. Where a queue with `drop_oldest` has dropped all messages between two losses, they become one too. Its range
    then spans the dropped messages as well; `Receiver.lost` and `Receiver.dropped` tell them apart.

    A callback runs on the thread that dispatches, which drives no context: it may send and wait for room, wait for
    receivers, and pull. Do not wait there for room on a topic that a blocking queue with a single dispatching thread
    receives itself: nobody else would make that room. Likewise a context in sequential mode needs `process_events`
    besides `dispatch`.

    A closed receiver gets no callback any more, not even for what waits; a callback that another thread runs just then
    may still be running when `close` returns. The same holds for the receivers of a context that is closed, unless it
    is closed with `close(drain=True)`: then what waits is dispatched still.
    """

    def __init__(
        self,
        maximum: int = DEFAULT_MAXIMUM,
        policy: Literal["block", "drop_oldest"] = "block",
        *,
        config: ConfigLike = None,
        **options: object,
    ) -> None:
        """An empty queue.

        Args:
            maximum: the most messages that wait, 1 to 2147483647; also so many events wait before they are joined.
                The default of 10,000 keeps the memory of a queue of 1 KiB messages near 10 MiB, however slow the
                callbacks are.
            policy: what a full queue does, `block` or `drop_oldest`.
            config: as for `Context`; options of scope event_queue are read.
            **options: options of scope event_queue; they override the config.

        Raises:
            ConfigError: the maximum, the policy or an option does not fit.
        """
        _check_size(maximum)
        if policy not in POLICIES:
            raise ConfigError(f"policy of an event queue = {policy!r}: give one of {', '.join(POLICIES)}")
        values = Config.load(config).values("event_queue", "", **options)
        self.name = values.event_queue_name
        self.maximum = maximum
        self.policy = policy
        self._keeper = _Keeper(self.name, values.queue_size_warning, values.queue_delay_warning)
        self._event_buffer = EventBuffer(
            maximum,
            policy == "drop_oldest",
            self._keeper,
            self._keeper.sleepers,
            times_age=values.queue_age_enabled,
            times_service=values.queue_service_time_enabled,
            counts=values.queue_count_enabled,
            size_warning=values.queue_size_warning,
            delay_warning_ns=values.queue_delay_warning * 1000,
        )
        self._inside: set[int] = set()
        self._receivers: set[Receiver] = set()
        self._forked = False
        _queues.add(self)

    # ------------------------------------------------------------------ dispatching

    def dispatch(self, timeout: float | None = None) -> int:
        """Waits until something is in the queue, then calls back for what is there at that moment.

        What comes during these callbacks is left for the next call, so that a busy queue does not keep the caller.

        Args:
            timeout: seconds; None waits for ever, 0 does not wait. A call with a time above 0 lasts that long and the
                callback in hand: no further callback begins when it is over.

        Returns:
            How many callbacks ran; 0 when the time ran out before anything came.

        Raises:
            ClosedError: the queue is closed, or was while this call waited.
            IpcBusError: the caller is inside a callback of this queue, or of a context that it serves.
            WrongProcess: the queue was made before a fork, in the parent.
        """
        me = threading.get_ident()
        self._check_caller(me)
        timeout = bounded(timeout)
        wait_ns = None if timeout is None else int(max(timeout, 0) * 1e9)
        began = time.monotonic_ns()
        try:
            self._inside.add(me)
            while True:
                self._check_open()
                left = None if wait_ns is None else max(0, began + wait_ns - time.monotonic_ns())
                if self._event_buffer or left == 0 or self._keeper.sleep(self._event_buffer, left):
                    limit = max(0, began + wait_ns - time.monotonic_ns()) if wait_ns else -1
                    if ran := self._event_buffer.call_back(limit):
                        return ran
                if left == 0:
                    return 0
        except KeyboardInterrupt as error:
            shorten(error)
            raise
        finally:
            self._inside.discard(me)
            if self._event_buffer:  # as when a callback raised, or the time was over
                self._keeper.wake()

    def _check_caller(self, me: int) -> None:
        if me in self._inside:
            raise IpcBusError(
                f"{self!r} cannot be dispatched from inside one of its callbacks; return from the callback, or "
                "dispatch in another thread"
            )
        if any(event_loop.is_driver() for event_loop in self._keeper.drivers()):
            raise IpcBusError(
                f"{self!r} cannot be dispatched inside a callback of a context that it serves, because nothing would "
                "come meanwhile; dispatch in a thread of the application"
            )

    def _check_open(self) -> None:
        if self._forked:
            raise WrongProcess("this event queue belongs to the parent of this forked process; make a new one here")
        if self._event_buffer.closed:
            raise ClosedError(f"{self!r} is closed; make a new one")

    def _serve(self, event_loop: EventLoop) -> EventBuffer:
        """Returns where the messages of one more receiver wait; the driver is told of room."""
        self._check_open()
        self._keeper.add(event_loop)
        return self._event_buffer

    # ------------------------------------------------------------------ the rest

    @property
    def dropped(self) -> int:
        """Messages and events that came and were given to no callback."""
        return self._event_buffer.dropped

    @property
    def closed(self) -> bool:
        """Whether the queue was closed."""
        return self._event_buffer.closed

    def __len__(self) -> int:
        """Messages and events that wait."""
        return len(self._event_buffer)

    def __bool__(self) -> bool:
        """True, also when nothing waits, so that only the absence of a queue is false."""
        return True

    def statistics(self) -> EventQueueStatistics:
        """What the queue has done so far; also of a closed one."""
        event_buffer = self._event_buffer
        nothing = (None, None, None)
        total, dispatched, dropped = event_buffer.total, event_buffer.dispatched, event_buffer.dropped
        return EventQueueStatistics(
            total - dispatched - dropped,
            event_buffer.waiting_by_kind(),
            total,
            dispatched,
            dropped,
            *(event_buffer.age() or nothing),
            *(event_buffer.service() or nothing),
        )

    def close(self) -> None:
        """Ends the queue: what waits is dropped and counted, and so is what comes for its receivers.

        Threads that wait in `dispatch` get `ClosedError`. The receivers stay and may be closed. Closing twice does
        nothing.
        """
        if self._forked or self._event_buffer.closed:
            return
        self._event_buffer.close()
        self._keeper.wake_all()
        self._keeper.made_room()

    def __enter__(self) -> Self:
        """The queue itself; closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the queue."""
        self.close()

    def __reduce__(self) -> Never:
        """Refuses to be pickled or copied."""
        raise not_a_value(self, "ipcbus.EventQueue()")

    def __repr__(self) -> str:
        """Names it and says how full it is."""
        state = " (closed)" if self._event_buffer.closed else ""
        return f"<EventQueue {self.name!r} with {len(self._event_buffer)} of {self.maximum}, {self.policy}{state}>"


class _Keeper:
    """What a queue does besides keeping and calling back (delivery.slow_path.Keeper)."""

    def __init__(self, name: str, size_warning: int, delay_warning_us: int) -> None:
        self.sleepers: deque[threading.Lock] = deque()
        self._name, self._size_warning, self._delay_warning_us = name, size_warning, delay_warning_us
        # Weak, because a queue may outlive many contexts; a new tuple for each change, because others read meanwhile.
        self._drivers: tuple[weakref.ref[EventLoop], ...] = ()
        self._lock = threading.Lock()

    def sleep(self, event_buffer: EventBuffer, timeout_ns: int | None) -> bool:
        """Sleeps until something is on the shelf, or it is closed; False when the time ran out."""
        bell = threading.Lock()
        bell.acquire()
        self.sleepers.append(bell)
        try:
            # Who puts something looks for sleepers afterwards, so one of both sees the other.
            if event_buffer or event_buffer.closed:
                return True
            seconds = -1 if timeout_ns is None else min(timeout_ns / 1e9, threading.TIMEOUT_MAX)
            return bell.acquire(timeout=seconds)
        finally:
            with contextlib.suppress(ValueError):  # who woke this thread took it out
                self.sleepers.remove(bell)

    def wake(self) -> None:
        """Wakes one thread that sleeps."""
        with contextlib.suppress(IndexError):
            self.sleepers.popleft().release()

    def wake_all(self) -> None:
        """Wakes every thread that sleeps."""
        while self.sleepers:
            self.wake()

    def add(self, event_loop: EventLoop) -> None:
        """Has a context told of room from now on."""
        with self._lock:
            known = [ref for ref in self._drivers if ref() is not None]
            if not any(ref() is event_loop for ref in known):
                known.append(weakref.ref(event_loop))
            self._drivers = tuple(known)

    def drivers(self) -> list[EventLoop]:
        """Those of the contexts that put messages."""
        return [event_loop for ref in self._drivers if (event_loop := ref()) is not None]

    def made_room(self) -> None:
        """Has the contexts go on that were told that the queue is full."""
        for event_loop in self.drivers():
            event_loop.kick()

    def crowded(self, size: int) -> None:
        """Warns; the shelf asks for it once, and again after it was half as full."""
        log.warning(
            "event queue %r holds %d messages and events, more than queue_size_warning = %d; let more threads "
            "dispatch, or make callbacks faster",
            self._name,
            size,
            self._size_warning,
        )

    def late(self, seconds: float) -> None:
        """Warns; the shelf asks for it once, and again after something waited half as long."""
        log.warning(
            "a message or event waited %.6f s in event queue %r, more than queue_delay_warning = %d us; let more "
            "threads dispatch, or make callbacks faster",
            seconds,
            self._name,
            self._delay_warning_us,
        )

    def failed(self, sink: Sink, error: BaseException) -> None:
        """A callback raised; several threads may tell this at the same time. What is no Exception is raised again."""
        if not isinstance(error, Exception):
            raise error
        with self._lock:
            sink.owner._context._receiving_sessions.notifier.failed(sink, error)


def dispatches() -> bool:
    """Returns whether the calling thread is inside a callback of an event queue."""
    me = threading.get_ident()
    return any(me in queue._inside for queue in list(_queues))


def shelf_of(event_queue: Any, event_loop: EventLoop, on_message: Callable[..., object] | None) -> EventBuffer | None:  # noqa: ANN401 - whatever the caller gave
    """Returns where the messages of a new receiver wait, if it was given an event queue.

    Raises:
        ConfigError: it is no event queue, or there is no callback to dispatch to.
        ClosedError, WrongProcess: the queue is closed, or belongs to the parent of a fork.
    """
    if event_queue is None:
        return None
    if not isinstance(event_queue, EventQueue):
        raise ConfigError(f"event_queue = {event_queue!r} is no ipcbus.EventQueue")
    if on_message is None:
        raise ConfigError(
            "a receiver with an event queue has no callback to dispatch to; give on_message, or leave event_queue out "
            "and pull"
        )
    return event_queue._serve(event_loop)


def _check_size(maximum: Any) -> None:  # noqa: ANN401 - whatever the caller gave
    if not isinstance(maximum, int) or isinstance(maximum, bool) or not 1 <= maximum <= MAXIMUM:
        raise ConfigError(f"maximum of an event queue = {maximum!r}: give a number from 1 to {MAXIMUM}")


def _fork_child() -> None:
    for queue in list(_queues):
        queue._forked = True


os.register_at_fork(after_in_child=_fork_child)
