"""Command lines of processes, and names of users."""

from __future__ import annotations

import contextlib
import functools
import pwd
import time
from dataclasses import dataclass

import psutil

_SLACK_S = 2.0
"""psutil computes the start of a process from the time of boot, which changes when the clock is set."""


@dataclass(frozen=True, slots=True)
class _Process:
    read_ns: int
    start_s: float
    command: str


class Processes:
    """Command lines of processes, each read once.

    A program that takes many snapshots passes one `Processes` to all of them, so that most are not read again.
    """

    def __init__(self) -> None:
        """Makes an empty cache."""
        self._known: dict[int, _Process] = {}
        self._asked: dict[int, _Process] = {}
        self._stopped: dict[int, bool] = {}

    def command(self, pid: int, since_ns: int) -> str:
        """Returns the command line of the process that had this pid at a time.

        Args:
            pid: the pid in shared memory; a pid of another pid namespace means no process, or another one, here.
            since_ns: when the process existed, ns since the epoch; a process that started later is another one.

        Returns:
            The command line; empty if the process is gone, is another one, or may not be read.
        """
        process = self._known.get(pid)
        # A later process may have the same pid.
        if process is None or process.read_ns < since_ns:
            self._known[pid] = process = _read(pid)
        self._asked[pid] = process
        return process.command if process.start_s <= since_ns / 1e9 + _SLACK_S else ""

    def stopped(self, pid: int, since_ns: int) -> bool:
        """Returns whether the process that had this pid at a time is stopped, for example by SIGSTOP or a debugger."""
        if not self.command(pid, since_ns):
            return False
        if pid not in self._stopped:
            self._stopped[pid] = _is_stopped(pid)
        return self._stopped[pid]

    def forget_unused(self) -> None:
        """Forgets the processes that were not asked for since the last call, and which processes were stopped."""
        self._known, self._asked, self._stopped = self._asked, {}, {}


def _read(pid: int) -> _Process:
    now = time.time_ns()
    with contextlib.suppress(psutil.Error, OSError, ValueError, OverflowError):
        process = psutil.Process(pid)
        return _Process(now, process.create_time(), " ".join(process.cmdline()))
    return _Process(now, 0.0, "")


def _is_stopped(pid: int) -> bool:
    # Not by psutil, which takes three times as long.
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read(4096).rpartition(b")")[2][1:2] in (b"T", b"t")
    except OSError:
        return False


@functools.lru_cache(1024)  # limited, because other users choose the numbers
def user_name(uid: int) -> str:
    """Returns the name of a user, or the number if it has no name on this host."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)
