"""Where GMD areas are."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipcbus.config import Config
from ipcbus.gmd.area_identity import read_identity
from ipcbus.runtime import gmd_areas
from ipcbus.storage.files import Disk


def test_without_a_directory_it_is_that_of_the_users_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert gmd_areas.directory_of("") == Path("/state/ipcbus/gmd")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/user")
    assert gmd_areas.directory_of("") == Path("/home/user/.local/state/ipcbus/gmd")


@pytest.mark.parametrize(
    ("name", "directory"),
    [
        ("orders", "orders"),
        ("quotes.AAPL", "quotes.AAPL"),
        ("..", "%2E."),
        (".", "%2E"),
        ("a/b", "a%2Fb"),
        ("ä b", "%C3%A4%20b"),
        ("100%", "100%25"),
    ],
)
def test_a_name_is_one_directory(name: str, directory: str) -> None:
    assert gmd_areas.escaped(name) == directory
    assert gmd_areas.folder_of("/d", name, name, "source") == Path("/d") / directory / directory / "source"


def test_long_names_stay_apart() -> None:
    names = ["ä" * 100 + tail for tail in ("a", "b", "")]
    found = {gmd_areas.escaped(name) for name in names}
    assert len(found) == 3
    assert all(len(each) <= 200 for each in found)


def test_an_area_keeps_what_an_agent_needs(tmp_path: Path) -> None:
    context = Config({"context": {"context_name": "me", "shared_memory_group": "users"}}).values("context")
    given: dict[str, object] = {"gmd_name": "gateway", "transport": "lbtsmx", "ipc_gmd_directory": str(tmp_path)}
    options = Config({}).values("source", "t", gmd_reconnect_timeout=7, delivery_mode="all", **given)
    gmd_areas.open_sender_area("d", "t", options, context).close()
    found = read_identity(Disk(), gmd_areas.folder_of(str(tmp_path), "gateway", "t", "source"))
    assert found is not None
    assert (found.name, found.topic, found.domain) == ("gateway", "t", "d")
    assert found.options == {
        "context": {"shared_memory_group": "users"},
        "source": {"transport": options.transport, "delivery_mode": "all"},
    }
