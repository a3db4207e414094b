"""What an archive holds, row by row, and waiting for what is recorded."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from ipcbus.archive.layout import LOSS_TYPES
from tests.kit.bus import GIVE_UP_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from ipcbus.archive import Archive

_PAUSE = threading.Event()


class Row(NamedTuple):
    """A row of a log with its bytes."""

    topic: str
    source: str
    type: int
    first: int
    last: int
    block: bytes
    value: bytes

    @property
    def numbers(self) -> int:
        """How many sequence numbers it spans."""
        return self.last - self.first + 1


def rows_of(archive: Archive) -> list[Row]:
    """All rows of all logs, log by log."""
    found = []
    for log in archive.logs():
        topics, sources = log.topics(), log.sessions()
        for chunk in log.read(*log.bounds()):
            data = chunk.data.tobytes()
            for row in chunk.rows:
                begin = int(row["position"]) - chunk.data_start
                value = begin + int(row["headers"])
                last = int(row["sequence"])
                found.append(
                    Row(
                        topics[int(row["topic"])],
                        sources[int(row["session"])],
                        int(row["type"]),
                        last - int(row["numbers"]) + 1,
                        last,
                        data[begin:value],
                        data[value : value + int(row["length"])],
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


def until(condition: Callable[[], object], what: str) -> None:
    """Waits for something that others do."""
    deadline = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        _PAUSE.wait(0.002)


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
