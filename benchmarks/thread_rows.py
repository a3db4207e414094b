"""Two threads of one process that send at the same time, where the interpreter has no lock, beside one thread."""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

import ipcbus
from benchmarks.pairs import run
from benchmarks.rows import Row, Shared

if TYPE_CHECKING:
    from benchmarks.pairs import Figures, Station

APPLIES: Final = not getattr(sys, "_is_gil_enabled", lambda: True)()
NEEDS_NO_LOCK: Final = "two threads that send: does not apply with the interpreter's lock; measure it with python3.13t"
ROUNDS: Final = 30
"""Short ones, so that some of them have both processors for themselves."""
SESSIONS: Final = "two threads, two sessions: of one thread"
COST: Final = "two threads, one session: cost of a message"
_SOURCES: Final = {"one": "one", "two": "two", "beside": "one"}
"""The topics, and the session of each."""


def _seconds(sources: list[ipcbus.Source], messages: int, size: int) -> float:
    """How long threads take, each with a source, from their common begin to the last end."""
    together = threading.Barrier(len(sources))
    begins, ends = [0.0] * len(sources), [0.0] * len(sources)

    def send(place: int) -> None:
        one, payload = sources[place].send, b"x" * size
        together.wait()
        begins[place] = time.perf_counter()
        for _ in range(messages):
            one(payload)
        ends[place] = time.perf_counter()

    threads = [threading.Thread(target=send, args=(place,)) for place in range(len(sources))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(ends) - min(begins)


def send_in_threads(station: Station) -> Figures:
    """Sends in one thread, in two on two sessions, and in two on one session; no context receives."""
    os.sched_setaffinity(0, range(os.cpu_count() or 2))
    with ipcbus.Context(domain=station.domain, operational_mode="sequential") as context:
        sources = {
            topic: context.source(topic, transport="lbtsmx", transport_lbtsmx_id=30_001 + (session == "two"))
            for topic, session in _SOURCES.items()
        }

        def rounds(*topics: str) -> list[float]:
            wanted = [sources[topic] for topic in topics]
            return [_seconds(wanted, station.messages, station.size) for _ in range(ROUNDS)]

        alone, apart = min(rounds("one")), min(rounds("one", "two"))
        # The median: in the best round the threads were lucky not to meet.
        together = statistics.median(rounds("one", "beside"))
    return {"sessions": 2 * alone / apart, "cost": together / 2 / alone, "ns": 1e9 * alone / station.messages}


def _rows() -> list[Row]:
    threads = Shared(lambda factor: run([(send_in_threads, 0)], max(10_000, int(50_000 * factor)))[0])
    return [
        Row(SESSIONS, "x", 1.6, 1.8, False, threads.row("sessions")),
        Row(COST, "x", 2, 1.2, True, threads.row("cost")),
        Row("one thread: a message", "ns", None, None, True, threads.row("ns")),
    ]


THREADS: Final = _rows() if APPLIES else []
"""Nothing where the interpreter has its lock, with which two threads share the time of one."""
