from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from ipcbus.stats import COUNTERS, SessionStats, statistics_reference

if TYPE_CHECKING:
    from pathlib import Path


def test_every_counter_stands_on_the_page_with_its_meaning() -> None:
    lines = statistics_reference.render().splitlines()
    for row in COUNTERS:
        assert any(line.startswith(f"| `{row.name}` | {row.unit} | {row.meaning} |") for line in lines)


def test_names_of_ultra_messaging() -> None:
    page = statistics_reference.render()
    assert (
        "| `num_clients` | contexts, now | Contexts that receive the session. | source transport: `num_clients` |"
        in page
    )
    for row in COUNTERS:
        assert not row.ultra or row.ultra.partition(": ")[0] in ("source transport", "receiver transport", "context")


def test_meanings_come_from_the_docstrings() -> None:
    found = statistics_reference.meanings(SessionStats)
    assert found["tail"] == "bytes published since the session began."
    assert found["wait"].endswith("its WAKEUP event, else empty.")
    assert found["fill"].startswith("Share of the window")


def test_page_is_current_and_check_refuses_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["reference", "--check"])
    statistics_reference.main()
    monkeypatch.setattr(statistics_reference, "PAGE", tmp_path / "statistics.md")
    with pytest.raises(SystemExit, match="run: make docs"):
        statistics_reference.main()
    monkeypatch.setattr(sys, "argv", ["reference"])
    statistics_reference.main()
    assert (tmp_path / "statistics.md").read_text() == statistics_reference.render()
    assert "written" in capsys.readouterr().out
