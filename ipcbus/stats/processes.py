"""Who stands behind a pid and a uid."""

from __future__ import annotations

import contextlib
import functools
import pwd

import psutil

_SLACK_S = 2.0
"""psutil reckons a process's start from the time of boot, which a stepped clock moves."""


class Processes:
    """Command lines of processes, looked up once each.

    One that is kept from snapshot to snapshot spares most of the work of looking them up.
    """

    def __init__(self) -> None:
        """Knows nobody yet."""
        self._commands: dict[tuple[int, int], str] = {}
        self._fresh: dict[tuple[int, int], str] = {}

    def command(self, pid: int, since_ns: int) -> str:
        """Command line of the process that had this pid at a time.

        Args:
            pid: as it stands in shared memory; that of another pid namespace means nobody, or another one, here.
            since_ns: when it was there, ns since the epoch; a process that began later is another one.

        Returns:
            The command line; empty when the process is gone, another one, or may not be looked at.
        """
        key = (pid, since_ns)
        command = self._fresh.get(key)
        if command is None:
            command = self._commands.get(key)
            self._fresh[key] = command = _command(pid, since_ns) if command is None else command
        return command

    def turn(self) -> None:
        """Forgets those who were not asked for since the last turn."""
        self._commands, self._fresh = self._fresh, {}


def _command(pid: int, since_ns: int) -> str:
    with contextlib.suppress(psutil.Error, OSError, ValueError, OverflowError):
        process = psutil.Process(pid)
        if process.create_time() <= since_ns / 1e9 + _SLACK_S:
            return " ".join(process.cmdline())
    return ""


@functools.cache
def user_name(uid: int) -> str:
    """Name of a user, or the number where it has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)
