"""Ctrl-C, SIGTERM, and a terminal that hangs up end a command only where no work is left half done."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self


class Stopped(BaseException):
    """A signal ended the command. It is not an `Exception`, so that no handler of errors catches it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.exit_code = 128 + signum


class SignalHandler:
    """Catches the signals; inside `with signals.interruptible()` they raise `Stopped`, elsewhere they wait until then.

    Code that opens or closes contexts stands outside, so that no signal interrupts it.
    """

    def __init__(self) -> None:
        """Catches no signal before `__enter__`."""
        self.signum = 0
        self._is_interruptible = False
        self._never = threading.Event()
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Begins to catch the signals."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            # A command that was started with nohup goes on.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._caught)
        return self

    def __exit__(self, *_: object) -> None:
        """Restores the previous handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _caught(self, number: int, _frame: object) -> None:
        self.signum = self.signum or number
        if self._is_interruptible:
            self._is_interruptible = False
            raise Stopped(self.signum)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Lets a signal raise `Stopped` inside the block, also a signal that came before it."""
        if self.signum:
            raise Stopped(self.signum)
        self._is_interruptible = True
        try:
            yield
        finally:
            self._is_interruptible = False

    def wait(self, seconds: float) -> None:
        """Waits this many seconds; inside `interruptible` a signal ends the wait."""
        if seconds > 0:
            self._never.wait(min(seconds, threading.TIMEOUT_MAX))
