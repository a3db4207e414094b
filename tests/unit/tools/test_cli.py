"""What holds for every command: times, domains, and streams that are not there."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from ipcbus.config import SCOPES
from ipcbus_tools.cli import COMMANDS as NAMES
from ipcbus_tools.cli import Commands, cli
from ipcbus_tools.common import ZONE_HELP, Seconds
from tests.kit.cases import each_of

COMMANDS = {name: command for name in NAMES if (command := Commands().get_command(click.Context(cli), name))}
TIMES = [
    (name, option.opts[0])
    for name, command in COMMANDS.items()
    for option in command.params
    if isinstance(option.type, Seconds)
]
NEEDED = {
    **{"monitor": ["--log", "-"], "pub": ["t", "x"], "replay": [__file__], "record": ["t", "--to", "archive"]},
    "demo-receiver": ["t"],
    "bench-receiver": ["t", "--trips", "1"],
}


def called(name: str, *more: str) -> list[str]:
    """A call of a command with what it needs."""
    topic = ["t"] if any(each.name in ("topic", "session") for each in COMMANDS[name].params) else []
    return [name, *NEEDED.get(name, topic), *more]


def test_every_time_is_one() -> None:
    """No other type lets what is not finite through."""
    for name, command in COMMANDS.items():
        for option in command.params:
            plain = isinstance(option.type, (click.FloatRange, click.types.FloatParamType))
            assert not plain or isinstance(option.type, Seconds), f"{name} {option.opts}"
    assert {("echo", "--timeout"), ("top", "--interval"), ("hz", "--window"), ("pub", "--interval")} <= set(TIMES)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1", "1e300", "soon"])
def test_what_is_no_time_is_refused(value: str) -> None:
    for name, option in TIMES:
        result = CliRunner().invoke(cli, called(name, option, value))
        assert (result.exit_code, result.stdout) == (2, ""), f"{name} {option}: {result.output}"
        assert option in result.stderr


@each_of(("domain", "shown"), [("", "''"), ("a\0b", "a\\x00b"), ("a\udcff", "a\\udcff"), ("a\ud800", "a\\ud800")])
def test_what_is_no_domain_is_refused(domain: str, shown: str) -> None:
    for name in COMMANDS:
        if name not in ("archive", "completion", "config", "gmd", "pipeline", "resolver"):
            result = CliRunner().invoke(cli, called(name, "--domain", domain))
            assert (result.exit_code, result.stdout) == (2, ""), f"{name}: {result.output}"
            assert result.stderr.startswith("error: --domain ")
            assert shown in result.stderr


@pytest.mark.parametrize(
    ("command", "closed"),
    [
        *(("list", closed) for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-")),
        *(("top --once --interval 0.05", closed) for closed in (">&-", "<&- >&- 2>&-")),
    ],
)
def test_streams_that_were_closed_are_the_null_device(domain: str, command: str, closed: str) -> None:
    line = f"exec {sys.executable} -m ipcbus_tools {command} --domain {domain} {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (">&-" not in closed.replace("2>&-", ""))


@each_of(
    ("arguments", "texts"),
    [
        (["bw"], ["the messages' own headers"]),
        (["pub"], [f"{name} (" for name in SCOPES["source"].rows["transport"].choices or ()]),
        (["replay"], [f"{name} (" for name in SCOPES["source"].rows["transport"].choices or ()]),
        (["replay"], [f"before that; {ZONE_HELP}", f"begin there; {ZONE_HELP}"]),
        (["pipeline"], [f"from TIME on; {ZONE_HELP}", f"before TIME; {ZONE_HELP}"]),
        (["record"], ["Start a new segment at this size (default 256M)."]),
    ],
)
def test_help_says(arguments: list[str], texts: list[str]) -> None:
    said = " ".join(CliRunner().invoke(cli, [*arguments, "--help"]).stdout.split())
    assert [text for text in texts if text not in said] == []
