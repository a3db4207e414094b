"""What a shell is told of an unfinished line, and what help and completion may not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ipcbus
from ipcbus_tools.cli import COMMANDS, COMPLETE_VARIABLE, cli
from ipcbus_tools.completion import shell_completion
from tests.kit.cases import each_of

HEAVY = {
    "numpy",
    "rich",
    "psutil",
    "asyncio",
    "pyarrow",
    "ipcbus.context",
    "ipcbus.stats.snapshot_model",
    "ringbuf.ring",
}
"""What takes longer to load than everything else in a help text."""


def loaded(code: str) -> set[str]:
    """Heavy modules that are there after a piece of code."""
    text = f"import sys\n{code}\nprint('\\n', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return HEAVY & set(done.stdout.splitlines()[-1].split())


def asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, shell: str) -> list[str]:
    """Values that a shell is told."""
    monkeypatch.setenv(COMPLETE_VARIABLE, shell)
    monkeypatch.setenv("_IPCBUS_LINE", line)
    monkeypatch.setenv("_IPCBUS_BREAKS", " \t\n\"'><=;|&(:")
    shell_completion.answer(cli)
    return [each.split("\t")[1] for each in capsys.readouterr().out.splitlines()]


def test_help_loads_nothing_heavy() -> None:
    code = (
        "from ipcbus_tools.cli import cli\n"
        f"for arguments in {[[], *([name] for name in COMMANDS), ['archive', 'info'], ['config', 'show']]}:\n"
        "    try: cli.main([*arguments, '--help'])\n"
        "    except SystemExit as end: assert end.code == 0\n"
    )
    assert not loaded(code)


@pytest.mark.parametrize("line", ["ipcbus ", "ipcbus info ", "ipcbus echo x --domain ", "ipcbus pub x --transport "])
def test_completion_loads_nothing_heavy(line: str) -> None:
    code = (
        f"import os; os.environ |= {{{COMPLETE_VARIABLE!r}: 'bash', '_IPCBUS_LINE': {line!r}}}\n"
        "from ipcbus_tools.cli import main; main()"
    )
    assert not loaded(code)


@each_of(
    ("line", "found"),
    [
        ("", ([], "", "")),
        ("ipcbus ec", (["ipcbus"], "ec", "")),
        ("ipcbus echo ", (["ipcbus", "echo"], "", "")),
        (r"a b\ c\:", (["a"], "b c:", "")),
        ("a 'b c", (["a"], "b c", "'")),
        ('a "b c" d"e', (["a", "b c"], "de", '"')),
        ("a '' ", (["a", ""], "", "")),
    ],
)
def test_a_line_is_taken_apart_as_the_shell_does(line: str, found: tuple[list[str], str, str]) -> None:
    assert shell_completion.split(line) == found


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("ipcbus ec", ["echo"]),
        ("ipcbus top --sv", ["--svg"]),
        ("ipcbus pub x --transport lbtr", ["lbtrm", "lbtru"]),
        ("ipcbus config show --scope so", ["source"]),
        ("ipcbus completion f", ["fish"]),
        ("ipcbus nonsense ", []),
        ("ipcbus demo-", []),
    ],
)
def test_words_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, values: list[str]
) -> None:
    assert asked(monkeypatch, capsys, line, "zsh") == values


def test_names_of_the_bus(domain: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def told(line: str, shell: str = "bash") -> list[str]:
        return asked(monkeypatch, capsys, line.replace("DOMAIN", domain), shell)

    with ipcbus.Context(domain=domain) as context:
        wild = context.source("$(reboot) 'x\"")
        source = context.source("quotes.AAPL", transport="lbtsmx")
        context.source("not\tshown")
        context.receiver("quotes.MSFT")
        assert told("ipcbus echo --domain DOMAIN quo") == ["quotes.AAPL", "quotes.MSFT"]
        assert told("ipcbus info --domain DOMAIN quo") == ["quotes.AAPL"]
        assert told("ipcbus info --domain DOMAIN LBT-S") == [source.source]
        assert told("ipcbus info --domain DOMAIN LBT-SMX:") == [source.source.partition(":")[2]]
        assert told("ipcbus info --domain DOMAIN 'LBT-SMX:") == [source.source]
        assert told("ipcbus info --domain DOMAIN LBT-SMX:", "zsh") == [source.source]
        assert told("ipcbus echo --domain DOMAIN \\$") == [r"\$\(reboot\)\ \'x\""]
        assert told('ipcbus echo --domain DOMAIN "')[0] == r"\$(reboot) 'x\""
        assert told("ipcbus echo --domain DOMAIN '$") == ["$(reboot) '\\''x\""]
        assert told("ipcbus echo --domain DOMAIN $", "fish") == [wild.topic]
        assert told(f"ipcbus list --domain={domain[:-1]}", "fish") == [f"--domain={domain}"]
        assert told(f"ipcbus list --domain={domain[:-1]}") == [domain]
