"""The directories of areas."""

from __future__ import annotations

import urllib.parse
from pathlib import Path

from ipcbus.gmd.area_folders import SOURCE, area_folder, area_folders, default_directory, escaped
from ipcbus.storage.files import Disk
from tests.kit.cases import each_of
from tests.kit.gmd_areas import opened


@each_of("name", ["gateway", "orders.EU", "a/b", ".", "..", ".hidden", "%2E", "", "Zürich", "a b", "~", "a~b", "-"])
def test_names_are_escaped_reversibly(name: str) -> None:
    found = escaped(name)
    assert "/" not in found
    assert found not in ("", ".", "..")
    assert not found.startswith(".")
    assert urllib.parse.unquote(found) == (name or "%")


def test_long_names_are_cut_and_stay_different() -> None:
    names = ["x" * 300, "x" * 299 + "y", "é" * 100, "é" * 99 + "è", "x" * 200]
    found = {escaped(name) for name in names}
    assert len(found) == len(names)
    assert all(len(each) <= 201 for each in found)


@each_of(
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
    assert escaped(name) == directory
    assert area_folder(Path("/d"), name, name, SOURCE) == Path("/d") / directory / directory / "source"


def test_long_names_stay_apart() -> None:
    names = ["ä" * 100 + tail for tail in ("a", "b", "")]
    found = {escaped(name) for name in names}
    assert len(found) == 3
    assert all(len(each) <= 200 for each in found)


def test_the_default_is_the_state_directory_of_the_user() -> None:
    home = Path("/home/me")
    assert default_directory({}, home) == Path("/home/me/.local/state/ipcbus/gmd")
    assert default_directory({"XDG_STATE_HOME": "/state"}, home) == Path("/state/ipcbus/gmd")
    assert default_directory({"XDG_STATE_HOME": "relative"}, home) == Path("/home/me/.local/state/ipcbus/gmd")


def test_all_areas_are_found(tmp_path: Path) -> None:
    folders = [area_folder(tmp_path, name, "a/b", role) for name in ("x", "y") for role in ("source", "receiver")]
    for folder in folders:
        opened(Disk(), folder).close()
    (tmp_path / "x" / "note").write_text("not a directory")
    assert list(area_folders(Disk(), tmp_path)) == folders
    assert list(area_folders(Disk(), tmp_path / "none")) == []
