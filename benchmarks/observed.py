"""What is looked at by `python -m benchmarks.observe`: a publisher at full speed, and a domain with many parts."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import ipcbus

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

PAYLOAD = b"x" * 64
_CHUNK = 2_000
"""Messages between two looks at the clock: under a millisecond, and a look is lost among them."""

_TOPICS = 10
"""Topics of a session, and topics that a receiving context receives."""


def publish(domain: str, cpu: int, pipe: Connection) -> None:
    """Sends on a source-paced session without receivers as fast as it can; then tells how far it was when."""
    os.sched_setaffinity(0, {cpu})
    times: list[int] = []
    with ipcbus.Context(domain=domain, operational_mode="sequential") as context:
        source = context.source("speed", transport_lbtipc_behavior="source_paced")
        send, clock, ended = source.send, time.monotonic_ns, pipe.poll
        pipe.send(source.source)
        while not ended():
            for _ in range(100):
                for _ in range(_CHUNK):
                    send(PAYLOAD)
                times.append(clock())
        pipe.recv()
        pipe.send(times)
        pipe.recv()


@dataclass(frozen=True, slots=True)
class Own:
    """The publisher's own count; `times` are those of each further `_CHUNK` messages, monotonic ns."""

    times: Sequence[int]

    def rate(self, begin: int, end: int) -> float:
        """Messages a second between two times."""
        at = np.asarray(self.times, np.float64)
        counts = np.interp([begin, end], at, _CHUNK * np.arange(1, len(at) + 1))
        return float(counts[1] - counts[0]) * 1e9 / (end - begin)


class Publisher:
    """The process that publishes."""

    def __init__(self, domain: str, cpu: int) -> None:
        """Publishes already."""
        spawn = multiprocessing.get_context("spawn")
        self._pipe, there = spawn.Pipe()
        self._process = spawn.Process(target=publish, args=(domain, cpu, there), daemon=True)
        self._process.start()
        there.close()
        self.source: str = self._pipe.recv()
        self.pid: int = self._process.pid or 0

    def stop(self) -> Own:
        """Ends it; what it counted."""
        self._pipe.send("stop")
        times = self._pipe.recv()
        self._pipe.send("end")
        self._process.join()
        return Own(times)


def send_on_many(domain: str, sessions: int, first: int, pipe: Connection) -> None:
    """Sessions of ten topics each in one context, and a message now and then on every topic."""
    with ipcbus.Context(domain=domain, name=f"sender {first}") as context:
        sources = []
        for session in range(sessions):
            for topic in range(_TOPICS):
                name = f"market.{first + session:03}.{topic}"
                sources.append(context.source(name, transport_lbtipc_id=20_001 + session))
        pipe.send("ready")
        while not pipe.poll(1.0):
            for source in sources:
                source.send(PAYLOAD)
        pipe.recv()


def receive_on_many(domain: str, contexts: int, first: int, sessions: int, pipe: Connection) -> None:
    """Contexts that receive ten topics each, of as many sessions."""
    with contextlib.ExitStack() as stack:
        for number in range(first, first + contexts):
            context = stack.enter_context(ipcbus.Context(domain=domain, name=f"receiver {number}"))
            for topic in range(_TOPICS):
                context.receiver(f"market.{(number * 7 + topic * 13) % sessions:03}.{topic}", lambda message: None)
        pipe.send("ready")
        pipe.recv()


@contextlib.contextmanager
def crowd(domain: str, sessions: int, contexts: int, processes: int) -> Iterator[None]:
    """A domain with that many sessions and receiving contexts, each half of the processes doing one of the two."""
    spawn = multiprocessing.get_context("spawn")
    half = processes // 2
    jobs: list[tuple[Any, tuple[Any, ...]]] = []
    for part in range(half):
        begin, end = sessions * part // half, sessions * (part + 1) // half
        jobs.append((send_on_many, (domain, end - begin, begin)))
    for part in range(half):
        begin, end = contexts * part // half, contexts * (part + 1) // half
        jobs.append((receive_on_many, (domain, end - begin, begin, sessions)))
    started = []
    try:
        for target, arguments in jobs:
            here, there = spawn.Pipe()
            process = spawn.Process(target=target, args=(*arguments, there), daemon=True)
            process.start()
            there.close()
            started.append((process, here))
        for _, pipe in started:
            pipe.recv()
        yield
    finally:
        for _, pipe in started:
            with contextlib.suppress(OSError):
                pipe.send("end")
        for process, _ in started:
            process.join(30)
            if process.is_alive():
                process.kill()
                process.join()
