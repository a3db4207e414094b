"""The context: owns configuration, threads, sessions and discovery."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

from ipcbus import context_closing
from ipcbus.config import Config, ConfigLike
from ipcbus.config.option_checks import refuse_keywords
from ipcbus.dead_letters import DeadLetters
from ipcbus.delivery.pump import CLOSED
from ipcbus.errors import ClosedError, TransportError, WrongProcess, WrongThread
from ipcbus.receiver import Receiver
from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.stale_cleanup import OTHERS_OFF, sweep, sweep_others
from ipcbus.runtime.bootstrap import open_event_loop, open_registry
from ipcbus.runtime.discovery.recorder_stats_block import RecorderStatsBlock
from ipcbus.runtime.error_mapping import check_callbacks, check_topic, not_a_value, typed
from ipcbus.runtime.loop.aio import AsyncWaiters
from ipcbus.runtime.loop.interrupts import shorten
from ipcbus.runtime.loop.own_thread import OwnThread
from ipcbus.runtime.loop.timers import Timers
from ipcbus.runtime.loop.udp_endpoints import UdpEndpoints
from ipcbus.runtime.receiving.receiver_callback import receiver_callback
from ipcbus.runtime.receiving.receiving_sessions import ReceivingSessions
from ipcbus.runtime.receiving.response_sessions import ResponseSessions
from ipcbus.runtime.receiving.responses import Responses
from ipcbus.runtime.receiving.session_info import sources_of
from ipcbus.runtime.sending.sending_sessions import SendingSessions
from ipcbus.runtime.weak_sets import members
from ipcbus.source import Source
from ipcbus.version import __version__
from ipcbus.wait_for_joining import await_answers_taken, linger, may_linger, warn_of_unheard
from ipcbus.wildcard import WildcardReceiver
from ringbuf.slots import Identity

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Never, Self, Unpack

    from ipcbus.config.keywords import ReceiverKeywords, SourceKeywords, WildcardKeywords
    from ipcbus.delivery.sink import Sink
    from ipcbus.event_queue import EventQueue
    from ipcbus.message import Message, SourceEvent
    from ipcbus.runtime.loop.event_loop import EventLoop
    from ipcbus.runtime.receiving.session_info import SessionInfo, SourceNotification
    from ipcbus.runtime.receiving.subscriptions import Subscription
    from ipcbus.wire.properties import Buffer

_ABSENT: Any = object()
_NOT_DRIVEN = (
    '{} needs Context(operational_mode="sequential"), or transport_lbtipc_receiver_operational_mode "sequential"; in '
    "embedded mode the context's own thread delivers"
)

_contexts: weakref.WeakSet[Context] = weakref.WeakSet()


class Context:
    """Owns configuration, threads, sessions and discovery; makes sources and receivers. A process has one or a few.

    Close a context, or use it in a `with` block; its sources and receivers close with it. A context lives as long as
    the application refers to it, to one of its sources or receivers, or to an event queue of its receivers. Without
    such a reference the garbage collector closes it, with a `ResourceWarning`, when no message is being delivered.

    Attributes:
        name: the name of the context; empty without a name.
        domain: the domain of the context.
    """

    _made = False

    @typed("open a context")
    def __init__(
        self,
        config: ConfigLike = None,
        *,
        name: str = "",
        domain: str = "default",
        operational_mode: str = "",
        **unknown: Never,
    ) -> None:
        """Opens a context.

        Args:
            config: options, as a mapping `{scope: {option: value}}`, or the path of a TOML file of that shape, or of a
                flat file of Ultra Messaging. None takes the file that the environment variable IPCBUS_CONFIG names.
            name: a name for lists, statistics and the other side; overrides option `context_name`.
            domain: contexts of different domains do not see each other; 1 to 63 bytes of UTF-8 without slash.
            operational_mode: `embedded` (default; a thread of the context delivers) or `sequential` (the caller's
                thread does all the work in `process_events`); overrides the option of that name.
            **unknown: there are no more keywords; the error says where options of sources and receivers belong.

        Raises:
            ConfigError: a keyword or an option is unknown, out of range, or of another scope; or the domain is invalid.
            SharedMemoryFull: /dev/shm has no room for the context's registry.
            PermissionRefused: this user may not create shared objects, or /dev/shm is mounted read-only.
            TransportError: the process has no descriptor or thread left.
        """
        refuse_keywords(unknown)
        self._config = Config.load(config)
        given = {"context_name": name, "operational_mode": operational_mode}
        self._options = self._config.values("context", **{key: value for key, value in given.items() if value})
        object_names.check_domain(domain)
        self.domain = domain
        self.name = self._options.context_name
        self._forked = False
        self._closed = False
        self._ended = False
        self._sources: dict[Source, None] = {}
        self._receivers: dict[Receiver, None] = {}
        options = self._options
        sweep(domain)
        if options.reclaim_other_domains and os.environ.get(OTHERS_OFF) != "0":
            sweep_others(domain)
        self._id, self._registry, self._bell = open_registry(domain, options, __version__)
        self._sequential = options.operational_mode == "sequential"
        self._timers = Timers(domain, self._id, options, lambda: list(self._sources))
        who = Identity(os.getpid(), os.geteuid(), self._id, options.context_name)
        with contextlib.ExitStack() as made:  # there may be no descriptor left, or a socket cannot be opened
            made.callback(self._registry.close)
            made.callback(self._bell.close)
            self._event_loop: EventLoop = open_event_loop(self._bell, self._timers, options)
            made.callback(self._event_loop.close)
            self._network = UdpEndpoints(
                domain, who, options, self._registry, self._event_loop, self._timers.peers_changed, self._config
            )
            made.pop_all()
        self._receiving_sessions = ReceivingSessions(
            domain, who, options, self._registry, self._event_loop, self._network
        )
        timers, loop = self._timers, self._event_loop
        self._sending_sessions = SendingSessions(
            domain, self._id, options, self._registry, loop, self._network, timers.announce, timers.peers_changed
        )
        self._processes = self._sequential or self._event_loop.split
        self._turn = self._event_loop.pump.turn if self._processes else _not_driven
        self._waiters = AsyncWaiters(self._event_loop, (lambda: self.process_events(0)) if self._processes else None)
        self._responses = self._make_responses()
        self._timers.attach(
            self._event_loop, self._receiving_sessions, self._sending_sessions, self._waiters, self._network
        )
        self._close_done = threading.Event()
        self._thread: threading.Thread | None = None
        self._own_thread = OwnThread(weakref.ref(self._event_loop), options, domain)
        _contexts.add(self)
        self._made = True
        if not self._sequential:
            self._thread = threading.Thread(target=self._own_thread.run, name=f"ipcbus {name or domain}", daemon=True)
            self._start()

    def _make_responses(self) -> Responses:
        """Makes what answers requests, and connects it and the requests with the parts of the context."""
        receiving, loop = self._receiving_sessions, self._event_loop
        self._sending_sessions.requests.attach(receiving.notifier.count, self._waiters)
        options, has_ended = self._config.values("receiver", ""), self._network.peers.has_ended
        ways = ResponseSessions(self.domain, receiving, receiving.channels, options, has_ended)
        responses = Responses(
            self.domain,
            loop,
            ways,
            message_max=self._options.control_channel_message_maximum,
            check=self._check,
            wait=self._wait_for_change,
        )
        receiving.responder_of = responses.responder
        DeadLetters(self).serve(receiving.receptions, self._sending_sessions.shares)
        self._timers.show_counters = self._show_counters
        return responses

    def _start(self) -> None:
        thread, self._thread = self._thread, None
        try:
            if thread is not None:
                thread.start()
        except RuntimeError as error:
            self.close()
            raise TransportError(
                f"cannot start the thread of a context ({error}); raise the limit of processes and threads (ulimit -u, "
                'TasksMax= of the service), or use operational_mode="sequential"'
            ) from error
        self._thread = thread

    # ------------------------------------------------------------------ handles

    @typed("make a source")
    def source(
        self, topic: str, *, on_event: Callable[[SourceEvent], object] | None = None, **options: Unpack[SourceKeywords]
    ) -> Source:
        """Makes a source, which sends the messages of a topic.

        Args:
            topic: the name of the topic, 1 to 255 bytes of UTF-8.
            on_event: a plain function that the thread that drives the context calls with each `SourceEvent`.
            **options: options of scope source; they override the context's config.

        Raises:
            ConfigError: a topic, option or callback is invalid, or no session can have these options.
            SharedMemoryFull: /dev/shm has no room for the session.
            TransportError: the session cannot be made.
            ClosedError, WrongProcess: the context is closed, or belongs to the parent of a fork.
        """
        self._check()
        check_topic(topic)
        check_callbacks(on_event=on_event)
        values = self._config.values("source", topic, **options)
        session, number, entry = self._sending_sessions.open_topic(topic, values)
        source = Source(self, topic, session, number, entry, on_event, values)
        try:
            source._guaranteed = self._sending_sessions.guaranteed.add(source, session, number, values)
        except BaseException:
            source._refuse_sends()
            self._sending_sessions.close_topic(session, topic, number, entry)
            raise
        self._sending_sessions.retain(source, session, number, values)
        session.topic_sources[number] = source
        self._sending_sessions.inform_of(source, session, values)
        self._sources[source] = None
        self._refresh()
        return source

    def receiver(
        self,
        topic: str,
        on_message: Callable[[Message], object] | None = None,
        *,
        on_data: Callable[[bytes], object] | None = None,
        on_view: Callable[[memoryview], object] | None = None,
        events: bool = True,
        event_queue: EventQueue | None = None,
        source_notification: Callable[[SourceNotification], object] | None = None,
        **options: Unpack[ReceiverKeywords],
    ) -> Receiver:
        """Makes a receiver, which gets the messages of a topic.

        Args:
            topic: the name of the topic, 1 to 255 bytes of UTF-8.
            on_message: a plain function, called with each message and event. Without a callback the application pulls.
            on_data: instead of `on_message`: called with the data of each message as `bytes`, not with events.
            on_view: instead of these, called with a `memoryview`, as `Message.view`, valid until it returns.
            events: whether `on_message`, or a pull, gets events too. Losses that the application gets in no way are
                logged: the first one, and whenever their number has doubled; `Receiver.lost` counts them.
            event_queue: keeps the messages until a thread of the application dispatches them to `on_message`.
            source_notification: a plain function that the thread that drives the context calls with a
                `SourceNotification`, twice for each source of the topic: before its first message or BOS, and after its
                last message or EOS (or when the receiver is closed).
            **options: options of scope receiver; they override the context's config.

        Raises:
            ConfigError: a topic, option or callback is invalid, or an option contradicts another receiver of the topic
                in this context.
            SharedMemoryFull: /dev/shm has no room for the context's registry to grow.
            ClosedError, WrongProcess: the context is closed, or belongs to the parent of a fork.
        """
        self._check()
        check_topic(topic)
        callback = receiver_callback(on_message, on_data, on_view, events)
        values = self._config.values("receiver", topic, **options)
        receiver = Receiver(
            self, topic, callback, values, event_queue=event_queue, source_notification=source_notification
        )
        self._open_receiver(receiver)
        return receiver

    def wildcard_receiver(
        self,
        pattern: str,
        on_message: Callable[[Message], object] | None = None,
        *,
        on_data: Callable[[bytes], object] | None = None,
        on_view: Callable[[memoryview], object] | None = None,
        events: bool = True,
        on_create: Callable[[str], object] | None = None,
        on_delete: Callable[[str], object] | None = None,
        event_queue: EventQueue | None = None,
        source_notification: Callable[[SourceNotification], object] | None = None,
        **options: Unpack[WildcardKeywords],
    ) -> WildcardReceiver:
        """Makes a receiver of all topics that match a pattern, also of topics that begin later.

        Args:
            pattern: a regular expression of Python's `re`, which has to match the whole topic.
            on_message: as for `receiver`.
            on_data: as for `receiver`.
            on_view: as for `receiver`.
            events: as for `receiver`.
            on_create: a plain function, called with the name of each matching topic before its first message.
            on_delete: a plain function, called with the name of a topic when its last source has been gone for
                `resolver_no_source_linger_timeout` (ms), and when the receiver is closed. The thread that drives the
                context calls `on_create` and `on_delete`.
            event_queue: as for `receiver`.
            source_notification: as for `receiver`.
            **options: options of the scopes wildcard_receiver and receiver; they override the context's config.

        Raises:
            ConfigError: a pattern, option or callback is invalid.
            SharedMemoryFull: /dev/shm has no room for the context's registry to grow.
            ClosedError, WrongProcess: the context is closed, or belongs to the parent of a fork.
        """
        self._check()
        receiver = WildcardReceiver(
            self,
            pattern,
            receiver_callback(on_message, on_data, on_view, events),
            *self._config.wildcard_values(options),
            on_create=on_create,
            on_delete=on_delete,
            event_queue=event_queue,
            source_notification=source_notification,
        )
        self._open_receiver(receiver)
        return receiver

    @typed("make a receiver")
    def _open_receiver(self, receiver: Receiver) -> None:
        with self._event_loop.driver_lock():
            self._check()  # again: another thread may have closed the context meanwhile
            self._receiving_sessions.open(receiver._subscription)
            self._receivers[receiver] = None
            receiver._serve(True)
            self._receiving_sessions.scan()
        if self._closed:  # another thread began to close it after the check, and may not have seen the receiver
            context_closing.silence(receiver)

    def respond(self, return_address: bytes, data: Buffer) -> None:
        """Answers a request in the place of the receiver that got it, which may be in another process or host.

        A request of a context on another host, or of one whose memory this process cannot map, is answered over UDP.

        Args:
            return_address: `Message.return_address` of the request.
            data: bytes-like and contiguous; may be empty.

        Raises:
            WouldBlock, SessionGone, MessageTooLarge: as in `Message.respond`.
            TransportError: this context cannot join the session of the request, or the asking context has not taken the
                response within 5 s.
            ClosedError, WrongProcess: the context is closed, or belongs to the parent of a fork.
            TypeError, ValueError: `data` is not bytes-like, or the address is damaged or of another domain.
        """
        self._check()
        self._responses.send_to(return_address, data)

    def _close_source(self, source: Source) -> None:
        if self._forked or source not in self._sources:
            return
        try:
            if may_linger(members(_contexts)):
                linger(self, [source], _driven_elsewhere(self))
        finally:
            self._end_source(source)

    def _end_source(self, source: Source) -> None:
        # Inside a callback this may raise; then nothing has been done.
        source._batch.finish_reservation(self._options.acquire_close_timeout * 1_000_000)
        warn_of_unheard([source])
        if self._sources.pop(source, _ABSENT) is _ABSENT:
            return  # another thread closed it meanwhile
        source._refuse_sends()
        source._batch.flush()
        self._sending_sessions.guaranteed.close(source)
        self._sending_sessions.close_topic(source._session, source.topic, source._number, source._entry)
        self._refresh()

    def _close_receiver(self, receiver: Receiver) -> None:
        if self._forked or self._receivers.pop(receiver, _ABSENT) is _ABSENT:
            return
        receiver._sink.closed = True
        receiver._serve(False)
        if self._sequential and may_linger(members(_contexts)):
            # No thread may drive the context for a while, so that its session would keep the source waiting.
            await_answers_taken(self, 1.0, _driven_elsewhere(self) | {self._id})
        with self._event_loop.driver_lock():
            self._receiving_sessions.remove(receiver._subscription)
        self._waiters.wake(receiver._sink)
        self._event_loop.notify()

    # ------------------------------------------------------------------ driving

    def process_events(self, timeout: float | None = 0) -> int:
        """Does the context's work in the caller's thread.

        Set the option `operational_mode` or `transport_lbtipc_receiver_operational_mode` to `sequential`. With the
        second option alone, the context's own thread runs timers, and messages are delivered inside this call only.

        Args:
            timeout: seconds to wait for the first event; 0, or less, does not wait, None waits for ever.

        Returns:
            The number of messages and events that were delivered.

        Raises:
            WrongThread: the context's own thread delivers, or in sequential mode another thread drives the context.
            ClosedError, WrongProcess: the context is closed, or belongs to the parent of a fork.
            TypeError, ValueError: `timeout` is not a number, or NaN.
        """
        try:
            found = self._turn(timeout)
            if type(found) is int:
                return found
            if self._closed or self._forked or not self._processes:
                self._check()
                raise WrongThread(_NOT_DRIVEN.format("process_events"))
            return self._event_loop.process(timeout if found != found else found)
        except KeyboardInterrupt as error:
            shorten(error)
            raise

    @typed("make the descriptor of a context")
    def fileno(self) -> int:
        """Returns a descriptor that is readable, level-triggered, while `process_events` has something to do.

        From the first call of `fileno` on, the context arms its wake-up between two calls of `process_events`.

        Raises:
            WrongThread: the context's own thread delivers.
            ClosedError, WrongProcess: the context is closed, or belongs to the parent of a fork.
        """
        self._check()
        if not self._processes:
            raise WrongThread(_NOT_DRIVEN.format("fileno"))
        return self._event_loop.fileno()

    def _driver_for(self, sink: Sink, timeout: float | None = None) -> AbstractContextManager[EventLoop | None]:
        """Gives the driver lock to a thread that pulls; None if another thread filled or closed the queue meanwhile."""
        return self._event_loop.guest(lambda: sink.queue or sink.closed or self._closed, timeout)

    def _wait_for_change(self, seconds: float) -> None:
        """Lets the context work for at most this time, for a thread that waits for a change."""
        event_loop = self._event_loop
        if event_loop.is_driver():
            raise WrongThread("this call cannot wait inside a callback of the same context; make it in another thread")
        if self._sequential:
            with event_loop.drive_alone():
                event_loop.drive(int(min(seconds, 0.01) * 1e9), once=True)
                event_loop.rearm()
        elif event_loop.split and event_loop.may_help():
            event_loop.help()  # no other thread hears what receivers ask the sources for
            event_loop.wait_changed(min(seconds, 0.01))
        else:
            event_loop.wait_changed(seconds)

    def _refresh(self) -> None:
        """Joins the sources of this context to its own receivers after a change of its registry."""
        if self._receivers:
            with self._event_loop.driver_lock():
                self._receiving_sessions.refresh()

    # ------------------------------------------------------------------ end

    def close(self, *, drain: bool = False) -> None:
        """Closes all sources and receivers, and the context. Closing twice does nothing.

        After the call has begun, no callback of a message, an event or a source event starts; the call waits for a
        callback that runs already. Messages in event queues are dropped there and counted. Before it
        returns, the call notifies each receiver of the end of its topics (`on_delete`) and sources (type DELETE).

        Sources publish their open batch, and joined receivers can still read what was published. If other receivers
        are about to join, the batch waits for them as in `Source.close`. After a KeyboardInterrupt, call `close` again;
        otherwise the context is closed at exit.

        Args:
            drain: deliver first, in the calling thread, what is published now, and leave messages in event queues to
                their dispatchers. The call does not wait for later messages, nor for a receiver without room.

        Raises:
            WrongThread: `drain` is set, and the caller is inside a callback of this context.
        """
        patient = may_linger(members(_contexts))
        context_closing.close(self, drain=drain, patient=patient, leave_out=_driven_elsewhere(self) | {self._id})

    def __enter__(self) -> Self:
        """Returns the context; the end of the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the context; after an exception it does not wait for receivers that are about to join."""
        self.close()

    def __reduce__(self) -> Never:
        """Raises TypeError: a context cannot be pickled or copied."""
        raise not_a_value(self, "ipcbus.Context(...)")

    def __repr__(self) -> str:
        """Returns a text with name, domain and state."""
        state = " (closed)" if self._closed else ""
        return f"<Context {self.name!r} in domain {self.domain!r}{state}>"

    def __del__(self) -> None:
        """Closes a context to which nothing refers any more."""
        if self._made:
            context_closing.drop(self)

    def _forget(self) -> None:
        _contexts.discard(self)
        self._close_done.set()

    def _check(self) -> None:
        if self._forked:
            raise WrongProcess("this context belongs to the parent of this forked process; make a new Context here")
        if self._closed:
            raise ClosedError(f"the context {self.name!r} of domain {self.domain!r} is closed; make a new one")

    def _show_counters(self) -> None:
        """Shows the counters of requests, recoveries and guaranteed messages to other processes."""
        sending, receiving = self._sending_sessions, self._receiving_sessions
        recovery = sending.control_channels.counters() | sending.retentions.counters() | receiving.recoveries.counters()
        asked = sending.requests.counters() | self._responses.counters()
        self._registry.show_counters(asked | recovery | sending.guaranteed.counters())

    def _sessions_of(self, subscription: Subscription) -> list[SessionInfo]:
        self._check()
        with self._event_loop.driver_lock():
            return self._receiving_sessions.info(subscription)

    def _sources_of(self, subscription: Subscription) -> int:
        with self._event_loop.driver_lock():
            return sources_of(subscription, self._receiving_sessions.sessions())

    def _recorder_stats_block(self, log: str) -> RecorderStatsBlock:
        """Shows a recorder of this context in statistics, under the path of its log; for `ipcbus.archive`."""
        self._check()
        return RecorderStatsBlock(self._registry, log)

    def _after_fork(self) -> None:
        """In the child of a fork, gives up everything that belongs to the parent; changes no shared memory."""
        self._forked = True
        self._event_loop.pump.want(CLOSED)
        self._event_loop.pump.reset()
        for part in (self._sending_sessions, self._receiving_sessions, self._network, self._bell, self._registry):
            part.abandon()
        self._waiters.abandon()
        self._event_loop.close()


def _not_driven(timeout: object) -> float:
    """Sends every turn to Python, which raises the error."""
    del timeout
    return math.nan


def close_all() -> None:
    """Closes every open context of the process, as at its end."""
    context_closing.await_dropped()
    context_closing.close_all(
        [*members(_contexts), *context_closing.dropped], patient=getattr(sys, "last_value", None) is None
    )


def _driven_elsewhere(context: Context) -> set[int]:
    """Returns the ids of contexts that the calling thread may have to drive; they join nothing while it waits."""
    return {other._id for other in members(_contexts) if other._sequential and other is not context}


def _before_fork() -> None:
    for context in members(_contexts):
        if context._event_loop.is_driver():  # otherwise no callback goes on in the child
            context._receiving_sessions.before_fork()


def _fork_parent() -> None:
    for context in members(_contexts):
        if context._event_loop.is_driver():
            context._receiving_sessions.after_fork()


def _fork_child() -> None:
    for context in [*members(_contexts), *context_closing.dropped]:
        context._after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_fork_parent, after_in_child=_fork_child)
