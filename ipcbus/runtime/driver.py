"""Who drives a context, and how it sleeps.

At any moment at most one thread drives: it reads the rings, calls back, runs the timers. In sequential mode that is the
caller's. In embedded mode it is the context's own thread, which stands back while another thread waits for messages
and so drives by itself: a message then reaches the one who waits for it without changing threads.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Protocol

from ipcbus.delivery.pump import Pump
from ipcbus.errors import IpcBusError, WrongThread
from ipcbus.runtime import timerfd
from ringbuf import wake
from ringbuf.doorbell import CALL, NEWS, Doorbell
from ringbuf.ring import RingReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ipcbus.transport.receiving import ReceivingSession

log = logging.getLogger("ipcbus")

STAND_BACK_NS = 2_000_000
"""How long after another thread drove the context's own thread leaves it the wheel."""
SLICE_NS = 10_000_000
"""A spinning wait looks up after so long: for signals, and for threads that want in."""
FOREVER_NS = 1 << 62


class Work(Protocol):
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
        """Whether messages in a queue have to be told to somebody outside."""

    def delivered(self) -> None:
        """Tells them."""

    def timers(self, now_ns: int) -> int:
        """Runs what is due; returns when something will be next, in ns of the monotonic clock."""


class Driver:
    """The loop of one context."""

    def __init__(self, bell: Doorbell, work: Work, *, spins: bool, linger: int) -> None:
        """A driver that nobody drives yet.

        Args:
            bell: wakes the context from other processes.
            work: what else there is to do.
            spins: never sleep while waiting (`busy_wait`).
            linger: looks at the rings before sleeping (`pend`).
        """
        self.pump = Pump()
        self._bell = bell
        self._work = work
        self._spins = spins
        self.loops = 1 << 62 if spins else linger
        self._readers: list[RingReader] = []
        self._epoll = select.epoll()
        self._kick = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._timer_fd = -1
        self._epoll.register(bell.fd, select.EPOLLIN)
        self._epoll.register(self._kick, select.EPOLLIN)
        self._changed = threading.Condition()
        self._own_thread = 0
        self._urgent = 0
        self._guests = 0
        self._last_guest_ns = 0
        self._next_timer_ns = 0
        self._looks = 0
        self.closing = False

    # ------------------------------------------------------------------ the wheel

    def is_driver(self) -> bool:
        """Whether the calling thread drives, that is, whether it is inside a callback."""
        return self.pump.owner == threading.get_ident()

    @contextlib.contextmanager
    def wheel(self) -> Iterator[None]:
        """Makes the calling thread the driver for a change that cannot wait; nothing when it is already."""
        if self.is_driver():
            yield
            return
        with self._changed:
            self._urgent += 1
            self.interrupt()
            try:
                while self.pump.owner:
                    # In sequential mode who drives does not tell when it stops: looked at every millisecond.
                    self._changed.wait(0.001 if self.pump.open else 0.05)
                    self.pump.poller.poke()
                self.pump.owner = threading.get_ident()
            finally:
                self._urgent -= 1
        try:
            yield
        finally:
            # No guest: it did not drive, so the context's own thread goes on at once.
            with self._changed:
                self.pump.owner = 0
                self._changed.notify_all()

    def take(self, until: Callable[[], object], timeout: float | None) -> bool:
        """Waits for the wheel as a guest; False when `until` came true or the time ran out before it was free."""
        me = threading.get_ident()
        with self._changed:
            if self.pump.owner == me:
                raise IpcBusError(
                    "a context cannot be driven from inside one of its callbacks; return from the callback, or receive "
                    "in another thread or context"
                )
            # Who wants the wheel urgently goes first, or a guest that comes again and again would keep it away.
            if self.pump.owner or self._urgent:
                self._guests += 1
                if self._own_thread == self.pump.owner:
                    self.interrupt()
                try:
                    self._changed.wait_for(lambda: not (self.pump.owner or self._urgent) or until(), timeout)
                finally:
                    self._guests -= 1
            if self.pump.owner or self._urgent or until():
                return False
            self.pump.owner = me
            self._last_guest_ns = time.monotonic_ns()
            return True

    def give(self) -> None:
        """Gives the wheel back."""
        with self._changed:
            if self.pump.owner != self._own_thread:
                self._last_guest_ns = time.monotonic_ns()
            self.pump.owner = 0
            self._changed.notify_all()

    def notify(self) -> None:
        """Wakes threads that wait for something the driver did."""
        with self._changed:
            self._changed.notify_all()

    def wait_changed(self, timeout: float) -> None:
        """Waits until the driver did something, at most `timeout` seconds."""
        with self._changed:
            self._changed.wait(timeout)

    def interrupt(self) -> None:
        """Makes the driver look up at once."""
        self.pump.poller.poke()
        self.kick()

    def kick(self) -> None:
        """Wakes the driver if it sleeps."""
        with contextlib.suppress(OSError, ValueError):  # ValueError: closed
            os.eventfd_write(self._kick, 1)

    # ------------------------------------------------------------------ driving

    def watch(self, sessions: Sequence[ReceivingSession]) -> None:
        """Sets the sessions to read; for the driver only."""
        self._readers = [session.channel.reader for session in sessions if not session.demux.blocked]
        self.pump.attention = True
        self.pump.watch([session.demux for session in sessions])

    def poll(self) -> int:
        """Delivers what is there without waiting; for the driver only."""
        handled = self.pump.run(0, 0, True)
        self._looks += 1
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
            self._housekeeping(now)
            left = max(0, min(self._next_timer_ns, deadline) - now)
            brief = once or self._work.someone_waits() or self._guests > 0
            handled = self._account(self.pump.run(min(left, SLICE_NS), self.loops, brief), brief)
            total += handled
            now = time.monotonic_ns()
            if self._must_stop() or (once and total) or now >= deadline:
                return total
            if not self._spins and not handled:
                total += self._account(self._sleep(min(self._next_timer_ns, deadline) - now), brief)
                if once and total:
                    return total
                now = time.monotonic_ns()

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
        return bool(self._urgent or self.closing or (own and self._guests))

    def _delivered(self) -> None:
        self._work.delivered()
        if self._guests:
            self.notify()

    def run(self) -> None:
        """The loop of the context's own thread; returns when the context closes."""
        me = self._own_thread = threading.get_ident()
        while not self.closing:
            if not self._take_own_turn(me):
                continue
            try:
                self.drive(FOREVER_NS, once=False)
            finally:
                self.give()

    def _take_own_turn(self, me: int) -> bool:
        """The wheel for the context's own thread, unless a guest had it just now or somebody urgently wants it."""
        with self._changed:
            self._changed.wait_for(lambda: not self.pump.owner or self.closing)
            rest = self._last_guest_ns + STAND_BACK_NS - time.monotonic_ns()
            if self.closing:
                return False
            if self._urgent or self._guests or rest > 0:
                self._changed.wait(max(rest, 100_000) / 1e9)
                return False
            self.pump.owner = me
            return True

    def _housekeeping(self, now: int) -> None:
        if now >= self._next_timer_ns:
            self._next_timer_ns = self._work.timers(now)
            self.pump.set_timer(max(0, self._next_timer_ns - now))
        self._attend()

    def _attend(self) -> None:
        if self.pump.attention:
            self.pump.attention = self._work.attend()

    def stop(self) -> None:
        """Ends the loop of the context's own thread and every wait for the wheel."""
        self.closing = True
        self.interrupt()
        self.notify()

    def hurry_attend(self) -> None:
        """Looks after the sessions at once, as when a full receiver got room; for the driver only."""
        self._attend()

    def hurry(self) -> None:
        """Makes the timers run at the next turn."""
        self._next_timer_ns = 0
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
        if timeout_ns <= 0:
            return 0
        try:
            if not self._arm():
                return 0
            # Without the system's fence nothing promises that a source saw this context fall asleep.
            limit = timeout_ns if self._fenced else min(timeout_ns, 1_000_000)
            woken = self._epoll.poll(limit / 1e9)
            handled = self.pump.run(0, 0, True) if woken else 0
        finally:
            self._disarm()
        self._answer(woken)
        return handled

    def fileno(self) -> int:
        """A descriptor that is readable when there is something to do; arms the wake-up from now on."""
        if self._timer_fd < 0:
            self.pump.open = False  # every call has to arm the wake-up again
            self._timer_fd = timerfd.create()
            self._epoll.register(self._timer_fd, select.EPOLLIN)
            self.rearm()
        return self._epoll.fileno()

    def rearm(self) -> None:
        """Makes `fileno` readable for what comes next; only once it was asked for."""
        if self._timer_fd < 0:
            return
        self._answer(self._epoll.poll(0))
        self._housekeeping(time.monotonic_ns())
        timerfd.arm(self._timer_fd, max(1, self._next_timer_ns - time.monotonic_ns()))
        if not self._arm():
            self.kick()

    def _answer(self, woken: list[tuple[int, int]]) -> None:
        for fd, _ in woken:
            if fd == self._kick:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._kick)
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

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Makes the calling thread the driver in sequential mode, without any waiting.

        Raises:
            WrongThread: another thread drives the context just now.
            IpcBusError: the caller is inside a callback.
        """
        me = threading.get_ident()
        if self.pump.owner:
            self._refuse(me)
        self.pump.owner = me
        try:
            yield
        finally:
            self.pump.owner = 0

    def _refuse(self, me: int) -> None:
        if self.pump.owner == me:
            raise IpcBusError(
                "a context cannot be driven from inside one of its callbacks; return from the callback, or receive in "
                "another context"
            )
        raise WrongThread(
            "two threads drive a context in sequential mode at the same time; drive it from one thread, or make it "
            'with operational_mode="embedded"'
        )

    def close(self) -> None:
        """Closes the descriptors."""
        self.closing = True
        if self._kick >= 0:
            self._epoll.close()
            os.close(self._kick)
            self._kick = -1
            if self._timer_fd >= 0:
                os.close(self._timer_fd)
                self._timer_fd = -1
