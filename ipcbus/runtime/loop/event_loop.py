"""The loop of a context, and how it sleeps.

In a split context (`transport_lbtipc_receiver_operational_mode`) the context's own thread is quiet: it never reads
rings nor calls receivers back, and sleeps without the wheel, so that a guest has it at once.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from ipcbus.runtime.loop import timerfd
from ipcbus.runtime.loop.driver_lock import DriverLock
from ipcbus.runtime.loop.timerfd import FOREVER_NS, bounded
from ringbuf import wake
from ringbuf.doorbell import CALL, NEWS, Doorbell
from ringbuf.ring import RingReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ipcbus.transport.receiving_session import ReceivingSession
    from ringbuf.poller import Poller

    Rest = Callable[[], object]
    """Waits for something to do."""

log = logging.getLogger("ipcbus")

SLICE_NS = 10_000_000
"""A spinning wait looks up after so long: for signals, and for threads that want in."""
_LONGEST_SPIN_NS = 100_000_000
NETWORK_SLICE_NS = 50_000
"""The same where there are sockets, at which a spinning wait does not look."""


class LoopTasks(Protocol):
    """What the driver does besides reading rings."""

    def attend(self) -> bool:
        """Looks after sessions that ended, broke, or wait; says whether one still waits."""

    def news(self) -> None:
        """Another context's registry changed."""

    def call(self) -> None:
        """A receiver joined, left, or made room."""

    def events(self) -> int:
        """Events told to receivers since the last call."""

    def someone_waits(self) -> bool:
        """Returns whether messages in a queue have to be told to somebody outside."""

    def delivered(self) -> None:
        """Tells them."""

    def timers(self, now_ns: int) -> int:
        """Runs what is due; returns when something will be next, in ns of the monotonic clock."""

    def network(self) -> int:
        """Takes what has come over the network; returns when its timers will have something to do."""


class EventLoop(DriverLock):
    """The loop of one context."""

    def __init__(
        self,
        bell: Doorbell,
        work: LoopTasks,
        *,
        spins: bool,
        linger: int,
        sequential: bool = False,
        split: bool = False,
    ) -> None:
        """A driver that nobody drives yet.

        Args:
            bell: wakes the context from other processes.
            work: what else there is to do.
            spins: never sleep while waiting (`busy_wait`).
            linger: looks at the rings before sleeping (`pend`).
            sequential: the context has no thread of its own.
            split: the context's own thread leaves the rings to the threads of the application.
        """
        super().__init__(sequential=sequential, split=split)
        self._bell = bell
        self._work = work
        self._spins = spins
        self.loops = 1 << 62 if spins else linger
        self._readers: list[RingReader] = []
        # One for who drives, and in a split context one for its own thread, which sleeps beside a guest.
        try:
            self._epolls = [select.epoll() for _ in self._kicks]
            self._epoll = self._epolls[0]
            for epoll, kick in zip(self._epolls, self._kicks, strict=True):
                epoll.register(bell.fd, select.EPOLLIN)
                epoll.register(kick, select.EPOLLIN)
        except BaseException:
            self._drop_kicks()
            raise
        self._timer_fd = -1
        self._ready_fd = -1
        self._network_fd = -1
        self._hear_again_ns = 0
        self.network_is_busy = False
        """Something is sent or received over the network; else its sockets are looked at rarely between rings."""
        self._outer: select.epoll | None = None
        self._rests = False
        """The context's own thread waits for something to do, with the wheel; `rouse` ends that."""
        self._hurried = False
        self._next_timer_ns = 0
        self._looks = 0

    def listen(self, fd: int) -> None:
        """Wakes for what comes over the network, which makes a descriptor readable; any thread may say so."""
        for epoll in self._epolls:
            epoll.register(fd, select.EPOLLIN)
        self._network_fd = fd

    def _hear(self, *, rarely: bool = False) -> None:
        """Takes what has come over the network.

        Args:
            rarely: not while there is nothing to be expected: it takes a system call.
        """
        if self._network_fd >= 0 and (self.network_is_busy or not rarely):
            self._hear_again_ns = time.monotonic_ns() + SLICE_NS
            due_ns = self._work.network()
            if due_ns < self._next_timer_ns:
                self._next_timer_ns = due_ns
                self.pump.set_timer(max(0, due_ns - time.monotonic_ns()))

    # ------------------------------------------------------------------ driving

    def watch(self, sessions: Sequence[ReceivingSession]) -> None:
        """Sets the sessions to read; for the driver only."""
        self._readers = [session.datagram_source.reader for session in sessions if not session.demux.blocked]
        self.pump.attention = True
        self.pump.watch([session.demux for session in sessions])

    def poll(self) -> int:
        """Delivers what is there without waiting; for the driver only."""
        if self.split:
            self._attend()  # what the context's own thread left comes before messages
        self._looks += 1
        self._hear(rarely=self._looks & 1023 > 0)
        handled = self.pump.run(0, 0, True)
        if handled == 0 or not self._looks & 1023:
            self._housekeeping(time.monotonic_ns())
        handled += self._work.events()
        if handled and (self._guests or self._work.someone_waits()):
            self._delivered()
        return handled

    def drive(self, timeout_ns: int, *, once: bool) -> int:
        """Delivers what comes within the time; for the driver only.

        Args:
            timeout_ns: how long at most; `FOREVER_NS` for no limit.
            once: return as soon as something was delivered.

        Returns:
            Messages delivered. Returns early when another thread needs the wheel or the context closes.
        """
        total = 0
        now = time.monotonic_ns()
        deadline = now + timeout_ns
        while True:
            brief = once or self._brief()
            handled = self._pass(now, deadline, brief)
            total += handled
            now = time.monotonic_ns()
            if self._must_stop() or (once and total) or now >= deadline:
                return total
            if not self._spins and not handled:
                total += self._account(self._sleep(min(self._due(), deadline) - now), brief)
                if once and total:
                    return total
                now = time.monotonic_ns()

    def _brief(self) -> bool:
        """Returns whether somebody wants to know soon what a turn brings."""
        return self._work.someone_waits() or self._guests > 0

    def _pass(self, now: int, deadline: int, brief: bool) -> int:
        """One turn of driving; returns messages and events."""
        self._housekeeping(now)
        left = max(0, min(self._due(), deadline) - now)
        self._hear(rarely=now < self._hear_again_ns)
        slice_ns = NETWORK_SLICE_NS if self.network_is_busy else SLICE_NS
        return self._account(self.pump.run(min(left, slice_ns), self.loops, brief), brief)

    def _account(self, handled: int, brief: bool) -> int:
        """What is to be done after each turn; returns messages and events."""
        self._attend()
        handled += self._work.events()
        # Asked again: who began to wait while this turn was under way wants to know what it brought.
        if handled and (brief or self._guests or self._work.someone_waits()):
            self._delivered()
        return handled

    def _must_stop(self) -> bool:
        own = self.pump.owner == self._own_thread
        return bool(self._urgent or self.closing or (own and self._guests) or self.pump.pending is not None)

    def _delivered(self) -> None:
        self._work.delivered()
        if self._guests:
            self.notify()

    def run(self) -> None:
        """The loop of the context's own thread; returns when the context closes."""
        rest: Rest | None = None
        while not self.closing:
            rest = self.turn(rest() if rest is not None else None)
        self.rouse()

    def turn(self, woken: object) -> Rest | None:
        """One turn of the context's own thread.

        Args:
            woken: what the rest after the turn before has returned; None without one.

        Returns:
            What to do before the next turn: it waits for something to do, and has no hold on this driver. None when
            there is nothing to wait for.
        """
        me = self._own_thread = threading.get_ident()
        rested, self._rests = self._rests, False
        if not rested and not self._take_own_turn(me):
            return None
        try:
            if self.split:
                self._look_after()
            else:
                rest = self._drive_until_rest(woken if rested else None)
                self._rests = rest is not None
        finally:
            if not self._rests:
                self.give()
        # A split context rests without the wheel, so that a guest has it at once.
        return functools.partial(_poll, self._epolls[1], self._due()) if self.split else rest

    def rouse(self) -> None:
        """Ends the rest of the context's own thread; for that thread only."""
        if self._rests:
            self._rests = False
            self._disarm()
            self.give()

    def _drive_until_rest(self, woken: Any) -> Rest | None:  # noqa: ANN401 - whatever the rest returned
        """Delivers until there is nothing to do, or somebody else needs the wheel."""
        if woken is not None:
            self._account(self._rise(woken), self._brief())
        now = time.monotonic_ns()
        while not self._must_stop():
            handled = self._pass(now, FOREVER_NS, self._brief())
            now = time.monotonic_ns()
            if handled or self._must_stop():
                continue
            if self._spins:
                if not self.network_is_busy:
                    return functools.partial(_spin, self.pump.poller, self.loops, self._due())
                continue
            seconds = self._doze(self._due() - now)
            if seconds is not None:
                return functools.partial(self._epoll.poll, seconds)
            now = time.monotonic_ns()
        return None

    def _look_after(self) -> None:
        """The context's own work without a look at the rings."""
        woken = self._epolls[1].poll(0)
        self._answer(woken)
        self._hear()
        self._housekeeping(time.monotonic_ns())
        if self._outer is not None and not (self._arm() and not woken and not self.pump.attention):
            os.eventfd_write(self._ready_fd, 1)

    def process(self, timeout: float | None) -> int:
        """Drives for a caller of the application until something was delivered; returns messages and events.

        Raises:
            WrongThread: in sequential mode, another thread drives the context just now.
            IpcBusError: the caller is inside a callback.
        """
        timeout = bounded(timeout)
        wait_ns = FOREVER_NS if timeout is None else int(timeout * 1e9)
        if self.sequential:
            with self.alone():
                handled = self.poll() if timeout == 0 else self.drive(wait_ns, once=True)
                self.rearm()
            return handled
        deadline = time.monotonic_ns() + wait_ns
        left, handled = wait_ns, 0
        while True:
            with self.guest(lambda: self.closing, None if timeout is None else left / 1e9) as event_loop:
                if event_loop is not None:
                    handled = self.poll() if timeout == 0 else self.drive(left, once=True)
            left = deadline - time.monotonic_ns()
            # What needs the wheel urgently, such as a new receiver, cuts driving short.
            if handled or self.closing or left <= 0:
                return handled

    @contextlib.contextmanager
    def guest(self, until: Callable[[], object], timeout: float | None) -> Iterator[EventLoop | None]:
        """The wheel for a thread of the application; None when `until` came true or the time ran out before.

        Raises:
            WrongThread, IpcBusError: as `alone` and `take`.
        """
        if self.sequential:
            with self.alone():
                yield self
                self.rearm()
        elif self.take(until, timeout):
            error = None
            try:
                yield self
                self.rearm()
                error = self.take_pending()
            finally:
                self.give()
            if error is not None:
                raise error
        else:
            yield None

    def help(self) -> None:
        """Delivers what is there, for a thread blocked in a send, which may wait for this context's own receivers."""
        with self.guest(lambda: self.closing, 0) as event_loop:
            if event_loop is not None:
                self.poll()

    def _due(self) -> int:
        return 0 if self._hurried else self._next_timer_ns

    def _housekeeping(self, now: int) -> None:
        if self._hurried or now >= self._next_timer_ns:
            self._hurried = False
            self._next_timer_ns = self._work.timers(now)
            self.pump.set_timer(0 if self._hurried else max(0, self._next_timer_ns - now))
        self._attend()

    def _attend(self) -> None:
        if self.pump.attention and not self.quiet:
            self.pump.attention = self._work.attend()

    def hurry_attend(self) -> None:
        """Looks after the sessions at once, as when a full receiver got room; for the driver only."""
        self._attend()

    def call_attention(self) -> None:
        """Has the sessions looked after when what there is has been read; for the driver only."""
        self.pump.attention = True

    def hurry(self) -> None:
        """Makes the timers run at the next turn; any thread may ask for it, also while they run."""
        self._hurried = True
        self.pump.set_timer(0)

    # ------------------------------------------------------------------ sleeping

    def _arm(self) -> bool:
        """Shows every session that this context sleeps; False when there is something to do already."""
        for reader in self._readers:
            reader.arm(True)
        self._fenced = wake.barrier()  # SYNC park
        return not any(map(RingReader.ready, self._readers))

    def _disarm(self) -> None:
        for reader in self._readers:
            reader.arm(False)

    def _sleep(self, timeout_ns: int) -> int:
        """Sleeps until woken; delivers first what it was woken for, then clears up. Returns messages delivered."""
        seconds = self._doze(timeout_ns)
        if seconds is None:
            return 0
        try:
            woken = self._epoll.poll(seconds)
        except BaseException:
            self._disarm()
            raise
        return self._rise(woken)

    def _doze(self, timeout_ns: int) -> float | None:
        """Shows every session that this context sleeps, for so many seconds; None when there is something to do."""
        if timeout_ns <= 0:
            return None
        armed = False
        try:
            armed = self._arm()
        finally:
            if not armed:
                self._disarm()
        # Without the system's fence nothing promises that a source saw this context fall asleep.
        return (timeout_ns if self._fenced else min(timeout_ns, 1_000_000)) / 1e9 if armed else None

    def _rise(self, woken: Any) -> int:  # noqa: ANN401 - what the poll returned; a spin returns no list
        """Delivers what the context was woken for, then clears up; returns messages delivered."""
        if isinstance(woken, bool):
            return 0
        try:
            if woken:
                self._hear()
            handled = self.pump.run(0, 0, True) if woken else 0
        finally:
            self._disarm()
        self._answer(woken)
        return handled

    def fileno(self) -> int:
        """Returns a descriptor that is readable when there is something to do; arms the wake-up from now on."""
        if self.split:
            if self._outer is None:
                with self.driver_lock():
                    outer = select.epoll()
                    self._ready_fd = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                    outer.register(self._bell.fd, select.EPOLLIN)
                    outer.register(self._ready_fd, select.EPOLLIN)
                    self._outer = outer
            return self._outer.fileno()
        if self._timer_fd < 0:
            self.pump.open = False  # every call has to arm the wake-up again
            self._timer_fd = timerfd.create()
            self._epoll.register(self._timer_fd, select.EPOLLIN)
            self.rearm()
        return self._epoll.fileno()

    def rearm(self) -> None:
        """Makes `fileno` readable for what comes next; only once it was asked for."""
        if self._timer_fd < 0 and self._outer is None:
            return
        self._answer(self._epoll.poll(0))
        self._hear()
        self._housekeeping(time.monotonic_ns())
        if self._outer is None:
            timerfd.arm(self._timer_fd, max(1, self._due() - time.monotonic_ns()))
            if not self._arm():
                self.kick()
            return
        _clear(self._ready_fd)
        if not self._arm():
            os.eventfd_write(self._ready_fd, 1)

    def _answer(self, woken: list[tuple[int, int]]) -> None:
        for fd, _ in woken:
            if fd in self._kicks:
                _clear(fd)
            elif fd == self._bell.fd:
                rung = self._bell.drain()
                if NEWS in rung:
                    self._work.news()
                elif CALL in rung:
                    self._work.call()
                if NEWS in rung or CALL in rung:
                    self.hurry()
            elif fd == self._timer_fd:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._timer_fd, 8)

    def close(self) -> None:
        """Closes the descriptors."""
        self.closing = True
        kicks, self._kicks = self._kicks, []
        if kicks:
            outer, self._outer = self._outer, None
            for epoll in (*self._epolls, *([outer] if outer else [])):
                epoll.close()
            for fd in (*kicks, self._timer_fd, self._ready_fd):
                if fd >= 0:
                    os.close(fd)
            self._timer_fd = self._ready_fd = -1


def _clear(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.eventfd_read(fd)


def _poll(epoll: select.epoll, until_ns: int) -> None:
    """Rests until something happens or the time is come."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: closed
        epoll.poll(max(0, until_ns - time.monotonic_ns()) / 1e9)


def _spin(poller: Poller, loops: int, until_ns: int) -> bool:
    """Looks at the rings until one has something, or the time is come."""
    return poller.spin(loops, max(0, min(until_ns - time.monotonic_ns(), _LONGEST_SPIN_NS)))
