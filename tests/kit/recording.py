"""What an archive holds, row by row, and waiting for what is recorded."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from ipcbus.archive import batch_waits
from ipcbus.archive.archive_layout import LOSS_TYPES
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import Self

    from ipcbus.archive import Archive, Recorder

_COMMAND = (sys.executable, "-m", "ipcbus_tools", "record")


class Row(NamedTuple):
    """A row of a log with its bytes."""

    topic: str
    source: str
    type: int
    first: int
    last: int
    block: bytes
    value: bytes
    batch_wait_ns: int

    @property
    def numbers(self) -> int:
        """How many sequence numbers it spans."""
        return self.last - self.first + 1


def rows_of(archive: Archive) -> list[Row]:
    """All rows of all logs, log by log."""
    found = []
    for log in archive.logs():
        bounds = log.bounds()
        topics, sources = log.topics(), log.sessions()  # after the bounds: a log may grow, and names come before rows
        for chunk in log.read(*bounds):
            data = chunk.data.tobytes()
            spans = zip(
                batch_waits.numbers(chunk.rows).tolist(), batch_waits.batch_waits(chunk.rows).tolist(), strict=True
            )
            for row, (numbers, wait) in zip(chunk.rows, spans, strict=True):
                begin = int(row["position"]) - chunk.data_start
                value = begin + int(row["headers"])
                last = int(row["sequence"])
                found.append(
                    Row(
                        topics[int(row["topic"])],
                        sources[int(row["session"])],
                        int(row["type"]),
                        last - numbers + 1,
                        last,
                        data[begin:value],
                        data[value : value + int(row["length"])],
                        wait,
                    )
                )
    return found


def messages(rows: Iterable[Row]) -> list[Row]:
    """Only the messages."""
    return [row for row in rows if row.type == 0]


def values(rows: Iterable[Row], topic: str = "t") -> list[bytes]:
    """The values of a topic's messages, in order."""
    return [row.value for row in messages(rows) if row.topic == topic]


def losses(rows: Iterable[Row]) -> list[Row]:
    """Only the losses."""
    return [row for row in rows if row.type in LOSS_TYPES]


def accounted(rows: Iterable[Row], topic: str, source: str) -> tuple[int, int, int, int]:
    """First number, number after the last, messages' and losses' numbers of a topic of a session; all in order."""
    first = following = -1
    recorded = lost = 0
    for row in rows:
        if (row.topic, row.source) != (topic, source) or row.numbers == 0:
            continue
        first = row.first if first < 0 else first
        assert following in (-1, row.first), f"{row.first} to {row.last} after {following - 1}"
        following = row.last + 1
        if row.type in LOSS_TYPES:
            lost += row.numbers
        else:
            recorded += row.numbers
    return first, following, recorded, lost


def written(recorder: Recorder, count: int) -> None:
    """Waits until so many messages are in the log."""
    until(lambda: recorder.stats.messages == count, f"{count} messages")


class RecorderProcess:
    """`ipcbus record` as a process; a context manager that leaves none behind."""

    def __init__(self, domain: str, directory: Path, *arguments: str) -> None:
        """Starts it; `arguments` are topics and options."""
        self._process = subprocess.Popen(
            [*_COMMAND, *arguments, "--to", str(directory), "--stream", "s", "--domain", domain, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self.pid = self._process.pid
        assert self._process.stderr is not None
        self.errors = self._process.stderr.readline()
        assert self.errors.startswith("recording into"), self.errors + self._process.stderr.read()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it."""
        if self._process.poll() is None:
            self.kill()

    def kill(self) -> None:
        """Kills it at once, and waits until it is gone."""
        self._process.kill()
        self._process.communicate()

    def end(self, code: int = 143, number: int = signal.SIGTERM) -> dict[str, Any]:
        """Ends it in order by a signal, or with code 0 waits until it does; returns what it reports."""
        if code:
            self._process.send_signal(number)
        output, errors = self._process.communicate()
        assert self._process.returncode == code, errors
        found: dict[str, Any] = json.loads(output)
        return found
