"""Where GMD areas are."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipcbus.runtime import gmd_areas


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
