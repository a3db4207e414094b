"""The Tab key in real shells."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import ipcbus
from tests.kit.tmux import MISSING, Screen

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

SHELLS: Final = {
    "bash": ("bash --norc --noprofile", 'PS1="ready "; eval "$(ipcbus completion bash)"'),
    "zsh": (
        "zsh -f",
        'PS1="ready "; autoload -U compinit; compinit -D; eval "$(ipcbus completion zsh)"',
    ),
    "fish": ("fish --no-config", "function fish_prompt; echo 'ready '; end; ipcbus completion fish | source"),
}
"""How each is started without anybody's settings, and what is typed first."""


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Screen]]:
    """A shell in which completion is on."""
    program, setup = SHELLS[request.param]
    if shutil.which(program.split()[0]) is None:
        pytest.skip(f"{request.param} is not installed")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with Screen(tmp_path, program, width=150, PATH=path, HOME=str(tmp_path), INPUTRC="/dev/null") as screen:
        screen.type(setup).keys("Enter").shows("ready ")
        yield request.param, screen.keys("C-l")


def test_a_tab_completes_the_word(shell: tuple[str, Screen], domain: str) -> None:
    name, screen = shell
    with ipcbus.Context(domain=domain) as context:
        source = context.source("quotes.AAPL", transport="lbtsmx")
        context.source("$(touch wrong)")
        screen.type("ipcbus reso").keys("Tab").shows("ipcbus resolver")
        screen.keys("C-u").type("ipcbus stats --inter").keys("Tab").shows("--interval")
        screen.keys("C-u").type(f"ipcbus list --domain {domain[:6]}").keys("Tab").shows(f"--domain {domain}")
        screen.keys("C-u").type(f"ipcbus list --domain={domain[:6]}").keys("Tab").shows(f"--domain={domain}")
        screen.keys("C-u").type(f"ipcbus echo --domain {domain} quo").keys("Tab").shows("quotes.AAPL")
        # bash takes this word apart at its colons.
        typed = source.source[:-3]
        screen.keys("C-u").type(f"ipcbus info --domain {domain} {typed}").keys("Tab").shows(source.source)
        screen.keys("C-u").type(f"ipcbus pub --domain {domain} x --transport lbts").keys("Tab").shows("lbtsmx")
        quoted = {"bash": r"\$\(touch\ wrong\)", "zsh": r"\$\(touch\ wrong\)", "fish": r"'$(touch wrong)'"}[name]
        begun = "'$" if name == "fish" else r"\$"
        screen.keys("C-u").type(f"ipcbus echo --domain {domain} {begun}").keys("Tab").shows(quoted)
        screen.keys("C-u")


def test_files_and_wrong_words(shell: tuple[str, Screen], tmp_path: Path) -> None:
    _, screen = shell
    (tmp_path / "settings.toml").touch()
    screen.type(f"ipcbus list --config {tmp_path}/sett").keys("Tab").shows("settings.toml")
    screen.keys("C-u").type("ipcbus nonsense ").keys("Tab").type("end").shows("nonsense end")
    screen.keys("C-u")
