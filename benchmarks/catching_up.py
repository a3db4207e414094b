"""How fast a receiver catches up, and what another one notices of it: three processes, a paced source, one late joiner.

The source sends at a steady rate from its own schedule, so that what delays it counts too. In the run beside it, the
third process is one more receiver of live messages.
"""

from __future__ import annotations

import struct
import threading
import time
from typing import TYPE_CHECKING

import numpy as np

import ipcbus
from benchmarks.pairs import run
from benchmarks.rows import Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.pairs import Figures, Station

_WAIT_S = 60.0
_DUE = struct.Struct("<q")
_SPAN = struct.Struct("<qq")
_STEP_NS = 500_000
"""The source sleeps this long between its bursts."""


def send_paced(station: Station) -> Figures:
    """Sends what a late joiner will ask for, then so many messages a second, each with the time at which it is due."""
    rate, per_step = station.options["rate"], station.options["rate"] * _STEP_NS // 1_000_000_000
    rest = bytes(station.size - _DUE.size)
    with ipcbus.Context(domain=station.domain) as context:
        options = dict(station.options["source"], late_join=1)
        source = context.source("paced", **options)
        done = context.receiver("done")
        for _ in range(station.options["history"]):
            source.send(_DUE.pack(0) + rest)
        source.flush()
        source.wait_for_receivers(1, _WAIT_S)
        station.ready()
        begin, step = time.monotonic_ns(), 0
        while done.receive(0) is None and step * per_step < _WAIT_S * rate:
            due = begin + step * _STEP_NS
            wait = due - time.monotonic_ns()
            if wait > 0:
                time.sleep(wait / 1e9)
            message = _DUE.pack(due) + rest
            for _ in range(per_step):
                source.send(message)
            source.flush()
            step += 1
        station.ready()
        return {}


def note_delays(station: Station) -> Figures:
    """Receives live messages; returns the p99 of their delays in the time that the third process names."""
    delays = np.zeros((4_000_000, 2), np.int64)
    count = 0
    data, clock = ipcbus.MessageType.DATA, time.monotonic_ns

    def on_message(message: ipcbus.Message) -> None:
        nonlocal count
        if message.type is data:
            due = _DUE.unpack_from(message.data)[0]
            delays[count % len(delays)] = due, clock() - due
            count += 1

    with ipcbus.Context(domain=station.domain) as context:
        over = context.receiver("over")
        context.receiver("paced", on_message, use_late_join=0)
        station.ready()
        while (found := over.receive(_WAIT_S)) is None or found.type is not data:
            pass
        first, last = _SPAN.unpack(found.data)
        station.ready()
        kept = delays[(delays[:, 0] >= first) & (delays[:, 0] <= last), 1]
        return {"p50": float(np.percentile(kept, 50)), "p99": float(np.percentile(kept, 99)), "messages": len(kept)}


def join_amid(station: Station) -> Figures:
    """Joins after half a second: late, or for live messages only; names the time that counts."""
    history, seconds = station.options["history"], station.options["seconds"]
    data, count, caught_up_ns = ipcbus.MessageType.DATA, 0, 0

    def on_message(message: ipcbus.Message) -> None:
        nonlocal count, caught_up_ns
        if message.type is data:
            count += 1
            if not caught_up_ns and not message.flags & ipcbus.MessageFlag.LATE_JOIN:
                caught_up_ns = time.monotonic_ns()

    with ipcbus.Context(domain=station.domain) as context:
        over, done = context.source("over"), context.source("done")
        over.wait_for_receivers(1, _WAIT_S)
        done.wait_for_receivers(1, _WAIT_S)
        station.ready()
        time.sleep(0.5)
        begin = time.monotonic_ns()
        context.receiver("paced", on_message, use_late_join=not seconds)
        until = begin + int((seconds or _WAIT_S) * 1e9)
        while time.monotonic_ns() < until and (seconds or not caught_up_ns):
            time.sleep(0.01)
        if not seconds and (not caught_up_ns or count < history):
            raise TimeoutError(f"the late joiner has {count} messages after {_WAIT_S:g} s")
        end = until if seconds else caught_up_ns
        over.send(_SPAN.pack(begin, end), flush=True)
        time.sleep(0.1)
        done.send(b"", flush=True)
        station.ready()
        return {"seconds": (end - begin) / 1e9, "count": count}


def keep_history(station: Station) -> Figures:
    """Sends what a late joiner will ask for, and then nothing."""
    with ipcbus.Context(domain=station.domain) as context:
        source = context.source("kept", **station.options["source"], late_join=1)
        message = bytes(station.size)
        for _ in range(station.messages):
            source.send(message)
        source.flush()
        station.ready()
        station.ready()
        return {}


def take_history(station: Station) -> Figures:
    """Joins late; returns the bytes a second in which all came."""
    count, complete = 0, threading.Event()
    data = ipcbus.MessageType.DATA

    def on_message(message: ipcbus.Message) -> None:
        nonlocal count
        count += message.type is data
        if count == station.messages:
            complete.set()

    with ipcbus.Context(domain=station.domain) as context:
        station.ready()
        begin = time.perf_counter()
        context.receiver("kept", on_message)
        if not complete.wait(_WAIT_S):
            raise TimeoutError(f"the late joiner has {count} messages after {_WAIT_S:g} s")
        seconds = time.perf_counter() - begin
        station.ready()
        return {"bytes_per_second": count * station.size / seconds}


def _history(size: int, total: int) -> Callable[[float], float]:
    def measure(factor: float) -> float:
        source = {"transport": "lbtipc", "retransmit_retention_size_limit": 1 << 30}
        parts = [(keep_history, 0), (take_history, 1)]
        return run(parts, int(total * factor) // size, size, source=source)[1]["bytes_per_second"]

    return measure


_last_seconds: dict[str, float] = {}


def measure(transport: str, factor: float, *, late: bool) -> tuple[Figures, Figures]:
    """One run; the one beside it takes as long as the late join before took."""
    parts = [(send_paced, 0), (note_delays, 1), (join_amid, 1)]
    seconds = 0.0 if late else _last_seconds.get(transport, 1.0)
    options = {"transport": transport, "retransmit_retention_size_limit": 1 << 30}
    found = run(parts, 0, 64, rate=200_000, history=int(1_000_000 * factor), seconds=seconds, source=options)
    _last_seconds[transport] = found[2]["seconds"]
    return found[1], found[2]


def _p99(transport: str, *, late: bool) -> Callable[[float], float]:
    return lambda factor: measure(transport, factor, late=late)[0]["p99"]


def _rows() -> list[Row]:
    rows = [
        Row("late join, 2 KB, idle source", "B/s", 500e6, None, False, _history(2048, 200_000_000)),
        Row("late join, 64 B, idle source", "B/s", None, None, False, _history(64, 20_000_000)),
    ]
    for transport, name in (("lbtipc", "LBT-IPC"), ("lbtsmx", "LBT-SMX")):
        plain = f"p99 beside one more receiver, {name}"
        rows += [
            Row(f"p99 beside a late joiner, {name}", "ns", None, None, True, _p99(transport, late=True), beside=plain),
            Row(plain, "ns", None, None, True, _p99(transport, late=False)),
        ]
    return rows


CATCHING_UP = _rows()
"""Goals: an idle source sends a history at 500 MB/s; the p99 beside a late joiner is at most 1.25 times that beside one
more receiver."""
