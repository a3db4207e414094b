"""The state of the machine for the header."""

from __future__ import annotations

import platform
from dataclasses import dataclass

import psutil

from ringbuf import segment


@dataclass(frozen=True, slots=True)
class Host:
    """The machine at one moment.

    Attributes:
        name: the host name.
        processors: load of each processor since the previous snapshot, in percent.
        memory_used: bytes in use in the file system of shared memory.
        memory_total: size of that file system in bytes.
    """

    name: str
    processors: tuple[float, ...]
    memory_used: int
    memory_total: int


def current() -> Host:
    """Returns the current state of the machine."""
    try:
        usage = psutil.disk_usage(str(segment.ROOT))
        used, total = usage.used, usage.total
    except OSError:
        used, total = 0, 0
    return Host(platform.node(), tuple(psutil.cpu_percent(percpu=True)), used, total)
