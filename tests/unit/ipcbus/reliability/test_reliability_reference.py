from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from ipcbus.reliability import clients, loss_detector, registration, reliability_reference

if TYPE_CHECKING:
    from pathlib import Path


def test_every_step_of_every_table_is_drawn() -> None:
    page = reliability_reference.PAGE.read_text()
    drawn = {line.strip().partition(":")[0] for line in page.splitlines() if "-->" in line}
    steps = [(state, following) for (state, _), following in registration.TABLE.items()]
    losses = [(state, step.state) for (state, _), step in loss_detector.TABLE.items()]
    steps_there = [(state, step.state) for (state, _), step in clients.TABLE.items()]
    for state, following in [*steps, *losses, *steps_there]:
        assert f"{state.name} --> {following.name}" in drawn
    for word in (
        *registration.State,
        *registration.Cause,
        *clients.State,
        *clients.Cause,
        *loss_detector.State,
        *loss_detector.Cause,
    ):
        assert f"| `{word.name}` | {word.value} |" in page


def test_defaults_are_told() -> None:
    page = reliability_reference.PAGE.read_text()
    for row in ("| source | `ignore_interval` | -1 |", "| receiver | `suppress` | 1,000 ms |"):
        assert row in page
    assert "| receiver | `maximum_connect_attempts` | 600 |" in page


def test_page_is_current_and_check_refuses_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["reference", "--check"])
    reliability_reference.main()
    page = tmp_path / "reliability.md"
    page.write_text(reliability_reference.PAGE.read_text().replace("JOINED --> ENDING", "JOINED --> ENDED"))
    monkeypatch.setattr(reliability_reference, "PAGE", page)
    with pytest.raises(SystemExit, match="run: make docs"):
        reliability_reference.main()
    monkeypatch.setattr(sys, "argv", ["reference"])
    reliability_reference.main()
    assert "JOINED --> ENDING" in page.read_text()
    assert "written" in capsys.readouterr().out
