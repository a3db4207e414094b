"""Damaged and torn journals: nothing wrong is ever read, and no message is missing without its number."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING

import pytest

from ipcbus.errors import GmdAreaDamaged
from ipcbus.gmd.file_area import FileArea
from ipcbus.gmd.journal_segments import SegmentHead, name_of, serials
from tests.kit.gmd_areas import (
    FOLDER,
    GATEWAY,
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
    from collections.abc import Iterator

    from tests.kit.disks import FaultyDisk

NOTES = [b"state", b"note 1", b"note 2"]


def look(files: FaultyDisk, expected: dict[int, bytes]) -> set[int]:
    """Opens an area that was damaged: what is missing must be named, before and after the repair.

    Returns:
        The numbers that are missing.
    """
    with pytest.raises(GmdAreaDamaged, match=r"/area\b|\.gmd: damaged at offset \d+|all segments") as raised:
        opened(files)
    named = str(raised.value)
    area = opened(files, repair=True)
    there = pending(area)
    missing = {n for first, last in area.recovered().damage for n in range(first, last + 1)}
    assert not (missing & there.keys())
    assert all(there[number] == expected[number] for number in there.keys() & expected.keys())
    assert there.keys() <= expected.keys() | {2, 3, 5}, "only released messages may come back"
    assert missing >= expected.keys() - there.keys(), named
    next_number = save(area, 10_000)
    assert next_number > 25
    area.close()
    area = opened(files)
    assert pending(area) == there | {next_number: value(10_000)}
    assert {n for first, last in area.recovered().damage for n in range(first, last + 1)} == missing
    assert not missing or "missing: " in named
    area.close()
    return missing


def flips(data: bytes) -> Iterator[bytes]:
    """The bytes with each single bit flipped."""
    for at in range(len(data)):
        for bit in range(8):
            yield data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


# Every 33rd bit is another bit of every fourth byte: no number and no checksum of a record is left out.
@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.long) for first in range(1, 33))])
def test_every_flipped_bit_is_seen(first: int) -> None:
    files, expected = small_area()
    files = files.killed()
    most = 0
    for path, data in copies(files).items():
        for number, spoiled in enumerate(flips(data)):
            if number % 33 != first:
                continue
            other = files.killed()
            other.spoil(path, spoiled)
            if number // 8 >= records_end(data):
                assert is_whole(other, expected)
            elif number // 33 % 7 == 0:
                most = max(most, len(look(other, expected)))
            else:
                with pytest.raises(GmdAreaDamaged):
                    opened(other)
    assert most <= 20


def test_an_undamaged_area_is_undamaged() -> None:
    files, expected = small_area()
    files = files.killed()
    area = opened(files)
    assert (pending(area), area.recovered().damage, area.recovered().notes) == (expected, [], NOTES)
    area.close()


@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.long)])
def test_every_truncation_is_a_shorter_area_or_damage(step: int) -> None:
    files, expected = small_area()
    files = files.killed()
    *older, newest = sorted(copies(files))
    for path in older:
        data = copies(files)[path]
        for size in range(0, records_end(data), step):
            other = files.killed()
            other.spoil(path, data[:size])
            look(other, expected)
    data = copies(files)[newest]
    head = SegmentHead.unpack(data)
    assert head is not None
    base, kept = head.base, -1
    for size in (*range(64, len(data) - 1, step), len(data) - 1):
        other = files.killed()
        other.spoil(newest, data[:size])
        try:
            area = opened(other)
        except GmdAreaDamaged:
            assert kept < 0, "the records after the checkpoint may be torn"
            look(other, {number: expected[number] for number in expected if number < base})
            continue
        there = pending(area)
        assert there.keys() <= expected.keys() | {5}
        assert sorted(there) == sorted(
            (expected.keys() | {5} if 5 in there else expected.keys()) & set(range(1, max(there) + 1))
        )
        assert all(there[number] == value(number) for number in there)
        assert len(there) >= kept - 1
        kept = len(there)
        area.close()
    assert kept == len(expected)


def test_a_missing_segment_is_damage() -> None:
    files, expected = small_area()
    files = files.killed()
    for path in sorted(copies(files))[:-1]:
        other = files.killed()
        other.spoil(path, None)
        assert look(other, expected)


def test_all_segments_missing_is_damage() -> None:
    files, _ = small_area()
    files = files.killed()
    for path in copies(files):
        files.spoil(path, None)
    for repair in (False, True):  # a repair would give the numbers of lost messages to others
        with pytest.raises(GmdAreaDamaged, match="all segments of the area are missing"):
            opened(files, repair=repair)
    area = FileArea.open(files, FOLDER, dataclasses.replace(GATEWAY, incarnation=5), fresh=True)
    assert (area.incarnation, area.last_number, pending(area)) == (5, 0, {})
    area.close()


@pytest.mark.parametrize("change", ["missing", "flipped"])
def test_the_identity_can_be_repaired(change: str) -> None:
    files, expected = small_area()
    files = files.killed()
    data = files.content()[FOLDER / "area"]
    files.spoil(FOLDER / "area", None if change == "missing" else data[:20] + b"?" + data[21:])
    assert look(files, expected) == set()


def test_old_bytes_of_reused_space_do_not_come_back() -> None:
    """A file system may show, behind a torn tail, what stood there before: here, records of every other segment."""
    files, expected = small_area()
    files = files.killed()
    paths = sorted(copies(files))
    newest = copies(files)[paths[-1]]
    for path in paths:
        for shift in range(0, 200, 8):
            other = files.killed()
            stale = copies(files)[path]
            other.spoil(paths[-1], newest[:-20] + stale[len(newest) - 20 + shift :][:2000])
            there = {}
            for repair in (False, True):
                try:
                    area = opened(other, repair=repair)
                except GmdAreaDamaged:
                    continue
                there = pending(area)
                area.close()
                break
            assert {number: value(number) for number in there} == there
            assert there.keys() <= expected.keys()


def test_after_a_power_loss_no_number_is_given_twice() -> None:
    for seed in range(40):
        files = disk(seed)
        area = opened(files, capacity=1 << 12)
        for number in range(1, 30):
            save(area, number)
        left = files.lost_power()
        area = opened(left)
        there = pending(area)
        assert all(there[number] == value(number) for number in there)
        lost = {n for first, last in area.recovered().damage for n in range(first, last + 1)}
        assert not lost & there.keys()
        assert lost >= set(range(1, max(there, default=0))) - there.keys()
        assert save(area, 50) > 29
        area.close()


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 100), marks=pytest.mark.long)])
@pytest.mark.parametrize("durability", ["process", "group", "each"])
def test_no_number_comes_again_after_lives_that_took_messages_back(durability: str, seeds: range) -> None:
    """Lives that end in order or by a kill, with messages that were taken back; then power is lost.

    In durability `process`, a message that was taken back may be on the disk instead of the next one with its number.
    """
    for seed in seeds:
        draw = random.Random(seed)
        files = disk(seed)
        area = opened(files, durability=durability, capacity=1 << 12)
        given: dict[int, bytes] = {}
        taken_back: dict[int, set[bytes]] = {}
        for content in range(draw.randrange(1, 60)):
            number = save(area, content)
            given[number] = value(content)
            what = draw.randrange(8)
            if what < 2:
                area.unsave(number)
                taken_back.setdefault(number, set()).add(given.pop(number))
            elif what == 2:
                area.sync()
            elif what < 5:
                if what == 3:
                    area.close()
                else:
                    files = files.killed()
                area = opened(files, durability=durability, capacity=1 << 12)
        area = opened(files.lost_power(), durability=durability, capacity=1 << 12)
        for number, data in pending(area).items():
            if durability != "process" or data not in taken_back.get(number, ()):
                assert data == given[number]
        assert save(area, 99) > max(given, default=0)
        area.close()


def test_names_of_segments() -> None:
    assert serials([name_of(5), "area", "spare", name_of(1 << 60), "x.gmd", "0000000000000005.gmd.bak"]) == [5, 1 << 60]
