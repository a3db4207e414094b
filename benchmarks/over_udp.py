"""LBT-RU on loopback, and pyzmq over TCP beside it: the parts that run in their own processes."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import ipcbus

if TYPE_CHECKING:
    from benchmarks.pairs import Figures, Station
    from ipcbus.config.keywords import ConfigMapping
    from ipcbus.transport.udp.datagram_socket import DatagramCounts

TOPIC = "bench"
_UDP_HEADERS = 28
"""Bytes of IPv4 and UDP before each datagram."""
_TCP_HEADERS = 52
"""Bytes of IPv4 and TCP, with its time stamps, before each segment."""
_WAIT_S = 60.0
_SOURCE: dict[str, Any] = {"transport": "lbtru"}
_RECEIVER: Final[ConfigMapping] = {"context": {"delivery_control_maximum_total_map_entries": 0}}


def _on_wire(counts: DatagramCounts) -> int:
    return counts.bytes_sent + _UDP_HEADERS * counts.dgrams_sent


def send(station: Station) -> Figures:
    """`send`, one call a message; with option `flush` each goes out alone."""
    with ipcbus.Context(domain=station.domain) as context:
        source = context.source(TOPIC, **_SOURCE)
        source.wait_for_receivers(1, 30)
        station.ready()
        payload, send, flush = b"x" * station.size, source.send, source.flush
        if station.options["flush"]:
            for _ in range(station.messages):
                send(payload)
                flush()
        else:
            for _ in range(station.messages):
                send(payload)
        flush()
        (udp_sender,) = context._network._udp_senders
        until = time.monotonic() + _WAIT_S
        while source.receivers and time.monotonic() < until:
            time.sleep(0.01)  # the receiver leaves when it has everything
        sent_again = 100 * udp_sender.reliable_sender.counts.rxs_sent / udp_sender.reliable_sender.counts.msgs_sent
        return {"sent_again": sent_again, "wire": _on_wire(udp_sender.session_socket.socket.counts)}


def count(station: Station) -> Figures:
    """A callback that counts; times from the first to the last message."""
    seen, lost, begin, end = 0, 0, 0.0, 0.0
    done = threading.Event()

    def on_message(message: ipcbus.Message) -> None:
        nonlocal seen, lost, begin, end
        if message.type is ipcbus.MessageType.DATA:
            seen += 1
            if seen == 1:
                begin = time.perf_counter()
        elif message.type in (ipcbus.MessageType.UNRECOVERABLE_LOSS, ipcbus.MessageType.UNRECOVERABLE_LOSS_BURST):
            lost += message.sequence_number - message.first_sequence_number + 1
        if seen + lost == station.messages:
            end = time.perf_counter()
            done.set()

    with ipcbus.Context(_RECEIVER, domain=station.domain) as context:
        context.receiver(TOPIC, on_message)
        station.ready()
        if not done.wait(_WAIT_S):
            raise TimeoutError(f"{seen} of {station.messages} messages had come after {_WAIT_S:g} s, {lost} were lost")
        (udp_receiver,) = context._network._udp_receivers
        counts = udp_receiver._session_sockets[0].socket.counts
        return {"per_second": (seen - 1) / (end - begin), "lost": lost, "wire": _on_wire(counts)}


def ping(station: Station) -> Figures:
    """Sends from inside the callback that got the echo."""
    left = total = station.messages + station.messages // 10  # the first tenth warms up
    times = np.zeros(total, np.int64)
    payload, clock, sent = b"x" * station.size, time.perf_counter_ns, 0
    done = threading.Event()
    with ipcbus.Context(domain=station.domain) as context:
        source = context.source("ping", **_SOURCE)

        def on_message(message: ipcbus.Message) -> None:
            nonlocal left, sent
            if message.type is not ipcbus.MessageType.DATA:
                return
            left -= 1
            times[left] = clock() - sent
            if left:
                sent = clock()
                source.send(payload)
                source.flush()
            else:
                done.set()

        _receiver = context.receiver("pong", on_message)
        source.wait_for_receivers(1, 30)
        station.ready()
        sent = clock()
        source.send(payload)
        source.flush()
        if not done.wait(_WAIT_S):
            raise TimeoutError(f"{left} of {total} round trips were left after {_WAIT_S:g} s")
        station.ready()
        return _percentiles(times[: station.messages])


def pong(station: Station) -> Figures:
    """Sends back what comes, from inside the callback."""
    with ipcbus.Context(domain=station.domain) as context:
        source = context.source("pong", **_SOURCE)

        def on_message(message: ipcbus.Message) -> None:
            if message.type is ipcbus.MessageType.DATA:
                source.send(message.data)
                source.flush()

        _receiver = context.receiver("ping", on_message)
        source.wait_for_receivers(1, 30)
        station.ready()
        station.ready()
        return {}


def _percentiles(times: np.ndarray[Any, np.dtype[np.int64]]) -> Figures:
    return {f"p{q}": float(np.percentile(times, q)) for q in (50, 99)}


# ---------------------------------------------------------------------------------------- pyzmq


def free_port() -> int:
    """A TCP port of loopback that nobody has just now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _zmq(station: Station, kind: str, *, binds: bool) -> Any:  # noqa: ANN401 - pyzmq need not be installed
    zmq: Any = importlib.import_module("zmq")
    sock = zmq.Context.instance().socket(getattr(zmq, kind))
    sock.set_hwm(100_000)
    address = f"tcp://127.0.0.1:{station.options['port']}"
    sock.bind(address) if binds else sock.connect(address)
    return sock


def _tcp_on_wire(port: int) -> int:
    """What this process has sent and got in segments of a connection to that port, headers counted in; Linux tells."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as sock:
            if sock.family == socket.AF_INET and sock.type == socket.SOCK_STREAM and sock.getpeername()[1] == port:
                info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                segments, replies = struct.unpack_from("=II", info, 136)
                received = struct.unpack_from("=Q", info, 128)[0]
                sent = struct.unpack_from("=Q", info, 200)[0]
                return int(sent + received + _TCP_HEADERS * (segments + replies))
    return 0


def zmq_push(station: Station) -> Figures:
    """PUSH; pyzmq batches by itself what waits."""
    sock = _zmq(station, "PUSH", binds=False)
    station.ready()
    payload, send = b"x" * station.size, sock.send
    for _ in range(station.messages):
        send(payload)
    station.ready()
    wire = _tcp_on_wire(station.options["port"])
    station.ready()  # before that the other side must not close the connection
    sock.close()
    return {"wire": wire}


def zmq_pull(station: Station) -> Figures:
    """PULL; times from the first to the last message."""
    sock = _zmq(station, "PULL", binds=True)
    station.ready()
    receive = sock.recv
    receive()
    begin = time.perf_counter()
    for _ in range(station.messages - 1):
        receive()
    seconds = time.perf_counter() - begin
    station.ready()
    station.ready()
    sock.close()
    return {"per_second": (station.messages - 1) / seconds}


def zmq_ping(station: Station) -> Figures:
    """PAIR; each message is sent when the one before is back."""
    sock = _zmq(station, "PAIR", binds=True)
    station.ready()
    payload, clock = b"x" * station.size, time.perf_counter_ns
    times = np.zeros(station.messages + station.messages // 10, np.int64)
    for index in range(len(times)):
        sent = clock()
        sock.send(payload)
        sock.recv()
        times[index] = clock() - sent
    sock.close()
    return _percentiles(times[-station.messages :])


def zmq_pong(station: Station) -> Figures:
    """PAIR; sends back what comes."""
    sock = _zmq(station, "PAIR", binds=False)
    station.ready()
    for _ in range(station.messages + station.messages // 10):
        sock.send(sock.recv())
    sock.close(linger=1000)
    return {}
