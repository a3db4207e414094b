"""The driver lock of a context: at most one thread at a time drives the context and calls back.

In sequential mode the caller's thread drives. In embedded mode the context's own thread drives, but stands back while
another thread (a guest) waits for messages: the guest then drives, and gets its message without a change of threads.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

from ipcbus.delivery.pump import CLOSED, GUESTS, OWN_THREAD, URGENT, Pump
from ipcbus.errors import IpcBusError, WrongThread
from ipcbus.runtime.loop.own_rest import stand_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STAND_BACK_NS = 2_000_000
"""Time in ns for which the context's own thread stands back after a guest has driven."""
_LONG_DRIVE_NS = 20_000_000
"""Time in ns after which a guest that drives, and has not stopped once, is taken to sleep."""
_FOR_OTHERS_S = 0.0001
"""Time in seconds for which the context's own thread leaves the lock to threads that wait for it."""
_LOOK_AGAIN_S = 0.05
"""Time in seconds after which a thread that waits for the lock interrupts the driver again."""


class DriverLock:
    """The lock that a thread holds while it drives, and the means to wake threads that want it."""

    def __init__(
        self, *, sequential: bool, split: bool, loops: int = 1, spins: bool = False, linger_ns: int = 0
    ) -> None:
        """Begins unlocked.

        Args:
            sequential: whether the context has no thread of its own.
            split: whether only guests may call receivers back, not the context's own thread.
            loops: polls of the rings before a sleep.
            spins: whether waits never sleep.
            linger_ns: the longest spin before a sleep.
        """
        self.pump = Pump(self._wake_waiters, loops, spins, split, linger_ns)
        self.sequential, self.split = sequential, split
        self.closing = False
        # Entered and left in C: a signal comes before or after. `Condition.__enter__` is Python, and would keep it.
        self._mutex = lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._own_turn = threading.Condition(lock)
        self._own_thread = 0
        self._urgent = 0
        self._guests = 0
        self._stands_back = False
        """Whether the context's own thread gives the lock back now; only while it has the lock."""
        self._stands_by = False
        """Whether the context's own thread sleeps in `stand_by`, which nothing but a kick ends early."""
        self._kick_fds: list[int] = []
        try:
            for _ in range(1 + split):
                self._kick_fds.append(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
        except BaseException:
            self._close_kick_fds()
            raise

    def _close_kick_fds(self) -> None:
        while self._kick_fds:
            os.close(self._kick_fds.pop())

    @property
    def quiet(self) -> bool:
        """Whether the driver does not call back; for the driver only."""
        return self.pump.quiet

    @quiet.setter
    def quiet(self, quiet: bool) -> None:
        self.pump.quiet = quiet

    def is_driver(self) -> bool:
        """Returns whether the calling thread holds the lock, that is, whether it is inside a callback."""
        return self.pump.owner == threading.get_ident()

    @property
    def is_idle(self) -> bool:
        """Whether receivers are called back only by threads of the application, and none of them does so now."""
        return (self.sequential or self.split) and not self.pump.owner

    def pass_on(self, error: BaseException) -> bool:
        """Keeps an error of a callback for the calling thread, which raises the error when it stops driving.

        This holds for errors that are not an Exception, such as KeyboardInterrupt, in a thread of the application. The
        context finishes its work first, so that no message is lost or delivered twice.

        Returns:
            False for an Exception, and in the context's own thread, which has no caller that could handle the error.
        """
        if isinstance(error, Exception) or threading.get_ident() == self._own_thread:
            return False
        if self.pump.pending_error is None:
            self.pump.pending_error = error
        self.pump.poller.poke()
        return True

    def take_pending(self) -> BaseException | None:
        """Returns the error that the calling thread has to raise, and forgets it; for the driver only."""
        error, self.pump.pending_error = self.pump.pending_error, None
        return error

    @contextlib.contextmanager
    def driver_lock(self) -> Iterator[None]:
        """Makes the calling thread the driver, for an urgent change; does nothing if it drives already."""
        if self.is_driver():
            yield
            return
        with self.given_back(), self._urgent_lock():
            yield

    @contextlib.contextmanager
    def _urgent_lock(self) -> Iterator[None]:
        with self._mutex:
            self._count_urgent(1)
            try:
                if not self.pump.take():
                    self.interrupt()
                    while not self.pump.take():
                        self._changed.wait(_LOOK_AGAIN_S)
                        self.pump.poller.poke()
            except BaseException:
                self._count_urgent(-1)
                self._changed.notify_all()
                raise
        error = None
        try:
            yield
            error = self.take_pending()
        finally:
            # This thread was not a guest and read no ring, so the context's own thread goes on at once.
            with self._mutex:
                self._count_urgent(-1)
                self._release()
        if error is not None:
            raise error

    @contextlib.contextmanager
    def driver_lock_if_free(self) -> Iterator[bool]:
        """Makes the calling thread the driver, as `driver_lock`, unless a thread drives; yields whether it did."""
        with self._mutex:
            self._count_urgent(1)  # a thread that begins to drive waits, and finds no other one
            taken = self.pump.take()
        try:
            yield taken
        finally:
            with self._mutex:
                self._count_urgent(-1)
                if taken:
                    self.pump.give_back()
                self._changed.notify_all()

    def _count_urgent(self, more: int) -> None:
        self._urgent += more
        (self.pump.want if self._urgent else self.pump.unwant)(URGENT)

    def _count_guests(self, more: int) -> None:
        self._guests += more
        (self.pump.want if self._guests else self.pump.unwant)(GUESTS)

    def take_as_guest(self, until: Callable[[], object], timeout: float | None) -> bool:
        """Takes the lock as a guest; False when `until` came true, or the time ran out, before the lock was free."""
        me = threading.get_ident()
        with _locked(self._changed):
            if self.pump.owner == me:
                raise IpcBusError(
                    "a context cannot be driven from inside one of its callbacks; return from the callback, or receive "
                    "in another thread or context"
                )
            if until():
                return False
            # A thread with an urgent change goes first, or a guest that comes again and again would keep it out.
            while self._urgent or not self.pump.take():
                began = time.monotonic()
                if not self._wait_as_guest(until, timeout) or until():
                    return False
                timeout = None if timeout is None else timeout - (time.monotonic() - began)
            self.pump.last_guest, self.quiet = me, False
            self.pump.note_guest()
            return True

    def _wait_as_guest(self, until: Callable[[], object], timeout: float | None) -> bool:
        """Waits until the lock is free; False when the time ran out."""
        self._count_guests(1)
        if self._own_thread == self.pump.owner and not self.split:
            self.interrupt()
        try:
            return self._changed.wait_for(lambda: self._is_free() or bool(until()), timeout)
        finally:
            self._count_guests(-1)

    def _is_free(self) -> bool:
        return not (self.pump.owner or self._urgent)

    def give_back(self) -> None:
        """Gives the lock back."""
        self.quiet = self.split
        if self.pump.owner != self._own_thread:
            self.pump.note_guest()
        self._release()

    def _release(self) -> None:
        with self._mutex:
            self.pump.give_back()
            self._changed.notify_all()

    def _wake_waiters(self) -> None:
        """Wakes the threads that wait for the lock, which is free now."""
        with self._mutex:
            self._changed.notify_all()
            if self.pump.wants(OWN_THREAD):
                self.pump.unwant(OWN_THREAD)  # once, however long that thread waits for the interpreter
                self._own_turn.notify()

    @contextlib.contextmanager
    def drive_alone(self) -> Iterator[None]:
        """Makes the calling thread the driver in sequential mode; waits only for urgent changes of other threads.

        Raises:
            WrongThread: another thread drives the context.
            IpcBusError: the caller is inside a callback.
        """
        me = threading.get_ident()
        error = None
        with self.given_back():
            while self._urgent or not self.pump.take():
                if self.pump.owner == me or not self._urgent:
                    self._raise_in_use(me)
                # A thread that drives again and again would keep the other threads out for ever.
                with self._mutex:
                    self._changed.wait_for(lambda: not self._urgent)
            yield
            error = self.take_pending()
            self.pump.give_back()
        if error is not None:
            raise error

    @contextlib.contextmanager
    def given_back(self) -> Iterator[None]:
        """Gives the lock back after an error if the calling thread has come by it inside.

        A signal may come between any two bytecodes: when the lock is taken and the `try` has not begun, or while it is
        given back.
        """
        inside = self.is_driver()
        try:
            yield
        except BaseException:
            while not inside and self.is_driver():
                with contextlib.suppress(BaseException):  # a second signal: the first error is on its way
                    self.give_back()
            raise

    def _raise_in_use(self, me: int) -> None:
        if self.pump.owner == me:
            raise IpcBusError(
                "a context cannot be driven from inside one of its callbacks; return from the callback, or receive in "
                "another context"
            )
        raise WrongThread(
            "two threads drive a context in sequential mode at the same time; drive it from one thread, or make it "
            'with operational_mode="embedded"'
        )

    def _take_as_own_thread(self) -> bool:
        """Takes the lock for the context's own thread, unless a guest drove just now or another thread is urgent."""
        with self._mutex:
            self.pump.want(OWN_THREAD)
            while self.pump.owner and not self.closing:
                self._own_turn.wait()
                self.pump.want(OWN_THREAD)
            self.pump.unwant(OWN_THREAD)
            if self.closing:
                return False
            rest = STAND_BACK_NS - self.pump.ns_since_guest()
            if rest <= 0:
                if not (self._urgent or self._guests):
                    return self.pump.take()
                self._own_turn.wait(_FOR_OTHERS_S)
                return False
            self._stands_by = True
        # Without the interpreter: a thread that pulls in a loop would have to share it with this one every 2 ms.
        timed_out = stand_by(self.pump, self._kick_fds[-1], STAND_BACK_NS, _LONG_DRIVE_NS)
        with self._mutex:
            if self._stands_by and not timed_out:  # the kick was for another thread
                self._own_turn.wait(max(rest / 1e9, _FOR_OTHERS_S))
            self._stands_by = False
        return False

    def stand_back(self) -> None:
        """Makes the context's own thread leave the lock to a task that it has woken; does nothing in another thread."""
        if threading.get_ident() == self._own_thread:
            self.pump.note_guest()
            self._stands_back = True

    def hand_over(self) -> None:
        """Makes the context's own thread drive at once, for a task that drove until now and begins to wait."""
        self.pump.poller.poke()
        with self._mutex:
            self._stands_back = False
            self.pump.forget_guest()
            self._wake_own_thread()

    def _wake_own_thread(self) -> None:
        if self._stands_by:
            self._stands_by = False
            self.kick()
        self._own_turn.notify()

    def may_help(self) -> bool:
        """Returns whether a thread that is blocked in a send may read the rings of a split context meanwhile.

        It may not if another thread reads the rings, because the application expects callbacks in that thread.
        """
        last = self.pump.last_guest
        return last in (0, threading.get_ident()) or all(thread.ident != last for thread in threading.enumerate())

    def notify(self) -> None:
        """Wakes threads that wait for a change by the driver."""
        with self._mutex:
            self._changed.notify_all()

    def wait_changed(self, timeout: float) -> None:
        """Waits for a change by the driver, for `timeout` seconds at most."""
        with self._mutex:
            self._changed.wait(timeout)

    def interrupt(self) -> None:
        """Ends the spin or the sleep of the driver."""
        self.pump.poller.poke()
        self.kick()

    def kick(self) -> None:
        """Ends the sleep of the driver and of the context's own thread."""
        for fd in self._kick_fds:
            with contextlib.suppress(OSError, ValueError):  # ValueError: closed
                os.eventfd_write(fd, 1)

    def stop(self) -> None:
        """Ends the loop of the context's own thread, and every wait for the lock."""
        self.closing = True
        self.pump.want(CLOSED)
        self.interrupt()
        with self._mutex:
            self._changed.notify_all()
            self._wake_own_thread()


@contextlib.contextmanager
def _locked(condition: threading.Condition) -> Iterator[None]:
    """Holds a condition's lock around a wait that a signal may end.

    A KeyboardInterrupt in the middle of `Condition.wait` leaves without the lock; `with condition` would then raise
    RuntimeError instead.
    """
    try:
        condition.acquire()
        yield
    finally:
        # The lock knows its owner: this never releases the lock of another thread.
        with contextlib.suppress(RuntimeError):
            condition.release()
