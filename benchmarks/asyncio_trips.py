"""Round trips between two asyncio programs: `make bench ARGS="--only asyncio"`.

Beside ours stands what a program would use without a bus: asyncio streams over a Unix socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import ipcbus
from benchmarks import scenarios
from benchmarks.pairs import run
from benchmarks.rows import SMX, Row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from benchmarks.pairs import Figures, Part, Station

    Send = Callable[[bytes], object]
    Wait = Callable[[], Awaitable[bytes]]

DATA = ipcbus.MessageType.DATA
WARM_UP = 500


@contextlib.asynccontextmanager
async def _topics(station: Station, there: str, back: str) -> AsyncIterator[tuple[Send, Wait]]:
    """A source of one topic, and `async for` over another."""
    with ipcbus.Context(domain=station.domain, operational_mode=station.options["mode"]) as context:
        source, receiver = scenarios._source(context, station, there), context.receiver(back)
        receiver.wait_for_sources(1, 30)
        source.wait_for_receivers(1, 30)
        station.ready()
        messages = aiter(receiver)

        async def wait() -> bytes:
            async for message in messages:
                if message.type is DATA:
                    return message.data
            return b""

        yield source.send, wait
        if there == "there":
            source.send(b"")  # the echo leaves
            scenarios._until_read(source)


@contextlib.asynccontextmanager
async def _stream(station: Station, *, serves: bool) -> AsyncIterator[tuple[Send, Wait]]:
    """The two ends of a stream over a Unix socket, in the abstract namespace, which leaves no file."""
    path = f"\0ipcbus.{station.domain}"
    if serves:
        ends: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        server = await asyncio.start_unix_server(lambda *end: ends.put_nowait(end), path)
        station.ready()
        reader, writer = await ends.get()
        server.close()
    else:
        station.ready()
        reader, writer = await asyncio.open_unix_connection(path)

    async def wait() -> bytes:
        try:
            return await reader.readexactly(station.size)
        except asyncio.IncompleteReadError:
            return b""

    yield writer.write, wait
    writer.close()


async def _trip(station: Station, send: Send, wait: Wait) -> Figures:
    times = np.zeros(station.messages, np.int64)
    payload = b"x" * station.size
    clock = time.perf_counter_ns
    pause_ns = scenarios.PAUSE_US * 1000 if station.options["asleep"] else 0
    for index in range(-WARM_UP, station.messages):
        until = clock() + pause_ns
        while clock() < until:
            pass
        begin = clock()
        send(payload)
        await wait()
        times[max(index, 0)] = clock() - begin
    return {"p50": float(np.median(times))}


async def _echo(send: Send, wait: Wait) -> Figures:
    while data := await wait():
        send(data)
    return {}


def trip_over_topics(station: Station) -> Figures:
    """Sends, waits for the echo, and sends again; with `asleep` only when the other side has fallen asleep."""

    async def part() -> Figures:
        async with _topics(station, "there", "back") as (send, wait):
            return await _trip(station, send, wait)

    return asyncio.run(part())


def echo_over_topics(station: Station) -> Figures:
    """Sends back what comes, until an empty message."""

    async def part() -> Figures:
        async with _topics(station, "back", "there") as (send, wait):
            return await _echo(send, wait)

    return asyncio.run(part())


def trip_over_stream(station: Station) -> Figures:
    """The same without a bus."""

    async def part() -> Figures:
        async with _stream(station, serves=True) as (send, wait):
            return await _trip(station, send, wait)

    return asyncio.run(part())


def echo_over_stream(station: Station) -> Figures:
    """Sends back what comes, until the other end closes."""

    async def part() -> Figures:
        async with _stream(station, serves=False) as (send, wait):
            return await _echo(send, wait)

    return asyncio.run(part())


def _measure(trip: Part, echo: Part, messages: int, **options: Any) -> Callable[[float], float]:  # noqa: ANN401
    return lambda factor: run([(trip, 0), (echo, 1)], max(200, int(messages * factor)), 64, **options)[0]["p50"]


def _rows(text: str, messages: int, *, asleep: bool) -> list[Row]:
    stream = f"{text}: asyncio streams"
    measure = _measure(trip_over_stream, echo_over_stream, messages, asleep=asleep)
    rows = [Row(stream, "ns", None, None, True, measure)]
    for mode in ("embedded", "sequential"):
        measure = _measure(trip_over_topics, echo_over_topics, messages, asleep=asleep, mode=mode, source=SMX)
        rows.append(Row(f"{text}: async for, {mode}", "ns", None, None, True, measure, beside=stream))
    return rows


ASYNCIO: Final = [
    *_rows("awake", 5_000, asleep=False),
    *_rows("asleep", 600, asleep=True),
]
