"""Ctrl-C, SIGTERM, and a terminal that hangs up: they end a command where nothing is left half done."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self


class Stopped(BaseException):
    """A signal ended the command. No `Exception`, so that nothing on the way takes it for an error."""

    def __init__(self, signum: int) -> None:
        """By which signal."""
        super().__init__(signal.Signals(signum).name)
        self.exit_code = 128 + signum


class SignalHandler:
    """Catches the signals; inside `with stopper.allowed()` they raise `Stopped`, elsewhere they wait until then.

    Making and closing contexts stands outside, so it is never cut in the middle.
    """

    def __init__(self) -> None:
        """Catches nothing yet; use it as a context manager."""
        self.signum = 0
        self._inside = False
        self._never = threading.Event()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Begins to catch."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            # Who started the command with nohup wants it to go on.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._caught)
        return self

    def __exit__(self, *_: object) -> None:
        """Gives the signals back; one that came outside of `allowed` is not forgotten."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _caught(self, number: int, _frame: object) -> None:
        self.signum = self.signum or number
        if self._inside:
            self._inside = False
            raise Stopped(self.signum)

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """A stretch in which a signal raises `Stopped`, also one that came before it."""
        if self.signum:
            raise Stopped(self.signum)
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def wait(self, seconds: float) -> None:
        """Waits; a signal ends it when it is allowed to."""
        if seconds > 0:
            self._never.wait(seconds)
