"""The note of what a recorder records: who reads it, and what it says when it is damaged or not of the writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus.archive import Archive, json_files, recorded_topics

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus.archive import LogWriter

UNKNOWN_S = 10


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """An empty archive."""
    return Archive.create(tmp_path)


@pytest.fixture
def writer(archive: Archive) -> LogWriter:
    """Writes its stream `s`."""
    return archive.writer("s")


@pytest.mark.parametrize(
    ("topics", "pattern", "delay_s"),
    [
        (["a"], False, 0.5),
        (["b"], False, None),
        (["."], False, None),
        ([".", "b"], True, 0.5),
        (["aa", "b"], True, None),
        (["b", "["], True, UNKNOWN_S),
    ],
)
def test_a_process_that_records_other_topics_adds_nothing(
    archive: Archive, writer: LogWriter, topics: list[str], pattern: bool, delay_s: float | None
) -> None:
    recorded_topics.note(archive, "s", topics, pattern=pattern, flush_s=0.5)
    assert recorded_topics.delay_s(archive, "s", "a") == delay_s
    recorded_topics.forget(archive, "s")
    assert recorded_topics.delay_s(archive, "s", "a") == UNKNOWN_S
    writer.close()
    assert recorded_topics.delay_s(archive, "s", "a") is None


@pytest.mark.parametrize(
    "change",
    [{"holder": "pid 1 on elsewhere"}, {"topics": "b"}, {"flush_s": -1}, {"flush_s": "x"}, {"flush_s": 1e9}],
    ids=str,
)
def test_a_note_of_another_process_or_with_wrong_values_says_nothing(
    archive: Archive, writer: LogWriter, change: dict[str, object]
) -> None:
    note = {"topics": ["b"], "pattern": False, "flush_s": 0.5, "holder": archive.writing("s")}
    path = archive.path / "s" / recorded_topics.NAME
    path.write_bytes(json_files.pack(note))
    assert recorded_topics.delay_s(archive, "s", "a") is None
    path.write_bytes(json_files.pack(note | change))
    assert recorded_topics.delay_s(archive, "s", "a") == UNKNOWN_S
    writer.close()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"topics":["b"]}', bytes(2 << 20)], ids=len)
def test_a_damaged_note_says_nothing(archive: Archive, writer: LogWriter, content: bytes) -> None:
    (archive.path / "s" / recorded_topics.NAME).write_bytes(content)
    assert recorded_topics.delay_s(archive, "s", "a") == UNKNOWN_S
    writer.close()
