"""The removal of areas; tests/unit/tools/commands/test_gmd_command.py has what the commands make of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus.gmd.area_identity import LOCK
from ipcbus.gmd.area_repair import purge_area
from ipcbus.storage.files import Disk
from tests.kit.gmd_areas import FOLDER, disk, opened

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.disks import FaultyLock


def test_only_the_lock_is_left_and_it_stays_the_same_file(tmp_path: Path) -> None:
    files = Disk()
    opened(files, tmp_path).close()
    before = (tmp_path / LOCK).stat().st_ino
    purge_area(files, tmp_path)
    assert files.names(tmp_path) == [LOCK]
    assert (tmp_path / LOCK).stat().st_ino == before
    with pytest.raises(ipcbus.GmdError, match="there is no GMD area"):
        purge_area(files, tmp_path)
    opened(files, tmp_path).close()


def test_of_two_purges_at_the_same_time_one_finds_no_area(monkeypatch: pytest.MonkeyPatch) -> None:
    files = disk()
    opened(files).close()
    take = files.lock

    def lock(path: Path) -> FaultyLock | None:
        monkeypatch.setattr(files, "lock", take)
        purge_area(files, FOLDER)
        return take(path)

    monkeypatch.setattr(files, "lock", lock)
    with pytest.raises(ipcbus.GmdError, match="there is no GMD area"):
        purge_area(files, FOLDER)
    opened(files).close()
