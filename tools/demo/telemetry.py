"""Telemetry of this host as JSON messages, with a topic for each kind."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

Facts = dict[str, Any]


def _cpu() -> Facts:
    return {"percent": psutil.cpu_percent(percpu=True), "load": psutil.getloadavg()}


def _memory() -> Facts:
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    return {"total": memory.total, "available": memory.available, "percent": memory.percent, "swap_used": swap.used}


def _disk() -> Facts:
    space = psutil.disk_usage("/")
    # A container may show no devices at all.
    moved = psutil.disk_io_counters()
    return {
        "total": space.total,
        "free": space.free,
        "read_bytes": moved.read_bytes if moved else None,
        "write_bytes": moved.write_bytes if moved else None,
    }


def _net() -> Facts:
    found = psutil.net_io_counters(pernic=True)
    return {name: {"bytes_sent": nic.bytes_sent, "bytes_recv": nic.bytes_recv} for name, nic in found.items()}


TOPICS: Final[dict[str, Callable[[], Facts]]] = {
    "host.cpu": _cpu,
    "host.memory": _memory,
    "host.disk": _disk,
    "host.net": _net,
}
"""The function that returns the facts of each topic."""


def message(topic: str) -> bytes:
    """Returns the message of a topic; the message says so when the host does not provide the facts."""
    try:
        facts = TOPICS[topic]()
    except (psutil.Error, OSError, RuntimeError) as error:
        facts = {"unknown": str(error)}
    return json.dumps({"time_ns": time.time_ns(), **facts}).encode()
