"""Where a journal ends: after its last record, in front of zeros, or in the middle of a record that a kill tore."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

import pytest

from ipcbus.errors import GmdAreaDamaged, GmdError
from ipcbus.gmd.area_inspection import inspect, saved_messages
from ipcbus.gmd.journal_layout import END_BYTES
from ipcbus.gmd.journal_segments import SegmentHead
from tests.kit.disks import FaultyFile
from tests.kit.gmd_areas import (
    FOLDER,
    busy_area,
    copies,
    disk,
    is_whole,
    opened,
    pending,
    records_end,
    save,
    small_area,
    value,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.disks import FaultyDisk


def filled() -> tuple[FaultyDisk, dict[int, bytes], Path, bytes]:
    """An area whose newest segment ends with zeros; what it has, the path and the bytes of this segment."""
    files, expected = small_area("each")
    files = files.killed()
    newest = max(copies(files))
    data = copies(files)[newest]
    assert data[-200:] == bytes(200)
    return files, expected, newest, data


def missing(files: FaultyDisk) -> set[int]:
    """The numbers that are missing in a damaged area, which is repaired."""
    with pytest.raises(GmdAreaDamaged):
        opened(files)
    area = opened(files, repair=True)
    there, gone = pending(area), {n for first, last in area.recovered().damage for n in range(first, last + 1)}
    assert not there.keys() & gone
    area.close()
    return gone


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("durability", ["process", "each"])
@pytest.mark.parametrize("length", [0, 13, 300])
def test_a_save_that_is_killed_at_any_byte_is_torn(durability: str, length: int, step: int) -> None:
    """In durability `each` zeros follow, else the end of the file; a value of zeros looks like those."""
    files, area = busy_area(durability)
    before, expected, old = files.killed(), pending(area), copies(files)
    newest = max(old)
    data = value(77, length) if length == 13 else bytes(length)
    number = area.save(1, 0, 0, b"", data)
    new = copies(files)[newest]
    first = next(at for at, (ours, its) in enumerate(zip_longest(old[newest], new)) if ours != its)
    end = records_end(new)
    assert first + 48 <= end
    last = end + END_BYTES
    for cut in (*range(first, last - 1, step), last - 1, last):
        other = before.killed()
        other.spoil(newest, new[:cut] + old[newest][cut:])
        at_end = pending(opened(other.killed()))
        assert at_end in (expected, expected | {number: data})
        assert is_whole(other, at_end)
        assert (number in at_end) >= (cut >= end + END_BYTES)


def test_each_flipped_byte_of_a_filled_segment_is_seen() -> None:
    files, expected, newest, data = filled()
    end = records_end(data)
    for at in (*range(end + END_BYTES), *range(end + END_BYTES, len(data), 97)):
        other = files.killed()
        other.spoil(newest, data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        if at < end:
            with pytest.raises(GmdAreaDamaged):
                opened(other)
        else:
            assert is_whole(other, expected)


def test_a_damaged_last_record_is_named_though_zeros_follow() -> None:
    files, expected, newest, data = filled()
    end, last = records_end(data), max(expected)
    files.spoil(newest, data[: end - 9] + b"?" + data[end - 8 :])
    assert missing(files) == {last}


def test_zeros_in_the_middle_are_damage() -> None:
    files, expected, newest, data = filled()
    end, last = records_end(data), max(expected)
    start = data.rindex(value(last - 1)) - 48
    files.spoil(newest, data[:start] + bytes(end - start - 40) + data[end - 40 :])
    assert missing(files) >= {last - 1, last}


def test_old_records_behind_the_end_do_not_count() -> None:
    files, expected, newest, data = filled()
    end = records_end(data) + END_BYTES
    for path, stale in copies(files).items():
        for shift in range(0, 64, 8):
            other = files.killed()
            other.spoil(newest, data[:end] + stale[shift:])
            assert is_whole(other, expected), path


def as_version(version: int, data: bytes) -> bytes:
    """A segment as another version of the layout has it."""
    head = SegmentHead.unpack(data)
    assert head is not None
    return head._replace(version=version).pack() + data[64 : records_end(data)]


def test_version_1_is_read() -> None:
    files, expected = small_area()
    files = files.killed()
    for path, data in copies(files).items():
        files.spoil(path, as_version(1, data))
    assert is_whole(files.killed(), expected)
    newest = max(copies(files))
    data = copies(files)[newest]
    torn = files.killed()
    torn.spoil(newest, data[:-20])
    assert is_whole(torn, {number: expected[number] for number in expected if number < max(expected)})
    files.spoil(newest, data[:-1] + b"?")
    assert missing(files) == {max(expected)}


def test_a_later_version_is_refused() -> None:
    files, _ = small_area()
    newest = max(copies(files))
    files.spoil(newest, as_version(3, copies(files)[newest]))
    with pytest.raises(GmdError, match=r"\.gmd: this version reads versions 1 to 2 of the journal, not 3; use"):
        opened(files.killed())


@pytest.mark.parametrize("durability", ["process", "each"])
def test_a_live_area_is_read_without_holes(durability: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner saves while the file is read, in the part that is read already and in the part that is not."""
    files = disk()
    area = opened(files, durability=durability)
    for number in range(1, 40):
        save(area, number)
    read_at = FaultyFile.read_at

    def slowly(file: FaultyFile, offset: int, length: int) -> bytes:
        half = area.end + 150 - offset
        if not 0 < half < length or not file.path.name.endswith(".gmd"):
            return read_at(file, offset, length)
        begin = read_at(file, offset, half)
        for number in range(area.last_number + 1, area.last_number + 4):
            save(area, number)
        return begin + read_at(file, offset + half, length - half)

    monkeypatch.setattr(FaultyFile, "read_at", slowly)
    found = inspect(files, FOLDER)
    assert not found.faults
    assert [message.number for message in saved_messages(files, found)][:39] == list(range(1, 40))
    monkeypatch.undo()
    area.close()
