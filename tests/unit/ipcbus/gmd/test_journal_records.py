"""The records of a journal."""

from __future__ import annotations

import pytest

from ipcbus.gmd import journal_layout as layout
from ipcbus.gmd import journal_records as records
from ipcbus.gmd.copy_index import CopyIndex

STAMP = records.segment_stamp(0x1234, 5)


def message(number: int, offset: int, body: bytes = b"value") -> bytes:
    return records.pack(
        layout.KIND_MESSAGE, STAMP, offset, number, first=7, second=8, mode=2, block=b"block", body=body
    )


def test_a_record_is_read_at_its_place_only() -> None:
    data = bytes(64) + message(9, 64)
    record = records.read(data, 64, STAMP)
    assert record is not None
    assert (record.kind, record.mode, record.number, record.first, record.second) == (layout.KIND_MESSAGE, 2, 9, 7, 8)
    assert (record.block, record.body, record.offset, record.size) == (b"block", b"value", 64, 64)
    assert records.read(data[8:], 56, STAMP) is None
    assert records.read(data, 64, records.segment_stamp(0x1234, 6)) is None
    assert records.read(data, 64, records.segment_stamp(0x1235, 5)) is None
    assert records.read(data[:-1], 64, STAMP) is None
    assert records.read(data, 1000, STAMP) is None
    assert records.claim(data[:-1], 64, STAMP) == (layout.KIND_MESSAGE, 64)
    assert records.claim(data[:100], 64, STAMP) is None
    assert records.find(data, 0, STAMP) == 64
    assert records.find(data, 65, STAMP) == -1


def test_replay_stops_where_numbers_do_not_continue() -> None:
    data, offsets = b"", []
    for number in (4, 5, 7):
        offsets.append(len(data))
        data += message(number, len(data))
    index = CopyIndex()
    assert records.replay(data, 0, len(data), STAMP, 5, index, 3) == (offsets[2], 5)
    assert index.unreleased() == [(4, 5)]
    assert index.where(5) == (5, offsets[1], 64, 2)
    data += records.pack(layout.KIND_RELEASE, STAMP, len(data), 7, first=4, second=7)
    assert records.replay(data, offsets[2], len(data), STAMP, 5, index, 6) == (len(data), 7)
    assert (index.unreleased(), index.bytes) == ([], 0)


def test_replay_without_new_messages_only_finds_what_is_expected() -> None:
    index = CopyIndex()
    index.expect(5, 5)
    data = message(4, 0) + message(5, 64) + records.pack(layout.KIND_NOTE, STAMP, 128, 5, body=b"note")
    assert records.replay(data, 0, 1 << 20, STAMP, 5, index, -1) == (len(data), -1)
    assert index.unreleased() == [(5, 5)]
    assert index.missing() == []


def test_a_record_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        records.pack(layout.KIND_MESSAGE, STAMP, 0, 1, block=bytes(1 << 16))
