"""The commands of docs/how-to/record.md run in their order."""

from __future__ import annotations

import re
import shlex
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from click.testing import CliRunner

import ipcbus
from ipcbus.archive import Archive
from ipcbus_tools.cli import cli
from tests.kit.bus import GIVE_UP_S
from tests.kit.recording import rows_of, values

if TYPE_CHECKING:
    import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "record.md").read_text()
COMMANDS = re.findall(r"^\$ ipcbus (.*)$", PAGE, re.MULTILINE)
QUOTES = [b"191.24", b"191.26", b"191.25"]


def run(line: str, domain: str) -> str:
    """Runs a command of the page; returns what it prints."""
    words = shlex.split(line.replace("--seconds 60", f"--messages {len(QUOTES)}"))
    if words[0] == "replay":
        words += ["--wait-receivers", "0"]  # here is no receiver
    result = CliRunner().invoke(cli, [*words, *(() if words[0] == "archive" else ("--domain", domain))])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_commands_run(domain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record, *rest = COMMANDS
    with ipcbus.Context(domain=domain) as context:
        source = context.source("quotes.AAPL")

        def send() -> None:
            source.wait_for_receivers(1, GIVE_UP_S)
            source.send_many(QUOTES, flush=True)

        sending = threading.Thread(target=send)
        sending.start()
        shown = run(record, domain)
        sending.join()
    assert shown.startswith("3 messages, 18 B in ")
    assert shown.endswith("of stream desk in archive\nnothing lost\n")
    assert values(rows_of(Archive("archive")), "quotes.AAPL") == QUOTES
    texts = [run(line, domain) for line in rest]
    assert [line.split()[0] for line in rest] == ["archive", "replay", "replay", "replay"]
    assert ["3 messages, 18 B" in text for text in texts] == [False, True, True, False]
    assert "test.AAPL" in texts[2]
    assert "9 messages, 54 B" in texts[3]


def test_every_option_of_the_page_exists() -> None:
    commands = (["record"], ["replay"], ["archive", "info"])
    help_texts = "".join(CliRunner().invoke(cli, [*command, "--help"]).output for command in commands)
    assert set(re.findall(r"--[a-z][a-z-]+", PAGE)) <= set(re.findall(r"--[a-z-]+", help_texts))
