"""Who drives a context: at any moment at most one thread.

In sequential mode that is the caller's. In embedded mode it is the context's own thread, which stands back while
another thread waits for messages and so drives by itself: a message then reaches the one who waits for it without
changing threads.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

from ipcbus.delivery.pump import Pump
from ipcbus.errors import IpcBusError, WrongThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STAND_BACK_NS = 2_000_000
"""How long after another thread drove the context's own thread leaves it the wheel."""


class DriverLock:
    """What a thread has in hand while it drives."""

    def __init__(self, *, sequential: bool, split: bool) -> None:
        """A wheel that nobody has yet.

        Args:
            sequential: the context has no thread of its own.
            split: the context's own thread may not call receivers back; only guests may.
        """
        self.pump = Pump()
        self.sequential, self.split = sequential, split
        self.pump.open = sequential
        self.quiet = split
        self.closing = False
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._turn = threading.Condition(lock)
        self._own_thread = 0
        self._own_waits = False
        self._urgent = 0
        self._guests = 0
        self._last_guest: threading.Thread | None = None
        self._last_guest_ns = 0
        self._kicks: list[int] = []
        try:
            for _ in range(1 + split):
                self._kicks.append(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
        except BaseException:
            self._drop_kicks()
            raise

    def _drop_kicks(self) -> None:
        while self._kicks:
            os.close(self._kicks.pop())

    def is_driver(self) -> bool:
        """Returns whether the calling thread drives, that is, whether it is inside a callback."""
        return self.pump.owner == threading.get_ident()

    def pass_on(self, error: BaseException) -> bool:
        """Returns whether what a callback just raised goes on to the calling thread when that stops driving.

        So does what is no Exception, such as KeyboardInterrupt, in a thread of the application. Everything that the
        context was about to do is done first: nothing is lost or told twice. The context's own thread has nobody to
        whom it could go on.
        """
        if isinstance(error, Exception) or threading.get_ident() == self._own_thread:
            return False
        if self.pump.pending is None:
            self.pump.pending = error
        self.pump.poller.poke()
        return True

    def take_pending(self) -> BaseException | None:
        """What goes on to the calling thread, if anything; for the driver only."""
        error, self.pump.pending = self.pump.pending, None
        return error

    @contextlib.contextmanager
    def driver_lock(self) -> Iterator[None]:
        """Makes the calling thread the driver for a change that cannot wait; nothing when it is already."""
        if self.is_driver():
            yield
            return
        with self._changed:
            self._want(1)
            self.interrupt()
            try:
                while self.pump.owner:
                    # In sequential mode who drives does not tell when it stops: looked at every millisecond.
                    self._changed.wait(0.001 if self.sequential else 0.05)
                    self.pump.poller.poke()
                self.pump.owner = threading.get_ident()
            except BaseException:
                self._want(-1)
                self._changed.notify_all()
                raise
        error = None
        try:
            yield
            error = self.take_pending()
        finally:
            # No guest: it did not drive, so the context's own thread goes on at once.
            with self._changed:
                self._want(-1)
                self._release()
        if error is not None:
            raise error

    def _want(self, more: int) -> None:
        self._urgent += more
        self.pump.wanted = self._urgent > 0

    def take(self, until: Callable[[], object], timeout: float | None) -> bool:
        """Waits for the wheel as a guest; False when `until` came true or the time ran out before it was free."""
        me = threading.get_ident()
        with _held(self._changed):
            if self.pump.owner == me:
                raise IpcBusError(
                    "a context cannot be driven from inside one of its callbacks; return from the callback, or receive "
                    "in another thread or context"
                )
            # Who wants the wheel urgently goes first, or a guest that comes again and again would keep it away.
            if self.pump.owner or self._urgent:
                self._guests += 1
                if self._own_thread == self.pump.owner and not self.split:
                    self.interrupt()
                try:
                    self._changed.wait_for(lambda: not (self.pump.owner or self._urgent) or until(), timeout)
                finally:
                    self._guests -= 1
            if self.pump.owner or self._urgent or until():
                return False
            self.pump.owner = me
            self.quiet = False
            self._last_guest_ns = time.monotonic_ns()
            if self.split:
                self._last_guest = threading.current_thread()
            return True

    def give(self) -> None:
        """Gives the wheel back."""
        self.quiet = self.split
        if self.pump.owner != self._own_thread:
            self._last_guest_ns = time.monotonic_ns()
        self._release()

    def _release(self) -> None:
        with self._changed:
            self.pump.owner = 0
            self._changed.notify_all()
            if self._own_waits:
                self._turn.notify()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Makes the calling thread the driver in sequential mode; waits only for changes that cannot wait.

        Raises:
            WrongThread: another thread drives the context just now.
            IpcBusError: the caller is inside a callback.
        """
        me = threading.get_ident()
        if self._urgent and self.pump.owner != me:
            # Who drives again and again would keep them away for ever.
            with self._changed:
                self._changed.wait_for(lambda: not self._urgent)
        if self.pump.owner:
            self._refuse(me)
        self.pump.owner = me
        error = None
        try:
            yield
            error = self.take_pending()
        finally:
            self.pump.owner = 0
        if error is not None:
            raise error

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

    def _take_own_turn(self, me: int) -> bool:
        """The wheel for the context's own thread, unless a guest had it just now or somebody urgently wants it."""
        with self._changed:
            self._own_waits = True
            self._turn.wait_for(lambda: not self.pump.owner or self.closing)
            self._own_waits = False
            if self.closing:
                return False
            rest = self._last_guest_ns + STAND_BACK_NS - time.monotonic_ns()
            if self._urgent or self._guests or rest > 0:
                # Not told of each guest that comes and goes: a thread that pulls in a loop would wake it every time.
                self._turn.wait(max(rest, 100_000) / 1e9)
                return False
            self.pump.owner = me
            return True

    def may_help(self) -> bool:
        """Returns whether a thread that is blocked in a send may read the rings of a split context meanwhile.

        Not when another thread is the one that reads them: the application expects its callbacks there.
        """
        last = self._last_guest
        return last is None or last is threading.current_thread() or not last.is_alive()

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
        """Wakes the driver if it sleeps, and the context's own thread."""
        for fd in self._kicks:
            with contextlib.suppress(OSError, ValueError):  # ValueError: closed
                os.eventfd_write(fd, 1)

    def stop(self) -> None:
        """Ends the loop of the context's own thread and every wait for the wheel."""
        self.closing = True
        self.interrupt()
        with self._changed:
            self._changed.notify_all()
            self._turn.notify_all()


@contextlib.contextmanager
def _held(condition: threading.Condition) -> Iterator[None]:
    """Holds a condition's lock around a wait that a signal may end.

    KeyboardInterrupt in the middle of `Condition.wait` leaves without the lock, which it has given back and not got
    again; `with condition` then raises RuntimeError in its place.
    """
    condition.acquire()
    try:
        yield
    finally:
        # The lock knows its owner: this never takes it from another thread.
        with contextlib.suppress(RuntimeError):
            condition.release()
