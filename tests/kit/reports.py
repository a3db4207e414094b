"""What a run of the tests says beside pytest's own words: how a worker ended, and how long each part took."""

from __future__ import annotations

import collections
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import pytest_timeout

from tests.kit.watchdog import GRACE_S, Watchdog

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

    from _pytest.terminal import TerminalReporter

_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS}
_WAIT_S = 10.0
_PUT_OFF_S = 0.1


class Reports:
    """A plugin of pytest, in the process that reports and in each process that runs tests."""

    def __init__(self, grace_s: float = GRACE_S) -> None:
        """Nothing has run yet; what standard error is now, it is for the watchdog, whatever pytest captures later.

        Args:
            grace_s: how long after its time limit a test may take to end before its process is killed.
        """
        self._grace_s = grace_s
        self._stderr = os.fdopen(os.dup(2), "w")
        self._watchdog: Watchdog | None = None
        self._in_phase = False
        self._tests: collections.Counter[str] = collections.Counter()
        self._seconds: collections.Counter[str] = collections.Counter()

    # ------------------------------------------------------------------ in the process that runs the tests

    @pytest.hookimpl(wrapper=True, optionalhook=True)
    def pytest_timeout_set_timer(
        self, settings: pytest_timeout.Settings, item: pytest.Item
    ) -> Generator[None, object, object]:
        """Watches each test for as long as pytest-timeout gives it."""
        if not pytest_timeout.is_debugging():
            if self._watchdog is None:
                self._watchdog = Watchdog(self._stderr, self._grace_s)
            self._watchdog.begin(item.nodeid, settings.timeout)
        result = yield
        self._fail_in_phases_only()
        return result

    def _fail_in_phases_only(self) -> None:
        """Puts off a failure for lack of time while pytest itself is at work: the whole run would end with it."""
        fail = signal.getsignal(signal.SIGALRM)
        if not callable(fail):
            return

        def handler(number: int, frame: FrameType | None) -> None:
            if self._in_phase:
                fail(number, frame)
            else:
                signal.setitimer(signal.ITIMER_REAL, _PUT_OFF_S)

        signal.signal(signal.SIGALRM, handler)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        """The fixtures begin."""
        yield from self._phase()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, None, None]:
        """The body of the test."""
        yield from self._phase()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, None, None]:
        """The fixtures end."""
        yield from self._phase()

    def _phase(self) -> Generator[None, None, None]:
        self._in_phase = True
        try:
            yield
        finally:
            self._in_phase = False

    def pytest_runtest_logfinish(self) -> None:
        """The test has ended, its fixtures too."""
        if self._watchdog is not None:
            self._watchdog.end()

    def pytest_enter_pdb(self) -> None:
        """Who debugs has time."""
        if self._watchdog is not None:
            self._watchdog.end()

    def pytest_unconfigure(self) -> None:
        """Ends the watchdog."""
        if self._watchdog is not None:
            self._watchdog.close()
        self._stderr.close()

    # ------------------------------------------------------------------ in the process that reports

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, report: pytest.TestReport) -> None:
        """Says in the report of a test whose worker ended in it how the worker ended."""
        worker: Any = getattr(report, "node", None)
        if worker is not None:
            report.longrepr = f"{report.longrepr}\n{worker.gateway.id}: {how_it_ended(worker.gateway._io.popen)}"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Counts a test, and the time of its fixtures and its body."""
        part = "/".join(report.nodeid.split("::")[0].split("/")[:2])
        self._tests[part] += report.when == "call"
        self._seconds[part] += report.duration  # type: ignore[assignment]

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Says how long each part took."""
        if self._seconds:
            terminalreporter.section("time of each part, of all workers together")
            for part, seconds in sorted(self._seconds.items()):
                terminalreporter.write_line(f"{part:<24} {self._tests[part]:>6} tests {seconds:>9.1f} s")


def how_it_ended(process: subprocess.Popen[bytes]) -> str:
    """Tells a crash of the interpreter from a kill and from a fault of the harness."""
    try:
        code = process.wait(_WAIT_S)
    except subprocess.TimeoutExpired:
        return "its process still runs; the connection to the process was lost, which is a fault of the test harness"
    if code >= 0:
        return f"its process ended itself with exit code {code}"
    name = signal.Signals(-code).name
    if -code in _CRASHES:
        return f"its interpreter crashed with {name}; the frames stand in the output, if there were any"
    if -code == signal.SIGKILL:
        return (
            "its process was killed with SIGKILL: by the watchdog (its lines stand in the output) or for lack of memory"
        )
    return f"its process was ended by {name}"
