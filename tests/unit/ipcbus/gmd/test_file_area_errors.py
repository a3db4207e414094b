"""A sender's area where any call of the system fails, and small workloads cut off at each operation."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from ipcbus.errors import GmdAreaFull, GmdError, StorageError, StorageFull
from ipcbus.gmd.area_identity import gmd_errors
from ipcbus.storage.files import typed_errors
from tests.kit.disks import CutOff
from tests.kit.gmd_areas import disk, opened, pending, save, value

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus.gmd.file_area import FileArea
    from tests.kit.disks import FaultyDisk

SAVES = 30


class Ledger:
    """What a sender knows of its area."""

    def __init__(self) -> None:
        self.saved: set[int] = set()
        self.released: set[int] = set()
        self.maybe: set[int] = set()
        self.synced: set[int] = set()


def work(files: FaultyDisk, durability: str, ledger: Ledger, *, go_on: bool) -> FileArea | None:
    """Saves, releases and syncs; with `go_on`, it tries again what failed once."""
    area: FileArea | None = None
    number = 0
    while number < SAVES:
        try:
            area = area or opened(files, durability=durability, capacity=1 << 10)
            ledger.maybe.add(area.last_number + 1)
            number = save(area, area.last_number + 1)
            ledger.saved.add(number)
            if area.durable_number >= number:
                ledger.synced.add(number)
            if number % 3:
                ledger.maybe.add(number)
                area.release(number, number)
                ledger.released.add(number)
            if number % 5 == 0:
                area.note(b"note")
                area.sync()
                ledger.synced = set(ledger.saved)
        except GmdError:
            if area is not None and area.refusal is not None:
                area.close()
                area = None
            assert go_on
    return area


def settle(files: FaultyDisk, ledger: Ledger, *, lost_power: bool) -> None:
    area = opened(files, capacity=1 << 10)
    there = pending(area)
    must = (ledger.synced if lost_power else ledger.saved) - ledger.maybe - ledger.released
    assert must <= there.keys() <= ledger.saved | ledger.maybe
    assert there == {number: value(number) for number in there}
    missing = {n for first, last in area.recovered().damage for n in range(first, last + 1)}
    assert not missing & there.keys()
    if not lost_power:
        assert not missing
    else:
        kept = {number for number in ledger.saved - ledger.released - ledger.maybe if number < max(there, default=0)}
        assert kept <= there.keys() | missing
    assert save(area, 10_000) > max(ledger.saved, default=0)
    area.close()


# The work is the same few calls over and over. So every fifth of them, another one in each durability and with each
# failure, is a call of each kind in each state; the long form makes every single one fail.
STEP = pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
DURABILITIES = ["process", "group", "each"]


@STEP
@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("failure", [StorageError, StorageFull])
def test_each_call_may_fail(durability: str, failure: type[StorageError], step: int) -> None:
    call = 1 + (DURABILITIES.index(durability) + 2 * (failure is StorageFull)) % step
    while True:
        files, ledger = disk(call), Ledger()
        files.fail_at, files.failure = call, failure
        area = work(files, durability, ledger, go_on=True)
        done = files.calls < call
        files.fail_at = 0
        if area is not None:
            assert pending(area).keys() >= ledger.saved - ledger.released - ledger.maybe
            area.close()
        assert not files.locks
        settle(files.killed(), ledger, lost_power=False)
        settle(files.lost_power(), ledger, lost_power=True)
        if done:
            break
        call += step
    assert call > 100


@STEP
@pytest.mark.parametrize("durability", DURABILITIES)
def test_cut_off_at_each_operation(durability: str, step: int) -> None:
    cut_at = 1 + DURABILITIES.index(durability) % step
    while True:
        files, ledger = disk(cut_at), Ledger()
        files.cut_at = cut_at
        try:
            area = work(files, durability, ledger, go_on=False)
        except CutOff:
            area = None
        settle(files.killed(), ledger, lost_power=False)
        for _ in range(6):
            settle(files.lost_power(), ledger, lost_power=True)
        if area is not None:
            break
        cut_at += step
    assert cut_at > 80


def test_an_area_is_closed_on_a_full_disk() -> None:
    for call in range(1, 8):
        files = disk(call)
        area = opened(files)
        kept = [save(area, number) for number in (1, 2, 3)]
        area.release(2, 2)
        files.fail_at, files.failure = files.calls + call, StorageFull
        area.close()
        assert not files.locks
        files.fail_at = 0
        again = opened(files.killed())
        assert set(pending(again)) >= set(kept) - {2}
        again.close()


def test_a_full_disk_is_an_error_with_cures_of_an_area(tmp_path: Path) -> None:
    with pytest.raises(GmdAreaFull, match=r"another disk \(ipc_gmd_directory\).*gmd_delete") as failure, gmd_errors():
        with typed_errors(tmp_path, "write"):
            raise OSError(errno.ENOSPC, "No space left on device")
    assert "retain_bytes" not in str(failure.value)
