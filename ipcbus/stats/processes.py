"""Who stands behind a pid and a uid."""

from __future__ import annotations

import contextlib
import functools
import pwd
import time
from dataclasses import dataclass

import psutil

_SLACK_S = 2.0
"""psutil reckons a process's start from the time of boot, which a stepped clock moves."""


@dataclass(frozen=True, slots=True)
class _Process:
    looked_ns: int
    start_s: float
    command: str


class Processes:
    """Command lines of processes, looked up once each.

    One that is kept from snapshot to snapshot spares most of the work of looking them up.
    """

    def __init__(self) -> None:
        """Knows nobody yet."""
        self._known: dict[int, _Process] = {}
        self._asked: dict[int, _Process] = {}
        self._stopped: dict[int, bool] = {}

    def command(self, pid: int, since_ns: int) -> str:
        """Command line of the process that had this pid at a time.

        Args:
            pid: as it stands in shared memory; that of another pid namespace means nobody, or another one, here.
            since_ns: when it was there, ns since the epoch; a process that began later is another one.

        Returns:
            The command line; empty when the process is gone, another one, or may not be looked at.
        """
        process = self._known.get(pid)
        # What began after the look may be of a process that has taken the number since.
        if process is None or process.looked_ns < since_ns:
            self._known[pid] = process = _look(pid)
        self._asked[pid] = process
        return process.command if process.start_s <= since_ns / 1e9 + _SLACK_S else ""

    def stopped(self, pid: int, since_ns: int) -> bool:
        """Returns whether the process that had this pid at a time is stopped now, as by SIGSTOP or a debugger."""
        if not self.command(pid, since_ns):
            return False
        if pid not in self._stopped:
            self._stopped[pid] = _is_stopped(pid)
        return self._stopped[pid]

    def turn(self) -> None:
        """Forgets those who were not asked for since the last turn, and who was stopped."""
        self._known, self._asked, self._stopped = self._asked, {}, {}


def _look(pid: int) -> _Process:
    now = time.time_ns()
    with contextlib.suppress(psutil.Error, OSError, ValueError, OverflowError):
        process = psutil.Process(pid)
        return _Process(now, process.create_time(), " ".join(process.cmdline()))
    return _Process(now, 0.0, "")


def _is_stopped(pid: int) -> bool:
    # Not through psutil, which takes three times as long, for each process and look.
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read(4096).rpartition(b")")[2][1:2] in (b"T", b"t")
    except OSError:
        return False


@functools.lru_cache(1024)  # of numbers that others choose
def user_name(uid: int) -> str:
    """Name of a user, or the number where it has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)
