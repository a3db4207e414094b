from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ipcbus.archive import Archive, export
from ipcbus.archive.columns import default_columns
from ipcbus.archive.export import export as exported
from ipcbus.archive.row_filter import RowSelection
from ipcbus.errors import ArchiveDamaged, ConfigError, StorageError, StorageFull
from tests.kit.archives import lose_in_power_loss
from tests.kit.records import Record, append, as_rows, counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ipcbus.archive.export import Form
    from ipcbus.archive.export_result import Missing

FIRST = [*counted(5), Record(b"k", headers=(("key", b"1"), ("n", b""))), Record(type=4, numbers=3)]
SECOND = counted(4, 100, "u")


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive.create(tmp_path / "a")
    for stream, records in (("feed", FIRST), ("other", SECOND)):
        with made.writer(stream) as writer:
            append(writer, records)
    return made


def expected(*, events: bool = False) -> list[dict[str, Any]]:
    names = default_columns(headers=True, events=events, waits=True)
    rows = [*as_rows(FIRST, waits=True), *as_rows(SECOND, partition=1, waits=True)]
    return [{name: row[name] for name in names} for row in rows if events or row["type"] == 0]


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_one_file(archive: Archive, tmp_path: Path, form: Form) -> None:
    to = tmp_path / f"out.{form}"
    (found,) = exported(archive, to, form=form)
    assert (found.path, found.rows, found.bytes) == (str(to), 10, to.stat().st_size)
    with pa.OSFile(str(to)) as file:
        table = pq.read_table(file) if form == "parquet" else pa.ipc.open_file(file).read_all()
    assert table.to_pylist() == expected()


def test_events(archive: Archive, tmp_path: Path) -> None:
    exported(archive, tmp_path / "out.parquet", selection=RowSelection(events=True))
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == expected(events=True)


def test_a_directory(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_GROUP_ROWS", 2)
    monkeypatch.setattr(export, "_READ_ROWS", 1)
    monkeypatch.setattr(export, "FILE_BYTES", 1)
    found = exported(archive, tmp_path / "b" / "out")
    assert [os.path.basename(each.path) for each in found] == [
        *(f"feed-0-0000{number}.parquet" for number in range(3)),
        *(f"other-1-0000{number}.parquet" for number in range(2)),
    ]
    assert [each.rows for each in found] == [2] * 5
    assert [row for each in found for row in pq.read_table(each.path).to_pylist()] == expected()


def test_topics_and_progress(archive: Archive, tmp_path: Path) -> None:
    steps: list[int] = []
    (found,) = exported(archive, tmp_path / "out.parquet", selection=RowSelection("u".__eq__), on_progress=steps.append)
    assert found.rows == 4
    assert sum(steps) == len(FIRST) + len(SECOND)


def test_nothing(tmp_path: Path) -> None:
    empty = Archive.create(tmp_path / "a")
    (found,) = exported(empty, tmp_path / "out.parquet")
    assert found.rows == 0
    assert pq.read_table(tmp_path / "out.parquet").column_names == list(default_columns(headers=True, waits=True))
    assert exported(empty, tmp_path / "out") == []


def test_duckdb_reads_it(archive: Archive, tmp_path: Path) -> None:
    exported(archive, tmp_path / "out")
    with duckdb.connect() as connection:
        query = f"SELECT topic, count(*), max(seq), sum(octet_length(value)) FROM '{tmp_path}/out/*.parquet' GROUP BY 1"
        assert sorted(connection.sql(query).fetchall()) == [("t", 6, 4, 41), ("u", 4, 103, 32)]
        query = f"SELECT headers[1].key, key FROM '{tmp_path}/out/feed-*.parquet' WHERE headers IS NOT NULL"
        assert connection.sql(query).fetchall() == [("key", b"1")]


def test_what_is_there_stays(archive: Archive, tmp_path: Path) -> None:
    to = tmp_path / "out.parquet"
    to.write_text("mine")
    with pytest.raises(ConfigError, match="exists already; remove it"):
        exported(archive, to)
    assert to.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["a", "out.parquet"]


def test_a_name_that_contradicts_the_form(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be arrow; name it out\.arrow"):
        exported(archive, tmp_path / "out.parquet", form="arrow")


def test_damage_leaves_nothing(archive: Archive, tmp_path: Path) -> None:
    (data,) = (archive.path / "other" / "1").glob("*.dat")
    data.write_bytes(b"x" * 32)
    with pytest.raises(ArchiveDamaged):
        exported(archive, tmp_path / "out.parquet")
    assert os.listdir(tmp_path) == ["a"]


def test_damage_is_left_out_on_request(archive: Archive, tmp_path: Path) -> None:
    """A block, a log, and a header block that makes no sense: all else is exported, and each stretch is named."""
    with archive.writer("third") as writer:
        for start in (0, 10, 20):
            append(writer, counted(10, start))
    (data,) = (archive.path / "third" / "2").glob("*.dat")
    changed = bytearray(data.read_bytes())
    changed[10 * 8] ^= 1
    data.write_bytes(changed)
    (archive.path / "other" / "1" / "watermark").write_bytes(bytes(2000))
    missing: list[Missing] = []
    exported(
        archive,
        tmp_path / "out.parquet",
        selection=RowSelection(events=True),
        skip_damaged=True,
        on_missing=missing.append,
    )
    assert [(each.log, each.first, each.end, each.damaged) for each in missing] == [
        ("other/1", None, None, True),
        ("third/2", 10, 20, True),
    ]
    rows = pq.read_table(tmp_path / "out.parquet", columns=["partition", "offset", "type", "numbers"]).to_pylist()
    assert [row["offset"] for row in rows if row["partition"] == 2] == [*range(11), *range(20, 30)]
    assert [(row["offset"], row["numbers"]) for row in rows if row["type"] == 254] == [(10, 10)]


@pytest.mark.parametrize("to", ["out.parquet", "out"])
def test_who_ends_it_leaves_nothing(archive: Archive, tmp_path: Path, to: str) -> None:
    def stop(_rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        exported(archive, tmp_path / to, on_progress=stop)
    assert not list(tmp_path.glob("*out*")) or not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("lost", [10, 20])
def test_a_hole_is_a_row_with_events(tmp_path: Path, lost: int) -> None:
    archive = Archive.create(tmp_path / "a")
    with archive.writer("host") as writer:
        for begin in (0, 10, 20):
            append(writer, counted(10, begin))
            writer.roll()
    lose_in_power_loss(tmp_path / "a" / "host" / "0", lost, lost + 10)
    exported(archive, tmp_path / "out.parquet", selection=RowSelection(events=True))
    rows = pq.read_table(tmp_path / "out.parquet", columns=["offset", "type", "numbers"]).to_pylist()
    assert [row["offset"] for row in rows] == [*range(lost), lost, *range(lost + 10, 30)]
    assert [(row["type"], row["numbers"]) for row in rows if row["type"]] == [(254, 10)]


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, StorageFull), (errno.EIO, StorageError)])
def test_a_disk_that_fails(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    def tables(_batches: object) -> Iterator[Any]:
        yield from ()
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(export, "_tables", tables)
    with pytest.raises(error, match=os.strerror(number)) as caught:
        exported(archive, tmp_path / "out.parquet")
    assert type(caught.value) is error
    assert os.listdir(tmp_path) == ["a"]


def test_a_place_that_cannot_be(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="export to another place"):
        exported(archive, tmp_path / "file" / "out")
