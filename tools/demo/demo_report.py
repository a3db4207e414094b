"""The recorder of `ipcbus demo`, and the report that Spark makes of what it has recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import click

from ipcbus.errors import ConfigError
from ipcbus_tools.common import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Self

_PATIENCE_S = 30.0
_ENDED_BY_SIGTERM = 143


class Recording:
    """An `ipcbus record` process; a context manager that leaves none behind."""

    def __init__(self, directory: Path, topics: Sequence[str], domain: str, config: str | None) -> None:
        """Starts it.

        Args:
            directory: of the archive.
            topics: what to record.
            domain: where.
            config: path of a file of options, or None.
        """
        more = ["--config", config] if config else []
        command = [sys.executable, "-m", "ipcbus_tools", "record", "--to", str(directory), "--domain", domain, "--json"]
        # Ctrl-C is for the demo, which then ends it in its own way.
        self._process = subprocess.Popen(
            [*command, *more, *topics], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0
        )
        self.pid = self._process.pid

    def check(self) -> None:
        """Makes sure that it runs.

        Raises:
            Failure: it does not.
        """
        code = self._process.poll()
        if code is not None:
            raise Failure(f"the recorder (pid {self._process.pid}) ended early with code {code}; run the demo again")

    def end(self) -> dict[str, Any]:
        """Ends it when everything that came is in the archive; returns what it reports.

        Raises:
            Failure: it gave no account.
        """
        self._process.terminate()
        try:
            answer, _ = self._process.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            raise Failure(f"the recorder (pid {self._process.pid}) does not end; is its disk stuck?") from error
        if self._process.returncode != _ENDED_BY_SIGTERM:
            raise Failure(f"the recorder ended with code {self._process.returncode}; run the demo again")
        found: dict[str, Any] = json.loads(answer)
        return found

    def __enter__(self) -> Self:
        """It runs."""
        return self

    def __exit__(self, *_: object) -> None:
        """It does not run any more."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def no_spark() -> str:
    """Why there can be no report, with the cure; empty when there can."""
    try:
        from ipcbus.spark.session import check_spark

        check_spark()
    except ConfigError as error:
        return str(error)
    return ""


def report(archive: Path, directory: Path) -> None:
    """Has Spark make the report of an archive, which takes it half a minute; shows its progress and its end.

    Raises:
        Failure: it could not.
    """
    command = [sys.executable, "-m", "ipcbus_tools", "pipeline", "report"]
    done = subprocess.run([*command, "--archive", str(archive), "--out", str(directory)], check=False)
    if done.returncode:
        raise Failure(f"the report of {archive} failed with code {done.returncode}; its words are above")
    click.echo(f"recorded traffic: {archive}; look at it with 'ipcbus archive info {archive}'")
