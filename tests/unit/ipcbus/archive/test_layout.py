"""The generated declarations are current."""

from __future__ import annotations

from pathlib import Path

from ipcbus.archive import layout


def test_generated_declarations_are_current() -> None:
    assert Path(layout.__file__).with_name("_layout.pxd").read_text() == layout.declarations()
