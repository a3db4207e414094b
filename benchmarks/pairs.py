"""Two pinned processes and the figures they bring home.

A scenario is two functions, one a process. They meet through a pipe each: the receiver says when it has joined, the
parent lets the sender start, both send a dictionary of figures back.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Final

from benchmarks.native import near_processors

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Figures = dict[str, float]
Part = Callable[["Station"], Figures]

LIMIT_S: Final = 60.0
"""Most seconds of one run; whoever hangs is ended, so that a benchmark always comes to its end."""


@dataclass(slots=True)
class Station:
    """What a part of a scenario knows.

    Attributes:
        domain: bus domain of this run alone.
        messages: how many to send.
        size: bytes a message.
        options: whatever else the scenario was given.
    """

    domain: str
    messages: int
    size: int
    options: dict[str, Any] = field(default_factory=dict)
    pipe: Connection | None = None

    def ready(self) -> None:
        """Says that this part is as far as all have to be to go on, and waits until all are; each calls it as often."""
        if self.pipe is not None:
            self.pipe.send("ready")
            self.pipe.recv()


def _part(function: Part, station: Station, cpu: int, pipe: Connection) -> None:
    os.sched_setaffinity(0, {cpu})
    station.pipe = pipe
    pipe.send(function(station))


def run(parts: Sequence[tuple[Part, int]], messages: int, size: int = 64, **options: Any) -> list[Figures]:  # noqa: ANN401
    """Runs the parts at the same time, each in a process pinned to processor 0 or 1 of two that lie near each other.

    Returns:
        The figures of each part, in order.

    Raises:
        RuntimeError: a part ended without figures, or did not end.
    """
    processors = near_processors()
    deadline = time.monotonic() + LIMIT_S
    spawn = multiprocessing.get_context("spawn")
    station = Station(f"b{secrets.token_hex(3)}", messages, size, options)
    pipes, processes = [], []
    for function, cpu in parts:
        here, there = spawn.Pipe()
        process = spawn.Process(target=_part, args=(function, station, processors[cpu], there), daemon=True)
        process.start()
        there.close()
        pipes.append(here)
        processes.append(process)
    try:
        while True:
            said = [_answer(pipe, deadline) for pipe in pipes]
            if "ready" not in said:
                return said
            for pipe in pipes:
                pipe.send("go")
    except EOFError as error:
        raise RuntimeError("a part of the benchmark ended without figures; its message stands above") from error
    finally:
        for process in processes:
            process.join(max(0.0, min(10.0, deadline - time.monotonic())))
            if process.is_alive():
                process.kill()
                process.join()


def _answer(pipe: Connection, deadline: float) -> Any:  # noqa: ANN401 - figures, or a word
    if not wait([pipe], max(0.0, deadline - time.monotonic())):
        raise RuntimeError(f"a run of the benchmark did not end within {LIMIT_S:g} s")
    return pipe.recv()
