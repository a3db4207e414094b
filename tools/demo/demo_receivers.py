"""The receiving processes of `ipcbus demo`: they are started, checked, asked for their counts, and always ended."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from ipcbus_tools.common import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

_TIMEOUT_S = 30.0


def start(
    *arguments: str, config: str | None, stdin: int | None = None, stderr: int | None = None
) -> subprocess.Popen[bytes]:
    """Starts an `ipcbus` command that prints its report at the end.

    Ctrl-C goes to the demo only, which then ends the process.

    Args:
        arguments: the command and its arguments.
        config: path of a file of options, or None.
        stdin: as `subprocess.Popen` takes it.
        stderr: as `subprocess.Popen` takes it.
    """
    command = [sys.executable, "-m", "ipcbus_tools", *arguments, *(["--config", config] if config else [])]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=stdin, stderr=stderr, process_group=0)


class DemoReceivers:
    """A group of `ipcbus demo-receiver` processes."""

    def __init__(self, names: Sequence[str], topics: Sequence[str], domain: str, config: str | None) -> None:
        """Starts a process for each name.

        Args:
            names: names of the contexts of the processes.
            topics: topics that each process receives.
            domain: domain of the contexts.
            config: path of a file of options, or None.
        """
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for name in names:
                arguments = ("demo-receiver", "--name", name, "--domain", domain, *topics)
                self.processes[name] = start(*arguments, config=config, stdin=subprocess.PIPE)
        except BaseException:
            self._end()
            raise

    def check(self) -> None:
        """Checks that all processes run.

        Raises:
            Failure: a process has ended.
        """
        for name, process in self.processes.items():
            code = process.poll()
            if code is not None:
                raise Failure(f"{name} (pid {process.pid}) ended early with code {code}; see its output above")

    def counts(self) -> dict[str, dict[str, int]]:
        """Ends the processes; returns the counts of each by source string.

        Raises:
            Failure: a process did not answer.
        """
        found = {}
        for name, process in self.processes.items():
            try:
                answer, _ = process.communicate(timeout=_TIMEOUT_S)
                found[name] = dict(json.loads(answer))
            except (subprocess.TimeoutExpired, ValueError) as error:
                raise Failure(f"{name} (pid {process.pid}) printed no counts; run the demo again") from error
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the processes."""
        self._end()

    def _end(self) -> None:
        for process in self.processes.values():
            if process.stdin is not None:
                process.stdin.close()
        for process in self.processes.values():
            try:
                process.wait(_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
