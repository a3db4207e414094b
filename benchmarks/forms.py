"""Every form of sending and receiving, with the bodies that users write, as the parts that run in their own processes.

The rows of the performance budgets (`benchmarks.scenarios`) show the fastest way; these show the others beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import ipcbus
from benchmarks import scenarios
from benchmarks.scenarios import PAUSE_US, TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from benchmarks.pairs import Figures, Station

DATA = ipcbus.MessageType.DATA
STRETCH = 1_000
"""Most messages of one `receive_many`."""
RING_TRIPS = 50_000
"""Round trips after which both rings, of 4 MiB on LBT-IPC, have been written from end to end: new pages take long."""


def _has_default_options(station: Station) -> bool:
    return bool(station.options.get("default", False))


def _context(station: Station) -> ipcbus.Context:
    """A context that its caller drives and that spins, or one with default options, embedded or sequential."""
    if _has_default_options(station):
        return ipcbus.Context(
            {"context": station.options.get("context", {})},
            domain=station.domain,
            operational_mode=station.options.get("mode", "embedded"),
        )
    return scenarios._context(station, spin=not station.options.get("asleep", False))


@contextlib.contextmanager
def _joined(station: Station) -> Iterator[ipcbus.Receiver]:
    """A receiver that pulls, and has joined the source."""
    with _context(station) as context:
        receiver = context.receiver(TOPIC)
        receiver.wait_for_sources(1, 30)
        station.ready()
        yield receiver


# ---------------------------------------------------------------------------------------- throughput


def send_all(station: Station) -> Figures:
    """`send`, one call a message, until the receiver has left."""
    with _context(station) as context:
        source = scenarios._source(context, station)
        source.wait_for_receivers(1, 30)
        station.ready()
        payload = b"x" * station.size
        send = source.send
        for _ in range(station.messages):
            send(payload)
        source.flush()
        scenarios._until_read(source)
        return {}


def _rate(count: int, begin: float) -> Figures:
    return {"per_second": count / (time.perf_counter() - begin)}


def _rate_of(station: Station, counted: Callable[[], int], turn: Callable[[], object]) -> Figures:
    """Takes turns until all messages are counted; the time begins when the first ones are."""
    while not counted():
        turn()
    first, begin = counted(), time.perf_counter()
    while counted() < station.messages:
        turn()
    return _rate(counted() - first, begin)


def take_one_by_one(station: Station) -> Figures:
    """`receive()`, which looks at the type and takes the data."""
    with _joined(station) as receiver:
        receive = receiver.receive
        left, begin = station.messages, 0.0
        while left:
            message = receive()
            if message.type is DATA:
                _data = message.data
                if left == station.messages:
                    begin = time.perf_counter()
                left -= 1
        return _rate(station.messages - 1, begin)


def iterate(station: Station) -> Figures:
    """`for message in receiver`."""
    with _joined(station) as receiver:
        left, begin = station.messages, 0.0
        for message in receiver:
            if message.type is DATA:
                _data = message.data
                if left == station.messages:
                    begin = time.perf_counter()
                left -= 1
                if not left:
                    break
        return _rate(station.messages - 1, begin)


def take_many(station: Station) -> Figures:
    """`receive_many`."""
    with _joined(station) as receiver:
        seen = 0

        def take() -> None:
            nonlocal seen
            for message in receiver.receive_many(STRETCH, 1):
                if message.type is DATA:
                    _data = message.data
                    seen += 1

        return _rate_of(station, lambda: seen, take)


def dispatch(station: Station) -> Figures:
    """`EventQueue.dispatch` behind `process_events`, with a callback that looks at the type and takes the data."""
    queue = ipcbus.EventQueue()
    counted, on_message = _counter()
    with _context(station) as context:
        context.receiver(TOPIC, on_message, event_queue=queue).wait_for_sources(1, 30)
        station.ready()

        def turn() -> None:
            context.process_events(1)
            queue.dispatch(0)

        return _rate_of(station, counted, turn)


def _counter() -> tuple[Callable[[], int], Callable[[ipcbus.Message], None]]:
    counted = 0

    def on_message(message: ipcbus.Message) -> None:
        nonlocal counted
        if message.type is DATA:
            _data = message.data
            counted += 1

    return lambda: counted, on_message


def _counter_in_full() -> tuple[Callable[[], int], Callable[[ipcbus.Message], None]]:
    counted = 0

    def on_message(message: ipcbus.Message) -> None:
        nonlocal counted
        if message.type == ipcbus.MessageType.DATA:
            _data = message.data
            counted += 1

    return lambda: counted, on_message


def call_back(station: Station) -> Figures:
    """A callback that looks at the type and takes the data; the constant is bound, or written in full."""
    counted, on_message = _counter_in_full() if station.options.get("in_full", False) else _counter()
    with _context(station) as context:
        context.receiver(TOPIC, on_message).wait_for_sources(1, 30)
        station.ready()
        if _has_default_options(station):
            return _rate_of(station, counted, lambda: time.sleep(0.001))  # the thread of the context delivers
        return _rate_of(station, counted, lambda: context.process_events(1))


def call_with_data(station: Station) -> Figures:
    """A callback that gets the data only (`on_data`)."""
    counted = 0

    def on_data(_data: bytes) -> None:
        nonlocal counted
        counted += 1

    with _context(station) as context:
        context.receiver(TOPIC, on_data=on_data).wait_for_sources(1, 30)
        station.ready()
        return _rate_of(station, lambda: counted, lambda: context.process_events(1))


def iterate_in_asyncio(station: Station) -> Figures:
    """`async for message in receiver`."""

    async def run() -> Figures:
        with ipcbus.Context(domain=station.domain) as context:
            receiver = context.receiver(TOPIC)
            receiver.wait_for_sources(1, 30)
            station.ready()
            left, begin = station.messages, 0.0
            async for message in receiver:
                if message.type is DATA:
                    _data = message.data
                    if left == station.messages:
                        begin = time.perf_counter()
                    left -= 1
                    if not left:
                        break
            return _rate(station.messages - 1, begin)

    return asyncio.run(run())


# ---------------------------------------------------------------------------------------- round trips


def _wait_by_callback(context: ipcbus.Context, topic: str, timeout: float) -> Callable[[], bytes]:
    """Waits in a loop of `process_events`, as programs without a thread do."""
    got: list[bytes] = []

    def on_message(message: ipcbus.Message) -> None:
        if message.type is DATA:
            got.append(message.data)

    context.receiver(topic, on_message).wait_for_sources(1, 30)
    process = context.process_events

    def wait() -> bytes:
        while not got:
            process(timeout)
        return got.pop()

    return wait


def _wait_by_receive(context: ipcbus.Context, topic: str) -> Callable[[], bytes]:
    receiver = context.receiver(topic)
    receiver.wait_for_sources(1, 30)
    receive = receiver.receive

    def wait() -> bytes:
        while True:
            message = receive()
            if message.type is DATA:
                return message.data

    return wait


def _both_ways(station: Station, context: ipcbus.Context, there: str, back: str) -> tuple[Any, Callable[[], bytes]]:
    source = scenarios._source(context, station, there)
    if station.options["form"] == "receive":
        wait = _wait_by_receive(context, back)
    else:
        wait = _wait_by_callback(context, back, station.options.get("timeout", 0))
    source.wait_for_receivers(1, 30)
    station.ready()
    return source, wait


def trip(station: Station) -> Figures:
    """Sends, waits for the echo, and sends again; with `asleep` only when the other side has fallen asleep."""
    times = np.zeros(station.messages, np.int64)
    payload = b"x" * station.size
    clock = time.perf_counter_ns
    asleep = station.options.get("asleep", False)
    with _context(station) as context:
        source, wait = _both_ways(station, context, "there", "back")
        for _ in range(0 if asleep else RING_TRIPS):
            source.send(payload, flush=True)
            wait()
        for index in range(station.messages):
            if asleep:
                spin_us(PAUSE_US)
            begin = clock()
            source.send(payload, flush=True)
            wait()
            times[index] = clock() - begin
        source.send(b"", flush=True)
        scenarios._until_read(source)
        return percentiles(times)


def spin_us(microseconds: int) -> None:
    """Passes the time without sleep, so that this processor stays awake."""
    until = time.perf_counter_ns() + 1000 * microseconds
    while time.perf_counter_ns() < until:
        pass


def percentiles(times: NDArray[np.int64]) -> Figures:
    """Median and p99; the first tenth warms up."""
    counted = times[len(times) // 10 :]
    return {f"p{q:g}": float(np.percentile(counted, q)) for q in (50, 99)}


def echo(station: Station) -> Figures:
    """Sends back what comes, in a loop, until an empty message."""
    with _context(station) as context:
        source, wait = _both_ways(station, context, "back", "there")
        while data := wait():
            source.send(data, flush=True)
        return {}


# ---------------------------------------------------------------------------------------- one thread


def _least(run: Callable[[], None], rounds: int, calls: int) -> float:
    """Ns a call of the fastest round: what the call costs when nothing else runs."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter_ns()
        run()
        best = min(best, (time.perf_counter_ns() - begin) / calls)
    return best


def idle_calls(station: Station) -> Figures:
    """Ns of `process_events(0)` and of `receive(0)` with nothing to do, and of `send` with `receive(0)` behind it."""
    calls = range(station.messages)
    with _context(station) as context:
        receiver = context.receiver(TOPIC)
        source = scenarios._source(context, station)
        receiver.wait_for_sources(1, 30)
        while receiver.receive(0) is not None:
            pass
        payload = b"x" * station.size
        process, receive, send = context.process_events, receiver.receive, source.send

        def turns() -> None:
            for _ in calls:
                process(0)

        def looks() -> None:
            for _ in calls:
                receive(0)

        def both() -> None:
            for _ in calls:
                send(payload)
                receive(0)

        found = {
            name: _least(run, 20, station.messages)
            for name, run in (("process_events", turns), ("receive", looks), ("send_receive", both))
        }
        station.ready()
        return found


def many_receivers(station: Station) -> Figures:
    """Ns of `send` with a callback behind it, with `receivers` in the context, of which one is busy."""
    calls = range(station.messages)
    count = station.options["receivers"]
    with _context(station) as context:
        receivers = [context.receiver(f"quiet.{number}", print) for number in range(count - 1)]
        seen, on_message = _counter()
        busy = context.receiver(TOPIC, on_message)
        source = scenarios._source(context, station)
        busy.wait_for_sources(1, 30)
        payload = b"x" * station.size
        process, send = context.process_events, source.send

        def both() -> None:
            for _ in calls:
                send(payload)
                process(0)

        found = {"ns": _least(both, 20, station.messages)}
        station.ready()
        return found if seen() and len(receivers) == count - 1 else {}


def many_sessions(station: Station) -> Figures:
    """Ns of an idle `process_events(0)` of a context that has joined `sessions`, one of each topic."""
    calls = range(station.messages)
    count = station.options["sessions"]
    with _context(station) as context:
        receivers = [context.receiver(f"{TOPIC}.{number}", print) for number in range(count)]
        # The topics of one context share sessions, so each source has a context of its own.
        with contextlib.ExitStack() as stack:
            for number in range(count):
                own = stack.enter_context(ipcbus.Context(domain=station.domain))
                scenarios._source(own, station, f"{TOPIC}.{number}")
            for receiver in receivers:
                receiver.wait_for_sources(1, 30)

            def turns() -> None:
                for _ in calls:
                    context.process_events(0)

            found = {"ns": _least(turns, 20, station.messages)}
            station.ready()
            context.close()  # a source that closes before its receiver waits until somebody drives that one
            return found
