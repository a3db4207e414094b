"""The rows of the performance budgets: what is run, what it is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import native, scenarios
from benchmarks.pairs import run

if TYPE_CHECKING:
    from collections.abc import Callable

SMX: dict[str, str | int] = {"transport": "lbtsmx"}
IPC: dict[str, str | int] = {"transport": "lbtipc"}
BIG: dict[str, str | int] = {
    "transport": "lbtsmx",
    "transport_lbtsmx_datagram_max_size": 65_536 + 16,
    "transport_lbtsmx_transmission_window_size": 1 << 20,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Attributes:
        name: what it says in the table.
        unit: of the value.
        budget: what it has to reach; None where there is none.
        stretch: what would be excellent.
        smaller_is_better: whether the value has to stay below the budget.
        measure: runs it once; takes a factor for the amount of work and returns the value.
        native: key of the native figure that it is divided by, or empty.
        beside: name of the row that it is divided by instead, where that one is measured too.
    """

    name: str
    unit: str
    budget: float | None
    stretch: float | None
    smaller_is_better: bool
    measure: Callable[[float], float]
    native: str = ""
    beside: str = ""


def _throughput(messages: int, source: dict[str, str | int], size: int = 64) -> Callable[[float], float]:
    def measure(factor: float) -> float:
        parts = [(scenarios.send_each, 0), (scenarios.count_in_callback, 1)]
        return run(parts, int(messages * factor), size, source=source)[1]["per_second"]

    return measure


def _rows(messages: int, size: int, rows: int, source: dict[str, str | int]) -> Callable[[float], float]:
    def measure(factor: float) -> float:
        parts = [(scenarios.send_rows, 0), (scenarios.fill_rows, 1)]
        whole = max(2, int(messages * factor) // rows) * rows
        return run(parts, whole, size, source=source, rows=rows)[1]["per_second"]

    return measure


_round_trips: dict[bool, dict[str, float]] = {}


def _round_trip(key: str, *, parked: bool, messages: int) -> Callable[[float], float]:
    """One run gives all percentiles; the row of the first one makes it."""

    def measure(factor: float) -> float:
        if key == "p50":
            parts = [(scenarios.ping_parked if parked else scenarios.ping, 0), (scenarios.pong, 1)]
            _round_trips[parked] = run(parts, int(messages * factor), 64, source=SMX, parked=parked)[0]
        return _round_trips[parked][key]

    return measure


def _burst(receivers: int) -> float:
    parts = [(scenarios.send_bursts, 0)] + [(scenarios.count_in_callback, 1)] * receivers
    return run(parts, 200_000, source=SMX, burst=2000, receivers=receivers)[0]["ns_per_send"]


def _second_receiver(factor: float) -> float:
    del factor
    return 100 * (_burst(2) / _burst(1) - 1)


def _idle(factor: float) -> float:
    parts = [(scenarios.idle, 1), (scenarios.quiet_source, 0)]
    return run(parts, 0, source=SMX, seconds=10 * factor)[0]["cpu_percent"]


def _bytes(measure: Callable[[float], float], size: int) -> Callable[[float], float]:
    return lambda factor: measure(factor) * size


BUDGETS = [
    Row("send -> callback, LBT-SMX", "msg/s", 12e6, 20e6, False, _throughput(10_000_000, SMX), "ring"),
    Row("send -> callback, LBT-IPC batching", "msg/s", 12e6, 25e6, False, _throughput(10_000_000, IPC), "ring_batch"),
    Row("send_many -> receive_into", "msg/s", 60e6, 130e6, False, _rows(50_000_000, 64, 10_000, SMX), "ring_batch"),
    Row("round trip, median", "ns", 500, 350, True, _round_trip("p50", parked=False, messages=500_000), "ring_trip"),
    Row("round trip, p99", "ns", 2000, 800, True, _round_trip("p99", parked=False, messages=500_000), "ring_trip_p99"),
    Row(
        "64 KiB: send -> callback",
        "B/s",
        0.5,
        0.8,
        False,
        _bytes(_throughput(100_000, BIG, 65_536), 65_536),
        "memcpy",
    ),
    Row(
        "64 KiB: send_many -> receive_into",
        "B/s",
        None,
        None,
        False,
        _bytes(_rows(100_000, 65_536, 8, BIG), 65_536),
        "memcpy",
    ),
    Row("second receiver: cost of a send", "%", 10, 2, True, _second_receiver),
    Row(
        "parked round trip, median", "ns", 1.5, 1.1, True, _round_trip("p50", parked=True, messages=3_000), "futex_trip"
    ),
    Row("parked receiver, processor time", "%", 0.1, 0.1, True, _idle),
]
"""Budgets of rows 64 KiB and parked round trip are ratios to the native figure; all others are values."""

RATIO_ROWS = {"memcpy", "futex_trip"}


def native_figures() -> dict[str, float]:
    """The limits of this machine now: a ping-pong, a ring, a futex, a memcpy, all in C."""
    ring = native.run("ring", "stamp", "8")
    wake = native.run("wake", "300", "1", str(scenarios.PAUSE_US))["two_cores"]
    copy = native.run("memcpy")
    return {
        "line": native.run("pingpong")["round_trip_p50_ns"],
        "ring": ring["one_by_one_msg_s"],
        "ring_batch": ring["batch_32_msg_s"],
        "ring_trip": ring["round_trip_p50_ns"],
        "ring_trip_p99": ring["round_trip_p99_ns"],
        "futex_trip": 1000 * wake["futex"]["round_trip_p50_us"],
        "memcpy": copy["set_bytes_s"],
    }
