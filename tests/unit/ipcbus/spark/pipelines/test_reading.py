"""What is found out before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus.archive import Archive
from ipcbus.spark.pipelines.reading import Selection, several
from tests.kit.records import Record, append

if TYPE_CHECKING:
    from pathlib import Path

ONE, OTHER = "LBT-IPC:6481f8d4:20001", "LBT-IPC:6481f8d4:20002"


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Two recorders, which both have topic t of session ONE."""
    found = Archive.create(tmp_path)
    for stream, topics in (("one", "tu"), ("two", "tv")):
        with found.writer(stream) as writer:
            append(writer, [Record(topic=topic, source=ONE) for topic in topics])
            append(writer, [Record(topic="w", source=f"{OTHER}:{stream}")])
            append(writer, [Record(topic="", source="", type=255, numbers=1)])
    return found


@pytest.mark.parametrize(
    ("topics", "pattern", "partition", "expected"),
    [
        ((), False, None, [ONE]),
        (("t", "u"), False, None, [ONE]),
        (("u", "v"), False, None, []),
        (("[a-t]",), True, None, [ONE]),
        (("[u-v]",), True, None, []),
        ((), False, 0, []),
    ],
)
def test_sessions_in_several_logs(
    archive: Archive, topics: tuple[str, ...], pattern: bool, partition: int | None, expected: list[str]
) -> None:
    assert several(archive, Selection(archive.path, topics, pattern, partition=partition)) == expected
