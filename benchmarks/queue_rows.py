"""Rows of `ipcbus.Queue`, beside `multiprocessing.Queue` and faster-fifo in the same run, in pinned processes."""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import statistics
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import ipcbus
from benchmarks.pairs import run
from benchmarks.rows import Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.pairs import Figures, Part, Station

MAXSIZE: Final = 10_000
PAIRS: Final = 2


def _ipcbus(maxsize: int) -> Any:  # noqa: ANN401 - queues of three makers
    return ipcbus.Queue(maxsize)


def _multiprocessing(maxsize: int) -> Any:  # noqa: ANN401
    return multiprocessing.get_context("spawn").Queue(maxsize)


def _faster_fifo(_maxsize: int) -> Any:  # noqa: ANN401
    return importlib.import_module("faster_fifo").Queue(max_size_bytes=1 << 24)


OWN: Final = "ipcbus.Queue"
BESIDE: Final = "multiprocessing.Queue of objects"
MAKERS: Final[dict[str, Callable[[int], Any]]] = {OWN: _ipcbus, BESIDE: _multiprocessing}
if importlib.util.find_spec("faster_fifo"):
    MAKERS["faster-fifo of objects"] = _faster_fifo

ITEMS: Final[dict[str, tuple[Callable[[], Any], int]]] = {
    "64 B": (lambda: b"x" * 64, 200_000),
    "a tuple of three": (lambda: (1, "two", 3.0), 100_000),
    "an array of 1 MiB": (lambda: np.zeros(1 << 17), 1_000),
}
"""What is put, and how many."""


def stream(station: Station) -> Figures:
    """Puts items."""
    queue, item = station.options["there"], ITEMS[station.options["item"]][0]()
    station.ready()
    for _ in range(station.messages):
        queue.put(item)
    station.ready()
    return {}


def take(station: Station) -> Figures:
    """Gets them; the time begins when the first one is there."""
    queue = station.options["there"]
    station.ready()
    queue.get(timeout=30)
    begin = time.perf_counter()
    for _ in range(station.messages - 1):
        queue.get(timeout=30)
    seconds = time.perf_counter() - begin
    station.ready()
    return {"per_second": (station.messages - 1) / seconds}


def trip(station: Station) -> Figures:
    """Puts an item, and waits for the echo."""
    there, back = station.options["there"], station.options["back"]
    item = ITEMS[station.options["item"]][0]()
    station.ready()
    times = []
    for _ in range(station.messages):
        begin = time.perf_counter_ns()
        there.put(item)
        back.get(timeout=30)
        times.append(time.perf_counter_ns() - begin)
    station.ready()
    return {"p50": statistics.median(times[station.messages // 10 :])}


def echo(station: Station) -> Figures:
    """Puts back what comes."""
    there, back = station.options["there"], station.options["back"]
    station.ready()
    for _ in range(station.messages):
        back.put(there.get(timeout=30))
    station.ready()
    return {}


def _measure(name: str, item: str, parts: list[tuple[Part, int]], messages: int) -> list[Figures]:
    there, back = MAKERS[name](MAXSIZE), MAKERS[name](MAXSIZE)
    return run(parts, messages, item=item, there=there, back=back)


def _rate(name: str, item: str, pairs: int) -> Callable[[float], float]:
    parts: list[tuple[Part, int]] = [*((stream, n) for n in range(pairs)), *((take, 1 - n) for n in range(pairs))]

    def measure(factor: float) -> float:
        figures = _measure(name, item, parts, max(100, int(ITEMS[item][1] * factor / pairs)))
        return sum(figure["per_second"] for figure in figures[pairs:])

    return measure


def _trip(name: str) -> Callable[[float], float]:
    return lambda factor: _measure(name, "64 B", [(trip, 0), (echo, 1)], max(200, int(3_000 * factor)))[0]["p50"]


def _row(name: str, what: str, measure: Callable[[float], float], budget: float | None, stretch: float | None) -> Row:
    smaller, unit = (True, "ns") if what == "round trip" else (False, "msg/s")
    if name != OWN:
        return Row(f"{name}: {what}", unit, None, None, smaller, measure)
    return Row(f"{name}: {what}", unit, budget, stretch, smaller, measure, f"{BESIDE}: {what}", is_ratio=True)


def _rows() -> list[Row]:
    many = f"64 B, {PAIRS} producers and {PAIRS} consumers"
    return [
        *(_row(name, item, _rate(name, item, 1), 5, 10) for item in ITEMS for name in MAKERS),
        *(_row(name, many, _rate(name, "64 B", PAIRS), None, None) for name in MAKERS),
        *(_row(name, "round trip", _trip(name), 1, 0.5) for name in MAKERS),
    ]


QUEUES: Final = _rows()
"""Goals: 5 times multiprocessing.Queue in throughput, and ahead of it in round trips."""
