from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipcbus.archive import Archive, Chunk
from ipcbus.archive.archive_layout import ROW, TYPE_LOSS_DAMAGE
from ipcbus.archive.arrow import Converter, chunks, loss_row, schema
from ipcbus.archive.columns import COLUMNS
from ipcbus.archive.row_filter import Labels, RowSelection
from ipcbus.errors import ArchiveDamaged
from ipcbus.wire.properties import pack
from tests.kit.records import Record, Unwritten, append, as_rows, counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ipcbus.archive import Log

ALL = list(COLUMNS)
HEADERS = st.lists(st.tuples(st.sampled_from(["key", "a", "ü"]), st.binary(max_size=5)), max_size=3).map(tuple)
MESSAGES = st.builds(
    Record,
    value=st.binary(max_size=20),
    topic=st.sampled_from(["t", "u", "ä.b"]),
    source=st.sampled_from(["LBT-IPC:6481f8d4:20001", "LBT-IPC:1:1"]),
    headers=st.just(()) | HEADERS,
    seq=st.integers(-(2**63), 2**63 - 1),
    send_ns=st.integers(0, 2**62),
    receive_ns=st.integers(0, 2**60),
    flags=st.integers(0, 255),
    batch_wait_ns=st.none() | st.integers(0, 2**31 - 1).map((16).__mul__),
)
EVENTS = st.builds(
    Record,
    type=st.sampled_from([1, 4, 5, 20, 254, 255]),
    topic=st.sampled_from(["", "t"]),
    numbers=st.integers(1, 2**32 - 1),
)


def made(log: Log, names: Sequence[str], choice: RowSelection | None = None, **limits: int) -> list[Any]:
    """Record batches of all rows of a log."""
    converter = Converter(Labels(log), schema(names), choice)
    found = [converter.batch(chunk) for chunk in log.read(*log.bounds(), **limits)]
    for batch in found:
        if batch is not None:
            batch.validate(full=True)
    return [batch for batch in found if batch is not None]


def rows(batches: list[Any]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


@given(
    st.lists(MESSAGES | MESSAGES | EVENTS, max_size=12),
    st.lists(st.sampled_from(ALL), unique=True, min_size=1),
    st.booleans(),
    st.sampled_from([None, "t", "u"]),
    st.integers(1, 12),
)
def test_batches_are_what_each_record_becomes(
    records: list[Record], names: list[str], events: bool, topic: str | None, max_rows: int
) -> None:
    log: Any = Unwritten(records)
    converter = Converter(
        Labels(log), schema(names), RowSelection(None if topic is None else topic.__eq__, events=events)
    )
    found = []
    for begin in range(0, len(records), max_rows):
        batch = converter.batch(log.read(begin, begin + max_rows))
        if batch is not None:
            batch.validate(full=True)
            found += batch.to_pylist()
    expected = [
        {name: row[name] for name in names}
        for row in as_rows(records, waits=True)
        if (events or row["type"] == 0) and (topic is None or row["topic"] in ("", topic))
    ]
    assert found == expected


def test_values_are_not_copied(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path)
    with archive.writer("host") as writer:
        append(writer, counted(100, size=64))
    log = archive.log("host/0")
    (chunk,) = log.read(0, 100)
    batch = Converter(Labels(log), schema(["value"])).batch(chunk)
    assert batch.column(0).buffers()[2].address == chunk.data.ctypes.data


def test_what_is_not_asked_for_is_not_read(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path)
    with archive.writer("host") as writer:
        append(writer, counted(100, size=64))
    log = archive.log("host/0")
    (chunk,) = log.read(10, 20, messages=False, max_bytes=1)
    assert len(chunk.data) == 0
    batch = Converter(Labels(log), schema(["seq"])).batch(chunk)
    assert batch.column(0).to_pylist() == list(range(10, 20))


def test_header_blocks_are_read_only_where_there_are_some(tmp_path: Path) -> None:
    records = [*counted(3), Record(b"x", headers=(("key", b"k"),)), *counted(4, 3)]
    archive = Archive.create(tmp_path)
    with archive.writer("host") as writer:
        append(writer, records)
    log = archive.log("host/0")
    found = list(chunks(log, 0, 8, Converter(Labels(log), schema(["key"])), max_rows=2, max_bytes=1000))
    assert [len(chunk.data) for chunk in found] == [0, len(pack((("key", b"k"),))) + 1 + 8, 0, 0]
    converter = Converter(Labels(log), schema(["key"]))
    keys = [key for chunk in found for key in converter.batch(chunk).column(0).to_pylist()]
    assert keys == [None] * 3 + [b"k"] + [None] * 4


def test_without_messages_damage_of_rows_is_still_seen(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path)
    with archive.writer("host") as writer:
        append(writer, counted(100))
    (index,) = (tmp_path / "host" / "0").glob("*.idx")
    data = bytearray(index.read_bytes())
    data[24] ^= 1
    index.write_bytes(data)
    with pytest.raises(ArchiveDamaged, match="checksum of its rows"):
        list(archive.log("host/0").read(0, 100, messages=False))


def test_large_values(tmp_path: Path) -> None:
    values = [bytes([number]) * (3 << 20) for number in range(4)]
    archive = Archive.create(tmp_path)
    with archive.writer("host") as writer:
        for number, value in enumerate(values):
            append(writer, [Record(value, headers=(("key", b"%d" % number),))])
    found = made(archive.log("host/0"), ["key", "value"], max_bytes=7 << 20)
    assert [batch.num_rows for batch in found] == [2, 2]
    assert rows(found) == [{"key": b"%d" % number, "value": value} for number, value in enumerate(values)]


def test_a_header_block_that_makes_no_sense(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path)
    with archive.writer("host") as writer:
        append(writer, counted(1))
    record = np.zeros(1, ROW)
    record["headers"] = 4
    converter = Converter(Labels(archive.log("host/0")), schema(["headers"]))
    with pytest.raises(ArchiveDamaged, match="a header block in the rows from offset 7 on is damaged"):
        converter.batch(Chunk(7, record, np.frombuffer(b"\x09\0\1a", np.uint8), 0))


def test_rows_that_cannot_be_read_are_a_loss(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path)
    with archive.writer("host") as writer:
        append(writer, counted(1))
    names = ["value", "topic", "offset", "type", "numbers", "source"]
    converter = Converter(Labels(archive.log("host/0")), schema(names), RowSelection(lambda _: False, events=True))
    (row,) = converter.batch(loss_row(40, 55)).to_pylist()
    assert tuple(row.values()) == (None, "", 40, TYPE_LOSS_DAMAGE, 15, "")


def test_size_and_reach(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path)
    sizes = [number % 7 for number in range(60)]
    with archive.writer("host") as writer:
        for begin in range(0, 60, 20):
            append(writer, [Record(b"x" * size) for size in sizes[begin : begin + 20]])
            writer.roll()
    log = archive.log("host/0")
    for start in range(0, 60, 7):
        for end in range(start, 61, 5):
            assert log.size(start, end) == sum(sizes[start:end])
            for size in (0, 1, 13, 60, 1000):
                reached = log.reach(start, end, size)
                assert start <= reached <= end
                assert sum(sizes[start:reached]) <= size
                assert reached == end or sum(sizes[start : reached + 1]) > size


def test_without_pyarrow_the_extra_is_named() -> None:
    script = "import sys; sys.modules['pyarrow'] = None; import ipcbus.archive.arrow"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "in a clone of ipcbus: pip install '.[spark]'" in done.stderr


def test_from_an_archive(tmp_path: Path) -> None:
    records = [*counted(5), Record(b"x", "u", headers=(("key", b"k"),)), Record(type=4, numbers=3), *counted(5, 8)]
    archive = Archive.create(tmp_path)
    with archive.writer("host") as writer:
        append(writer, records[:4])
        append(writer, records[4:])
    log = archive.log("host/0")
    assert rows(made(log, ALL, RowSelection(events=True), max_rows=3)) == as_rows(records, waits=True)
    assert rows(made(log, ["seq"], RowSelection("u".__eq__))) == [{"seq": 0}]
