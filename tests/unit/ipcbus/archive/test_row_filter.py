from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ipcbus.archive import Archive
from ipcbus.archive.columns import COLUMNS, default_columns
from ipcbus.archive.row_filter import Labels, RowFilter, RowSelection, numbers, session_id
from ipcbus.errors import ArchiveDamaged
from tests.kit.cases import each_of
from tests.kit.records import Record, append

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus.archive import Log

RECORDS = [
    Record(b"1", "a", seq=1),
    Record(b"2", "b", seq=1),
    Record(topic="a", type=4, seq=2, numbers=3),
    Record(b"3", "a", seq=5),
    Record(topic="", source="", type=255, numbers=9),
    Record(b"4", "c", seq=1),
]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    archive = Archive.create(tmp_path)
    with archive.writer("host") as writer:
        append(writer, RECORDS)
    return archive.log("host/0")


def found(log: Log, choice: RowSelection) -> list[int]:
    """Offsets of the rows that are default_columns; the same whatever rows they are asked about in."""
    row_filter = RowFilter(choice, Labels(log))
    (chunk,) = log.read(0, len(RECORDS))
    indices = row_filter.indices(chunk.rows, 0)
    whole = list(range(len(RECORDS))) if indices is None else indices.tolist()
    single = [at for at in range(len(RECORDS)) if row_filter.indices(chunk.rows[at : at + 1], at) is None]
    assert single == whole
    return whole


@pytest.mark.parametrize(
    ("choice", "offsets"),
    [
        (RowSelection(), [0, 1, 3, 5]),
        (RowSelection(events=True), [0, 1, 2, 3, 4, 5]),
        (RowSelection(lambda topic: topic in "ac"), [0, 3, 5]),
        (RowSelection(lambda topic: topic == "b", events=True), [1, 4]),
        (RowSelection(lambda _: False), []),
        (RowSelection(passes=lambda topic: topic != "a"), [1, 5]),
        (RowSelection("a".__eq__, events=True, passes="a".__eq__), [0, 2, 3]),
        (RowSelection(events=True, passes=lambda topic: topic != "a"), [1, 4, 5]),
        (RowSelection(begins={"a": 1, "c": 6}), [1, 3]),
        (RowSelection(ends={"a": 3}), [0, 1, 5]),
        (RowSelection(begins={"a": 1}, ends={"c": 5}), [1, 3]),
        (RowSelection(tests=(("seq", lambda seq: seq > 1),)), [3]),
        (
            RowSelection(events=True, tests=(("numbers", lambda count: count > 1), ("type", lambda kind: kind == 4))),
            [2],
        ),
        (RowSelection(tests=(("offset", lambda offset: offset % 2 == 1),)), [1, 3, 5]),
    ],
)
def test_rows_that_are_wanted(log: Log, choice: RowSelection, offsets: list[int]) -> None:
    assert found(log, choice) == offsets


@pytest.mark.parametrize(
    ("choice", "none"),
    [
        (RowSelection(), False),
        (RowSelection("x".__eq__), True),
        (RowSelection("x".__eq__, events=True), False),
        (RowSelection("b".__eq__), False),
        (RowSelection(events=True, passes="x".__eq__), True),
        (RowSelection(events=True, passes="".__eq__), False),
    ],
)
def test_a_log_without_a_topic_that_is_wanted_need_not_be_read(log: Log, choice: RowSelection, none: bool) -> None:
    assert RowFilter(choice, Labels(log)).wants_none is none


def test_rows_that_are_all_wanted_are_not_listed(log: Log) -> None:
    (chunk,) = log.read(0, 2)
    assert RowFilter(RowSelection(), Labels(log)).indices(chunk.rows, 0) is None


@pytest.mark.parametrize("field", ["topic", "session"])
def test_a_number_without_a_name_is_damage(log: Log, field: str) -> None:
    (chunk,) = log.read(0, 2)
    rows = chunk.rows.copy()
    rows[field][1] = 77
    with pytest.raises(ArchiveDamaged, match=f"log host/0: the row at offset 11 has {field} number 77"):
        RowFilter(RowSelection(), Labels(log)).indices(rows, 10)


def test_every_column_of_numbers(log: Log) -> None:
    (chunk,) = log.read(0, len(RECORDS))
    labels = Labels(log)
    offsets = np.arange(len(RECORDS))
    for name, column in COLUMNS.items():
        if column.kind in ("int", "long", "timestamp"):
            values = numbers(name, chunk.rows, offsets, labels)
            assert values.dtype == np.int64
            assert len(values) == len(RECORDS)
    with pytest.raises(KeyError):
        numbers("topic", chunk.rows, offsets, labels)


@each_of(
    ("source", "number"),
    [
        ("LBT-IPC:6481f8d4:20001", 0x6481F8D4),
        ("LBT-RU:127.0.0.1:14380:6481f8d4", 0x6481F8D4),
        ("LBT-RU:[fe80::1]:14380:00000009", 9),
        ("LBTRM:10.0.0.1:14390:6481f8d4:224.10.10.10:14400", 0x6481F8D4),
        ("LBT-IPC:1:1", 0),
        ("", 0),
    ],
)
def test_session_of_a_source_string(source: str, number: int) -> None:
    assert session_id(source) == number


def test_columns_of_a_reader_who_names_none() -> None:
    assert default_columns(headers=True, events=True, waits=True) == tuple(COLUMNS)
    assert set(COLUMNS) - set(default_columns(value=False)) == {
        "value",
        "headers",
        "type",
        "numbers",
        "source",
        "batchWaitNs",
    }
