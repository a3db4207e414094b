"""Processes that stage and commit a batch and are killed at a given step of it.

Run as `python -m tests.kit.committing`, it has imported everything and forks a process for each line of JSON that it
gets; the answer is another line: how the process ended, and how many steps it came to.

A step is a call of the system that changes or locks a file, or a message that is sent; it is counted before it is done.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipcbus.spark.sink.sink_commit import Application
from ipcbus.spark.sink.sink_publisher import Publisher, close_all, publisher
from ipcbus.spark.sink.write_options import WriteOptions
from ipcbus.storage.files import Disk
from tests.kit.sinking import content, staged
from tests.unit.sources import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from ipcbus.source import Source

CALLS = ("open", "mkdir", "pwrite", "pwritev", "fsync", "fdatasync", "replace", "unlink", "ftruncate", "link")


class Committing:
    """The tests' side."""

    def __init__(self) -> None:
        """Starts it."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kit.committing"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def commit(
        self, staging: Path, name: str, partitions: list[list[bytes]], *, domain: str, kill_at: int = -1
    ) -> tuple[int, int]:
        """Stages and commits batch 0 of an application in a process of its own.

        Returns:
            Its exit status, negative for the signal that killed it; and the steps that it came to.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        plain = [[value.decode() for value in values] for values in partitions]
        request = {"staging": str(staging), "name": name, "partitions": plain, "domain": domain, "kill_at": kill_at}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        status, steps = json.loads(self._process.stdout.readline())
        return status, steps

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *args: object) -> None:
        """Ends it."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()


class Steps:
    """Counts, and kills this process at one of them."""

    def __init__(self, kill_at: int, told: int) -> None:
        """Counts from 0, and writes each number where the descriptor leads."""
        self.taken = 0
        self._kill_at, self._told = kill_at, told
        self._main = threading.get_ident()
        self._write = os.write

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, as a step of the main thread."""

        def step(*args: object, **options: object) -> object:
            if threading.get_ident() == self._main:
                self._write(self._told, struct.pack("<I", self.taken + 1))
                if self.taken == self._kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                self.taken += 1
            return call(*args, **options)

        return step


class Sending:
    """A source whose messages are steps."""

    def __init__(self, source: Source, steps: Steps) -> None:
        self.send = steps.before(source.send)


def run(staging: str, name: str, partitions: list[list[str]], domain: str, steps: Steps) -> None:
    """What the forked process does."""
    for call in CALLS:
        setattr(os, call, steps.before(getattr(os, call)))
    ready = Publisher.ready
    Publisher.ready = lambda self, topic: Sending(ready(self, topic), steps)  # type: ignore[assignment, method-assign, return-value]
    application = Application(Disk(), Path(staging), name)
    files = staged(application.directory, 0, [[value.encode() for value in values] for values in partitions])
    bus = WriteOptions.of({"domain": domain, "txnAppId": name}, "stream").bus
    application.commit("query", 0, files, lambda: publisher(bus))
    close_all()


def main() -> None:
    """Forks until the tests hang up."""
    content([b"what pyarrow does the first time takes half a second"])
    for line in sys.stdin.buffer:
        request = json.loads(line)
        steps, told = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(steps)
            try:
                run(steps=Steps(request.pop("kill_at"), told), **request)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        os.close(told)
        with os.fdopen(steps, "rb") as counted:
            numbers = counted.read()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        last = struct.unpack("<I", numbers[-4:])[0] if numbers else 0
        sys.stdout.write(json.dumps([status, last]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
