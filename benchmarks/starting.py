"""How long the command takes to start, in processor time, which a busy machine changes little."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from benchmarks.rows import Row

if TYPE_CHECKING:
    from collections.abc import Callable

_STARTS: Final = 5


def _start(*arguments: str, **environment: str) -> Callable[[float], float]:
    """Milliseconds of one start, the median of some."""

    def measure(_factor: float) -> float:
        found = []
        for _ in range(_STARTS):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", "ipcbus_tools", *arguments]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=os.environ | environment)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return 1000 * statistics.median(found)

    return measure


def _tab(line: str) -> Callable[[float], float]:
    return _start(_IPCBUS_COMPLETE="bash", _IPCBUS_LINE=line)


STARTING: Final = [
    Row("start: ipcbus --help", "ms", 150, 100, True, _start("--help")),
    Row("start: ipcbus top --help", "ms", 150, 100, True, _start("top", "--help")),
    Row("start: Tab behind ipcbus info", "ms", 150, 100, True, _tab("ipcbus info ")),
    Row("start: ipcbus list", "ms", None, None, True, _start("list", "--domain", "benchmarks")),
]
