"""The steps that a message takes, each measured alone in one thread."""

from __future__ import annotations

import functools
import itertools
import statistics
import time
from typing import TYPE_CHECKING, Final

import ipcbus
from benchmarks import scenarios
from benchmarks.pairs import run
from benchmarks.rows import SMX, Row, Shared

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.pairs import Figures, Station

DATA = ipcbus.MessageType.DATA
BURST: Final = 2_000
"""Messages that one measurement takes; they fit the ring."""

LOOP: Final = "step: turn of a for loop"
SEND: Final = "step: send"
TAKE: Final = "step: receive(0), a message there"
TAKE_MANY: Final = "step: receive_many, a message"
ITERATE: Final = "step: for, a message"
TYPE: Final = "step: m.type is DATA"
BYTES: Final = "step: m.data"
CALL: Final = "step: call of a Python function"
EMPTY_CALLBACK: Final = "step: turn, callback that passes"
QUEUED: Final = "step: turn, into an EventQueue"
DISPATCHED: Final = "step: dispatch, callback that passes"


def _nothing(_message: object) -> None:
    pass


def _rest() -> None:
    pass


class _Stand:
    """A source and a receiver in one context, for each way to receive."""

    def __init__(self, context: ipcbus.Context, station: Station) -> None:
        self.context = context
        self.queue = ipcbus.EventQueue()
        self.pulled = context.receiver("pulled")
        receivers = (
            self.pulled,
            context.receiver("called", _nothing),
            context.receiver("queued", _nothing, event_queue=self.queue),
        )
        self._sources = {each.topic: scenarios._source(context, station, each.topic) for each in receivers}
        for receiver in receivers:
            receiver.wait_for_sources(1, 30)
        self._payload = b"x" * station.size

    def send(self, topic: str) -> None:
        """Fills a burst."""
        send, payload = self._sources[topic].send, self._payload
        for _ in range(BURST):
            send(payload)

    def empty(self) -> None:
        """Takes what is there, events too."""
        while self.pulled.receive(0) is not None or self.queue.dispatch(0):
            pass

    def steps(self) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
        """What runs before each step, and the step, for a burst."""
        burst, receive, pulled = range(BURST), self.pulled.receive, self.pulled
        message = next(iter(self._one()))

        def loop() -> None:
            for _ in burst:
                pass

        def take() -> None:
            for _ in burst:
                receive(0)

        def iterate() -> None:
            for _ in itertools.islice(pulled, BURST):
                pass

        def look() -> None:
            for _ in burst:
                if message.type is DATA:
                    pass

        def copy() -> None:
            for _ in burst:
                _data = message.data

        def call() -> None:
            for _ in burst:
                _nothing(message)

        def turns() -> None:
            while self.context.process_events(0):
                pass

        def queued() -> None:
            self.send("queued")
            turns()

        def fill(topic: str) -> Callable[[], None]:
            return functools.partial(self.send, topic)

        return {
            LOOP: (_rest, loop),
            SEND: (_rest, fill("pulled")),
            TAKE: (fill("pulled"), take),
            TAKE_MANY: (fill("pulled"), lambda: pulled.receive_many(BURST, 0)),
            ITERATE: (fill("pulled"), iterate),
            TYPE: (_rest, look),
            BYTES: (_rest, copy),
            CALL: (_rest, call),
            EMPTY_CALLBACK: (fill("called"), turns),
            QUEUED: (fill("queued"), turns),
            DISPATCHED: (queued, lambda: self.queue.dispatch(0)),
        }

    def _one(self) -> list[ipcbus.Message]:
        self.empty()
        self.send("pulled")
        return self.pulled.receive_many(1, 0)


def steps(station: Station) -> Figures:
    """Ns of each step, the median of its bursts; what is done in a loop, without the loop."""
    found: dict[str, list[float]] = {}
    with scenarios._context(station) as context:
        stand = _Stand(context, station)
        for _, (name, (before, step)) in itertools.product(range(max(5, station.messages)), stand.steps().items()):
            stand.empty()
            context.process_events(0)
            before()
            begin = time.perf_counter_ns()
            step()
            found.setdefault(name, []).append((time.perf_counter_ns() - begin) / BURST)
        stand.empty()
    station.ready()
    medians = {name: statistics.median(values) for name, values in found.items()}
    for name in (TYPE, BYTES, CALL):
        medians[name] = max(0.0, medians[name] - medians[LOOP])
    return medians


def _rows() -> list[Row]:
    shared = Shared(lambda factor: run([(steps, 1)], int(50 * factor), source=SMX)[0])
    names = (
        *(LOOP, SEND, TAKE, TAKE_MANY, ITERATE, TYPE, BYTES, CALL, EMPTY_CALLBACK, QUEUED),
        DISPATCHED,
    )
    return [Row(name, "ns", None, None, True, shared.row(name)) for name in names]


STEPS: Final = _rows()
