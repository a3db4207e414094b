from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ipcbus.errors import SinkError, StorageError
from ipcbus.spark.sink.outgoing_messages import plain
from ipcbus.spark.sink.staged_rows import StagedName, check, parse_name, read, stage
from ipcbus.storage.files import Disk
from tests.kit.cases import each_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DISK = Disk()


def content(*values: bytes) -> pa.RecordBatch:
    """A batch of rows to stage."""
    return plain(pa.record_batch([pa.array(values, pa.binary())], ["value"]), "t")


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_is_staged_is_read(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "q"
    batches = [content(b"1", b"2"), content(), content(b"3")]
    staged = stage(DISK, directory, 5, 2, 17, batches)
    assert staged is not None
    assert (staged.rows, staged.partition, names(directory)) == (3, 2, [staged.name])
    assert staged.size == (directory / staged.name).stat().st_size
    assert (directory / staged.name).stat().st_mode & 0o777 == 0o600
    check(DISK, directory, staged)
    assert list(read(DISK, directory, staged)) == [batches[0], batches[2]]


def test_many_topics_in_many_batches(tmp_path: Path) -> None:
    batches = [
        plain(pa.record_batch([pa.array([b"v"] * 3), pa.array([f"t{n}", "t", f"u{n}"])], ["value", "topic"]), None)
        for n in range(4)
    ]
    staged = stage(DISK, tmp_path, 0, 0, 0, batches)
    assert staged is not None
    assert list(read(DISK, tmp_path, staged)) == batches


def test_no_rows_are_no_file(tmp_path: Path) -> None:
    assert stage(DISK, tmp_path / "q", 0, 0, 0, [content()]) is None
    assert not (tmp_path / "q").exists()


def test_attempts_have_names_of_their_own_in_every_application_of_spark(tmp_path: Path) -> None:
    assert len({stage(DISK, tmp_path, 0, 0, 1, [content(b"x")]) for _ in range(3)}) == 3


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield content(b"1")
        raise SinkError("no message")

    with pytest.raises(SinkError):
        stage(DISK, tmp_path, 0, 0, 0, rows())
    assert names(tmp_path) == []


def test_a_file_that_is_elsewhere(tmp_path: Path) -> None:
    staged = stage(DISK, tmp_path, 0, 0, 0, [content(b"1")])
    assert staged is not None
    with pytest.raises(SinkError, match="not on this host .*use at-least-once"):
        check(DISK, tmp_path / "other", staged)


def test_damage_is_found_wherever_it_is(tmp_path: Path) -> None:
    staged = stage(DISK, tmp_path, 0, 0, 0, [content(b"1")])
    assert staged is not None
    path = tmp_path / staged.name
    good = path.read_bytes()
    for at in range(0, len(good), 61):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(StorageError, match="the disk has damaged the file"):
            check(DISK, tmp_path, staged)
    for other in (good[:-1], good + b"x", b""):
        path.write_bytes(other)
        with pytest.raises(StorageError):
            check(DISK, tmp_path, staged)


def test_names_tell_batch_partition_and_time() -> None:
    assert parse_name("12.3.45.65000000.0123abcd.arrow") == StagedName(12, 3, 0x65000000)
    assert parse_name("12.3.45.65000000.0123abcd.arrow.part") == StagedName(12, 3, 0x65000000)


@each_of(
    "name",
    ["ledger", "../1.2.3.65000000.0123abcd.arrow", "1.2.3.65000000.0123abcd", "-1.2.3.65000000.0123abcd.arrow", ""],
)
def test_other_names_are_none_of_ours(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a staged file"):
        parse_name(name)


def test_staged_is_small_and_comparable(tmp_path: Path) -> None:
    staged = stage(DISK, tmp_path, 0, 0, 0, [content(b"1")])
    assert staged is not None
    assert dataclasses.replace(staged) == staged
