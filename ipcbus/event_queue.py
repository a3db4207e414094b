"""Event queues: callbacks run on threads of the application."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ipcbus.config import Config, ConfigLike
from ipcbus.delivery.event_buffer import EventBuffer
from ipcbus.errors import ClosedError, ConfigError, IpcBusError, WrongProcess
from ipcbus.runtime.error_mapping import not_a_value
from ipcbus.runtime.loop.interrupts import shorten
from ipcbus.runtime.loop.timerfd import bounded
from ipcbus.runtime.weak_sets import members

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Never, Self, Unpack

    from ipcbus.config.keywords import EventQueueKeywords
    from ipcbus.delivery.pump import Pump
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
    """Statistics of an event queue since it was made. Messages and events are counted alike; times are seconds.

    Attributes:
        queued: messages and events that wait now.
        queued_by_kind: `queued` by kind; empty without option queue_count_enabled.
        total: messages and events that came: `dispatched` + `dropped` + `queued`. An event that the queue joined to an
            event that waits is not counted again.
        dispatched: messages and events that callbacks got.
        dropped: messages and events that no callback got, because the queue was full, or because the receiver or the
            queue was closed.
        age_min, age_mean, age_max: time in the queue before the callback; None before the first callback and without
            option queue_age_enabled. Messages that a context reads in a row, up to 1,200 bytes with their headers,
            share the time of their arrival, so an age may be a microsecond too long.
        service_time_min, service_time_mean, service_time_max: time in a callback; None before the first callback and
            without option queue_service_time_enabled.
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

    A message in the queue has its own copy of the bytes. One queue may serve many receivers of several contexts, and
    dispatches messages and events in the order in which they came. Several threads may dispatch at the same time; they
    take messages in this order, and their callbacks run side by side.

    A queue is full with `maximum` messages, or with messages of `queue_bytes_maximum` bytes (1 GiB). It follows its
    policy then:

    - `block`: contexts stop reading the sessions of the queue's receivers, until half of the queue is free. A
      receiver-paced source waits, and a source-paced source overwrites messages, which are lost.
    - `drop_oldest`: the queue drops its oldest messages for each message that comes, and counts them. A guaranteed
      message, or one of a share, comes again after that, and counts each time that it is dropped.

    Events (BOS, EOS, loss) take no room from messages and are never dropped. A full queue joins the events of a topic,
    so that their number stays small while no thread dispatches: losses that touch become one
    `UNRECOVERABLE_LOSS_BURST` with their range, and a session that ends, begins and ends again ends once. If a queue
    with `drop_oldest` has dropped all messages between two losses, these become one loss, too. Its range then spans the
    dropped messages; `Receiver.lost` and `Receiver.dropped` count them separately.

    A callback runs on the thread that dispatches, which drives no context. The callback may send and wait for room,
    wait for receivers, and pull. It must not wait for room on a topic that a blocking queue with a single dispatching
    thread receives, because no other thread would make that room. A context in sequential mode needs `process_events`
    besides `dispatch`.

    After `Receiver.close` no callback of the receiver begins, not even for messages in the queue; a callback that
    another thread runs may still be running when `close` returns. The close of a context does this for all its
    receivers, but after `close(drain=True)` the queue still dispatches their messages.

    Attributes:
        name: the name of the queue (option event_queue_name).
        maximum: the most messages that wait.
        policy: the policy of a full queue.
    """

    def __init__(
        self,
        maximum: int = DEFAULT_MAXIMUM,
        policy: Literal["block", "drop_oldest"] = "block",
        *,
        config: ConfigLike = None,
        **options: Unpack[EventQueueKeywords],
    ) -> None:
        """Makes an empty queue.

        Args:
            maximum: the most messages that wait, 1 to 2147483647. If as many events wait, the queue joins events.
                The default of 10,000 keeps the memory of a queue of 1 KiB messages near 10 MiB.
            policy: the policy of a full queue, `block` or `drop_oldest`.
            config: as for `Context`; the queue reads the options of scope event_queue.
            **options: options of scope event_queue; they override the config.

        Raises:
            ConfigError: the maximum, the policy or an option is invalid.
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
            times_age=values.queue_age_enabled,
            times_service=values.queue_service_time_enabled,
            counts=values.queue_count_enabled,
            size_warning=values.queue_size_warning,
            delay_warning_ns=values.queue_delay_warning * 1000,
            bytes_maximum=values.queue_bytes_maximum,
        )
        self._receivers: set[Receiver] = set()
        _queues.add(self)

    # ------------------------------------------------------------------ dispatching

    def dispatch(self, timeout: float | None = None) -> int:
        """Waits until the queue is not empty, then calls back for the messages and events that are there.

        Messages that come during these callbacks wait for the next call, so that a call on a busy queue ends.

        Args:
            timeout: seconds; None waits for ever, 0 does not wait. After a time above 0 no further callback begins;
                the call ends with the callback that runs.

        Returns:
            The number of callbacks that ran; 0 when the time ran out.

        Raises:
            ClosedError: the queue is closed, also while this call waits.
            IpcBusError: the caller is inside a callback of this queue, or of a context that the queue serves.
            WrongProcess: the queue was made before a fork, in the parent.
            TypeError, ValueError: `timeout` is not a number, or NaN.
        """
        try:
            while (ran := self._event_buffer.dispatch(timeout)) < 0:
                self._check_caller()
                timeout = bounded(timeout)
                self._check_open()
        except KeyboardInterrupt as error:
            shorten(error)
            raise
        return ran

    def _check_caller(self) -> None:
        if self._event_buffer.is_inside(threading.get_ident()):
            raise IpcBusError(
                f"{self!r} cannot be dispatched from inside one of its callbacks; return from the callback, or "
                "dispatch in another thread"
            )
        if any(event_loop.is_driver() for event_loop in self._keeper.drivers()):
            raise IpcBusError(
                f"{self!r} cannot be dispatched inside a callback of a context that it serves, because no message "
                "would come meanwhile; dispatch in a thread of the application"
            )

    def _check_open(self) -> None:
        if self._event_buffer.forked:
            raise WrongProcess("this event queue belongs to the parent of this forked process; make a new one here")
        if self._event_buffer.closed:
            raise ClosedError(f"{self!r} is closed; make a new one")

    def _serve(self, event_loop: EventLoop) -> EventBuffer:
        """Returns the buffer for the messages of one more receiver; its context is notified of room from now on."""
        self._check_open()
        self._event_buffer.put_pumps(self._keeper.add(event_loop))
        return self._event_buffer

    # ------------------------------------------------------------------ the rest

    @property
    def dropped(self) -> int:
        """The number of messages and events that no callback got."""
        return self._event_buffer.dropped

    @property
    def closed(self) -> bool:
        """Whether the queue is closed."""
        return self._event_buffer.closed

    def __len__(self) -> int:
        """Returns the number of messages and events that wait."""
        return len(self._event_buffer)

    def __bool__(self) -> bool:
        """Returns True, also for an empty queue, so that only the absence of a queue is false."""
        return True

    def statistics(self) -> EventQueueStatistics:
        """Returns the counters and times of the queue so far, also of a closed queue."""
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
        """Ends the queue. Messages and events that wait, and those that come later, are dropped and counted.

        Threads that wait in `dispatch` get `ClosedError`. The receivers of the queue stay open. Closing twice does
        nothing.
        """
        if self._event_buffer.forked or self._event_buffer.closed:
            return
        self._event_buffer.close()
        self._keeper.room_available()

    def __enter__(self) -> Self:
        """Returns the queue; the end of the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the queue."""
        self.close()

    def __reduce__(self) -> Never:
        """Raises TypeError: an event queue cannot be pickled or copied."""
        raise not_a_value(self, "ipcbus.EventQueue()")

    def __repr__(self) -> str:
        """Returns a text with the name, the fill and the policy."""
        state = " (closed)" if self._event_buffer.closed else ""
        return f"<EventQueue {self.name!r} with {len(self._event_buffer)} of {self.maximum}, {self.policy}{state}>"


class _Keeper:
    """Tells contexts of room, warns, and handles errors for an event buffer (delivery.slow_path.BufferOwner)."""

    def __init__(self, name: str, size_warning: int, delay_warning_us: int) -> None:
        self._name, self._size_warning, self._delay_warning_us = name, size_warning, delay_warning_us
        # Weak, because a queue may outlive many contexts; a new tuple for each change, because other threads read it.
        self._drivers: tuple[weakref.ref[EventLoop], ...] = ()
        self._lock = threading.Lock()

    def add(self, event_loop: EventLoop) -> tuple[weakref.ref[Pump], ...]:
        """Notifies a context of room from now on; returns the pumps of all contexts."""
        with self._lock:
            known = [ref for ref in self._drivers if ref() is not None]
            if not any(ref() is event_loop for ref in known):
                known.append(weakref.ref(event_loop))
            self._drivers = tuple(known)
            return tuple(weakref.ref(event_loop.pump) for event_loop in self.drivers())

    def drivers(self) -> list[EventLoop]:
        """Returns the event loops of the contexts that put messages."""
        return [event_loop for ref in self._drivers if (event_loop := ref()) is not None]

    def room_available(self) -> None:
        """Wakes contexts that stopped reading because the queue was full."""
        for event_loop in self.drivers():
            event_loop.kick()

    def size_exceeded(self, size: int) -> None:
        """Warns that many messages wait; called once, and again after the queue was half as full."""
        log.warning(
            "event queue %r holds %d messages and events, more than queue_size_warning = %d; let more threads "
            "dispatch, or make callbacks faster",
            self._name,
            size,
            self._size_warning,
        )

    def delay_exceeded(self, seconds: float) -> None:
        """Warns that a message waited long; called once, and again after a message waited half as long."""
        log.warning(
            "a message or event waited %.6f s in event queue %r, more than queue_delay_warning = %d us; let more "
            "threads dispatch, or make callbacks faster",
            seconds,
            self._name,
            self._delay_warning_us,
        )

    def failed(self, sink: Sink, error: BaseException) -> None:
        """Counts and logs an error of a callback; any thread may call this. Raises what is not an Exception again."""
        if not isinstance(error, Exception):
            raise error
        with self._lock:
            sink.owner._context._receiving_sessions.notifier.failed(sink, error)


def dispatches() -> bool:
    """Returns whether the calling thread is inside a callback of an event queue."""
    me = threading.get_ident()
    return any(queue._event_buffer.is_inside(me) for queue in members(_queues))


def event_buffer_of(
    event_queue: Any,  # noqa: ANN401 - whatever the caller gave
    event_loop: EventLoop,
    callback: Callable[..., object] | None,
) -> EventBuffer | None:
    """Returns the event buffer for the messages of a new receiver; None without an event queue.

    Raises:
        ConfigError: `event_queue` is not an event queue, or there is no callback to dispatch to.
        ClosedError, WrongProcess: the queue is closed, or belongs to the parent of a fork.
    """
    if event_queue is None:
        return None
    if not isinstance(event_queue, EventQueue):
        raise ConfigError(f"event_queue = {event_queue!r} is not an ipcbus.EventQueue; make one with EventQueue()")
    if callback is None:
        raise ConfigError(
            "a receiver with an event queue has no callback to dispatch to; give on_message, on_data or on_view, or "
            "leave event_queue out and pull"
        )
    return event_queue._serve(event_loop)


def _check_size(maximum: Any) -> None:  # noqa: ANN401 - whatever the caller gave
    if not isinstance(maximum, int) or isinstance(maximum, bool) or not 1 <= maximum <= MAXIMUM:
        raise ConfigError(f"maximum of an event queue = {maximum!r}: give a number from 1 to {MAXIMUM}")


def _fork_child() -> None:
    for queue in members(_queues):
        queue._event_buffer.forked = True


os.register_at_fork(after_in_child=_fork_child)
