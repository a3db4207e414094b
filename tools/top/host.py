"""What the header says of the machine."""

from __future__ import annotations

import platform
from dataclasses import dataclass

import psutil

from ringbuf import segment


@dataclass(frozen=True, slots=True)
class Host:
    """The machine at one moment.

    Attributes:
        name: its host name.
        processors: how busy each processor was since the look before, in percent.
        memory_used: bytes in use where shared memory lies.
        memory_total: bytes that there are.
    """

    name: str
    processors: tuple[float, ...]
    memory_used: int
    memory_total: int


def current() -> Host:
    """Returns the machine now."""
    try:
        usage = psutil.disk_usage(str(segment.ROOT))
        used, total = usage.used, usage.total
    except OSError:
        used, total = 0, 0
    return Host(platform.node(), tuple(psutil.cpu_percent(percpu=True)), used, total)
