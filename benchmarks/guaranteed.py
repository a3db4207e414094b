"""Guaranteed messages from process to process, and sqlite that saves a row and deletes one for each message."""

from __future__ import annotations

import functools
import itertools
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import ipcbus
from benchmarks import scenarios
from benchmarks.pairs import run
from benchmarks.rows import Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.pairs import Figures, Part, Station

_WAIT_S: Final = 60.0
_SIZE: Final = 200
_GROUP: Final = 100
"""Messages that one sync makes durable in the rows that are grouped; the sender takes acknowledgements as often."""

_OUTSTANDING: Final = 1_000
"""Rows in the table of sqlite."""


def _source(context: ipcbus.Context, station: Station) -> ipcbus.Source:
    source = context.source(
        scenarios.TOPIC, transport="lbtsmx", gmd_name="sender", delivery_mode="all", **station.options["source"]
    )
    source.wait_for_receivers(station.options["receivers"], _WAIT_S)
    return source


def _until_acknowledged(source: ipcbus.Source, context: ipcbus.Context) -> None:
    end = time.monotonic() + _WAIT_S
    while source.gmd_num_pending:
        context.process_events(0)
        if time.monotonic() > end:
            raise TimeoutError(f"{source.gmd_num_pending} messages are not acknowledged after {_WAIT_S:g} s")


def send_all(station: Station) -> Figures:
    """`send` in mode `all`, until each message is acknowledged by all receivers."""
    grouped = station.options["source"].get("gmd_durability") == "group"
    payload = b"x" * station.size
    with scenarios._context(station) as context:
        station.ready()
        source = _source(context, station)
        begin = time.perf_counter()
        for _ in range(station.messages // _GROUP):
            for _ in range(_GROUP):
                source.send(payload)
            if grouped:
                source.wait_durable(timeout=_WAIT_S)
            context.process_events(0)
        source.flush()
        _until_acknowledged(source, context)
        return {"per_second": station.messages // _GROUP * _GROUP / (time.perf_counter() - begin)}


def send_and_wait(station: Station) -> Figures:
    """The median time from `send` to the acknowledgement, one message after the other; the first tenth warms up."""
    payload, clock = b"x" * station.size, time.perf_counter_ns
    times = np.zeros(station.messages, np.int64)
    with scenarios._context(station) as context:
        station.ready()
        source = _source(context, station)
        for index in range(station.messages):
            begin = clock()
            source.send(payload)
            while source.gmd_num_pending:
                context.process_events(0)
            times[index] = clock() - begin
        return {"p50": float(np.percentile(times[station.messages // 10 :], 50))}


def receive_all(station: Station, name: str) -> Figures:
    """Acknowledges each message after its callback, until the source is gone."""
    ended = False

    def on_message(message: ipcbus.Message) -> None:
        nonlocal ended
        ended = ended or message.type is ipcbus.MessageType.EOS

    options: dict[str, Any] = {
        key: value for key, value in station.options["source"].items() if key.startswith("ipc_gmd_")
    }
    # Two receivers share a processor.
    with scenarios._context(station, spin=station.options["receivers"] == 1) as context:
        context.receiver(scenarios.TOPIC, on_message, gmd_name=name, **options)
        station.ready()
        while not ended:
            context.process_events(0.1)
    return {}


def _run(sender: Callable[[Station], Figures], messages: int, receivers: int, source: dict[str, str]) -> Figures:
    with tempfile.TemporaryDirectory(prefix="ipcbus-bench-") as directory:
        names = [f"receiver_{number}" for number in range(receivers)]
        parts: list[tuple[Part, int]] = [(sender, 0)]
        parts += [(functools.partial(receive_all, name=name), 1) for name in names]
        options = {**source, "ipc_gmd_directory": directory}
        return run(parts, messages, _SIZE, receivers=receivers, source=options)[0]


def _rate(messages: int, receivers: int, source: dict[str, str]) -> Callable[[float], float]:
    return lambda factor: _run(send_all, int(messages * factor), receivers, source)["per_second"]


def _trip(factor: float) -> float:
    return _run(send_and_wait, int(20_000 * factor), 1, {"ipc_gmd_type": "memory"})["p50"]


def sqlite_rate(path: Path, messages: int, *, synchronous: str, group: int) -> float:
    """Messages a second that one process saves in a table, from which it deletes as many; `group` a transaction."""
    payload = b"x" * _SIZE
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute(f"PRAGMA synchronous={synchronous}")
        database.execute("CREATE TABLE kept (number INTEGER PRIMARY KEY, data BLOB)")
        database.executemany("INSERT INTO kept VALUES (?, ?)", ((number, payload) for number in range(_OUTSTANDING)))
        numbers = itertools.count(_OUTSTANDING)
        begin = time.perf_counter()
        for _ in range(messages // group):
            database.execute("BEGIN")
            for number in itertools.islice(numbers, group):
                database.execute("INSERT INTO kept VALUES (?, ?)", (number, payload))
                database.execute("DELETE FROM kept WHERE number = ?", (number - _OUTSTANDING,))
            database.execute("COMMIT")
        return messages // group * group / (time.perf_counter() - begin)


def _sqlite(messages: int, synchronous: str, group: int = 1) -> Callable[[float], float]:
    def measure(factor: float) -> float:
        with tempfile.TemporaryDirectory(prefix="ipcbus-bench-") as directory:
            path = Path(directory) / "kept.db"
            return sqlite_rate(path, int(messages * factor), synchronous=synchronous, group=group)

    return measure


_NORMAL: Final = "gmd peer: sqlite WAL NORMAL"
_FULL: Final = "gmd peer: sqlite WAL FULL"
_GROUPED: Final = f"gmd peer: sqlite WAL FULL, groups of {_GROUP}"
_KINDS: Final[list[tuple[str, int, dict[str, str], str, dict[int, float]]]] = [
    ("memory", 300_000, {"ipc_gmd_type": "memory"}, "", {1: 1e6}),
    ("file, process", 300_000, {"gmd_durability": "process"}, _NORMAL, {1: 300e3, 2: 150e3}),
    (f"file, group of {_GROUP}", 100_000, {"gmd_durability": "group"}, _GROUPED, {}),
    ("file, each", 10_000, {"gmd_durability": "each"}, _FULL, {}),
]
"""Area and durability, messages, options of the source, what stands beside, budget for each number of receivers."""


def _rows() -> list[Row]:
    rows = [
        Row(
            f"gmd {kind}: {receivers} receiver{'s' * (receivers > 1)}",
            *("msg/s", budgets.get(receivers), 1e6 if receivers in budgets else None, False),
            _rate(messages, receivers, source),
            beside=beside,
        )
        for kind, messages, source, beside, budgets in _KINDS
        for receivers in (1, 2)
    ]
    return [
        *rows,
        Row("gmd memory: send to acknowledged, spinning", "ns", 5_000, None, True, _trip),
        Row(_NORMAL, "msg/s", None, None, False, _sqlite(50_000, "NORMAL")),
        Row(_FULL, "msg/s", None, None, False, _sqlite(10_000, "FULL")),
        Row(_GROUPED, "msg/s", None, None, False, _sqlite(100_000, "FULL", _GROUP)),
    ]


GUARANTEED = _rows()
"""Goals: `process` 5 times sqlite WAL NORMAL, `group` 1.3 times WAL FULL grouped alike, `each` no slower than WAL FULL.

Areas lie where temporary files do (TMPDIR); messages have 200 bytes, and each is acknowledged by each receiver.
"""
