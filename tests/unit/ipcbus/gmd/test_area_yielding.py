"""How the agent and the owner of an area see each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus.errors import GmdAreaLocked
from ipcbus.gmd import area_yielding
from ipcbus.gmd.area_folders import SOURCE, area_folder
from ipcbus.gmd.area_identity import lock_area
from ipcbus.gmd.area_inspection import inspect
from ipcbus.storage.files import Disk
from tests.kit.gmd_areas import opened, pending, save

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus.storage.files import DiskFile, Lock


class ReturningOwner(Disk):
    """Files whose third segment that is read brings the owner of an area back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.segments = 0
        self.wish: Lock | None = None

    def open(self, path: Path, *, write: bool = False, create: bool = False, exclusive: bool = False) -> DiskFile:
        if path.suffix == ".gmd":
            self.segments += 1
            if self.segments == 3:
                self.wish = area_yielding.want(Disk(), self.folder)
        return super().open(path, write=write, create=create, exclusive=exclusive)


@pytest.mark.parametrize("wanted", ["this area", "another area"])
@pytest.mark.parametrize("step", ["inspect", "open"])
def test_an_agent_gives_up_opening_when_an_owner_returns(tmp_path: Path, wanted: str, step: str) -> None:
    folder, other = (area_folder(tmp_path, "gateway", topic, SOURCE) for topic in ("orders", "others"))
    area = opened(Disk(), folder, capacity=1 << 10)
    for number in range(1, 201):
        save(area, number)
    area.close()
    Disk().make_dir(other)
    owner = ReturningOwner(folder if wanted == "this area" else other)

    def read() -> None:
        if step == "open":
            opened(owner, folder).close()
        else:
            inspect(owner, folder, before_each=lambda: area_yielding.yield_if_wanted(owner, folder))

    read()  # an owner, or a tool that looks, is not in the way of itself
    assert owner.segments > 10
    assert owner.wish is not None
    owner.wish.release()
    agent, owner.segments = area_yielding.lock_directory(Disk(), tmp_path), 0
    with pytest.raises(GmdAreaLocked, match="gives an area back"):
        read()
    assert owner.segments == 3
    assert owner.wish is not None
    owner.wish.release()
    agent.release()
    area = opened(Disk(), folder)
    assert len(pending(area)) == 200
    area.close()


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


def test_an_owner_waits_for_an_agent_whose_lock_has_no_text(tmp_path: Path) -> None:
    """The disk was full when the agent started, and the lock of the area has had its room for long."""
    folder = area_folder(tmp_path, "gateway", "orders", SOURCE)
    Disk().make_dir(folder)
    agent, area = area_yielding.lock_directory(Disk(), tmp_path), lock_area(Disk(), folder)
    (tmp_path / area_yielding.AGENT).write_bytes(b"")
    assert area_yielding.is_with_agent(Disk(), tmp_path, folder)
    agent.release()
    assert not area_yielding.is_with_agent(Disk(), tmp_path, folder)
    area.release()
