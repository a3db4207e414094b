"""The generated declarations are current."""

from __future__ import annotations

from pathlib import Path

from ipcbus.archive import archive_layout


def test_generated_declarations_are_current() -> None:
    assert Path(archive_layout.__file__).with_name("_archive_layout.pxd").read_text() == archive_layout.declarations()
