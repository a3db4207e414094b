"""What is measured: the rows of the performance budgets, each as the parts that run in their own processes."""

from __future__ import annotations

import os
import resource
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import ipcbus

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.pairs import Figures, Station
    from ipcbus.config.keywords import ContextKeywords

TOPIC = "bench"
ANSWERS = "answers"
BOS = ipcbus.MessageType.BOS
SPIN: Final[ContextKeywords] = {"transport_lbtipc_receiver_thread_behavior": "busy_wait"}
PEND: Final[ContextKeywords] = {
    "transport_lbtipc_receiver_thread_behavior": "pend",
    "transport_lbtipc_pend_behavior_linger_maximum": 0,
}


def _context(station: Station, *, spin: bool = True, name: str = "") -> ipcbus.Context:
    return ipcbus.Context(
        {"context": SPIN if spin else PEND}, name=name, domain=station.domain, operational_mode="sequential"
    )


def _source(context: ipcbus.Context, station: Station, topic: str = TOPIC) -> ipcbus.Source:
    options: dict[str, Any] = dict(station.options.get("source", {}))
    return context.source(topic, **options)


def _join(context: ipcbus.Context, receiver: ipcbus.Receiver) -> None:
    """Drives the context until the receiver has found its source."""
    while not receiver.sessions:
        context.process_events(0.01)


def _counter() -> tuple[Callable[[ipcbus.Message], None], Callable[[], int]]:
    """A callback that does the least that counts, and how far it is."""
    seen = 0

    def on_message(_message: ipcbus.Message) -> None:
        nonlocal seen
        seen += 1

    return on_message, lambda: seen


# ---------------------------------------------------------------------------------------- throughput


def send_each(station: Station) -> Figures:
    """`send`, one call a message."""
    with _context(station) as context:
        source = _source(context, station)
        source.wait_for_receivers(station.options.get("receivers", 1), 30)
        station.ready()
        payload = b"x" * station.size
        send = source.send
        begin = time.perf_counter()
        for _ in range(station.messages):
            send(payload)
        source.flush()
        seconds = time.perf_counter() - begin
        source.wait_for_receivers(0)
        _until_read(source)
        return {"send_seconds": seconds}


def send_rows(station: Station) -> Figures:
    """`send_many`, a row a message."""
    rows = np.zeros((station.options.get("rows", 10_000), station.size), np.uint8)
    with _context(station) as context:
        source = _source(context, station)
        source.wait_for_receivers(1, 30)
        station.ready()
        begin = time.perf_counter()
        for _ in range(station.messages // len(rows)):
            source.send_many(rows)
        source.flush()
        seconds = time.perf_counter() - begin
        _until_read(source)
        return {"send_seconds": seconds}


def _until_read(source: ipcbus.Source) -> None:
    """Waits until the receivers have left, which they do when they have everything."""
    while source.receivers:
        source._context._wait_for_change(0.01)


def count_in_callback(station: Station) -> Figures:
    """A callback that counts; times from the first to the last message."""
    on_message, seen = _counter()
    with _context(station) as context:
        _join(context, context.receiver(TOPIC, on_message))
        station.ready()
        process = context.process_events
        if station.options.get("burst", 0):
            # Two receivers share a processor: with real-time priority one that spins would never let the other run.
            while seen() <= station.messages:
                process(0)
                os.sched_yield()
            return {}
        while not seen():
            process(1)
        first, begin = seen(), time.perf_counter()
        while seen() <= station.messages:  # the beginning of the session is an event of its own
            process(1)
        seconds = time.perf_counter() - begin
        return {"per_second": (station.messages + 1 - first) / seconds}


def fill_rows(station: Station) -> Figures:
    """`receive_into`."""
    rows = np.zeros((station.options.get("rows", 10_000), station.size), np.uint8)
    with _context(station) as context:
        receiver = context.receiver(TOPIC)
        _join(context, receiver)
        station.ready()
        receiver.receive()  # the beginning of the session
        first = total = receiver.receive_into(rows)
        begin = time.perf_counter()
        while total < station.messages:
            total += receiver.receive_into(rows)
        seconds = time.perf_counter() - begin
        return {"per_second": (total - first) / seconds}


# ---------------------------------------------------------------------------------------- round trips


def ping(station: Station) -> Figures:
    """Sends, waits for the echo, sends the next from inside the callback."""
    left = station.messages + station.messages // 10  # the first tenth warms up
    times = np.zeros(left, np.int64)
    payload = b"x" * station.size
    clock = time.perf_counter_ns
    sent = 0
    with _context(station, spin=not station.options.get("parked", False)) as context:
        source = _source(context, station, "ping")
        send = source.send

        def on_message(message: ipcbus.Message) -> None:
            nonlocal left, sent
            if not message.data:  # the beginning of the session
                return
            left -= 1
            times[left] = clock() - sent
            if left:
                sent = clock()
                send(payload)

        _join(context, context.receiver("pong", on_message))
        source.wait_for_receivers(1, 30)
        station.ready()
        sent = clock()
        send(payload)
        process = context.process_events
        while left:
            process(1)
        send(b"")
        _until_read(source)
        return {f"p{q:g}": float(np.percentile(times[: station.messages], q)) for q in (50, 90, 99, 99.9)}


PAUSE_US = 500
"""Time for the other side to fall asleep; the native futex ping-pong gets the same."""


def ping_parked(station: Station) -> Figures:
    """Round trips in which each side is asleep when the message for it is sent."""
    times = np.zeros(station.messages, np.int64)
    payload = b"x" * station.size
    clock = time.perf_counter_ns
    echoed = 0
    with _context(station, spin=False) as context:
        source = _source(context, station, "ping")

        def on_message(message: ipcbus.Message) -> None:
            nonlocal echoed
            if message.data:
                echoed = clock()

        _join(context, context.receiver("pong", on_message))
        source.wait_for_receivers(1, 30)
        station.ready()
        for index in range(station.messages):
            pause = clock() + PAUSE_US * 1000
            while clock() < pause:
                pass
            echoed = 0
            sent = clock()
            source.send(payload)
            while not echoed:
                context.process_events(1)
            times[index] = echoed - sent
        source.send(b"")
        _until_read(source)
        return {f"p{q:g}": float(np.percentile(times[station.messages // 10 :], q)) for q in (50, 99)}


def pong(station: Station) -> Figures:
    """Sends back what comes, from inside the callback, until an empty message."""
    going = True
    with _context(station, spin=not station.options.get("parked", False)) as context:
        source = _source(context, station, "pong")
        send = source.send

        def on_message(message: ipcbus.Message) -> None:
            nonlocal going
            data = message.data
            if data:
                send(data)
            elif message.type is not BOS:
                going = False

        _join(context, context.receiver("ping", on_message))
        source.wait_for_receivers(1, 30)
        station.ready()
        process = context.process_events
        while going:
            process(1)
        return {}


# ---------------------------------------------------------------------------------------- fan-out, idleness


def send_bursts(station: Station) -> Figures:
    """Ns a send, in bursts that fit the ring while the receivers drain in between."""
    burst = station.options["burst"]
    payload = b"x" * station.size
    costs = []
    with _context(station) as context:
        source = _source(context, station)
        source.wait_for_receivers(station.options["receivers"], 30)
        station.ready()
        send = source.send
        for _ in range(station.messages // burst):
            begin = time.perf_counter_ns()
            for _ in range(burst):
                send(payload)
            costs.append((time.perf_counter_ns() - begin) / burst)
            time.sleep(0.002)  # pace of the measurement: lets the receivers drain
        _until_read(source)
        return {"ns_per_send": float(np.median(costs))}


def idle(station: Station) -> Figures:
    """Processor time of a parked receiver, in per cent; with `answers`, of one that has a source."""
    with ipcbus.Context({"context": PEND}, domain=station.domain) as context:
        context.receiver(TOPIC, print)
        if station.options.get("answers"):
            _source(context, station, ANSWERS).wait_for_receivers(1, 30)
        station.ready()
        time.sleep(0.5)  # the measurement begins when joining is over
        before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        time.sleep(station.options["seconds"])  # what is measured
        after, seconds = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - begin
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"cpu_percent": 100 * spent / seconds}


def quiet_source(station: Station) -> Figures:
    """A source that sends nothing, for the idle receiver to be joined to."""
    with ipcbus.Context({"context": PEND}, domain=station.domain) as context:
        if station.options.get("answers"):
            context.receiver(ANSWERS, print)
        source = _source(context, station)
        source.wait_for_receivers(1, 30)
        station.ready()
        _until_read(source)
        return {}
