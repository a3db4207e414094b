"""An archive that is recorded into step by step, and what a query has read of it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from ipcbus.archive import Archive, Limits
from tests.kit.records import append, counted

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.driving import Row


class Host:
    """An archive that is recorded into step by step."""

    def __init__(self, path: Path) -> None:
        """Makes one."""
        self.path = path
        self.archive = Archive.create(path)
        self.options = {"archive": str(path), "startingOffsets": "earliest"}
        self._next: dict[str, int] = {}

    def record(self, count: int, stream: str = "host", *, size: int = 8, topic: str = "t", **limits: float) -> None:
        """Goes on with the sequence of a recorder, and gives up what the limits do not keep."""
        begin = self._next.get(stream, 0)
        self._next[stream] = begin + count
        with self.archive.writer(stream, limits=Limits(**limits)) as writer:
            append(writer, counted(count, begin, topic, size))
            writer.retain(time.time_ns())


def seqs(rows: list[Row] | None) -> list[int]:
    """Sequence numbers of a batch that there has to be."""
    assert rows is not None
    return [row["seq"] for row in rows]


def offsets_of(text: str) -> dict[str, int]:
    """Where a line of the offset log is."""
    return dict(json.loads(text)["o"])
