"""How the agent and the owner of an area see each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus.errors import GmdAreaLocked
from ipcbus.gmd import area_yielding
from ipcbus.gmd.area_identity import lock_area
from ipcbus.storage.files import Disk

if TYPE_CHECKING:
    from pathlib import Path


def test_a_directory_has_one_agent(tmp_path: Path) -> None:
    lock = area_yielding.lock_directory(Disk(), tmp_path / "gmd")
    with pytest.raises(GmdAreaLocked, match="is the agent of this directory already"):
        area_yielding.lock_directory(Disk(), tmp_path / "gmd")
    lock.release()
    area_yielding.lock_directory(Disk(), tmp_path / "gmd").release()


def test_only_an_area_that_the_agent_holds_is_with_the_agent(tmp_path: Path) -> None:
    area = lock_area(Disk(), tmp_path)
    assert not area_yielding.is_with_agent(Disk(), tmp_path, tmp_path)
    agent = area_yielding.lock_directory(Disk(), tmp_path)
    assert area_yielding.is_with_agent(Disk(), tmp_path, tmp_path)
    (tmp_path / "lock").write_text("pid 1 on elsewhere\n")
    assert not area_yielding.is_with_agent(Disk(), tmp_path, tmp_path)
    area.release()
    assert area_yielding.is_with_agent(Disk(), tmp_path, tmp_path)  # the agent has just closed it
    agent.release()
    assert not area_yielding.is_with_agent(Disk(), tmp_path, tmp_path)


def test_a_wish_ends_with_its_owner(tmp_path: Path) -> None:
    assert not area_yielding.is_wanted(Disk(), tmp_path)
    wish = area_yielding.want(Disk(), tmp_path)
    assert wish is not None
    assert area_yielding.want(Disk(), tmp_path) is None
    assert area_yielding.is_wanted(Disk(), tmp_path)
    wish.release()
    assert not area_yielding.is_wanted(Disk(), tmp_path)
