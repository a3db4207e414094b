"""Round trips in which both sides are asleep when their message comes: callbacks of the context's thread, and a pipe.

Those of `receive()` and `process_events` are in `benchmarks.forms`, those of asyncio in `benchmarks.asyncio_trips`.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import numpy as np

import ipcbus
from benchmarks.forms import percentiles, spin_us
from benchmarks.scenarios import PAUSE_US, _source

if TYPE_CHECKING:
    from benchmarks.pairs import Figures, Station

DATA = ipcbus.MessageType.DATA


def trip_by_thread(station: Station) -> Figures:
    """The callback runs in the context's thread; the thread that has sent waits for it."""
    times = np.zeros(station.messages, np.int64)
    payload = b"x" * station.size
    came = threading.Lock()
    came.acquire()
    clock = time.perf_counter_ns
    echoed = 0

    def on_message(message: ipcbus.Message) -> None:
        nonlocal echoed
        if message.type is DATA:
            echoed = clock()
            came.release()

    with ipcbus.Context({"context": station.options.get("context", {})}, domain=station.domain) as context:
        source = _source(context, station, "there")
        context.receiver("back", on_message).wait_for_sources(1, 30)
        source.wait_for_receivers(1, 30)
        station.ready()
        for index in range(station.messages):
            spin_us(PAUSE_US)
            begin = clock()
            source.send(payload, flush=True)
            came.acquire()
            times[index] = echoed - begin
        station.ready()
        return percentiles(times)


def echo_by_thread(station: Station) -> Figures:
    """The callback, in the context's thread, sends back what comes."""
    with ipcbus.Context({"context": station.options.get("context", {})}, domain=station.domain) as context:
        source = _source(context, station, "back")

        def on_message(message: ipcbus.Message) -> None:
            if message.type is DATA:
                source.send(message.data, flush=True)

        context.receiver("there", on_message).wait_for_sources(1, 30)
        source.wait_for_receivers(1, 30)
        station.ready()
        station.ready()
        return {}


def _pipes(station: Station) -> tuple[int, int]:
    """The named pipe that this side writes, and the one that it reads; the other side opens both, too."""
    there, back = station.options["paths"]
    return os.open(there, os.O_RDWR), os.open(back, os.O_RDWR)


def trip_by_pipe(station: Station) -> Figures:
    """Through two pipes, without any framing."""
    times = np.zeros(station.messages, np.int64)
    payload = b"x" * station.size
    there, back = _pipes(station)
    clock = time.perf_counter_ns
    station.ready()
    for index in range(station.messages):
        spin_us(PAUSE_US)
        begin = clock()
        os.write(there, payload)
        os.read(back, station.size)
        times[index] = clock() - begin
    return percentiles(times)


def echo_by_pipe(station: Station) -> Figures:
    """Writes back what it reads."""
    there, back = _pipes(station)
    station.ready()
    for _ in range(station.messages):
        os.write(back, os.read(there, station.size))
    return {}
