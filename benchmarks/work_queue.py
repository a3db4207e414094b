"""Rows of a work queue (a topic whose receivers share its messages), beside other ways to give jobs to workers.

All rows have the same workers in processes of their own, with default options. The time of a stream ends when each
worker has done its last job. One way is measured while everything sleeps, by a clock that both processes read.
"""

from __future__ import annotations

import importlib
import multiprocessing
import struct
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import ipcbus
from benchmarks.pairs import run
from benchmarks.rows import Row
from benchmarks.scenarios import PAUSE_US, TOPIC
from benchmarks.udp_rows import HAS_ZMQ

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.pairs import Figures, Part, Station

WORKERS: Final = (1, 4)
_WAIT_S: Final = 30.0
_TIME: Final = struct.Struct("<q56x")
"""A job of 64 bytes that says when it was sent."""


def _give(station: Station, put: Callable[[bytes], object], end: Callable[[], object]) -> Figures:
    """Gives out the jobs; with `pause`, the next one when all sleep."""
    pause = station.options["pause"]
    station.ready()
    begin = time.perf_counter()
    for _ in range(station.messages):
        if pause:
            time.sleep(PAUSE_US / 1e6)  # no spin: the thread that sends for it may need the interpreter
        put(_TIME.pack(time.perf_counter_ns()))
    end()
    station.ready()
    return {"per_second": station.messages / (time.perf_counter() - begin)}


class _Worker:
    """Does jobs: notes how long each has come."""

    def __init__(self) -> None:
        self.ways: list[int] = []

    def do(self, job: bytes) -> None:
        """Does a job."""
        self.ways.append(time.perf_counter_ns() - _TIME.unpack(job)[0])

    def figures(self, station: Station) -> Figures:
        """Says that all jobs are done; returns the time of one way."""
        station.ready()
        return {"jobs": len(self.ways), "p50": float(np.median(self.ways)) if self.ways else 0.0}


def give(station: Station) -> Figures:
    """A source whose receivers share its messages."""
    with ipcbus.Context(domain=station.domain) as context:
        source = context.source(TOPIC, transport=station.options["transport"])
        source.wait_for_receivers(station.options["workers"], _WAIT_S)
        flush = bool(station.options["pause"])
        return _give(station, lambda job: source.send(job, flush=flush), source.close)


def work(station: Station) -> Figures:
    """A member of the share, until the source is closed."""
    worker, ended = _Worker(), multiprocessing.Event()

    def on_message(message: ipcbus.Message) -> None:
        if message.type is ipcbus.MessageType.DATA:
            worker.do(message.data)
        elif message.type is ipcbus.MessageType.EOS:
            ended.set()

    with ipcbus.Context(domain=station.domain) as context:
        context.receiver(TOPIC, on_message, share="workers")
        station.ready()
        ended.wait(_WAIT_S)
        return worker.figures(station)


def put_objects(station: Station) -> Figures:
    """`multiprocessing.Queue`, or `ipcbus.Queue`."""
    queue = station.options["queue"]
    return _give(station, queue.put, lambda: [queue.put(None) for _ in range(station.options["workers"])])


def get_objects(station: Station) -> Figures:
    """A worker at such a queue, until it gets None."""
    queue, worker = station.options["queue"], _Worker()
    station.ready()
    for job in iter(lambda: queue.get(timeout=_WAIT_S), None):
        worker.do(job)
    return worker.figures(station)


def push(station: Station) -> Figures:
    """Pyzmq PUSH; the sockets of the workers connect."""
    zmq = importlib.import_module("zmq")
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.bind(f"ipc://@{station.domain}")
        monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        for _ in range(station.options["workers"]):
            monitor.recv_multipart()
        return _give(station, socket.send, lambda: [socket.send(b"") for _ in range(station.options["workers"])])


def pull(station: Station) -> Figures:
    """A worker at a PULL socket; the jobs go round, so that its part of the ends comes last."""
    zmq, worker = importlib.import_module("zmq"), _Worker()
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        socket.connect(f"ipc://@{station.domain}")
        station.ready()
        for job in iter(socket.recv, b""):
            worker.do(job)
        return worker.figures(station)


def _spawned_queue() -> Any:  # noqa: ANN401 - its type has no public name
    return multiprocessing.get_context("spawn").Queue(10_000)


Maker = tuple["Part", "Part", "Callable[[], dict[str, Any]]"]

OWN: Final = "a share, LBT-IPC"
BESIDE: Final = "jobs by multiprocessing.Queue"
MAKERS: Final[dict[str, Maker]] = {
    OWN: (give, work, lambda: {"transport": "lbtipc"}),
    "a share, LBT-SMX": (give, work, lambda: {"transport": "lbtsmx"}),
    "a share, LBT-TCP": (give, work, lambda: {"transport": "lbttcp"}),
    "jobs by ipcbus.Queue": (put_objects, get_objects, lambda: {"queue": ipcbus.Queue(10_000)}),
    BESIDE: (put_objects, get_objects, lambda: {"queue": _spawned_queue()}),
}
if HAS_ZMQ:
    MAKERS["jobs by pyzmq push/pull"] = (push, pull, dict)


def _measure(name: str, workers: int, messages: int, *, pause: bool) -> list[Figures]:
    first, second, options = MAKERS[name]
    parts = [(first, 0), *((second, 1) for _ in range(workers))]
    return run(parts, messages, workers=workers, pause=pause, **options())


def _rate(name: str, workers: int) -> Callable[[float], float]:
    return lambda factor: _measure(name, workers, int(100_000 * factor), pause=False)[0]["per_second"]


def _way(name: str, workers: int) -> Callable[[float], float]:
    def measure(factor: float) -> float:
        found = _measure(name, workers, max(100, int(2_000 * factor)), pause=True)[1:]
        return float(np.average([each["p50"] for each in found], weights=[each["jobs"] for each in found]))

    return measure


def _rows() -> list[Row]:
    found = []
    for workers in WORKERS:
        kinds = (("a job", "msg/s", _rate), ("one way, asleep", "ns", _way))
        text = f"{workers} worker{'s' * (workers > 1)}"
        for what, unit, measure in kinds:
            for name in MAKERS:
                beside = "" if name == BESIDE else f"{BESIDE}: {what}, {text}"
                found.append(
                    Row(f"{name}: {what}, {text}", unit, None, None, unit == "ns", measure(name, workers), beside)
                )
    return found


WORK_QUEUES: Final = _rows()
