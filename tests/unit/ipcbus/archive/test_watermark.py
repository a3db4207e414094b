"""Watermarks: three copies, of which a torn or damaged one is never believed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, cast

import pytest

from ipcbus.archive import watermark
from ipcbus.archive.archive_layout import WATERMARK_AT
from ipcbus.archive.watermark import Watermark

if TYPE_CHECKING:
    from ipcbus.storage.files import File

MARK = Watermark(
    next_offset=9, limit=20, base=4, data_bytes=100, blocks=2, names=3, time_ns=5, boot=b"b" * 16, serial=7
)


class Copies:
    """A file of three copies."""

    def __init__(self, *marks: Watermark | None) -> None:
        self.data = bytearray(max(WATERMARK_AT) + 4096)
        for at, mark in zip(WATERMARK_AT, marks, strict=True):
            if mark is not None:
                self.data[at : at + len(mark.pack())] = mark.pack()

    def read_at(self, offset: int, size: int) -> bytes:
        return bytes(self.data[offset : offset + size])


def file(*marks: Watermark | None) -> File:
    return cast("File", Copies(*marks))


def serial(number: int) -> Watermark:
    return dataclasses.replace(MARK, serial=number)


@pytest.mark.parametrize("mark", [MARK, Watermark(), dataclasses.replace(MARK, gone=True, closed=True)])
def test_a_watermark_survives_its_bytes(mark: Watermark) -> None:
    assert watermark.unpack(mark.pack()) == mark


def test_a_torn_or_impossible_watermark_is_not_believed() -> None:
    packed = MARK.pack()
    assert watermark.unpack(packed[:-1]) is None
    for at in range(len(packed)):
        changed = bytearray(packed)
        changed[at] ^= 1
        assert watermark.unpack(bytes(changed)) is None
    assert watermark.unpack(dataclasses.replace(MARK, limit=8).pack()) is None
    assert watermark.unpack(dataclasses.replace(MARK, base=10).pack()) is None


def test_readers_take_the_first_copy_or_the_newer_synced_one() -> None:
    assert watermark.published(file(serial(3), serial(1), serial(2))) == serial(3)
    assert watermark.published(file(None, serial(1), serial(2))) == serial(2)
    assert watermark.published(file(None, serial(4), None)) == serial(4)
    assert watermark.published(file(None, None, None)) is None
    assert watermark.live(file(None, serial(1), serial(2))) is None


def test_the_next_synced_copy_replaces_the_older_or_damaged_one() -> None:
    assert watermark.place_for_next(file(None, serial(1), serial(2))) == WATERMARK_AT[1]
    assert watermark.place_for_next(file(None, serial(2), serial(1))) == WATERMARK_AT[2]
    assert watermark.place_for_next(file(None, None, serial(1))) == WATERMARK_AT[1]
    assert watermark.place_for_next(file(None, serial(1), None)) == WATERMARK_AT[2]


def test_damaged_copies_are_named_by_their_places() -> None:
    assert watermark.damaged(file(MARK, None, MARK)) == [WATERMARK_AT[1]]
