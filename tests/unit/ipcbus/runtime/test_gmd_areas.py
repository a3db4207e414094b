"""Where GMD areas are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ipcbus.config import Config
from ipcbus.gmd.area_folders import SOURCE, area_folder
from ipcbus.gmd.area_identity import read_identity
from ipcbus.runtime import gmd_areas
from ipcbus.storage.files import Disk

if TYPE_CHECKING:
    import pytest


def test_without_a_directory_it_is_that_of_the_users_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert gmd_areas.directory_of("") == Path("/state/ipcbus/gmd")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/user")
    assert gmd_areas.directory_of("") == Path("/home/user/.local/state/ipcbus/gmd")


def test_an_area_keeps_what_an_agent_needs(tmp_path: Path) -> None:
    context = Config({"context": {"context_name": "me", "shared_memory_group": "users"}}).values("context")
    given: dict[str, object] = {"gmd_name": "gateway", "transport": "lbtsmx", "ipc_gmd_directory": str(tmp_path)}
    options = Config({}).values("source", "t", gmd_reconnect_timeout=7, delivery_mode="all", **given)
    gmd_areas.open_sender_area("d", "t", options, context).close()
    found = read_identity(Disk(), area_folder(tmp_path, "gateway", "t", SOURCE))
    assert found is not None
    assert (found.name, found.topic, found.domain) == ("gateway", "t", "d")
    assert found.options == {
        "context": {"shared_memory_group": "users"},
        "source": {"transport": options.transport, "delivery_mode": "all"},
    }
