"""Guaranteed messages from process to process, beside stores and servers: `python -m benchmarks.guaranteed`.

A message counts when it is saved and acknowledged by each receiver. Each round runs all rows one after the other, and a
ratio is the median of the rounds' ratios. All parts run in pinned processes: senders and stores on one processor,
receivers on the other.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import ipcbus
from benchmarks import scenarios, stores, stream_servers
from benchmarks.pairs import run
from benchmarks.rows import Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.pairs import Figures, Part, Station

_WAIT_S: Final = 60.0
_SIZE: Final = 200
_GROUP: Final = 100
"""Messages that one sync makes durable in the rows that are grouped; the sender takes acknowledgements as often."""


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


@dataclass(frozen=True, slots=True)
class Peer:
    """What else can save messages.

    Attributes:
        name: as the table says it.
        measure: runs it; takes a factor for the amount of work, and returns messages/s. None: it is not installed.
        goal: what one receiver's figure has to be of this one; 0 for no goal.
    """

    name: str
    measure: Callable[[float], float] | None
    goal: float = 0


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of area, and what stands beside it.

    Attributes:
        name: as the table says it.
        messages: of a run.
        source: options of the source.
        budgets: messages/s that one and two receivers have to reach.
        peers: the others.
    """

    name: str
    messages: int
    source: dict[str, str]
    budgets: dict[int, float]
    peers: tuple[Peer, ...] = ()


def _lmdb(name: str, messages: int, *, sync: bool, metasync: bool, group: int = 1) -> Peer:
    measure = stores.lmdb(messages, _SIZE, sync=sync, metasync=metasync, group=group)
    return Peer(f"lmdb {name}", measure if stores.HAS_LMDB else None)


def _redis(messages: int, fsync: str, group: int) -> Peer:
    measure = stream_servers.redis(messages, _SIZE, fsync=fsync, group=group)
    return Peer(f"Redis, appendfsync {fsync}", measure if stream_servers.REDIS else None)


def _sqlite(name: str, messages: int, goal: float, group: int = 1) -> Peer:
    return Peer(f"sqlite WAL {name}", stores.sqlite(messages, _SIZE, synchronous=name, group=group), goal)


_JETSTREAM: Final = Peer(
    "NATS JetStream, files", stream_servers.nats(50_000, _SIZE, group=_GROUP) if stream_servers.NATS else None
)
KINDS: Final = (
    Kind("memory", 300_000, {"ipc_gmd_type": "memory"}, {1: 1e6}),
    Kind(
        "file, process",
        300_000,
        {"gmd_durability": "process"},
        {1: 300e3, 2: 150e3},
        (
            _sqlite("NORMAL", 50_000, 5),
            _lmdb("sync=False", 50_000, sync=False, metasync=True),
            _redis(50_000, "no", _GROUP),
            _JETSTREAM,
        ),
    ),
    Kind(
        f"file, group of {_GROUP}",
        100_000,
        {"gmd_durability": "group"},
        {},
        (
            _sqlite("FULL", 100_000, 1.3, _GROUP),
            _lmdb("sync", 100_000, sync=True, metasync=True, group=_GROUP),
            _lmdb("metasync=False", 100_000, sync=True, metasync=False, group=_GROUP),
            _redis(20_000, "always", _GROUP),
        ),
    ),
    Kind(
        "file, each",
        5_000,
        {"gmd_durability": "each"},
        {},
        (
            _sqlite("FULL", 5_000, 1),
            _lmdb("sync", 3_000, sync=True, metasync=True),
            _lmdb("metasync=False", 3_000, sync=True, metasync=False),
            _redis(3_000, "always", 1),
        ),
    ),
)
"""Areas lie where temporary files do (TMPDIR). A commit or a sync of the peers has as many messages as one of ours; the
servers of `process` get the messages in groups, whose answers are awaited."""


def _peer_row(kind: Kind, peer: Peer) -> str:
    return f"gmd peer: {kind.name.removeprefix('file, ')}: {peer.name}"


def _rows() -> list[Row]:
    rows = [
        Row(
            f"gmd {kind.name}: {receivers} receiver{'s' * (receivers > 1)}",
            *("msg/s", kind.budgets.get(receivers), 1e6 if receivers in kind.budgets else None, False),
            _rate(kind.messages, receivers, kind.source),
            beside=_peer_row(kind, kind.peers[0]) if kind.peers else "",
        )
        for kind in KINDS
        for receivers in (1, 2)
    ]
    peers = [
        Row(_peer_row(kind, peer), "msg/s", None, None, False, peer.measure)
        for kind in KINDS
        for peer in kind.peers
        if peer.measure is not None
    ]
    trip = Row("gmd memory: send to acknowledged, spinning", "ns", 5_000, None, True, _trip)
    return [*rows, trip, *peers]


GUARANTEED = _rows()

# ---------------------------------------------------------------------------------------- the table of this module


def _measured(rows: list[Row], rounds: int, factor: float) -> dict[str, list[float]]:
    """Runs all rows in each round; a short round before them warms up."""
    found: dict[str, list[float]] = {row.name: [] for row in rows}
    for row in rows:
        row.measure(factor / 10)
    for _ in range(rounds):
        for row in rows:
            found[row.name].append(row.measure(factor))
    return found


def _table(kind: Kind, found: dict[str, list[float]]) -> Table:
    """Shows a kind and its peers, in 80 columns."""
    ours = [found[f"gmd {kind.name}: {text}"] for text in ("1 receiver", "2 receivers")]
    table = Table(title=f"{kind.name}: {_SIZE} bytes", title_justify="left", box=SIMPLE_HEAD, padding=0)
    for column in ("saved and acknowledged", "msg/s", "min-max", "1 is", "2 are", "goal"):
        table.add_column(column, justify="left" if column.startswith("saved") else "right", no_wrap=True)
    for receivers, values in enumerate(ours, 1):
        goal = kind.budgets.get(receivers)
        name = f"ipcbus, {receivers} receiver{'s' * (receivers > 1)}"
        reached = f"{_short(goal)} {_verdict(statistics.median(values) >= goal)}" if goal else ""
        table.add_row(name, _short(statistics.median(values)), _range(values), "", "", reached)
    for peer in kind.peers:
        values = found.get(_peer_row(kind, peer), [])
        if not values:
            table.add_row(peer.name, "", "not installed", "", "", "")
            continue
        ratios = [statistics.median(mine / its for mine, its in zip(each, values, strict=True)) for each in ours]
        reached = f"{peer.goal:g}x {_verdict(ratios[0] >= peer.goal)}" if peer.goal else ""
        texts = [f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.3g}x" for ratio in ratios]
        table.add_row(peer.name, _short(statistics.median(values)), _range(values), *texts, reached)
    return table


def _verdict(reached: bool) -> str:
    return "met" if reached else "MISSED"


def _short(value: float) -> str:
    for size, letter in ((1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _range(values: list[float]) -> str:
    least, most = _short(min(values)), _short(max(values))
    return f"{least.split(' ')[0] if least[-1] == most[-1] else least}-{most}"


def main() -> None:
    """Prints a table for each kind."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guaranteed", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of all rows (default 5)")
    parser.add_argument("--factor", type=float, default=1.0, help="amount of work of each row (default 1)")
    parser.add_argument("--only", default="", help="kinds whose name contains this text, as `each`")
    arguments = parser.parse_args()
    kinds = [kind for kind in KINDS if arguments.only in kind.name]
    names = {_peer_row(kind, peer) for kind in kinds for peer in kind.peers}
    rows = [row for row in GUARANTEED if row.name in names or any(row.name.startswith(f"gmd {k.name}") for k in kinds)]
    before = os.getloadavg()[0]
    found = _measured(rows, arguments.rounds, arguments.factor)
    console = Console(width=80)
    for kind in kinds:
        console.print(_table(kind, found))
    load = f"{before:.1f} before, {os.getloadavg()[0]:.1f} after"
    console.print(f"load {load}; medians of {arguments.rounds} interleaved rounds", highlight=False)


if __name__ == "__main__":
    main()
