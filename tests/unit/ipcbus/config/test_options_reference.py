from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from ipcbus.config import SCOPES, TABLE, keywords, options_reference

if TYPE_CHECKING:
    from pathlib import Path


def test_page_is_current() -> None:
    assert options_reference.PAGE.read_text() == options_reference.render(), "run: make docs"
    assert options_reference.KEYWORDS.read_text() == options_reference.render_keywords(), "run: make docs"


def test_every_option_has_a_type() -> None:
    for scope, options in SCOPES.items():
        name = options.__name__.replace("Options", "Keywords")
        assert getattr(keywords, name).__annotations__.keys() == options.rows.keys()
        assert keywords.ConfigMapping.__annotations__[scope].__forward_arg__ == name


def test_every_option_stands_there() -> None:
    text = options_reference.render()
    for row in TABLE:
        assert f"| `{row.name}` | " in text
        assert row.meaning in text


def test_cells_do_not_break_the_table() -> None:
    rows = [line for line in options_reference.render().splitlines() if line.startswith("| `") and "Set" not in line]
    assert {line.count(" | ") for line in rows} == {1, 4}


def test_check_notices_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "reference" / "options.md"
    monkeypatch.setattr(options_reference, "PAGE", page)
    monkeypatch.setattr(options_reference, "KEYWORDS", tmp_path / "keywords.py")
    monkeypatch.setattr(sys, "argv", ["reference", "--check"])
    with pytest.raises(SystemExit, match="make docs"):
        options_reference.main()
    monkeypatch.setattr(sys, "argv", ["reference"])
    options_reference.main()
    monkeypatch.setattr(sys, "argv", ["reference", "--check"])
    options_reference.main()
    page.write_text(page.read_text() + "more\n")
    with pytest.raises(SystemExit):
        options_reference.main()
