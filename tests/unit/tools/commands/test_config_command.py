from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from ipcbus.config import SCOPES, TABLE
from ipcbus_tools.cli import cli

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

FLAT = "context context_name feed\nsource use_hotlink 1\nsource transport lbtsmx\n"
TOPICS = """
[source]
transport_lbtipc_id = 7
[[topics]]
pattern = 'q\\..*'
source.transport_lbtipc_id = 8
source.transport = "lbtsmx"
receiver.ordered_delivery = -1
"""


@pytest.fixture
def flat(tmp_path: Path) -> str:
    path = tmp_path / "um.cfg"
    path.write_text(FLAT)
    return str(path)


@pytest.fixture
def toml(tmp_path: Path) -> str:
    path = tmp_path / "bus.toml"
    path.write_text(TOPICS)
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["config", *arguments], terminal_width=200)


def facts(*arguments: str) -> Any:  # noqa: ANN401 - JSON
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_check(flat: str, caplog: pytest.LogCaptureFixture) -> None:
    result = run("check", flat)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{flat}: valid; options: 1 of scope context, 1 of scope source",
        "  line 2: source use_hotlink: known to Ultra Messaging, without effect here",
    ]
    assert result.stderr == ""
    assert caplog.records == []


def test_check_lists_overrides(toml: str) -> None:
    assert run("check", toml).stdout.splitlines() == [
        f"{toml}: valid; options: 1 of scope source",
        "  topics entry 1, pattern 'q\\\\..*': 2 of scope source, 1 of scope receiver",
    ]


def test_check_for_programs(flat: str, toml: str) -> None:
    assert facts("check", flat) == {
        "file": flat,
        "options": {"context": 1, "source": 1},
        "topics": [],
        "without_effect": [{"scope": "source", "name": "use_hotlink", "value": "1", "line": 2}],
    }
    assert facts("check", toml)["topics"] == ["topics entry 1, pattern 'q\\\\..*'"]


def test_check_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty.cfg"
    path.touch()
    assert run("check", str(path)).stdout == f"{path}: valid; options: none\n"


def test_check_refuses_what_a_context_refuses(tmp_path: Path) -> None:
    path = tmp_path / "bus.toml"
    path.write_text('[source]\nmessage_max = 1000000\ntransport = "lbtru"\n')
    result = run("check", str(path))
    assert result.exit_code == 2
    assert "leave message_max out" in result.stderr
    assert str(path) in result.stderr


@pytest.mark.parametrize("text", ["source transprt lbtipc", "source transport udp"])
def test_check_refuses(tmp_path: Path, text: str) -> None:
    path = tmp_path / "um.cfg"
    path.write_text(text)
    result = run("check", str(path))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert f"{path}, line 1" in result.stderr


def test_show_everything() -> None:
    shown = facts("show")
    assert [(row["scope"], row["option"]) for row in shown] == [(row.scope, row.name) for row in TABLE]
    assert all(row["value"] == row["default"] and row["from"] == "default" for row in shown)


def test_show_one_scope_and_what_changed(toml: str) -> None:
    shown = facts("show", "--config", toml, "--scope", "source")
    assert {row["scope"] for row in shown} == {"source"}
    assert len(shown) == len(SCOPES["source"].rows)
    assert facts("show", "--config", toml, "--changed") == [
        {"scope": "source", "option": "transport_lbtipc_id", "value": 7, "unit": "", "default": 0, "from": toml}
    ]


def test_show_of_a_topic(toml: str) -> None:
    shown = facts("show", "--config", toml, "--topic", "q.a", "--changed")
    assert [(row["option"], row["value"]) for row in shown] == [
        ("transport", "lbtsmx"),
        ("transport_lbtipc_id", 8),
        ("ordered_delivery", -1),
    ]
    assert {row["from"] for row in shown} == {"topics entry 1, pattern 'q\\\\..*'"}


def test_show_for_people(toml: str) -> None:
    _, *lines = run("show", "--config", toml, "--scope", "source").stdout.splitlines()
    assert lines[0].split() == ["scope", "option", "value", "unit", "default", "from"]
    (line,) = (each for each in lines if " transport_lbtipc_id " in each)
    assert line.split() == ["source", "transport_lbtipc_id", "7", "0", toml]
    (line,) = (each for each in lines if " transport_lbtipc_sm_interval " in each)
    assert line.split() == ["source", "transport_lbtipc_sm_interval", "10000", "ms", "10000", "default"]


def test_show_of_nothing_changed() -> None:
    assert run("show", "--changed").stdout == "every option has its default\n"


def test_show_uses_the_environment(toml: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPCBUS_CONFIG", toml)
    (row,) = facts("show", "--changed")
    assert row["from"] == f"{toml}, named by IPCBUS_CONFIG"


def test_names_of_others_are_only_text(tmp_path: Path) -> None:
    path = tmp_path / "um.cfg"
    path.write_text("context context_name [red]\x1b[31m\n")
    result = run("show", "--config", str(path), "--changed")
    assert "[red]\\x1b[31m" in result.stdout


def test_wrong_scope() -> None:
    result = run("show", "--scope", "sorce")
    assert result.exit_code == 2
    assert "sorce" in result.stderr


def test_help() -> None:
    assert "Examples:\n    ipcbus config check" in run("-h").stdout
    assert {"--config", "--scope", "--topic", "--changed", "--json"} <= set(run("show", "-h").stdout.split())
    assert "--json" in run("check", "-h").stdout
