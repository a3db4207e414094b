"""Sessions over the network on loopback, and pyzmq and zenoh over TCP beside them: the parts of a scenario."""

from __future__ import annotations

import importlib
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import ipcbus
from benchmarks.forms import percentiles, spin_us
from benchmarks.scenarios import PAUSE_US, TOPIC

if TYPE_CHECKING:
    from benchmarks.pairs import Figures, Station

_WAIT_S = 50.0


class _Counter:
    """Takes the data of each message, and says when all have come."""

    def __init__(self, messages: int) -> None:
        self._left, self._messages = messages, messages
        self._begin = self._end = 0.0
        self._done = threading.Event()

    def take(self, data: bytes) -> None:
        """Takes a message."""
        left = self._left
        if left == self._messages:
            self._begin = time.perf_counter()
        self._left = left - 1
        if left == 1 and len(data):
            self._end = time.perf_counter()
            self._done.set()

    def figures(self) -> Figures:
        """Waits for the last message; the time runs from the first one."""
        if not self._done.wait(_WAIT_S):
            raise TimeoutError(f"{self._left} of {self._messages} messages were left after {_WAIT_S:g} s")
        return {"per_second": (self._messages - 1) / (self._end - self._begin)}


def _context(station: Station) -> ipcbus.Context:
    return ipcbus.Context({"context": station.options.get("context", {})}, domain=station.domain)


def send(station: Station) -> Figures:
    """`send`, one call a message."""
    with _context(station) as context:
        source = context.source(TOPIC, **station.options["source"])
        source.wait_for_receivers(station.options["receivers"], 30)
        station.ready()
        payload, send = b"x" * station.size, source.send
        for _ in range(station.messages):
            send(payload)
        source.flush()
        station.ready()
        (sender,) = context._network._udp_senders
        counts = sender.reliable_sender.snapshot()
        return {"sent_again": 100 * counts.get("rxs_sent", 0) / counts["msgs_sent"]}


def count(station: Station) -> Figures:
    """A callback in the context's thread takes the data: bytes, as `recv` of pyzmq gives."""
    counter = _Counter(station.messages)
    with _context(station) as context:
        context.receiver(TOPIC, on_data=counter.take)
        station.ready()
        figures = counter.figures()
        station.ready()
        return figures


# ---------------------------------------------------------------------------------------- pyzmq


def _zmq(station: Station, kind: str, *, binds: bool) -> Any:  # noqa: ANN401 - pyzmq need not be installed
    zmq: Any = importlib.import_module("zmq")
    sock = zmq.Context.instance().socket(getattr(zmq, kind))
    sock.set_hwm(1000)  # its default
    if kind == "XPUB":
        sock.setsockopt(zmq.XPUB_NODROP, 1)  # waits for the slowest, as LBT-TCP does
        sock.setsockopt(zmq.XPUB_VERBOSE, 1)  # tells of each receiver
    if kind == "SUB":
        sock.subscribe(b"")
    address = f"tcp://127.0.0.1:{station.options['port']}"
    sock.bind(address) if binds else sock.connect(address)
    return sock


def zmq_send(station: Station) -> Figures:
    """XPUB that waits for the slowest receiver; pyzmq batches by itself what waits."""
    sock = _zmq(station, "XPUB", binds=True)
    for _ in range(station.options["receivers"]):
        sock.recv()  # a receiver has come
    station.ready()
    payload, send = b"x" * station.size, sock.send
    for _ in range(station.messages):
        send(payload)
    station.ready()
    sock.close(linger=0)
    return {}


def zmq_count(station: Station) -> Figures:
    """SUB."""
    sock = _zmq(station, "SUB", binds=False)
    station.ready()
    counter = _Counter(station.messages)
    take, receive = counter.take, sock.recv
    for _ in range(station.messages):
        take(receive())
    figures = counter.figures()
    station.ready()
    sock.close(linger=0)
    return figures


def zmq_trip(station: Station) -> Figures:
    """PAIR; each message is sent when the other side has fallen asleep, or without `asleep` back to back."""
    asleep = station.options.get("asleep", True)
    sock = _zmq(station, "PAIR", binds=True)
    station.ready()
    payload, clock = b"x" * station.size, time.perf_counter_ns
    times = np.zeros(station.messages, np.int64)
    for index in range(station.messages):
        if asleep:
            spin_us(PAUSE_US)
        begin = clock()
        sock.send(payload)
        sock.recv()
        times[index] = clock() - begin
    sock.close(linger=1000)
    return percentiles(times)


def zmq_echo(station: Station) -> Figures:
    """PAIR; sends back what comes."""
    sock = _zmq(station, "PAIR", binds=False)
    station.ready()
    for _ in range(station.messages):
        sock.send(sock.recv())
    sock.close(linger=1000)
    return {}


# ---------------------------------------------------------------------------------------- zenoh


def _zenoh(station: Station, *, listens: bool) -> Any:  # noqa: ANN401 - zenoh need not be installed
    zenoh: Any = importlib.import_module("zenoh")
    config = zenoh.Config()
    address = json.dumps([f"tcp/127.0.0.1:{station.options['port']}"])
    config.insert_json5("mode", json.dumps("peer"))
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("transport/shared_memory/enabled", "false")  # by itself it takes long messages out of TCP
    config.insert_json5("listen/endpoints" if listens else "connect/endpoints", address)
    if not listens:
        config.insert_json5("listen/endpoints", "[]")
    return zenoh.open(config)


def _zenoh_publisher(session: Any, topic: str) -> Any:  # noqa: ANN401
    zenoh: Any = importlib.import_module("zenoh")
    return session.declare_publisher(topic, congestion_control=zenoh.CongestionControl.BLOCK)


def _zenoh_join(session: Any, receivers: int) -> None:  # noqa: ANN401
    while len(session.info.peers_zid()) < receivers:
        time.sleep(0.01)
    time.sleep(0.3)  # nothing says when a subscription has come to the other side


def zenoh_send(station: Station) -> Figures:
    """`put`, which waits for the slowest receiver; zenoh batches by itself what waits."""
    with _zenoh(station, listens=True) as session:
        put = _zenoh_publisher(session, TOPIC).put
        _zenoh_join(session, station.options["receivers"])
        station.ready()
        payload = b"x" * station.size
        for _ in range(station.messages):
            put(payload)
        station.ready()
    return {}


def zenoh_count(station: Station) -> Figures:
    """A callback takes the data."""
    counter = _Counter(station.messages)
    take = counter.take
    with _zenoh(station, listens=False) as session:
        session.declare_subscriber(TOPIC, lambda sample: take(sample.payload.to_bytes()))
        station.ready()
        figures = counter.figures()
        station.ready()
        return figures


def zenoh_trip(station: Station) -> Figures:
    """Each message is sent when the other side has fallen asleep; the thread that has sent waits for the echo."""
    with _zenoh(station, listens=True) as session:
        came = threading.Semaphore(0)
        clock = time.perf_counter_ns
        echoed = 0

        def on_sample(sample: Any) -> None:  # noqa: ANN401
            nonlocal echoed
            if sample.payload.to_bytes():
                echoed = clock()
                came.release()

        session.declare_subscriber("back", on_sample)
        put = _zenoh_publisher(session, "there").put
        _zenoh_join(session, 1)
        station.ready()
        payload = b"x" * station.size
        times = np.zeros(station.messages, np.int64)
        for index in range(station.messages):
            spin_us(PAUSE_US)
            begin = clock()
            put(payload)
            came.acquire()
            times[index] = echoed - begin
        station.ready()
        return percentiles(times)


def zenoh_echo(station: Station) -> Figures:
    """A callback sends back what comes."""
    with _zenoh(station, listens=False) as session:
        put = _zenoh_publisher(session, "back").put
        session.declare_subscriber("there", lambda sample: put(sample.payload.to_bytes()))
        station.ready()
        station.ready()
        return {}
