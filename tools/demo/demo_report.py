"""The recorder of `ipcbus demo`, and the report that Spark makes of its archive."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import click

from ipcbus.errors import ConfigError
from ipcbus_tools.common import Failure
from ipcbus_tools.demo.demo_receivers import start

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Self

_TIMEOUT_S = 30.0
_ENDED_BY_SIGTERM = 143


class Recording:
    """An `ipcbus record` process; leaving the context manager ends it."""

    def __init__(self, directory: Path, topics: Sequence[str], domain: str, config: str | None) -> None:
        """Starts the process.

        Args:
            directory: directory of the archive.
            topics: topics to record.
            domain: domain of the bus.
            config: path of a file of options, or None.
        """
        arguments = ("record", "--to", str(directory), "--domain", domain, "--json", *topics)
        self._process = start(*arguments, config=config, stderr=subprocess.DEVNULL)
        self.pid = self._process.pid

    def check(self) -> None:
        """Checks that the recorder runs.

        Raises:
            Failure: it has ended.
        """
        code = self._process.poll()
        if code is not None:
            raise Failure(f"the recorder (pid {self._process.pid}) ended early with code {code}; run the demo again")

    def end(self) -> dict[str, Any]:
        """Ends the recorder when its buffer is in the archive; returns its report.

        Raises:
            Failure: the recorder did not end, or ended with an error.
        """
        self._process.terminate()
        try:
            answer, _ = self._process.communicate(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise Failure(f"the recorder (pid {self._process.pid}) does not end; check its disk") from error
        if self._process.returncode != _ENDED_BY_SIGTERM:
            raise Failure(f"the recorder ended with code {self._process.returncode}; run the demo again")
        found: dict[str, Any] = json.loads(answer)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the process."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def no_spark() -> str:
    """Returns why Spark cannot make a report, with the cure; empty when it can."""
    try:
        from ipcbus.spark.session import check_spark

        check_spark()
    except ConfigError as error:
        return str(error)
    return ""


def report(archive: Path, directory: Path) -> None:
    """Lets Spark make the report of an archive, which takes half a minute, and shows its progress.

    Raises:
        Failure: the report failed.
    """
    command = [sys.executable, "-m", "ipcbus_tools", "pipeline", "report"]
    done = subprocess.run([*command, "--archive", str(archive), "--out", str(directory)], check=False)
    if done.returncode:
        raise Failure(f"the report of {archive} failed with code {done.returncode}; see its output above")
    click.echo(f"recorded traffic: {archive}; 'ipcbus archive info {archive}' shows it")
