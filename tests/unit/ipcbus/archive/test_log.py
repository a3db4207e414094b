from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ipcbus.archive import Archive, Limits
from ipcbus.errors import ArchiveDamaged, ArchiveLocked, ArchiveMissing, ClosedError, ConfigError, OffsetsExpired
from tests.kit.archives import add, made, values_of

if TYPE_CHECKING:
    from pathlib import Path


def words(count: int, start: int = 0) -> list[bytes]:
    """Values of different lengths."""
    return [f"value {number}".encode() * (number % 3) for number in range(start, start + count)]


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path / "a")
    with archive.writer("host") as writer:
        assert add(writer, words(5)) == 0
        assert add(writer, words(7, 5), topic="u") == 5
        assert writer.next_offset == 12
        (log,) = archive.logs()
        assert (log.key, log.stream, log.partition) == ("host/0", "host", 0)
        assert log.bounds() == (0, 12)
        (chunk,) = log.read(0, 12)
        assert (chunk.offset, chunk.data_start, len(chunk.rows)) == (0, 0, 12)
        assert values_of([chunk]) == words(12)
        topics = log.topics()
        assert [topics[number] for number in chunk.rows["topic"].tolist()] == ["t"] * 5 + ["u"] * 7
        assert {log.sessions()[number] for number in chunk.rows["session"].tolist()} == {"LBT-IPC:1:1"}
    assert values_of(archive.log("host/0").read(3, 9)) == words(6, 3)


def test_chunks_keep_the_limits(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path)
    with archive.writer("host") as writer:
        for number in range(10):
            add(writer, [b"x" * 100] * 10, first=10 * number)
        log = archive.log("host/0")
        assert [len(chunk.rows) for chunk in log.read(0, 100, max_rows=30)] == [30, 30, 30, 10]
        assert [len(chunk.rows) for chunk in log.read(0, 100, max_rows=4)] == [4, 4, 2] * 10
        assert [len(chunk.rows) for chunk in log.read(0, 100, max_bytes=250)] == [2] * 50
        assert [len(chunk.rows) for chunk in log.read(0, 20, max_bytes=1)] == [1] * 20
        for rows, size in ((7, 10**6), (100, 333), (13, 777)):
            chunks = list(log.read(3, 97, max_rows=rows, max_bytes=size))
            assert values_of(chunks) == [b"x" * 100] * 94
            assert np.concatenate([chunk.rows["sequence"] for chunk in chunks]).tolist() == list(range(3, 97))
            assert all(len(chunk.rows) <= rows and len(chunk.data) <= size for chunk in chunks)


def test_segments_roll_by_size_and_time_and_on_demand(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path)
    with archive.writer("host", limits=Limits(segment_bytes=4096, segment_seconds=10)) as writer:
        for number in range(4):
            add(writer, [b"x" * 1500])
            assert writer.next_offset == number + 1
        add(writer, [b"late"], time_ns=11 * 10**9)
        writer.roll()
        writer.roll()
        add(writer, [b"later"], time_ns=12 * 10**9)
        log = archive.log("host/0")
        segments = log.segments()
        assert [(each.base, each.rows, each.closed) for each in segments] == [
            (0, 2, True),
            (2, 2, True),
            (4, 1, True),
            (5, 1, False),
        ]
        assert values_of(log.read(0, 6)) == [b"x" * 1500] * 4 + [b"late", b"later"]
    assert [each.closed for each in log.segments()] == [True] * 4


def test_offset_at_finds_the_first_row_of_a_time(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path)
    with archive.writer("host", limits=Limits(segment_bytes=4096)) as writer:
        for number in range(100):
            add(writer, [b"x" * 10] * 10, time_ns=1000 * number)
        log = archive.log("host/0")
        assert len(log.segments()) > 5
        times = np.concatenate([chunk.rows["receive_ns"] for chunk in log.read(0, 1000)])
        for when in (-5, 0, 5, 10, 999, 1000, 54_321, 99_009):
            assert log.offset_at(when) == int(np.argmax(times >= when))
        assert log.offset_at(99_010) == 1000


def test_a_closed_log_goes_on_where_it_ended(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path)
    for start in range(0, 30, 10):
        with archive.writer("host") as writer:
            assert (writer.next_offset, writer.recovered.hole) == (start, 0)
            assert add(writer, words(10, start)) == start
    assert values_of(archive.log("host/0").read(0, 30)) == words(30)
    assert archive.log("host/0").topics() == {1: "t"}


def test_each_stream_has_a_partition_of_its_own(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path)
    for stream in ("b", "a", "c"):
        archive.writer(stream).close()
    assert [log.key for log in archive.logs()] == ["b/0", "a/1", "c/2"]
    archive.writer("a").close()
    assert [log.key for log in Archive(tmp_path, expect_id=archive.id).logs()] == ["b/0", "a/1", "c/2"]


def test_a_log_has_one_writer(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path)
    writer = archive.writer("host")
    assert "pid" in (archive.writing("host") or "")
    with pytest.raises(ArchiveLocked, match="host"):
        archive.writer("host")
    writer.close()
    writer.close()
    assert archive.writing("host") is None
    with pytest.raises(ClosedError):
        add(writer, [b"x"])
    archive.writer("host").close()


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveMissing, match="is not an archive"):
        Archive(tmp_path / "none")
    archive = Archive.create(tmp_path)
    assert Archive.create(tmp_path).id == archive.id
    with pytest.raises(ArchiveMissing, match=archive.id):
        Archive(tmp_path, expect_id="0" * 32)
    with pytest.raises(ArchiveMissing, match="host/0"):
        archive.log("host/0")
    for name in ("", "a/b", "..", ".x", "consumers", "archive.json", "x" * 101, "a\n"):
        with pytest.raises(ConfigError, match="stream"):
            archive.writer(name)
    with archive.writer("host") as writer:
        add(writer, words(3))
        log = archive.log("host/0")
        for start, end in ((0, 4), (3, 4), (7, 9)):
            with pytest.raises(OffsetsExpired, match="0 to 2"):
                log.read(start, end)
        assert list(log.read(3, 3)) == []
        with pytest.raises(ValueError, match="start must be from 0 to end"):
            log.read(2, 1)


def test_rows_have_to_cover_their_bytes(tmp_path: Path) -> None:
    with Archive.create(tmp_path).writer("host") as writer:
        rows, data = made([b"ab", b"cde"], topic=writer.topic("t"))
        for wrong in (data[:-1], data + b"x"):
            with pytest.raises(ValueError, match="cover"):
                writer.append(rows, wrong)
        rows["topic"] = 9
        with pytest.raises(ValueError, match="has a number above 1"):
            writer.append(rows, data)
        assert writer.next_offset == 0
        assert writer.append(*made([])) == 0


@pytest.mark.parametrize("suffix", ["idx", "dat", "blk"])
def test_damage_is_an_error_or_told(tmp_path: Path, suffix: str) -> None:
    archive = Archive.create(tmp_path)
    with archive.writer("host") as writer:
        for start in range(0, 30, 10):
            add(writer, words(10, start))
    (path,) = (tmp_path / "host" / "0").glob(f"*.{suffix}")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    log = archive.log("host/0")
    with pytest.raises(ArchiveDamaged, match="rows 10 to 19"):
        list(log.read(0, 30))
    told: list[tuple[int, int, str]] = []
    assert values_of(log.read(0, 30, on_damage=lambda *damage: told.append(damage))) == words(10) + words(10, 20)
    assert [(first, end) for first, end, _ in told] == [(10, 20)]
