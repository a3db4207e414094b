"""The tasks of a context besides moving messages: timers, resolution, events of sources (`LoopTasks`)."""

from __future__ import annotations

import functools
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from ipcbus.delivery import spare_bytes, timer_grid
from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.stale_cleanup import sweep
from ipcbus.runtime.loop.loop_tasks import Lives
from ipcbus.runtime.loop.peer_locks import peer_locks
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ringbuf import clock, segment
from ringbuf.doorbell import NEWS, ring_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ipcbus.config import ContextOptions
    from ipcbus.runtime.loop.aio import AsyncWaiters
    from ipcbus.runtime.loop.event_loop import EventLoop
    from ipcbus.runtime.loop.udp_endpoints import UdpEndpoints
    from ipcbus.runtime.receiving.receiving_sessions import ReceivingSessions
    from ipcbus.runtime.sending.sending_sessions import SendingSessions
    from ipcbus.transport.sending_session import SendingSession
    from ringbuf.held_locks import HeldLocks

SECOND_NS = 1_000_000_000
SWEEP_NS = 5 * SECOND_NS
_LIVENESS = ("receivers", "owners", "channels")
"""The tasks that look for dead processes. Between two runs, a look at the locks of these processes is enough."""
_SLICE_NS = 30_000
"""Time in ns for which tasks run before the first look whether a message has come."""
_RUN_AT_LEAST_NS = SECOND_NS - timer_grid.LEAD_MAX_NS
"""Time in ns after which they run, whatever the locks say: they also find a ring that was cut short, and the like."""


class NotifiedSource(Protocol):
    """A source, as far as it gets events."""

    @property
    def _session(self) -> SendingSession:
        """The sending session."""

    def _notify_receivers(self) -> None:
        """Notifies the source of receiving contexts that joined or left."""

    def _notify_room(self) -> None:
        """Notifies the source of room after a send that was refused."""


class Timers:
    """The timers of one context, and their tasks. Runs on the driver."""

    def __init__(
        self, domain: str, context_id: int, options: ContextOptions, sources: Callable[[], Iterable[NotifiedSource]]
    ) -> None:
        """Begins without the other parts of the context; `attach` gives them.

        Args:
            domain: the bus domain.
            context_id: id of the context.
            options: the options of the context.
            sources: returns the sources of the context.
        """
        self._domain, self._context_id = domain, context_id
        self._sources = sources
        self._every = {
            **dict.fromkeys(_LIVENESS, options.liveness_check_interval * 1_000_000),
            "scan": options.resolution_scan_interval * 1_000_000,
            "sources": options.resolution_scan_interval * 1_000_000,
            "clock": SECOND_NS,
            "sweep": SWEEP_NS,
        }
        self._lead = {task: timer_grid.lead_ns(interval_ns) for task, interval_ns in self._every.items()}
        self._next = dict.fromkeys(self._every, 0)
        self._steps: deque[Callable[[int], None]] = deque()
        """What is still to be done in this round of the timers: a message that comes meanwhile is delivered first."""
        self._locks: HeldLocks | None = None
        """The locks of the peers; None where they have to be found again."""
        self._liveness_run_ns = 0
        """When the tasks of `_LIVENESS` ran last."""
        self._serve_ns = self._losses_ns = FOREVER_NS
        self.early_ns = 0
        """When `run_timers` would do something already, in ns of the monotonic clock, see `timer_grid`."""
        self._notify_soon = True
        self._wakeups_due_ns = FOREVER_NS
        self._words_of = 0
        self._besides_ns = 0
        """When a task other than those of `_LIVENESS` is due."""
        self.show_counters: Callable[[], None] = lambda: None
        """Shows counters of the context to other processes, once a second."""

    def attach(
        self,
        event_loop: EventLoop,
        receiving_sessions: ReceivingSessions,
        sending_sessions: SendingSessions,
        waiters: AsyncWaiters,
        network: UdpEndpoints,
    ) -> None:
        """Sets the parts of the context for which the timers run."""
        self._event_loop, self._receiving_sessions, self._sending_sessions, self._waiters = (
            event_loop,
            receiving_sessions,
            sending_sessions,
            waiters,
        )
        self._network = network
        self.first_fetch, self.read_first = network.first_fetch, network.read_first
        """Read the session that was read last."""
        self.has_packets = network.has_packets

    def read_network(self) -> int:
        """Reads the sockets, and handles the calls that come with that; returns when its timers are due, in ns."""
        channels = self._sending_sessions.control_channels
        channels.looks_after_read = looks = not self._event_loop.quiet
        try:
            due_ns = self._network.read(briefly=True)
        finally:
            channels.looks_after_read = False  # first: another thread may be called meanwhile
        if looks and channels.is_called:
            self.look()  # at once, as a thread may wait for a response
        return due_ns

    def attend(self) -> bool:
        """Handles sessions that ended, broke, or wait for room; returns whether a session still waits."""
        if self._sending_sessions.control_channels.is_called:
            self.look()
        return self._receiving_sessions.attend()

    def take_event_count(self) -> int:
        """Returns the number of events that receivers got since the last call."""
        return self._receiving_sessions.notifier.take_count()

    def registry_changed(self) -> None:
        """Scans registries soon, because the registry of another context changed."""
        self._next["scan"] = 0
        self._notify_soon = True

    def peers_changed(self) -> None:
        """Notifies sources soon: a receiver joined, left or made room, or a `WouldBlock` is gone; from any thread."""
        self._notify_soon = True

    def has_waiters(self) -> bool:
        """Returns whether an asyncio task waits for a message."""
        return self._waiters.any()

    def delivered(self) -> None:
        """Wakes asyncio tasks whose messages have come."""
        self._waiters.delivered()

    @property
    def tasks_left(self) -> bool:
        """Whether the last `run_timers` has left tasks: the next one runs only these."""
        return bool(self._steps)

    def run_timers(self, now_ns: int) -> int:
        """Runs the tasks that are due, or as many of them as there is time for until a message comes, at least one.

        A signal may end it anywhere: all tasks are due again then.

        Returns:
            When the next one is due, in ns of the monotonic clock; 0 while tasks are left.
        """
        try:
            return self._run_due(now_ns)
        except BaseException as error:
            if not isinstance(error, Exception):
                self._steps.clear()
                self._next = dict.fromkeys(self._every, 0)
                self._notify_soon = True
                self._receiving_sessions.needs_reconcile = True
                self._event_loop.hurry()
            raise

    def _run_due(self, now_ns: int) -> int:
        now_ns = self._network.read_after_pause(now_ns)
        steps = self._steps
        if not steps:
            self._plan(now_ns)
        slice_end_ns = time.monotonic_ns() + _SLICE_NS
        while True:
            steps.popleft()(now_ns)
            if not steps:
                break
            if time.monotonic_ns() >= slice_end_ns and self._event_loop.has_input():
                self._turn_sources(now_ns)
                return 0
        self.early_ns = min([at_ns - self._lead[task] for task, at_ns in self._next.items()])
        turned_ns = self._turn_sources(now_ns)
        soon = (turned_ns, self._network.due_ns, self._wakeups_due_ns, self._serve_ns, self._losses_ns)
        self._besides_ns = min(*[at_ns for task, at_ns in self._next.items() if task not in _LIVENESS], *soon)
        return min(self._liveness_ns, self._besides_ns)

    def _plan(self, now_ns: int) -> None:
        """Fills `_steps` with what is due, or may come early beside it."""
        due = [task for task, at_ns in self._next.items() if now_ns >= at_ns - self._lead[task]]
        early = bool(due)
        if self._locks_suffice(due, now_ns):
            self._next |= {task: timer_grid.next_ns(now_ns, self._every[task]) for task in due}
            due = []
        elif due:
            self._locks = None
            if set(due).issuperset(_LIVENESS):
                self._liveness_run_ns = now_ns
        self._steps.extend([functools.partial(self._run_task, task) for task in due])
        self._steps += (functools.partial(self._turn_network, early), self._serve, self._check_losses)

    def _locks_suffice(self, due: Sequence[str], now_ns: int) -> bool:
        """Returns whether a look at the locks of the peers, which all are held, stands for the tasks that are due."""
        ran_lately = now_ns - self._liveness_run_ns < _RUN_AT_LEAST_NS
        if not (due and ran_lately and set(due).issubset(_LIVENESS)):
            return False
        locks = self._locks or self._find_locks()
        return locks is not None and locks.all_held()

    def _find_locks(self) -> HeldLocks | None:
        self._locks = peer_locks(self._sending_sessions, self._receiving_sessions, self._network.peers)
        return self._locks

    def _run_task(self, task: str, now_ns: int) -> None:
        self._next[task] = timer_grid.next_ns(now_ns, self._every[task])
        getattr(self, f"_do_{task}")()

    def _do_next(self, step: Callable[[int], None]) -> None:
        """Has a part of a task run after the task, so that a message that comes meanwhile waits for neither."""
        self._steps.appendleft(step)

    def _turn_network(self, early: bool, now_ns: int) -> None:
        self._steps.extendleft(reversed(self._network.steps(now_ns, early=early)))

    def _turn_sources(self, now_ns: int) -> int:
        """Sends what sources hold back, and notifies them; returns when to call again, in ns of the monotonic clock."""
        look_in = self._sending_sessions.evict_due()
        if self._notify_soon or now_ns >= self._wakeups_due_ns:
            self._notify_soon = False
            self._locks = None  # a receiver may have joined
            self._receiving_sessions.refresh()
            self._notify_sources(now_ns)
            self._event_loop.notify()
        flush_in = self._sending_sessions.flush_due()
        return min((now_ns + wait for wait in (flush_in, look_in) if wait is not None), default=FOREVER_NS)

    def _serve(self, now_ns: int) -> None:
        self._serve_ns = min(
            self._serve_channels(now_ns),
            self._sending_sessions.requests.turn(now_ns),
            self._sending_sessions.inform_due(now_ns),
            self._touch_sessions(now_ns),
        )

    def _check_losses(self, now_ns: int) -> None:
        behind = self._network.is_behind(now_ns)  # then the network is due soon
        self._losses_ns = FOREVER_NS if behind else self._receiving_sessions.check_losses(now_ns)

    @property
    def _liveness_ns(self) -> int:
        return min([self._next[task] for task in _LIVENESS])

    def lives(self, due_ns: int) -> Lives | None:
        """Returns the locks of all peers if only `_LIVENESS` is due then; None if a peer cannot be judged by a lock."""
        if due_ns != self._liveness_ns or self._besides_ns <= due_ns:
            return None
        locks = self._find_locks()
        return None if locks is None else Lives(locks, self._every[_LIVENESS[0]], self._besides_ns)

    def look(self) -> None:
        """Handles the calls of receivers over control channels, if there are some."""
        channels = self._sending_sessions.control_channels
        channels.look()
        if channels.has_work or self._receiving_sessions.channels.is_readable():
            self._event_loop.hurry()

    def arm(self, *, sleeps: bool) -> bool:
        """Shows receivers whether this context sleeps; returns whether none of them calls."""
        is_called = self._receiving_sessions.channels.is_readable()
        return self._sending_sessions.control_channels.arm(sleeps=sleeps) and not is_called

    def _serve_channels(self, now_ns: int) -> int:
        asked, asking = self._sending_sessions.control_channels, self._receiving_sessions.channels
        if asked.is_called:
            if self._event_loop.quiet:
                self._event_loop.request_attention()  # a thread of the application calls back
            else:
                asked.look()
        due_ns = min(asked.turn(now_ns), self._receiving_sessions.recover(now_ns))
        if self._words_of != asked.changes + asking.changes:
            self._words_of = asked.changes + asking.changes
            self._event_loop.watch_words(asked.words() + asking.words())
        return due_ns

    def announce(self) -> None:
        """Rings the doorbells of the other contexts of the domain after a change of this context's registry."""
        own = object_names.bell(self._domain, self._context_id)
        try:
            found = segment.names(object_names.domain_prefix(self._domain))
        except OSError:
            return  # there is no descriptor left: the others scan by themselves once in a scan interval
        for name in object_names.of_kind(found, object_names.BELL):
            if name != own:
                ring_once(name, NEWS)

    def _do_receivers(self) -> None:
        for session in self._sending_sessions.sessions():
            for reclaim in (self._sending_sessions.reclaim_slots, self._sending_sessions.drop_dead_clients):
                self._do_next(functools.partial(self._reclaim, reclaim, session))

    def _reclaim(self, reclaim: Callable[[SendingSession], int], session: SendingSession, _now_ns: int) -> None:
        if reclaim(session):
            self._notify_soon = True

    def _do_owners(self) -> None:
        self._receiving_sessions.check()

    def _do_channels(self) -> None:
        self._sending_sessions.control_channels.check()

    def _do_scan(self) -> None:
        self._receiving_sessions.look_for_contexts()
        self._do_next(self._retry)

    def _retry(self, _now_ns: int) -> None:
        self._receiving_sessions.refresh()
        self._receiving_sessions.retry()
        self._notify_soon = True

    def _touch_sessions(self, now_ns: int) -> int:
        """Updates the signs of life of sessions; returns when the next one is due."""
        return min((session.show_activity(now_ns) for session in self._sending_sessions.sessions()), default=FOREVER_NS)

    def _do_clock(self) -> None:
        clock.recalibrate()
        spare_bytes.drop(unused_only=True)
        self._sending_sessions.retentions.expire(clock.ticks())
        self._do_next(self._show_counters)

    def _show_counters(self, _now_ns: int) -> None:
        self._network.show_counters()
        self.show_counters()

    def _do_sources(self) -> None:
        self._receiving_sessions.look_for_sources()

    def _do_sweep(self) -> None:
        sweep(self._domain)

    def _notify_sources(self, now_ns: int) -> None:
        ready, again = self._sending_sessions.pending_wakeups.take_ready(now_ns)
        self._wakeups_due_ns = FOREVER_NS if again is None else again
        for source in self._sources():
            source._notify_receivers()
            if source._session in ready:
                source._notify_room()
