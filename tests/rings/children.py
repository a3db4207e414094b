"""Child processes of tests: forked, so that they start within milliseconds, and gone when the test is.

A child works on what the test hands it, ends without any clean-up of what it inherited, and dies with its parent.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import select
import signal
import sys
import traceback
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

P = ParamSpec("P")
T = TypeVar("T")

_PR_SET_PDEATHSIG = 1


class ChildFailedError(AssertionError):
    """A child raised, or ended otherwise than it should."""


class Child(Generic[T]):
    """One forked process that runs one function."""

    def __init__(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> None:
        """Forks and runs `work(*args)` in the child."""
        self._name = getattr(work, "__name__", repr(work))
        self._pipe, write_end = os.pipe()
        parent = os.getpid()
        with warnings.catch_warnings():
            # Newer Pythons warn of a fork beside threads; pytest-xdist has one, which only reads a pipe.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            os.close(self._pipe)
            _run(write_end, parent, lambda: work(*args, **kwargs))
        os.close(write_end)
        self._status: int | None = None
        self._sent = b""
        self.killed = False
        """Whether the test has killed it."""

    def result(self) -> T:
        """Waits for the end; what `work` returned.

        Raises:
            ChildFailedError: `work` raised, or the child was killed; the text says which.
        """
        while self.take():
            pass
        status = self.wait()
        if status < 0:
            raise ChildFailedError(f"{self._name} was ended by {signal.Signals(-status).name}")
        done, value = pickle.loads(self._sent)
        if not done:
            raise ChildFailedError(f"{self._name} failed:\n{value}")
        return value  # type: ignore[no-any-return]

    def take(self) -> bool:
        """Takes what it sent of its result; False when that was all, at its end."""
        block = os.read(self._pipe, 1 << 16)
        self._sent += block
        return bool(block)

    def fileno(self) -> int:
        """Readable when there is something to take."""
        return self._pipe

    def wait(self) -> int:
        """Waits for the end; the exit status, or minus the signal that ended it."""
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def ended(self) -> bool:
        """Whether it has ended."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status is not None

    def kill(self) -> None:
        """Ends it by SIGKILL."""
        self.killed = True
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
            self.wait()

    def stop(self) -> None:
        """Stops it; returns when it has stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self) -> None:
        """Lets a stopped child go on."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Ends it and forgets it."""
        self.kill()
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


class Children:
    """The children of one test; a context manager that leaves none."""

    def __init__(self) -> None:
        """No children yet."""
        self._all: list[Child[Any]] = []

    def __enter__(self) -> Children:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        for child in self._all:
            if failure and child.ended():
                # What one child did wrong is often why the test waited for another in vain.
                try:
                    child.result()
                except ChildFailedError as error:
                    print(error)
            child.close()

    def results(self, children: Sequence[Child[T]]) -> list[T]:
        """Waits for all of them; raises as soon as one has failed.

        Raises:
            ChildFailedError: as `Child.result`.
        """
        running = list(children)
        while running:
            for child in select.select(running, [], [])[0]:
                if not child.take():
                    child.result()
                    running.remove(child)
        return [child.result() for child in children]

    def until(self, flag: Flag) -> None:
        """Waits until somebody raises a flag.

        Raises:
            ChildFailedError: a child has failed, so that the flag may never be raised; the text says why.
        """
        running = [child for child in self._all if not child.killed]
        while not flag.is_up():
            select.select([flag.fileno(), *(child.fileno() for child in running)], [], [])
            for child in select.select(running, [], [], 0)[0]:
                if not child.take():
                    child.result()
                    running.remove(child)
        flag.wait()

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Child[T]:
        """Starts one more."""
        child = Child(work, *args, **kwargs)
        self._all.append(child)
        return child


class Flag:
    """A pipe by which processes that were forked after its making tell each other that something has happened."""

    def __init__(self) -> None:
        """Not raised yet."""
        self._read, self._write = os.pipe()

    def __enter__(self) -> Flag:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._read)
        os.close(self._write)

    def raise_it(self) -> None:
        """Lets one waiter go on."""
        os.write(self._write, b"x")

    def wait(self) -> None:
        """Waits until somebody raises it."""
        os.read(self._read, 1)

    def fileno(self) -> int:
        """Readable when somebody has raised it."""
        return self._read

    def is_up(self) -> bool:
        """Whether somebody has raised it."""
        return bool(select.select([self._read], [], [], 0)[0])

    def wait_or_end(self) -> None:
        """Waits until somebody raises it, or nobody can any more; the waiting process itself no longer can."""
        os.close(self._write)
        os.read(self._read, 1)


class Notes:
    """A pipe into which children write lines that outlive them."""

    def __init__(self) -> None:
        """Empty."""
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)

    def __enter__(self) -> Notes:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._read)
        os.close(self._write)

    def write(self, line: str) -> None:
        """Adds a line."""
        os.write(self._write, f"{line}\n".encode())

    def lines(self) -> list[str]:
        """Takes out the lines that are there."""
        try:
            return os.read(self._read, 1 << 16).decode().splitlines()
        except BlockingIOError:
            return []


def kill_myself() -> None:
    """Ends the calling process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def _run(pipe: int, parent: int, work: Callable[[], object]) -> None:
    """What a child does; never returns."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            with suppress(ValueError):
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
            try:
                answer = pickle.dumps((True, work()))
            except BaseException:
                answer = pickle.dumps((False, traceback.format_exc()))
            with os.fdopen(pipe, "wb") as file:
                file.write(answer)
            code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)
