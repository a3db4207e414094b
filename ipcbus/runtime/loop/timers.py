"""What a context does besides moving messages: timers, resolution, news for sources (`LoopTasks`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.stale_cleanup import sweep
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ringbuf import clock, segment
from ringbuf.doorbell import NEWS, ring_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ipcbus.config import ContextOptions
    from ipcbus.runtime.loop.aio import AsyncWaiters
    from ipcbus.runtime.loop.event_loop import EventLoop
    from ipcbus.runtime.loop.udp_endpoints import UdpEndpoints
    from ipcbus.runtime.receiving.receiving_sessions import ReceivingSessions
    from ipcbus.runtime.sending.sending_sessions import SendingSessions
    from ipcbus.transport.sending_session import SendingSession

SECOND_NS = 1_000_000_000
SWEEP_NS = 5 * SECOND_NS


class NotifiedSource(Protocol):
    """A source, as far as it is told things."""

    @property
    def _session(self) -> SendingSession:
        """What it sends on."""

    def _notice_receivers(self) -> None:
        """Compares who is joined with who was."""

    def _notice_room(self) -> None:
        """There is room again after a send that found none."""


class Timers:
    """The timers of one context and everything that hangs on them. Runs on the driver."""

    def __init__(
        self, domain: str, context_id: int, options: ContextOptions, sources: Callable[[], Iterable[NotifiedSource]]
    ) -> None:
        """Duties without anything to look after yet; `attach` gives it.

        Args:
            domain: the bus domain.
            context_id: id of the context.
            options: its options.
            sources: gives the context's sources.
        """
        self._domain, self._context_id = domain, context_id
        self._sources = sources
        self._every = {
            "liveness": options.liveness_check_interval * 1_000_000,
            "scan": options.resolution_scan_interval * 1_000_000,
            "sources": options.resolution_scan_interval * 1_000_000,
            "clock": SECOND_NS,
            "sweep": SWEEP_NS,
        }
        self._next = dict.fromkeys(self._every, 0)
        self._called = True
        self._owed_ns = FOREVER_NS

    def attach(
        self,
        event_loop: EventLoop,
        receiving_sessions: ReceivingSessions,
        sending_sessions: SendingSessions,
        waiters: AsyncWaiters,
        network: UdpEndpoints,
    ) -> None:
        """Gives what is to be looked after."""
        self._event_loop, self._receiving_sessions, self._sending_sessions, self._waiters = (
            event_loop,
            receiving_sessions,
            sending_sessions,
            waiters,
        )
        self._network = network

    def network(self) -> int:
        """Takes what has come over the network; returns when its timers will have something to do."""
        return self._network.read()

    def attend(self) -> bool:
        """Looks after sessions that ended, broke, or wait; says whether one still waits."""
        return self._receiving_sessions.attend()

    def events(self) -> int:
        """Events told to receivers since the last call."""
        return self._receiving_sessions.notifier.take_told()

    def news(self) -> None:
        """Another context's registry changed."""
        self._next["scan"] = 0
        self._called = True

    def call(self) -> None:
        """A receiver joined, left, or made room, or a refused send is dealt with; any thread may say so."""
        self._called = True

    def someone_waits(self) -> bool:
        """Returns whether an asyncio task waits for a message."""
        return self._waiters.any()

    def delivered(self) -> None:
        """Wakes asyncio tasks whose messages have come."""
        self._waiters.delivered()

    def timers(self, now_ns: int) -> int:
        """Runs what is due; returns when something will be next."""
        for task, interval in self._every.items():
            if now_ns >= self._next[task]:
                # On a common grid, so that a sleeping context wakes once for several tasks.
                self._next[task] = (now_ns // interval + 1) * interval
                getattr(self, f"_do_{task}")()
        look_in = self._sending_sessions.evict_due()
        if self._called or now_ns >= self._owed_ns:
            self._called = False
            self._receiving_sessions.refresh()
            self._tell_sources(now_ns)
            self._event_loop.notify()
        flush_in = self._sending_sessions.flush_due()
        soon = [now_ns + wait for wait in (flush_in, look_in) if wait is not None]
        soon.append(self._network.turn(now_ns))
        soon += [self._owed_ns, self._sending_sessions.inform_due(now_ns), self._show_life(now_ns)]
        return min(*self._next.values(), *soon, self._receiving_sessions.check_losses(now_ns))

    def announce(self) -> None:
        """Tells every other context of the domain that this one's registry changed."""
        own = object_names.bell(self._domain, self._context_id)
        try:
            found = segment.names(object_names.domain_prefix(self._domain))
        except OSError:
            return  # no descriptor left: others look by themselves once a scan interval
        for name in object_names.of_kind(found, object_names.BELL):
            if name != own:
                ring_once(name, NEWS)

    def _do_liveness(self) -> None:
        if self._sending_sessions.reclaim():
            self._called = True
        self._receiving_sessions.check()

    def _do_scan(self) -> None:
        self._receiving_sessions.scan()
        self._receiving_sessions.retry()
        self._called = True

    def _show_life(self, now_ns: int) -> int:
        """Gives the signs of life of sessions that are due; returns when the next may be."""
        return min((session.show_activity(now_ns) for session in self._sending_sessions.sessions()), default=FOREVER_NS)

    def _do_clock(self) -> None:
        clock.recalibrate()
        self._network.show_counters()

    def _do_sources(self) -> None:
        self._receiving_sessions.look_for_sources()

    def _do_sweep(self) -> None:
        sweep(self._domain)

    def _tell_sources(self, now_ns: int) -> None:
        served, again = self._sending_sessions.pending_wakeups.served(now_ns)
        self._owed_ns = FOREVER_NS if again is None else again
        for source in self._sources():
            source._notice_receivers()
            if source._session in served:
                source._notice_room()
