"""The receiving processes of `ipcbus demo`: started, watched, asked for what they counted, and always ended."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from ipcbus_tools.common import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

_PATIENCE_S = 10.0


class DemoReceivers:
    """Some `ipcbus demo-receiver` processes."""

    def __init__(self, names: Sequence[str], topics: Sequence[str], domain: str, config: str | None) -> None:
        """Starts them, a process for each name.

        Args:
            names: what their contexts are called.
            topics: what they receive.
            domain: where.
            config: path of a file of options, or None.
        """
        more = ["--config", config] if config else []
        self.members: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for name in names:
                self.members[name] = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "ipcbus_tools", "demo-receiver"),
                        *("--name", name, "--domain", domain, *more, *topics),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    # Ctrl-C is for the demo, which then ends them in its own way.
                    process_group=0,
                )
        except BaseException:
            self._end()
            raise

    def check(self) -> None:
        """Makes sure that all of them run.

        Raises:
            Failure: one does not.
        """
        for name, process in self.members.items():
            code = process.poll()
            if code is not None:
                raise Failure(f"{name} (pid {process.pid}) ended early with code {code}; see above for its words")

    def counts(self) -> dict[str, dict[str, int]]:
        """Ends them; returns what each has counted, by source string.

        Raises:
            Failure: one did not answer.
        """
        found = {}
        for name, process in self.members.items():
            try:
                answer, _ = process.communicate(timeout=_PATIENCE_S)
                found[name] = dict(json.loads(answer))
            except (subprocess.TimeoutExpired, ValueError) as error:
                raise Failure(f"{name} (pid {process.pid}) gave no account; run it again") from error
        return found

    def __enter__(self) -> Self:
        """They run."""
        return self

    def __exit__(self, *_: object) -> None:
        """None of them runs any more."""
        self._end()

    def _end(self) -> None:
        for process in self.members.values():
            if process.stdin is not None:
                process.stdin.close()
        for process in self.members.values():
            try:
                process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
