"""Small JSON files with a checksum: whatever changes in them is noticed, and one flipped bit is mended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus.archive import json_files
from ipcbus.errors import ArchiveDamaged
from ipcbus.storage.files import Disk
from tests.kit.cases import each_of

if TYPE_CHECKING:
    from pathlib import Path

FOUND = {"first": 7, "name": "log"}
PACKED = json_files.pack(FOUND)


def test_what_is_packed_comes_back_without_the_checksum() -> None:
    assert json_files.unpack(PACKED) == FOUND
    assert json_files.is_canonical(PACKED)
    assert not json_files.is_canonical(PACKED.replace(b":", b": ", 1))


@each_of("data", [b"", b"[1]", b"7", b"{", b"[" * 100_000, PACKED.replace(b"7", b"8")])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="."):
        json_files.unpack(data)


def test_a_file_of_an_older_release_has_no_checksum() -> None:
    assert json_files.unpack(b'{"first":7}') == {"first": 7}
    with pytest.raises(ValueError, match="checksum"):
        json_files.unpack(b'{"first":7}', older=False)


def test_each_flipped_bit_is_mended_and_two_are_not() -> None:
    for at in range(8 * len(PACKED)):
        flipped = bytearray(PACKED)
        flipped[at // 8] ^= 1 << at % 8
        assert json_files.corrected(bytes(flipped)) == PACKED
    flipped = bytearray(PACKED)
    flipped[3] ^= 1
    flipped[9] ^= 1
    assert json_files.corrected(bytes(flipped)) is None


@each_of(
    ("value", "whole"),
    [(0, True), (json_files.WHOLE_MAX, True), (-1, False), (1 << 63, False), (True, False), (1.0, False)],
)
def test_whole_numbers(value: object, whole: bool) -> None:
    assert json_files.is_whole(value) == whole


def test_a_file_names_itself_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    path.write_bytes(PACKED)
    assert json_files.read(Disk(), path, len(PACKED)) == FOUND
    with pytest.raises(ArchiveDamaged, match=f"small.json: is longer than {len(PACKED) - 1} bytes"):
        json_files.read(Disk(), path, len(PACKED) - 1)
    path.write_bytes(b"{")
    with pytest.raises(ArchiveDamaged, match="small.json: is not the JSON object that was written"):
        json_files.read(Disk(), path, 100)
