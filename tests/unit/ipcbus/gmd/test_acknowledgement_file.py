"""A receiver's area in files."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from ipcbus.errors import GmdAreaDamaged, GmdAreaFull, GmdAreaLocked, GmdError, StorageError, StorageFull
from ipcbus.gmd import acknowledgement_file
from ipcbus.gmd.acknowledgement_file import NAME, FileReceiverArea
from ipcbus.gmd.area_identity import AreaIdentity
from ipcbus.gmd.journal_segments import SPARE
from ipcbus.gmd.receiver_area import MemoryReceiverArea
from ipcbus.storage.files import Disk
from tests.kit.disks import CutOff, FaultyDisk, FaultyFile
from tests.kit.gmd_areas import FOLDER as SENDER
from tests.kit.gmd_areas import disk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ipcbus.storage.files import Files

IDENTITY = AreaIdentity("settlement", "orders", "default")
FOLDER = SENDER.with_name("receiver")


def opened(
    files: Files, folder: Path = FOLDER, *, durability: str = "process", repair: bool = False
) -> FileReceiverArea:
    return FileReceiverArea.open(files, folder, IDENTITY, durability=durability, repair=repair)


@pytest.fixture(params=["system", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk | FaultyDisk, Path]:
    return (Disk(), tmp_path / "area") if request.param == "system" else (disk(), FOLDER)


def test_acknowledgements_survive_their_process(place: tuple[Disk | FaultyDisk, Path]) -> None:
    area = opened(*place)
    assert area.known("gateway", 7) == (0, [])
    area.record("gateway", 7, 5, [(8, 9), (11, 11)])
    area.record("gateway", 8, 1 << 60, [])
    area.record("gäteway", (1 << 64) - 1, 1, [])
    area.record("gateway", 7, 9, [(11, 1 << 63)])
    area.forget("gäteway", (1 << 64) - 1)
    area.forget("unknown", 1)
    area.sync()
    area.close()
    area.close()
    area = opened(*place)
    assert area.known("gateway", 7) == (9, [(11, 1 << 63)])
    assert area.known("gateway", 8) == (1 << 60, [])
    assert sorted(area.streams()) == [("gateway", 7), ("gateway", 8)]
    area.close()
    with pytest.raises(GmdError, match="closed"):
        area.record("gateway", 7, 10, [])


def test_memory_knows_as_much() -> None:
    area = MemoryReceiverArea()
    assert area.known("gateway", 7) == (0, [])
    area.record("gateway", 7, 5, [(8, 9)])
    assert area.known("gateway", 7) == (5, [(8, 9)])
    assert area.streams() == [("gateway", 7)]
    area.forget("gateway", 7)
    assert area.streams() == []


def test_the_file_stays_small(place: tuple[Disk | FaultyDisk, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledgement_file, "_GROWTH_MIN", 1000)
    area = opened(*place)
    for number in range(1, 500):
        area.record(f"sender {number % 3}", 7, number, [])
        assert area.end < 2000
    area.close()
    area = opened(*place)
    assert [area.known(f"sender {n}", 7).floor for n in range(3)] == [498, 499, 497]
    area.close()


def test_one_owner(tmp_path: Path) -> None:
    area = opened(Disk(), tmp_path)
    with pytest.raises(GmdAreaLocked, match="in use by pid"):
        opened(Disk(), tmp_path)
    area.close()
    with pytest.raises(GmdError, match="belongs to receiver settlement in domain default"):
        FileReceiverArea.open(Disk(), tmp_path, AreaIdentity("audit", "orders", "default"))


def written() -> FaultyDisk:
    files = disk()
    area = opened(files)
    for number in range(1, 5):
        area.record("gateway", 7, number, [(number + 2, number + 3)])
    area.record("other", 8, 1, [])
    return files.killed()


@pytest.mark.parametrize("bits", [1, pytest.param(8, marks=pytest.mark.long)])
def test_flipped_bits_never_acknowledge_a_message(bits: int) -> None:
    """Of each byte one bit, in its turn; the long form flips all."""
    files = written()
    data = files.content()[FOLDER / NAME]
    for at in range(len(data)):
        for bit in (at % 8,) if bits == 1 else range(bits):
            other = files.killed()
            other.spoil(FOLDER / NAME, data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
            try:
                area = opened(other)
            except GmdAreaDamaged:
                area = opened(other, repair=True)
            floor, ranges = area.known("gateway", 7)
            assert ranges == ([(floor + 2, floor + 3)] if floor else [])
            assert floor <= 4
            assert area.known("other", 8).floor in (0, 1)
            area.close()


def test_every_truncation_is_an_earlier_state() -> None:
    files = written()
    data = files.content()[FOLDER / NAME]
    floors: list[int] = []
    for size in range(len(data)):
        other = files.killed()
        other.spoil(FOLDER / NAME, data[:size])
        try:
            area = opened(other)
        except GmdAreaDamaged:
            assert not any(floors)
            area = opened(other, repair=True)
        floors.append(area.known("gateway", 7).floor)
        area.close()
    assert floors == sorted(floors)
    assert floors[-1] == 4


def test_a_missing_file_is_damage() -> None:
    files = written()
    files.spoil(FOLDER / NAME, None)
    with pytest.raises(GmdAreaDamaged, match="missing"):
        opened(files)
    opened(files, repair=True).close()


def survives_a_cut(files: FaultyDisk, begin: Callable[[], FileReceiverArea], count: int, *, power: bool) -> None:
    """Records until the disk is cut off; each record, or after a power loss each one that was synced, is there then."""
    recorded = synced = 0
    with contextlib.suppress(CutOff):
        area = begin()
        for number in range(1, count):
            area.record("gateway", 7, number, [])
            recorded = number
            if number % 5 == 0:
                area.sync()
                synced = number
    area = opened(files.lost_power() if power else files.killed())
    floor = area.known("gateway", 7).floor
    assert (synced if power else recorded) <= floor <= recorded + 1
    area.close()


@pytest.mark.parametrize("power", [False, True])
def test_what_was_recorded_survives_a_cut_at_any_operation(power: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledgement_file, "_GROWTH_MIN", 100)
    for cut_at in range(1, 80):
        files = disk(cut_at)
        files.cut_at = cut_at
        survives_a_cut(files, lambda files=files: opened(files), 40, power=power)  # type: ignore[misc]


@pytest.mark.parametrize("failure", [StorageError, StorageFull])
def test_every_call_may_fail(failure: type[StorageError], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledgement_file, "_GROWTH_MIN", 100)
    for call in range(1, 80):
        files = disk(call)
        files.fail_at, files.failure = call, failure
        recorded = tried = 0
        area = None
        try:
            area = opened(files, durability="each")
            for number in range(1, 20):
                tried = number
                area.record("gateway", 7, number, [])
                recorded = number
        except GmdError as error:
            assert failure is StorageError or isinstance(error, GmdAreaFull) or "failed" in str(error)  # noqa: PT017
        if area is not None:
            area.close()
        files.fail_at = 0
        area = opened(files.killed())
        assert recorded <= area.known("gateway", 7).floor <= tried
        area.close()


@pytest.mark.parametrize("streams", [1, 120, 150, 400, 1000])
def test_a_full_disk_takes_acknowledgements_without_end(streams: int) -> None:
    """What becomes free is taken by others at once, as by the sender whose messages are acknowledged."""
    files = disk()
    area = opened(files)
    for number in range(8 * streams):
        area.record("gateway", number % streams, 1, [])
    files.room = files.used()
    for number in range(1, 3000):
        area.record("gateway", number % streams, number, [])
        files.room = min(files.room, files.used())
        if number % 1000 == 0:  # also of another process
            area.close()
            files, room = files.killed(), files.room
            files.room = room
            area = opened(files)
    area.close()
    area = opened(files.killed())
    assert [area.known("gateway", number % streams).floor for number in range(2900, 3000)] == (
        list(range(2900, 3000)) if streams >= 100 else [2999] * 100
    )
    area.close()


def test_a_spare_file_that_cannot_be_opened_is_as_none() -> None:
    files = disk()
    area = opened(files)
    opens = files.open

    def refuse(path: Path, **how: bool) -> FaultyFile:
        if path.name == SPARE:
            raise StorageError(f"{path}: it is not a regular file")
        return opens(path, **how)

    files.open = refuse  # type: ignore[method-assign]
    files.room = files.used()
    with pytest.raises(GmdAreaFull):
        for number in range(1, 3000):
            area.record("gateway", 7, number, [])
    assert area.refusal is None
    files.room += 1 << 20
    area.record("gateway", 7, 9999, [])
    area.close()
    assert opened(files.killed()).known("gateway", 7).floor == 9999


def test_a_spare_file_that_cannot_be_made_does_not_have_the_file_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    files, replaced = disk(), 0
    area = opened(files)
    real = FaultyDisk.replace

    def count(files: FaultyDisk, path: Path, data: bytes, *, sync: bool = True) -> None:
        nonlocal replaced
        replaced += 1
        real(files, path, data, sync=sync)

    opens = files.open

    def refuse(path: Path, **how: bool) -> FaultyFile:
        if path.name == SPARE:
            raise StorageError(f"{path}: it is a directory")
        return opens(path, **how)

    monkeypatch.setattr(FaultyDisk, "replace", count)
    area._spare_bytes = 0
    files.open = refuse  # type: ignore[method-assign]
    for number in range(1, 3000):
        area.record("gateway", 7, number, [])
    assert replaced == 0
    area.close()


@pytest.mark.parametrize("power", [False, True])
def test_on_a_full_disk_what_was_recorded_survives_a_cut_at_any_operation(
    power: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acknowledgement_file, "_RESERVE", 400)
    for cut_at in range(1, 100):
        files = disk(cut_at)
        area = opened(files)
        files.cut_at, files.room = files.operations + cut_at, files.used()
        survives_a_cut(files, lambda area=area: area, 80, power=power)  # type: ignore[misc]
