"""Requests and responses between two pinned processes, and what one would use instead: the parts of the rows."""

from __future__ import annotations

import importlib
import multiprocessing.connection
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import ipcbus

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.pairs import Figures, Station
    from ipcbus.config.keywords import ContextKeywords

_WAIT_S = 60.0
PAUSE_US = 500
"""Time for both sides to fall asleep before a request."""


def _context(station: Station) -> ipcbus.Context:
    behavior: Literal["pend", "busy_wait"] = "pend" if station.options["asleep"] else "busy_wait"
    options: ContextKeywords = {
        "operational_mode": "sequential",
        "transport_lbtipc_receiver_thread_behavior": behavior,
        "transport_lbtsmx_receiver_thread_behavior": behavior,
    }
    return ipcbus.Context({"context": options}, domain=station.domain)


def _timed(station: Station, trip: Callable[[], object]) -> Figures:
    """The median of the round trips; the first tenth warms up."""
    total = station.messages + station.messages // 10
    times = np.zeros(total, np.int64)
    clock = time.perf_counter_ns
    asleep = station.options["asleep"]
    for index in range(total):
        if asleep:
            pause = clock() + PAUSE_US * 1000
            while clock() < pause:
                pass
        begin = clock()
        trip()
        times[index] = clock() - begin
    return {"p50": float(np.percentile(times[station.messages // 10 :], 50))}


def ask(station: Station) -> Figures:
    """`request`, one after the other."""
    payload = b"x" * station.size
    with _context(station) as context:
        source = context.source("t", transport="lbtsmx")
        source.wait_for_receivers(1, _WAIT_S)
        station.ready()
        found = _timed(station, lambda: source.request(payload))
        source.request(b"")
        return found


def answer(station: Station) -> Figures:
    """`receive` and `respond`, until an empty request."""
    with _context(station) as context:
        receiver = context.receiver("t")
        receiver.wait_for_sources(1, _WAIT_S)
        station.ready()
        for message in receiver:
            if message.type is ipcbus.MessageType.REQUEST:
                message.respond(message.data)
                if not message.data:
                    return {}
    return {}


def send_and_receive(station: Station) -> Figures:
    """The same with a topic each way."""
    payload, data = b"x" * station.size, ipcbus.MessageType.DATA
    with _context(station) as context:
        source = context.source("there", transport="lbtsmx")
        receiver = context.receiver("back")
        source.wait_for_receivers(1, _WAIT_S)
        receiver.wait_for_sources(1, _WAIT_S)
        station.ready()

        def trip() -> None:
            source.send(payload)
            while receiver.receive().type is not data:
                pass

        found = _timed(station, trip)
        source.send(b"")
        return found


def receive_and_send(station: Station) -> Figures:
    """The other side of `send_and_receive`."""
    with _context(station) as context:
        receiver, source = context.receiver("there"), context.source("back", transport="lbtsmx")
        source.wait_for_receivers(1, _WAIT_S)
        receiver.wait_for_sources(1, _WAIT_S)
        station.ready()
        for message in receiver:
            if message.type is ipcbus.MessageType.DATA:
                if not message.data:
                    return {}
                source.send(message.data)
    return {}


def ask_many(station: Station) -> Figures:
    """`requests`, with so many in flight: each response brings the next request."""
    payload, left, done = b"x" * station.size, station.messages, threading.Event()
    with ipcbus.Context(domain=station.domain) as context:
        source = context.source("t", transport="lbtsmx")
        source.wait_for_receivers(1, _WAIT_S)
        station.ready()

        def ask() -> None:
            def take(_: ipcbus.Message) -> None:
                nonlocal left
                request.close()
                left -= 1
                if left >= station.options["in_flight"]:
                    ask()
                elif not left:
                    done.set()

            request = source.requests(payload, take)

        begin = time.perf_counter()
        for _ in range(station.options["in_flight"]):
            with context._event_loop.driver_lock():  # so that no response comes before its request is known here
                ask()
        if not done.wait(_WAIT_S):
            raise TimeoutError(f"{left} of {station.messages} requests were left after {_WAIT_S:g} s")
        seconds = time.perf_counter() - begin
        station.ready()
        return {"per_second": station.messages / seconds}


def answer_many(station: Station) -> Figures:
    """Answers in the callback."""

    def on_message(message: ipcbus.Message) -> None:
        if message.type is ipcbus.MessageType.REQUEST:
            message.respond(message.data)

    with ipcbus.Context(domain=station.domain) as context:
        context.receiver("t", on_message)
        station.ready()
        station.ready()
        return {}


def pipe_ask(station: Station) -> Figures:
    """multiprocessing: a connection over a socket of this host."""
    payload = b"x" * station.size
    station.ready()
    with multiprocessing.connection.Client(station.options["address"], "AF_UNIX") as connection:

        def trip() -> None:
            connection.send_bytes(payload)
            connection.recv_bytes()

        found = _timed(station, trip)
        connection.send_bytes(b"")
        return found


def pipe_answer(station: Station) -> Figures:
    """The other side of `pipe_ask`."""
    with multiprocessing.connection.Listener(station.options["address"], "AF_UNIX") as listener:
        station.ready()
        with listener.accept() as connection:
            while data := connection.recv_bytes():
                connection.send_bytes(data)
    return {}


def _in_flight(station: Station, send: Callable[[], object], receive: Callable[[], object]) -> Figures:
    """Requests a second of a peer whose responses come in order, with so many in flight."""
    in_flight = station.options["in_flight"]
    begin = time.perf_counter()
    for _ in range(in_flight):
        send()
    for left in range(station.messages, 0, -1):
        receive()
        if left > in_flight:
            send()
    return {"per_second": station.messages / (time.perf_counter() - begin)}


def pipe_ask_many(station: Station) -> Figures:
    """The same, with so many in flight."""
    payload = b"x" * station.size
    station.ready()
    with multiprocessing.connection.Client(station.options["address"], "AF_UNIX") as connection:
        found = _in_flight(station, lambda: connection.send_bytes(payload), connection.recv_bytes)
        connection.send_bytes(b"")
        return found


def _zmq(kind: str) -> tuple[Any, Any]:
    zmq = importlib.import_module("zmq")
    context = zmq.Context()
    return context, context.socket(getattr(zmq, kind))


def zmq_ask(station: Station) -> Figures:
    """Pyzmq REQ over a socket of this host."""
    return _zmq_ask(station, "REQ")


def zmq_ask_dealer(station: Station) -> Figures:
    """Pyzmq DEALER, one after the other."""
    return _zmq_ask(station, "DEALER")


def _zmq_ask(station: Station, kind: str) -> Figures:
    payload = b"x" * station.size
    context, one = _zmq(kind)
    station.ready()
    one.connect("ipc://" + station.options["address"])

    def trip() -> None:
        one.send(payload)
        one.recv()

    found = _timed(station, trip)
    one.send(b"")
    one.close()
    context.term()
    return found


def zmq_answer(station: Station) -> Figures:
    """Pyzmq REP."""
    context, one = _zmq("REP")
    one.bind("ipc://" + station.options["address"])
    station.ready()
    while data := one.recv():
        one.send(data)
    one.close(0)
    context.term()
    return {}


def zmq_ask_many(station: Station) -> Figures:
    """Pyzmq DEALER, with so many in flight."""
    payload = b"x" * station.size
    context, one = _zmq("DEALER")
    station.ready()
    one.connect("ipc://" + station.options["address"])
    found = _in_flight(station, lambda: one.send(payload), one.recv)
    one.send(b"")
    one.close()
    context.term()
    return found


def zmq_answer_many(station: Station) -> Figures:
    """Pyzmq ROUTER."""
    context, one = _zmq("ROUTER")
    one.bind("ipc://" + station.options["address"])
    station.ready()
    while True:
        parts = one.recv_multipart()
        if not parts[-1]:
            break
        one.send_multipart(parts)
    one.close(0)
    context.term()
    return {}
