"""Rows of every form of sending and receiving, with the bodies that users write."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any, Final

from benchmarks import asleep, forms
from benchmarks.pairs import run
from benchmarks.rows import FUTEX_TRIP, IPC, RING, RING_TRIP, SMX, Row, Shared

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.pairs import Part

# ---------------------------------------------------------------------------------------- one thread


def _one_thread() -> list[Row]:
    calls = Shared(lambda factor: run([(forms.idle_calls, 1)], max(1_000, int(20_000 * factor)), source=SMX)[0])
    return [
        Row(IDLE_TURN, "ns", 250, 120, True, calls.row("process_events")),
        Row(IDLE_RECEIVE, "ns", 250, 120, True, calls.row("receive")),
        Row(SEND_RECEIVE, "ns", 400, 250, True, calls.row("send_receive")),
    ]


def _many(part: Part, **options: Any) -> Callable[[float], float]:  # noqa: ANN401
    return lambda factor: run([(part, 1)], max(500, int(20_000 * factor)), source=SMX, **options)[0]["ns"]


def _growing() -> list[Row]:
    rows = []
    for count, budget, best in ((1, None, None), (10, None, None), (64, 1_000, 400)):
        name = f"idle turn, {count} session{'s' * (count > 1)}"
        rows.append(Row(name, "ns", budget, best, True, _many(forms.many_sessions, sessions=count)))
    one = "send + callback, 1 receiver"
    rows.append(Row(one, "ns", None, None, True, _many(forms.many_receivers, receivers=1)))
    for count in (10, 100, 1_000):
        must, stretch = (1.2, 1.05) if count == 1_000 else (None, None)
        measure = _many(forms.many_receivers, receivers=count)
        rows.append(
            Row(f"send + callback, {count:,} receivers", "ns", must, stretch, True, measure, one, is_ratio=True)
        )
    return rows


IDLE_TURN: Final = "idle process_events(0)"
IDLE_RECEIVE: Final = "idle receive(0)"
SEND_RECEIVE: Final = "send + receive(0)"
ONE_THREAD: Final = _one_thread()
GROWING: Final = _growing()

# ---------------------------------------------------------------------------------------- throughput


def _rate(part: Part, messages: int, **options: Any) -> Callable[[float], float]:  # noqa: ANN401
    def measure(factor: float) -> float:
        options.setdefault("source", SMX)
        parts = [(forms.send_all, 0), (part, 1)]
        return run(parts, max(10_000, int(messages * factor)), **options)[1]["per_second"]

    return measure


def _throughput(
    name: str,
    budget: float | None,
    stretch: float | None,
    part: Part,
    messages: int = 2_000_000,
    **options: Any,  # noqa: ANN401
) -> Row:
    return Row(name, "msg/s", budget, stretch, False, _rate(part, messages, **options), RING)


def _default(name: str, part: Part) -> Row:
    return _throughput(f"default options: {name}", None, None, part, 1_000_000, default=True, source={})


RECEIVE: Final = "receive()"
FOR: Final = "for"
RECEIVE_MANY: Final = "receive_many"
DISPATCH: Final = "EventQueue.dispatch"
ASYNC_FOR: Final = "async for"
CALLBACK: Final = "callback, m.type is DATA"
IN_FULL: Final = "callback, MessageType.DATA"
FORMS: Final = [
    _throughput(RECEIVE, 5e6, 8e6, forms.take_one_by_one),
    _throughput(FOR, 5e6, 8e6, forms.iterate),
    _throughput(RECEIVE_MANY, 8e6, 12e6, forms.take_many, 3_000_000),
    _throughput(DISPATCH, 8e6, 12e6, forms.dispatch, 3_000_000),
    _throughput(ASYNC_FOR, 3e6, 5e6, forms.iterate_in_asyncio),
    _throughput(CALLBACK, 7e6, 9e6, forms.call_back, 3_000_000),
    _throughput("callback, on_data", 9e6, 12e6, forms.call_with_data, 3_000_000),
    _throughput(IN_FULL, 4e6, 6e6, forms.call_back, in_full=True),
    _default("callback", forms.call_back),
    _default(RECEIVE, forms.take_one_by_one),
    _default(FOR, forms.iterate),
    _default(RECEIVE_MANY, forms.take_many),
]

# ---------------------------------------------------------------------------------------- round trips

_SPINNING_NS: Final = (800.0, 450.0)
"""Enough as budget and stretch of a round trip, however fast the ring in C is."""


def _trip(one: Part, other: Part, messages: int, **options: Any) -> Shared:  # noqa: ANN401
    return Shared(lambda factor: run([(one, 0), (other, 1)], max(200, int(messages * factor)), **options)[0])


def _spinning() -> list[Row]:
    rows = []
    for waits, form, timeout in (
        ("process_events(0)", "process_events", 0),
        ("process_events(1)", "process_events", 1),
        ("receive()", "receive", 0),
    ):
        for transport, source in (("LBT-SMX", SMX), ("LBT-IPC, flush", IPC)):
            if timeout and source is IPC:
                continue
            name = f"{waits}, {transport}"
            shared = _trip(forms.trip, forms.echo, 100_000, form=form, source=source, timeout=timeout)
            median = Row(name, "ns", 4, 2.5, True, shared.row("p50"), RING_TRIP, is_ratio=True, at_least=_SPINNING_NS)
            p99 = Row(f"{name}, p99", "ns", 4, 2, True, shared.row("p99"), name, is_ratio=True)
            rows += [median, p99]
    return rows


_ASLEEP_TRIPS: Final = 800


def _pipe_trip(factor: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("there", "back")]
        for path in paths:
            os.mkfifo(path)
        return run(
            [(asleep.trip_by_pipe, 0), (asleep.echo_by_pipe, 1)], max(200, int(_ASLEEP_TRIPS * factor)), paths=paths
        )[0]


def _asleep() -> list[Row]:
    rows = [Row(PIPE_TRIP, "ns", None, None, True, Shared(_pipe_trip).row("p50"), FUTEX_TRIP)]
    default: dict[str, Any] = {"default": True, "source": {}, "asleep": True}
    sequential: dict[str, Any] = {**default, "mode": "sequential"}
    for name, one, other, options in (
        (ASLEEP_EMBEDDED, asleep.trip_by_thread, asleep.echo_by_thread, {"source": {}}),
        ("receive(), embedded", forms.trip, forms.echo, {**default, "form": "receive"}),
        ("callbacks, sequential", forms.trip, forms.echo, {**sequential, "form": "process_events", "timeout": 1}),
        ("receive(), sequential", forms.trip, forms.echo, {**sequential, "form": "receive"}),
    ):
        shared = _trip(one, other, _ASLEEP_TRIPS, **options)
        also = (PIPE_TRIP, 1.0)
        rows += [
            Row(name, "ns", 1.25, 1.1, True, shared.row("p50"), FUTEX_TRIP, is_ratio=True, also=also),
            Row(f"{name}, p99", "ns", None, None, True, shared.row("p99"), name),
        ]
    return rows


PIPE_TRIP: Final = "pipe, asleep"
ASLEEP_EMBEDDED: Final = "callbacks, embedded"
SPINNING: Final = _spinning()
ASLEEP: Final = _asleep()
