"""Every example in the README runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_ten_lines_print_what_was_sent(domain: str, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(import ipcbus\n.*?)```", README, re.DOTALL)
    assert len(blocks) == 1
    exec(blocks[0].replace("ipcbus.Context()", f"ipcbus.Context(domain={domain!r})"), {})
    assert capsys.readouterr().out.splitlines() == ["0 b'191.24'", "1 b'191.26'", "2 b'191.25'"]


def test_the_two_terminals_see_each_other(domain: str) -> None:
    echo, pub = (
        [sys.executable, "-m", "ipcbus_tools", *shlex.split(line)[1:], "--domain", domain]
        for line in re.findall(r"^    (ipcbus (?:echo|pub) .*)$", README, re.MULTILINE)
    )
    with subprocess.Popen([*echo, "-n", "2"], stdout=subprocess.PIPE, text=True) as listener:
        sent = subprocess.run(pub, capture_output=True, text=True, check=False)
        shown, _ = listener.communicate()
    assert sent.returncode == 0, sent.stderr
    assert "191.24" in shown
    assert "191.26" in shown
    assert listener.returncode == 0
