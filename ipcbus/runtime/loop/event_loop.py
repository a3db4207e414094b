"""The event loop of a context, and its sleep.

In a split context (`transport_lbtipc_receiver_operational_mode`) the context's own thread is quiet: it never reads
rings nor calls receivers back. It sleeps without the driver lock, so that a guest gets the lock at once.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import select
import threading
import time
from typing import TYPE_CHECKING

from ipcbus.delivery.pump import DESCRIPTOR, EVENTS, HURRIED, NETWORK, SPLIT_DESCRIPTOR
from ipcbus.runtime.loop import rests, timerfd
from ipcbus.runtime.loop.driver_lock import STAND_BACK_NS, DriverLock
from ipcbus.runtime.loop.network_pass import deliver_fetched
from ipcbus.runtime.loop.own_rest import OwnRest
from ipcbus.runtime.loop.timerfd import FOREVER_NS, bounded
from ringbuf import wake
from ringbuf.doorbell import CALL, NEWS, Doorbell
from ringbuf.ring import RingReader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from ipcbus.runtime.loop.loop_tasks import Lives, LoopTasks
    from ipcbus.transport.receiving_session import ReceivingSession
    from ringbuf.shared_words import WatchedWord

    Rest = Callable[[], object]
    """Waits until there is work for the event loop."""

log = logging.getLogger("ipcbus")

SLICE_NS = 10_000_000
"""Time in ns after which a spinning wait returns: for signals, and for threads that want the driver lock."""
_ONE_SESSION_NS = 500_000
"""Longest time in ns for which only the session over UDP that was read last is read, while it brings datagrams."""
NETWORK_SLICE_NS = 50_000
"""As `SLICE_NS` for a context with sockets, which a spinning wait does not read."""


class EventLoop(DriverLock):
    """The loop of one context."""

    def __init__(
        self,
        bell: Doorbell,
        work: LoopTasks,
        *,
        spins: bool,
        linger: int,
        linger_ns: int = 0,
        sequential: bool = False,
        split: bool = False,
    ) -> None:
        """Makes an event loop that no thread drives yet.

        Args:
            bell: wakes the context from other processes.
            work: the other tasks of the driver.
            spins: whether waits never sleep (`busy_wait`).
            linger: polls of the rings before a sleep (`pend`).
            linger_ns: the longest spin before a sleep.
            sequential: whether the context has no thread of its own.
            split: whether the context's own thread leaves the rings to the threads of the application.
        """
        self.loops = 1 << 62 if spins else linger
        super().__init__(sequential=sequential, split=split, loops=self.loops, spins=spins, linger_ns=linger_ns)
        self._bell = bell
        self._work = work
        self.spins = spins
        self._readers: list[RingReader] = []
        self._watched: Sequence[ReceivingSession] = ()
        self._is_called = False
        """Whether other contexts look whether this one sleeps: those that write its rings or control channels."""
        self._words: Sequence[WatchedWord] = ()
        # One for the driver, and in a split context one for the own thread, which sleeps while a guest drives.
        try:
            self._epolls = [select.epoll() for _ in self._kick_fds]
            self._epoll = self._epolls[0]
            for epoll, kick in zip(self._epolls, self._kick_fds, strict=True):
                epoll.register(bell.fd, select.EPOLLIN)
                epoll.register(kick, select.EPOLLIN)
        except BaseException:
            self._close_kick_fds()
            raise
        self._rests = rests.Rests(self._epoll, self._kick_fds[0], bell.fd, linger_ns)
        self.answers = self._rests.answers
        self._timer_fd = -1
        self._shown = False
        """Whether the application may watch the descriptor."""
        self._ready_fd = -1
        self._network_fd = -1
        self._read_network_at_ns = 0
        self._outer: select.epoll | None = None
        self._resting = False
        """Whether the context's own thread rests with the driver lock; `rouse` ends the rest."""
        self.pump.look = self._look_quickly
        self.pump.delivered = self._delivered
        self.pump.sleep_on(self._epoll.fileno(), bell.fd, self._kick_fds[0], self._arm_channels, self._answer_rare)
        self._next_timer_ns = self._look_at_all_ns = 0
        self._lives: Lives | None = None
        """What stands for the next timers while the context's own thread sleeps; None if that is not known."""

    def listen(self, fd: int) -> None:
        """Wakes the loop when a descriptor of the network is readable; any thread may call this."""
        for epoll in self._epolls:
            epoll.register(fd, select.EPOLLIN)
        self._network_fd = fd

    @property
    def network_is_busy(self) -> bool:
        """Whether sessions run over the network; otherwise the loop reads the sockets rarely while it polls rings."""
        return self.pump.wants(NETWORK)

    @network_is_busy.setter
    def network_is_busy(self, busy: bool) -> None:
        (self.pump.want if busy else self.pump.unwant)(NETWORK)

    def _read_network(self, *, rarely: bool = False) -> None:
        """Reads the sockets.

        Args:
            rarely: skip the system call while no session runs over the network.
        """
        if self._network_fd >= 0 and (self.network_is_busy or not rarely):
            now = time.monotonic_ns()
            self._read_network_at_ns = now + SLICE_NS
            self._look_at_all_ns = 0
            self._next_timer_ns = min(self._next_timer_ns, self._work.read_network())
            self._set_timer(now)

    def _set_timer(self, now: int) -> None:
        """Sets when compiled turns return to Python."""
        look_ns = self._read_network_at_ns if self._network_fd >= 0 else FOREVER_NS
        self.pump.set_timer(*(max(0, at_ns - now) for at_ns in (self._next_timer_ns, look_ns, self._work.early_ns)))

    # ------------------------------------------------------------------ driving

    def watch(self, sessions: Sequence[ReceivingSession]) -> None:
        """Sets the sessions that the pump reads; for the driver only."""
        self._readers = [session.datagram_source.reader for session in sessions if not session.demux.blocked]
        self._is_called = bool(self._words) or any(session.datagram_source.layer == "ring" for session in sessions)
        self.pump.attention, self._watched, self._lives = True, sessions, None
        self.pump.watch([session.demux for session in sessions], self._words, self._is_called)
        if self.pump.wants(DESCRIPTOR):
            self.kick()  # the next turn arms the wake-up of the new sessions

    def watch_words(self, words: Sequence[WatchedWord]) -> None:
        """Sets the words whose changes the loop handles; for the driver only."""
        self._words = words
        self.watch(self._watched)

    def count_messages(self) -> int:
        """Returns how many messages the sessions that are watched have brought; for the driver only."""
        return sum(session.demux.messages for session in self._watched)

    def has_input(self) -> bool:
        """Returns whether a message waits that the next turn reads; for the driver only."""
        return not self.quiet and (self._work.has_packets() or any(map(RingReader.ready, self._readers)))

    def _look(self) -> None:
        if self.pump.stuck and not self.quiet:
            self._work.look()

    def poll(self) -> int:
        """Delivers the messages that are there, without waiting; for the driver only."""
        if self.split:
            self._attend()  # events that the context's own thread deferred come before messages
        now = time.monotonic_ns()
        self._read_network(rarely=now < self._read_network_at_ns)
        handled = self.pump.run(0, 0, True)
        self._housekeeping(now)
        return self._finish_turn(handled, False)

    def poll_for(self, timeout_ns: int) -> int:
        """Polls for messages and watched words for a time, without sleeping, until some come; for the driver only.

        Returns:
            The number of messages and events delivered.
        """
        return self._finish_turn(self.pump.run(timeout_ns, 1 << 62, True), True)

    def drive(self, timeout_ns: int, *, once: bool) -> int:
        """Delivers the messages that come within a time; for the driver only.

        Args:
            timeout_ns: the longest time; `FOREVER_NS` for no limit.
            once: whether to return after the first delivery.

        Returns:
            The number of messages and events delivered. The call ends early when another thread needs the driver lock
            or the context closes.
        """
        total = 0
        now = time.monotonic_ns()
        deadline = now + timeout_ns
        while True:
            awaited = once or self._is_awaited()
            handled = self._run_turn(now, deadline, awaited)
            total += handled
            now = time.monotonic_ns()
            if self._must_stop() or (once and total) or now >= deadline:
                return total
            if not self.spins and not handled:
                total += self._finish_turn(self._sleep(min(self._due(), deadline) - now), awaited)
                if once and total:
                    return total
                now = time.monotonic_ns()

    def _look_quickly(self) -> int:
        """Handles the watched words that have changed, in a compiled turn; returns the messages and events."""
        self._work.look()
        handled = self._take_event_count()
        if handled and (self._guests or self._work.has_waiters()):
            self._delivered()
        return handled

    def _is_awaited(self) -> bool:
        """Returns whether a task or another thread waits for the messages of a turn."""
        return self._work.has_waiters() or self._guests > 0

    def _run_turn(self, now: int, deadline: int, awaited: bool) -> int:
        """Runs one turn of the loop; returns the number of messages and events."""
        self._housekeeping(now)
        left = max(0, min(self._due(), deadline) - now)
        look_ns = self._look_at_all_ns = self._look_at_all_ns or now + _ONE_SESSION_NS
        fetch = self._work.first_fetch() if now < look_ns else None
        handled = deliver_fetched(self.pump, fetch, min(left, look_ns - now), awaited) if fetch is not None else 0
        if not handled:
            self._read_network(rarely=now < self._read_network_at_ns)
            slice_ns = NETWORK_SLICE_NS if self.network_is_busy else SLICE_NS
            handled = self.pump.run(min(left, slice_ns), self.loops, awaited)
        return self._finish_turn(handled, awaited)

    def _finish_turn(self, handled: int, awaited: bool) -> int:
        """Does the work after each turn; returns the number of messages and events."""
        self._attend()
        self._look()
        handled += self._take_event_count()
        # Asked again: a thread may have begun to wait during this turn.
        if handled and (awaited or self._guests or self._work.has_waiters()):
            self._delivered()
        return handled

    def events_came(self) -> None:
        """Notes that receivers got events, which the next turn counts; for the driver only."""
        self.pump.want(EVENTS)

    def _take_event_count(self) -> int:
        self.pump.unwant(EVENTS)
        return self._work.take_event_count()

    def _must_stop(self) -> bool:
        own = self.pump.owner == self._own_thread
        # A guest that was noted meanwhile takes long messages, and had better read the next ones itself.
        leaves = own and (self._guests or self._stands_back or self.pump.ns_since_guest() < STAND_BACK_NS)
        return bool(self._urgent or self.closing or leaves or self.pump.pending_error is not None)

    def _delivered(self) -> None:
        self._work.delivered()
        if self._guests:
            self.notify()

    def run(self) -> None:
        """Runs turns in the context's own thread until the context closes."""
        rest: Rest | None = None
        while not self.closing:
            rest = self.turn(rest() if rest is not None else None)
        self.rouse()

    def turn(self, woken: object) -> Rest | None:
        """Runs one turn of the context's own thread.

        Args:
            woken: the result of the rest before this turn; None without a rest.

        Returns:
            The rest before the next turn, which waits for work and does not refer to this object; None for no rest.
        """
        self._own_thread = threading.get_ident()
        rested, self._resting = self._resting, False
        if not rested and not self._take_as_own_thread():
            return None
        self._stands_back = False
        try:
            if self.split:
                self._run_split_turn()
            else:
                rest = self._drive_until_rest(woken if rested else None)
                self._resting = rest is not None
        finally:
            if not self._resting:
                self.give_back()
        # A split context rests without the driver lock, so that a guest gets the lock at once.
        return functools.partial(rests.poll, self._epolls[1], self._due()) if self.split else rest

    def rouse(self) -> None:
        """Ends the rest of the context's own thread; for that thread only."""
        if self._resting:
            self._resting = False
            self._disarm()
            self.give_back()

    def _drive_until_rest(self, woken: object) -> Rest | None:
        """Delivers until there is no work, or another thread needs the driver lock."""
        if woken is not None:
            handled = self._wake_up(woken.woken, woken.take, woken.fetched) if isinstance(woken, OwnRest) else 0
            self._finish_turn(handled, self._is_awaited())
        now = time.monotonic_ns()
        while not self._must_stop():
            handled = self._run_turn(now, FOREVER_NS, self._is_awaited())
            now = time.monotonic_ns()
            if handled or self._must_stop():
                continue
            if self.spins:
                if not self.network_is_busy:
                    return functools.partial(rests.spin, self.pump.poller, self.loops, self._due())
                continue
            seconds = self._prepare_sleep(self._due() - now)
            if seconds is not None:
                return self._rest(now, seconds)
            now = time.monotonic_ns()
        return None

    def _rest(self, now: int, seconds: float) -> OwnRest:
        """Returns a rest of some seconds; of more, if a look at locks can stand for the timers that are due then."""
        if self.network_is_busy:
            early_s = (self._work.early_ns - now) / 1e9
            return self._rests.network(self.pump, seconds, early_s, self._network_fd, self._work.first_fetch())
        if self._fenced and self._lives is None:
            self._lives = self._work.lives(self._next_timer_ns)
        return self._rests.rings(self.pump, now, seconds, self._lives if self._fenced else None)

    def _run_split_turn(self) -> None:
        """Does the work of a split context's own thread, which reads no ring."""
        woken = _readable(self._epolls[1])
        self._answer(woken)
        self._read_network()
        self._housekeeping(time.monotonic_ns())
        if self._outer is not None and not (self._arm() and not woken and not self.pump.attention):
            os.eventfd_write(self._ready_fd, 1)

    def process(self, timeout: float | None) -> int:
        """Drives for a caller of the application until a delivery; returns the number of messages and events.

        Raises:
            WrongThread: in sequential mode, another thread drives the context.
            IpcBusError: the caller is inside a callback.
        """
        timeout = bounded(timeout)
        wait_ns = FOREVER_NS if timeout is None else int(timeout * 1e9)
        deadline = time.monotonic_ns() + wait_ns
        left, handled = wait_ns, 0
        while True:
            with self.guest(lambda: self.closing, None if timeout is None else left / 1e9) as event_loop:
                if event_loop is not None:
                    handled = self.run_turn_once(left)
            left = deadline - time.monotonic_ns()
            # An urgent change, such as a new receiver, ends the drive early.
            if handled or self.closing or left <= 0:
                return handled
            found = self.pump.turn(None if timeout is None else left / 1e9)
            if isinstance(found, int):
                return found
            left = deadline - time.monotonic_ns()

    def run_turn_once(self, timeout_ns: int) -> int:
        """Runs a turn; waits in it only if a compiled turn cannot wait now. For the driver only.

        Args:
            timeout_ns: the longest wait.

        Returns:
            The number of messages and events delivered.
        """
        handled = self.poll()
        if handled or timeout_ns <= 0 or not self.pump.needs_python():
            return handled
        return self.drive(timeout_ns, once=True)

    @contextlib.contextmanager
    def guest(self, until: Callable[[], object], timeout: float | None) -> Iterator[EventLoop | None]:
        """Gives the driver lock to a thread of the application; None if `until` came true or the time ran out first.

        Raises:
            WrongThread, IpcBusError: as in `drive_alone` and `take_as_guest`.
        """
        error = None
        with self.given_back():
            if self.sequential:
                with self.drive_alone():
                    yield self
                    self.rearm()
            elif self.take_as_guest(until, timeout):
                yield self
                self.rearm()
                error = self.take_pending()
                self.give_back()
            else:
                yield None
        if error is not None:
            raise error

    def help(self) -> None:
        """Delivers messages in a thread that is blocked in a send, which may wait for this context's own receivers."""
        with self.guest(lambda: self.closing, 0) as event_loop:
            if event_loop is not None:
                self.poll()

    def _due(self) -> int:
        return 0 if self.pump.wants(HURRIED) else self._next_timer_ns

    def _housekeeping(self, now: int) -> None:
        if now >= min(self._due(), self._work.early_ns):
            if not self._work.tasks_left:  # else what hurries may be a task that has been run before
                self.pump.unwant(HURRIED)
            self._next_timer_ns = self._work.run_timers(now)
            self._lives = None
            self._set_timer(now)
        self._attend()

    def _attend(self) -> None:
        if self.pump.attention and not self.quiet:
            self.pump.attention = self._work.attend()

    def attend_now(self) -> None:
        """Handles sessions at once, for example when a full receiver got room; for the driver only."""
        self._attend()

    def request_attention(self) -> None:
        """Makes the loop handle sessions after the messages that are there; for the driver only."""
        self.pump.attention = True

    def hurry(self) -> None:
        """Makes the timers run in the next turn; any thread may call this, also while the timers run."""
        self.pump.want(HURRIED)

    # ------------------------------------------------------------------ sleeping

    def _arm(self) -> bool:
        """Shows every session that this context sleeps; False when a ring has messages already."""
        for reader in self._readers:
            reader.arm(True)
        is_idle = self._work.arm(sleeps=True)
        self._fenced = not self._is_called or wake.barrier()  # SYNC park
        return is_idle and not any(map(RingReader.ready, self._readers))

    def _disarm(self) -> None:
        self.pump.armed = False
        for reader in self._readers:
            reader.arm(False)
        self._work.arm(sleeps=False)

    def _sleep(self, timeout_ns: int) -> int:
        """Sleeps until a wake-up or a time; returns the number of messages that the wake-up brought."""
        seconds = self._prepare_sleep(timeout_ns)
        if seconds is None:
            return 0
        try:
            woken = _readable(self._epoll, seconds)
        except BaseException:
            self._disarm()
            raise
        return self._wake_up(woken, lambda: self.pump.run(0, 0, True) if woken else 0)

    def _prepare_sleep(self, timeout_ns: int) -> float | None:
        """Shows every session that this context sleeps; returns the seconds to sleep, None when there is work."""
        if timeout_ns <= 0:
            return None
        armed = False
        try:
            armed = self._arm()
        finally:
            if not armed:
                self._disarm()
        # Without the system's fence a source may not have seen that this context sleeps: sleep for 1 ms at most.
        return (timeout_ns if self._fenced else min(timeout_ns, 1_000_000)) / 1e9 if armed else None

    def _wake_up(self, woken: Collection[int], deliver: Callable[[], int], fetched: bool = False) -> int:
        """Delivers the messages after a wake-up, then shows that the context is awake; returns their number."""
        try:
            handled = deliver()  # the source of a message may be waiting for an answer
            if self._network_fd in woken and not fetched:
                if not self._work.read_first():
                    self._read_network()
                handled += self.pump.run(0, 0, True)
        finally:
            self._disarm()
        self._answer(woken)
        return handled

    def fileno(self) -> int:
        """Returns a descriptor that is readable when there is work; from now on, the context arms its wake-up."""
        if self.split:
            if self._outer is None:
                with self.driver_lock():
                    outer = select.epoll()
                    self._ready_fd = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                    outer.register(self._bell.fd, select.EPOLLIN)
                    outer.register(self._ready_fd, select.EPOLLIN)
                    self._outer = outer
                    self.pump.want(SPLIT_DESCRIPTOR)
            return self._outer.fileno()
        self._shown = True
        return self.watch_descriptor()

    def watch_descriptor(self) -> int:
        """Returns the descriptor as `fileno` does, for a caller that ends its watch with `ignore_descriptor`."""
        if self.split:
            return self.fileno()
        self.pump.want(DESCRIPTOR)  # from now on every turn has to arm the wake-up
        if self._timer_fd < 0:
            self._timer_fd = timerfd.create()
            self._epoll.register(self._timer_fd, select.EPOLLIN)
            self.rearm()
        self._answer_bell(self._bell.drain())  # else the descriptor stays readable after the message has been taken
        return self._epoll.fileno()

    def ignore_descriptor(self) -> None:
        """Ends that turns arm the descriptor, unless the application got it from `fileno`."""
        if not self._shown:
            self.pump.unwant(DESCRIPTOR)
            self.pump.disarm_descriptor()

    def rearm(self) -> None:
        """Arms the wake-up of `fileno`; does nothing before its first call."""
        if self._timer_fd < 0 and self._outer is None:
            return
        self._answer(_readable(self._epoll))
        self._read_network()
        self._housekeeping(time.monotonic_ns())
        if self._outer is None:
            timerfd.arm(self._timer_fd, max(1, self._due() - time.monotonic_ns()))
            if self.pump.wants(DESCRIPTOR):
                self.pump.arm_descriptor()
            return
        _clear(self._ready_fd)
        if not self._arm():
            os.eventfd_write(self._ready_fd, 1)

    def _arm_channels(self, sleeps: bool) -> bool:
        return self._work.arm(sleeps=sleeps)

    def _answer_rare(self, rung: bytes, readable: bool) -> None:
        """Handles what a compiled sleep has heard besides records."""
        self._answer_bell(rung)
        if readable and not self._work.read_first():
            self._read_network()
            if self._timer_fd >= 0:
                _clear(self._timer_fd)
                self.hurry()  # Python's turn runs the timers, and sets the descriptor's timer again

    def _answer_bell(self, rung: bytes) -> None:
        if NEWS in rung:
            self._work.registry_changed()
        elif CALL in rung:
            self._work.peers_changed()
        if NEWS in rung or CALL in rung:
            self.hurry()  # FRAMES alone need no timers: a watched word has changed

    def _answer(self, woken: Collection[int]) -> None:
        for fd in woken:
            if fd in self._kick_fds:
                self.pump.kick_waits = False
                _clear(fd)
            elif fd == self._bell.fd:
                self._answer_bell(self._bell.drain())
            elif fd == self._timer_fd:
                _clear(self._timer_fd)

    def close(self) -> None:
        """Closes the descriptors."""
        self.closing = True
        self.answers.close()
        kicks, self._kick_fds = self._kick_fds, []
        if kicks:
            outer, self._outer = self._outer, None
            for epoll in (*self._epolls, *([outer] if outer else [])):
                epoll.close()
            for fd in (*kicks, self._timer_fd, self._ready_fd):
                if fd >= 0:
                    os.close(fd)
            self._timer_fd = self._ready_fd = -1


def _readable(epoll: select.epoll, seconds: float = 0) -> list[int]:
    """Waits for descriptors that are readable; returns them."""
    return [fd for fd, _ in epoll.poll(seconds)]


def _clear(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(fd, 8)
