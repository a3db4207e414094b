from __future__ import annotations

import dataclasses
import re
import sys
from typing import TYPE_CHECKING

import pytest

from ipcbus.stats import COUNTERS, DomainSnapshot, SessionStats, statistics_reference
from ipcbus.stats.histogram import Histogram, Percentiles

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


def test_every_attribute_of_a_snapshot_stands_on_the_page() -> None:
    _, _, page = statistics_reference.render().partition("\n## Attributes of a snapshot\n")
    parts = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^### |\Z)", page, re.MULTILINE | re.DOTALL))
    kinds = [DomainSnapshot, Histogram, Percentiles, *statistics_reference.TYPE_OF.values()]
    assert set(parts) == {kind.__name__ for kind in kinds}
    for kind in kinds:
        properties = [name for name, value in vars(kind).items() if isinstance(value, property)]
        fields = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
        for name in (*fields, *properties):
            assert name.startswith("_") or f"\n| `{name}` | " in parts[kind.__name__], (kind, name)


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
