"""The rows of the performance budgets: what is run, what it is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

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
        name: what it says in the table; no two rows have the same.
        unit: of the value.
        budget: what it has to reach; None where there is none.
        stretch: what would be excellent.
        smaller_is_better: whether the value has to stay below the budget.
        measure: runs it once; takes a factor for the amount of work and returns the value.
        beside: name of the row that it is divided by, where that one is measured too: a native limit, or another form.
        is_ratio: whether budget and stretch are of the value divided by what stands beside it.
        at_least: with `is_ratio`, budget and stretch as values that are enough whatever stands beside.
        also: a second row, and how many times its value has to be reached for the budget.
        or_beside: name of another row like `beside`; the value is divided by the better one of those measured.
    """

    name: str
    unit: str
    budget: float | None
    stretch: float | None
    smaller_is_better: bool
    measure: Callable[[float], float]
    beside: str = ""
    is_ratio: bool = False
    at_least: tuple[float, float] | None = None
    also: tuple[str, float] | None = None
    or_beside: str = ""


class Shared:
    """A run that gives the figures of several rows: it is made again when one of them is asked for again."""

    def __init__(self, measure: Callable[[float], dict[str, float]]) -> None:
        """Takes what makes the run."""
        self._measure = measure
        self._figures: dict[str, float] = {}
        self._given: set[str] = set()

    def row(self, key: str) -> Callable[[float], float]:
        """Returns what measures one of the figures."""

        def measure(factor: float) -> float:
            if key in self._given or not self._figures:
                self._figures = {}  # a run that fails leaves no figures of the one before
                self._figures, self._given = self._measure(factor), set()
            self._given.add(key)
            return self._figures[key]

        return measure


# ---------------------------------------------------------------------------------------- native limits

LINE: Final = "C: cache line, there and back"
RING: Final = "C: ring, one by one"
RING_BATCH: Final = "C: ring, batches of 32"
RING_TRIP: Final = "C: ring, round trip"
RING_TRIP_P99: Final = "C: ring, round trip, p99"
FUTEX_TRIP: Final = "C: futex ping-pong, asleep"
MEMCPY: Final = "C: memcpy, 64 KiB in 4 MiB"
WAKE_TRIPS: Final = 200


def _ring(_factor: float) -> dict[str, float]:
    found: dict[str, float] = native.run("ring", "stamp", "8")
    return found


def _native_rows() -> list[Row]:
    ring = Shared(_ring)

    def row(name: str, unit: str, measure: Callable[[float], float]) -> Row:
        return Row(name, unit, None, None, unit == "ns", measure)

    def futex(_factor: float) -> float:
        wake = native.run("wake", str(WAKE_TRIPS), "1", str(scenarios.PAUSE_US))["two_cores"]
        return float(1000 * wake["futex"]["round_trip_p50_us"])

    return [
        row(LINE, "ns", lambda _factor: float(native.run("pingpong")["round_trip_p50_ns"])),
        row(RING, "msg/s", ring.row("one_by_one_msg_s")),
        row(RING_BATCH, "msg/s", ring.row("batch_32_msg_s")),
        row(RING_TRIP, "ns", ring.row("round_trip_p50_ns")),
        row(RING_TRIP_P99, "ns", ring.row("round_trip_p99_ns")),
        row(FUTEX_TRIP, "ns", futex),
        row(MEMCPY, "B/s", lambda _factor: float(native.run("memcpy")["set_bytes_s"])),
    ]


NATIVE: Final = _native_rows()
"""The limits of this machine now: a cache line, a ring, a futex, a memcpy, all in C."""

# ---------------------------------------------------------------------------------------- the fastest ways


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


_trips = Shared(lambda factor: run([(scenarios.ping, 0), (scenarios.pong, 1)], int(300_000 * factor), source=SMX)[0])
_parked = Shared(
    lambda factor: run(
        [(scenarios.ping_parked, 0), (scenarios.pong, 1)], max(100, int(1_000 * factor)), source=SMX, parked=True
    )[0]
)


def _burst(receivers: int, factor: float) -> float:
    parts = [(scenarios.send_bursts, 0)] + [(scenarios.count_in_callback, 1)] * receivers
    return run(parts, int(200_000 * max(factor, 0.1)), source=SMX, burst=2000, receivers=receivers)[0]["ns_per_send"]


def _second_receiver(factor: float) -> float:
    return 100 * (_burst(2, factor) / _burst(1, factor) - 1)


def _idle(source: dict[str, str | int], *, answers: bool = False) -> Callable[[float], float]:
    def measure(factor: float) -> float:
        parts = [(scenarios.idle, 1), (scenarios.quiet_source, 0)]
        return run(parts, 0, source=source, seconds=3 * factor, answers=answers)[0]["cpu_percent"]

    return measure


def _bytes(measure: Callable[[float], float], size: int) -> Callable[[float], float]:
    return lambda factor: measure(factor) * size


COUNTED_SMX: Final = "send, callback counts, LBT-SMX"
COUNTED_IPC: Final = "send, callback counts, LBT-IPC"
MANY: Final = "send_many, receive_into"
ECHO: Final = "echo in the callback"
PEND_TRIP: Final = "callbacks, sequential, pend"
THROUGHPUT: Final = [
    Row(COUNTED_SMX, "msg/s", 12e6, 20e6, False, _throughput(5_000_000, SMX), RING),
    Row(COUNTED_IPC, "msg/s", 12e6, 25e6, False, _throughput(5_000_000, IPC), RING_BATCH),
    Row(MANY, "msg/s", 60e6, 130e6, False, _rows(20_000_000, 64, 10_000, SMX), RING_BATCH),
]
TRIPS: Final = [
    Row(ECHO, "ns", 500, 350, True, _trips.row("p50"), RING_TRIP),
    Row(f"{ECHO}, p99", "ns", 2000, 800, True, _trips.row("p99"), RING_TRIP_P99),
]
PARKED: Final = [
    Row(PEND_TRIP, "ns", 1.25, 1.1, True, _parked.row("p50"), FUTEX_TRIP, is_ratio=True),
]
LARGE_64: Final = [
    Row(
        "64 KiB: callback that looks away",
        *("B/s", 0.5, 0.8, False, _bytes(_throughput(50_000, BIG, 65_536), 65_536), MEMCPY),
        is_ratio=True,
    ),
    Row(
        "64 KiB: send_many, receive_into",
        *("B/s", None, None, False, _bytes(_rows(50_000, 65_536, 8, BIG), 65_536), MEMCPY),
    ),
]
FAN_OUT: Final = [
    Row("second receiver, cost of a send", "%", 10, 2, True, _second_receiver),
    Row("parked receiver, processor time", "%", 0.1, 0.1, True, _idle(SMX)),
    *(
        Row(f"parked source and receiver, {name}", "%", None, None, True, _idle({"transport": name}, answers=True))
        for name in ("lbtipc", "lbttcp", "lbtru")
    ),
]
