"""The public names: loaded when they are asked for, and the same whoever asks how."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import ipcbus

if TYPE_CHECKING:
    from types import ModuleType


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_every_public_name_has_a_home() -> None:
    homes = {name for names in ipcbus._HOMES.values() for name in names}
    assert homes | {"__version__"} == set(ipcbus.__all__)
    assert set(ipcbus.__all__) <= set(dir(ipcbus))
    for name in ipcbus.__all__:
        assert getattr(ipcbus, name) is getattr(ipcbus, name)


def test_modules_need_no_import_of_their_own() -> None:
    """Each in a child of a process that has imported nothing else: what one loads may be what the next one needs."""
    modules = ["errors", "context", "stats", "config", "message"]
    code = (
        "import ipcbus, os\n"
        f"for name in {modules}:\n"
        "    if not (child := os.fork()):\n"
        "        print(getattr(ipcbus, name).__name__, flush=True)\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
    )
    assert run(code).split() == [f"ipcbus.{module}" for module in modules]


def test_what_there_is_not() -> None:
    module: ModuleType = ipcbus
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = module.nonsense
    assert not hasattr(module, "_nonsense")


def test_statistics_start_without_the_bus() -> None:
    code = "import ipcbus.stats, sys; print([name in sys.modules for name in ('ipcbus.context', 'asyncio')])"
    assert run(code) == "[False, False]\n"


def test_what_is_registered_after_the_import_runs_before_contexts_close(domain: str) -> None:
    code = (
        "import atexit, ipcbus\n"
        "atexit.register(lambda: (source.send(b'last'), print('sent')))\n"
        f"context = ipcbus.Context(domain={domain!r})\n"
        "source = context.source('t')\n"
    )
    assert run(code) == "sent\n"
