"""Ends a test that its own time limit could not end, and says where each of its threads stood.

pytest-timeout ends a test when its limit is over, but only once the test runs Python again; a test that hangs inside
compiled code does not. So a process beside each process that runs tests waits a while longer. Then it asks each
thread by a signal to print its own frames, one thread after the other, and kills the process. No thread ever walks
the frames of another thread that runs, as `faulthandler_timeout` does: such frames change under the reader, and the
process dies of it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

GRACE_S = 60.0
"""How long after its limit a test may take to end; its fixtures end processes then."""

DUMP = signal.SIGRTMAX
_DUMP_S = 1.0
"""How long a thread may take to print its frames; on a busy machine it waits for a processor first."""


class Watchdog:
    """The side of the tests."""

    def __init__(self, stderr: TextIO, grace_s: float = GRACE_S) -> None:
        """Starts the other process, which ends with this one.

        Args:
            stderr: where the threads' frames and the word of the other process go.
            grace_s: seconds between a test's limit and the end of its process.
        """
        faulthandler.register(DUMP, stderr, all_threads=False)
        self._lines, theirs = os.pipe()[::-1]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(grace_s)], stdin=theirs, stdout=stderr
        )
        os.close(theirs)
        self._pid = os.getpid()

    def begin(self, test: str, limit_s: float) -> None:
        """A test begins, and has this long."""
        self._tell(f"{limit_s} {test}")

    def end(self) -> None:
        """The test has ended."""
        self._tell("")

    def close(self) -> None:
        """Ends the other process."""
        faulthandler.unregister(DUMP)
        os.close(self._lines)
        self._process.wait()

    def _tell(self, line: str) -> None:
        if os.getpid() == self._pid:  # else a child that a test forked
            os.write(self._lines, line.encode(errors="replace").replace(b"\n", b" ") + b"\n")


def main() -> None:
    """Watches a process until it ends."""
    pid, grace_s = int(sys.argv[1]), float(sys.argv[2])
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    for test, limit_s in _overdue(process, grace_s):
        print(f"\nwatchdog: {test} did not end {grace_s:g} s after its limit of {limit_s:g} s.", flush=True)
        _dump(pid, process)
        print(f"watchdog: kills process {pid} by SIGKILL.", flush=True)
        signal.pidfd_send_signal(process, signal.SIGKILL)
        return


def _overdue(process: int, grace_s: float) -> Iterator[tuple[str, float]]:
    """Each test that is over its time, with its limit; ends with the process or its word that all is done."""
    received, test, limit_s = b"", "", 0.0
    until: float | None = None
    while True:
        left = None if until is None else until - time.monotonic()
        if left is not None and left <= 0:
            yield test, limit_s
            return
        ready, _, _ = select.select([0, process], [], [], left)
        if process in ready:
            return
        if not ready:
            continue
        piece = os.read(0, 65536)
        if not piece:
            return
        *lines, received = (received + piece).split(b"\n")
        if lines:
            number, _, test = lines[-1].decode().partition(" ")
            limit_s = float(number or 0)
            until = time.monotonic() + limit_s + grace_s if number else None


def _dump(pid: int, process: int) -> None:
    """Has each thread print its own frames; those that never ran Python print nothing."""
    for thread in sorted(map(int, os.listdir(f"/proc/{pid}/task"))):
        try:
            name = Path(f"/proc/{pid}/task/{thread}/comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        print(f"watchdog: thread {thread} ({name}):", flush=True)
        ctypes.CDLL(None).tgkill(pid, thread, DUMP)  # to one thread; the standard library has nothing for it
        if select.select([process], [], [], _DUMP_S)[0]:
            return


if __name__ == "__main__":
    main()
