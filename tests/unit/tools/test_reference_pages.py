from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus_tools import reference_pages
from ipcbus_tools.cli import COMMANDS
from tests.kit.cases import each_of
from tests.unit.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

ERRORS = [
    name
    for name in ipcbus.__all__
    if isinstance(kind := getattr(ipcbus, name), type) and issubclass(kind, ipcbus.IpcBusError)
]


@each_of("name", ERRORS)
def test_each_error_has_a_heading_with_its_cure(name: str) -> None:
    _, _, rest = reference_pages.error_page().partition(f"\n## {name}\n")
    assert "Cure: " in rest.partition("\n## ")[0]


@each_of("name", [name for name in ERRORS if name != "IpcBusError"])
def test_troubleshooting_leads_from_each_error_to_its_heading(name: str) -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    assert f"[`{name}`](reference/errors.md#{name.lower()})" in text


def test_each_command_that_help_shows_has_a_heading() -> None:
    page = reference_pages.command_page()
    headings = {line.removeprefix("## ipcbus ").split()[0] for line in page.splitlines() if line.startswith("## ")}
    assert headings == {name for name, line in COMMANDS.items() if line}


def test_each_option_has_its_names_value_meaning_and_default() -> None:
    _, _, of_pub = reference_pages.command_page().partition("\n## ipcbus pub\n")
    assert "| `--interval` `SECONDS` | Wait SECONDS between two messages. [default: 0] |" in of_pub
    assert "| `--json` | Print JSON, for programs. |" in of_pub
    assert "\n    ipcbus pub [OPTIONS] TOPIC [TEXT]...\n" in of_pub


def test_no_option_stands_without_a_meaning() -> None:
    """An old name of an option is hidden: `--help` does not show it, and the page does not."""
    rows = [line for line in reference_pages.command_page().splitlines() if line.startswith("| `-")]
    assert rows
    assert not [row for row in rows if row.endswith("|  |")]


def test_each_structure_has_its_fields_where_the_compiled_code_has_them() -> None:
    page = reference_pages.layout_page()
    for module in reference_pages.LAYOUTS.values():
        for name, dtype in module.STRUCTS.items():
            _, _, rest = page.partition(f"\n### {name}, {dtype.itemsize} bytes\n")
            rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", rest.partition("\n### ")[0], re.MULTILINE)
            assert {field: int(offset) for offset, field in rows} == {
                field: offset for field, (_, offset, *_) in dtype.fields.items()
            }
    assert "::" not in page


def test_a_stale_page_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_pages, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["reference_pages"])
    reference_pages.main()
    monkeypatch.setattr(sys, "argv", ["reference_pages", "--check"])
    reference_pages.main()
    (tmp_path / "errors.md").write_text("old")
    with pytest.raises(SystemExit):
        reference_pages.main()
