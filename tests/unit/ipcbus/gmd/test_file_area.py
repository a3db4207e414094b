"""A sender's area in files."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest

from ipcbus.errors import GmdAreaDamaged, GmdAreaFull, GmdAreaLocked, GmdError, StorageError, StorageFull
from ipcbus.gmd.area_identity import AreaIdentity
from ipcbus.gmd.delivery_modes import ALL, SOME
from ipcbus.gmd.file_area import FileArea
from ipcbus.gmd.journal_segments import name_of
from ipcbus.gmd.sender_area import SavedMessage
from ipcbus.storage.files import Disk
from ipcbus.wire import gmd_messages, topic_places
from tests.kit.disks import CutOff
from tests.kit.gmd_areas import FOLDER, INCARNATION, disk, entries, opened, pending, save, value

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.disks import FaultyDisk

EVERYTHING = (1, 1 << 62)


@pytest.fixture(params=["system", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk | FaultyDisk, Path]:
    return (Disk(), tmp_path / "area") if request.param == "system" else (disk(), FOLDER)


def segments(files: Disk | FaultyDisk, folder: Path) -> list[str]:
    return [name for name in files.names(folder) if name.endswith(".gmd")]


def used(files: Disk | FaultyDisk, folder: Path) -> int:
    """The bytes of all segments."""
    size = 0
    for name in segments(files, folder):
        with contextlib.closing(files.open(folder / name)) as file:
            size += file.size()
    return size


def test_messages_survive_their_process(place: tuple[Disk | FaultyDisk, Path]) -> None:
    area = opened(*place)
    assert area.save(ALL, 5, 6, b"block", b"one") == 1
    assert area.save(SOME, 0, 7, b"", bytearray(b"two")) == 2
    assert area.save(ALL, 0, 8, b"", memoryview(b"")) == 3
    area.note(b"first note")
    area.release(2, 2)
    area.note(b"second note")
    size = area.size
    area.close()
    area = opened(*place)
    found = area.recovered()
    assert (found.notes, found.unreleased, found.modes, found.damage) == (
        [b"first note", b"second note"],
        [(1, 1), (3, 3)],
        [(1, ALL)],
        [],
    )
    assert area.load(1) == SavedMessage(1, ALL, 5, 6, b"block", b"one")
    assert area.load(2) is None
    assert area.load(3) == SavedMessage(3, ALL, 0, 8, b"", b"")
    assert (area.size, area.last_number, area.incarnation) == (size, 3, INCARNATION)
    assert area.save(ALL, 0, 0, b"", b"four") == 4
    area.close()


def test_the_state_of_the_machine_begins_each_segment(place: tuple[Disk | FaultyDisk, Path]) -> None:
    area = opened(*place, capacity=1 << 12)
    area.checkpoint = lambda: [b"all up to %d" % area.last_number]
    for number in range(1, 200):
        save(area, number)
        area.note(b"note %d" % number)
    area.close()
    area = opened(*place)
    first, *rest = area.recovered().notes
    number = int(first.split()[-1])
    assert rest == [b"note %d" % each for each in range(number, 200)][-len(rest) :]
    assert 0 < len(rest) < 100
    area.close()


def test_releases_of_an_area_that_nothing_else_was_written_to_survive_its_close(
    place: tuple[Disk | FaultyDisk, Path],
) -> None:
    area = opened(*place)
    save(area, 1)
    area.close()
    area = opened(*place)
    area.release(1, 1)
    area.close()
    area = opened(*place)
    assert (pending(area), area.last_number) == ({}, 1)
    area.close()


def test_what_was_taken_back_is_gone(place: tuple[Disk | FaultyDisk, Path]) -> None:
    area = opened(*place)
    save(area, 1)
    assert save(area, 2) == 2
    area.unsave(2)
    assert (area.last_number, pending(area)) == (1, {1: value(1)})
    with pytest.raises(GmdError, match="cannot be taken back"):
        area.unsave(1)
    assert area.save(ALL, 0, 0, b"", b"other") == 2
    area.close()
    area = opened(*place)
    assert pending(area) == {1: value(1), 2: b"other"}
    area.close()


def test_one_late_acknowledgement_keeps_no_segment(place: tuple[Disk | FaultyDisk, Path]) -> None:
    area = opened(*place, capacity=1 << 13)
    for number in range(1, 3001):
        save(area, number)
        if number > 10 and number % 500 != 7:
            area.release(number, number)
    late = {*range(1, 11), 507, 1007, 1507, 2007, 2507}
    assert pending(area) == {number: value(number) for number in late}
    assert used(*place) < 4 << 13
    area.close()
    area = opened(*place, capacity=1 << 13)
    assert pending(area) == {number: value(number) for number in late}
    area.release(*EVERYTHING)
    assert area.size == 0
    area.close()


@pytest.mark.parametrize("drained", ["in order", "last first", "some late"])
def test_files_follow_what_is_pending(place: tuple[Disk | FaultyDisk, Path], drained: str) -> None:
    capacity, numbers = 1 << 14, range(1, 501)
    area = opened(*place, capacity=capacity)
    for number in numbers:
        save(area, number, 500)
    begun = area.serial
    late = {"in order": lambda n: n, "last first": lambda n: -n, "some late": lambda n: (n % 8 == 7, n)}[drained]
    for number in sorted(numbers, key=late):
        area.release(number, number)
        assert used(*place) <= 2 * area.size + 3 * capacity
    assert area.serial < 3 * begun
    area.close()
    area = opened(*place, capacity=capacity)
    assert (pending(area), area.last_number) == ({}, 500)
    area.close()


def test_room_that_cannot_be_freed_now_is_freed_later() -> None:
    files = disk()
    area = opened(files, capacity=1 << 13)
    for number in range(1, 2001):
        save(area, number)
    files.calls, files.fail_at, files.failure = 0, 1, StorageFull
    area.release(1, 1900)
    assert files.calls > 0
    files.fail_at = 0
    area.release(1901, 2000)
    assert used(files, FOLDER) <= 3 << 13
    assert save(area, 2001) == 2001
    area.close()


def test_many_small_sessions_make_few_segments(place: tuple[Disk | FaultyDisk, Path]) -> None:
    for number in range(1, 60):
        area = opened(*place)
        assert save(area, number) == number
        area.close()
    assert len(segments(*place)) < 20
    area = opened(*place)
    assert len(pending(area)) == 59
    area.close()


def test_the_maximum_size_is_exact(place: tuple[Disk | FaultyDisk, Path]) -> None:
    area = opened(*place, max_size=10 * 64)
    for _ in range(10):
        area.save(ALL, 0, 0, b"", b"16 bytes of data")
    assert area.size == 640
    with pytest.raises(GmdAreaFull, match="maximum of 640"):
        area.save(ALL, 0, 0, b"", b"")
    assert area.last_number == 10
    area.note(b"a note fits")
    area.release(3, 3)
    assert area.save(ALL, 0, 0, b"", b"16 bytes of data") == 11
    area.max_size = 700
    assert area.save(ALL, 0, 0, b"", b"1") == 12
    area.close()


def test_a_message_above_the_maximum_is_told_that_it_never_fits(place: tuple[Disk | FaultyDisk, Path]) -> None:
    area = opened(*place, max_size=640)
    with pytest.raises(GmdAreaFull, match=r"1048 bytes.*never fits.*maximum of 640.*gmd_max_size") as failure:
        area.save(ALL, 0, 0, b"", bytes(1000))
    assert "let receivers acknowledge" not in str(failure.value)
    assert (area.last_number, area.size) == (0, 0)
    area.close()


def test_a_message_longer_than_a_segment(place: tuple[Disk | FaultyDisk, Path]) -> None:
    area = opened(*place, capacity=1 << 12)
    long = bytes(range(256)) * 300
    for number in range(1, 7):
        assert area.save(ALL, 0, 0, b"", long if number % 2 else b"short") == number
    area.close()
    area = opened(*place)
    assert pending(area) == {number: long if number % 2 else b"short" for number in range(1, 7)}
    area.close()


def test_an_area_has_one_owner(tmp_path: Path) -> None:
    area = opened(Disk(), tmp_path)
    with pytest.raises(GmdAreaLocked, match=r"in use by pid \d+ on "):
        opened(Disk(), tmp_path)
    area.close()
    opened(Disk(), tmp_path).close()


def test_the_owner_of_the_files_counts(place: tuple[Disk | FaultyDisk, Path]) -> None:
    opened(*place).close()
    with pytest.raises(GmdError, match="belongs to sender gateway of topic orders in domain default"):
        FileArea.open(*place, AreaIdentity("gateway", "orders", "other", 5))
    FileArea.open(*place, AreaIdentity("gateway", "orders", "other", 5), fresh=True).close()


def test_starting_afresh_gives_up_everything(place: tuple[Disk | FaultyDisk, Path]) -> None:
    area = opened(*place)
    save(area, 1)
    area.close()
    area = FileArea.open(*place, AreaIdentity("gateway", "orders", "default", 77), fresh=True)
    assert (area.incarnation, area.last_number, pending(area)) == (77, 0, {})
    area.close()


def test_unknown_durability_is_refused() -> None:
    with pytest.raises(GmdError, match="'perhaps' is not one of process, group, each"):
        opened(disk(), durability="perhaps")


def test_sync_makes_numbers_durable(place: tuple[Disk | FaultyDisk, Path]) -> None:
    area = opened(*place, durability="group", capacity=1 << 12)
    for number in range(1, 100):
        save(area, number)
    area.sync()
    assert area.durable_number == 99
    save(area, 100)
    assert area.durable_number == 99
    area.unsave(100)
    area.sync()
    assert area.durable_number == 99
    area.close()
    area = opened(*place, durability="each")
    assert save(area, 100) == area.durable_number == 100
    area.unsave(100)
    assert area.durable_number == 99
    area.close()


@pytest.mark.parametrize("found_by", ["check", "sync", "growth"])
@pytest.mark.parametrize("gone", ["directory", "lock", "segment"])
def test_an_area_whose_files_are_removed_fails(tmp_path: Path, found_by: str, gone: str) -> None:
    area = opened(Disk(), tmp_path / "area")
    save(area, 1)
    for path in (tmp_path / "area").iterdir():
        if gone in ("directory", path.name) or (gone == "segment" and path.suffix == ".gmd"):
            path.unlink()
    if gone == "directory":
        (tmp_path / "area").rmdir()
    with pytest.raises(GmdError, match=r"area.*removed while it was open.*close the source and make it again"):
        area.check() if found_by == "check" else area.sync() if found_by == "sync" else save(area, 2, 1 << 20)
    area.check()
    with pytest.raises(GmdError, match="removed while it was open"):
        save(area, 2)
    assert pending(area) == {1: value(1)}
    area.release(1, 1)
    area.close()
    if gone == "directory":
        again = opened(Disk(), tmp_path / "area")
        assert save(again, 1) == 1
        again.close()


@pytest.mark.parametrize("durability", ["group", "each"])
def test_a_failed_sync_ends_the_area(durability: str) -> None:
    files = disk()
    area = opened(files, durability=durability)
    save(area, 1)
    area.sync()
    files.sync_fails = True
    with pytest.raises(GmdError, match="failed"):
        if durability == "each":
            save(area, 2)
        area.sync()
    files.sync_fails = False
    for _ in range(2):
        with pytest.raises(GmdError, match="check the disk, and make it again"):
            save(area, 3)
        with pytest.raises(GmdError, match="failed"):
            area.sync()
    assert area.load(1) is not None
    area.release(1, 1)
    area.close()
    area = opened(files)
    assert 1 in pending(area)
    area.close()


def test_an_area_that_cannot_be_made_is_an_error() -> None:
    for call in range(1, 60):
        files = disk()
        files.fail_at = call
        files.failure = StorageFull if call % 2 else StorageError
        try:
            area = opened(files)
        except GmdError:
            assert not files.locks
            files.fail_at = 0
            area = opened(files)
        files.fail_at = 0
        assert save(area, 1) == 1
        area.close()
        assert not files.locks


def test_a_closed_area_refuses(place: tuple[Disk | FaultyDisk, Path]) -> None:
    area = opened(*place)
    area.close()
    area.close()
    with pytest.raises(GmdError, match="closed"):
        save(area, 1)
    with pytest.raises(GmdError, match="closed"):
        area.note(b"")
    area.release(1, 1)


@pytest.mark.parametrize("power", [False, True])
def test_a_start_afresh_that_is_cut_leaves_all_or_nothing(power: bool) -> None:
    """At each operation, by a kill and by a power loss: no number is given twice in one incarnation."""
    older = disk()
    area = opened(older, capacity=1 << 10)
    while len(older.names(FOLDER)) < 6:
        save(area, area.last_number + 1)
    area.sync()
    area.close()
    before = area.last_number
    for cut_at in range(1, 60):
        files = older.killed()
        files.cut_at = cut_at
        with contextlib.suppress(CutOff):
            FileArea.open(files, FOLDER, AreaIdentity("gateway", "orders", "default", 77), fresh=True).close()
        left = files.lost_power() if power else files.killed()
        with contextlib.suppress(GmdAreaDamaged):
            area = FileArea.open(left, FOLDER, AreaIdentity("gateway", "orders", "default", 79))
            assert area.incarnation != INCARNATION or area.last_number >= before
            area.close()
        area = FileArea.open(left, FOLDER, AreaIdentity("gateway", "orders", "default", 78), fresh=True)
        assert (area.incarnation, area.last_number, pending(area)) == (78, 0, {})
        assert save(area, 1) == 1
        area.close()


def test_entries_have_their_places_in_runs() -> None:
    area = opened(disk())
    for number in range(1, 8):
        area.save(ALL, topic_places.pack(number, number), 0, b"", value(number))
        area.note(b"x" * (3000 * (number % 3)))  # stands between the records, in some places too long for one read
    runs = {1: (0, 0, 2), 3: (5, topic_places.pack(7, 9), 3), 4: (5, None, 5), 6: (6, None, 7)}
    asked: list[int] = []

    def place_run(number: int) -> tuple[int, int | None, int]:
        asked.append(number)
        return runs[number]

    parts, count, _, following = area.entries(1, 100, 1 << 20, place_run)
    found = gmd_messages.decode(gmd_messages.resent(1, 1, 1, 1, 8, 0, parts))
    assert isinstance(found, gmd_messages.Resent)
    numbers = [None, None, (7, 9), (4, 4), (5, 5), (6, 6), (7, 7)]
    assert [each.topic_numbers for each in found.entries] == numbers
    assert [each.opening for each in found.entries] == [0, 0, 5, 5, 5, 6, 6]
    assert [each.data for each in found.entries] == [value(number) for number in range(1, 8)]
    assert (asked, count, following) == ([1, 3, 4, 6], 7, 101)


def test_entries_end_before_damage() -> None:
    files = disk()
    area = opened(files)
    for number in range(1, 6):
        save(area, number)
    where = area.index.where(3)
    assert where is not None
    with contextlib.closing(files.open(FOLDER / name_of(where[0]), write=True)) as file:
        file.write_at(where[1] + 50, b"!")
    assert [each.number for each in entries(area, 1)] == [1, 2]
    assert area.entries(1, 5, 1 << 20, lambda number: (7, None, number))[3] == 3
    with pytest.raises(GmdAreaDamaged):
        area.entries(3, 5, 1 << 20, lambda number: (7, None, number))
    assert [each.number for each in entries(area, 4)] == [4, 5]


@pytest.mark.parametrize("durability", ["group", "each"])
def test_a_sync_does_not_ask_for_the_times_of_its_file(
    tmp_path: Path, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file that was asked for them, Linux notes the time of the next write, and the next sync takes longer."""
    area = opened(Disk(), tmp_path / "area", durability=durability)
    save(area, 1)
    save(area, 2)
    fstat, segment = os.fstat, area.current
    assert segment is not None

    def other(fd: int) -> os.stat_result:
        assert fd != segment.descriptor
        return fstat(fd)

    monkeypatch.setattr(os, "fstat", other)
    area.sync()
    monkeypatch.undo()
    assert area.durable_number == 2
    area.close()
