"""What else a Python program can send 64-byte messages with, beside ipcbus: `make bench-peers`.

Two pinned processes; throughput is the receiver's, from its first to its last message; a round trip is a message
there and back with both sides waiting the way the alternative waits: asleep in the kernel, or spinning. Each message
becomes an object of Python on both sides. Packages that are not part of Python are measured when they are installed.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import importlib
import importlib.util
import multiprocessing
import os
import secrets
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ipcbus
from benchmarks.pairs import run
from benchmarks.rows import SMX, Row
from benchmarks.scenarios import SPIN

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from benchmarks.pairs import Figures, Part, Station

PAYLOAD = b"x" * 64

Send = Callable[[bytes], object]
Receive = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Peer:
    """An alternative.

    Attributes:
        name: as the table says it.
        open: makes both ends of one direction for a process; takes a shared handle and the role (`send`, `receive`).
        prepare: makes what both processes need before they start; returns the shared handle.
        messages: how many a throughput run sends.
        trips: how many round trips are made.
        batches: whether `send` keeps a message back, so that a round trip has to say `flush=True`.
    """

    name: str
    prepare: Callable[[], Any]
    open: Callable[[Any, str], Any]
    messages: int
    trips: int = 3_000
    batches: bool = False


def _pipe() -> Any:  # noqa: ANN401 - handles differ by alternative
    return multiprocessing.get_context("spawn").Pipe(duplex=False)


def _open_pipe(handle: tuple[Connection, Connection], role: str) -> Send | Receive:
    return handle[1].send_bytes if role == "send" else handle[0].recv_bytes


def _queue() -> Any:  # noqa: ANN401
    return multiprocessing.get_context("spawn").Queue(100_000)


def _open_queue(handle: Any, role: str) -> Send | Receive:  # noqa: ANN401
    return handle.put if role == "send" else handle.get  # type: ignore[no-any-return]


def _seqpacket() -> Any:  # noqa: ANN401
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _open_seqpacket(handle: tuple[socket.socket, socket.socket], role: str) -> Send | Receive:
    return handle[1].send if role == "send" else lambda: handle[0].recv(65_536)


def _message_queue() -> Any:  # noqa: ANN401
    return f"/ipcbus-peer-{secrets.token_hex(4)}"


def _open_message_queue(handle: str, role: str) -> Send | Receive:
    import posix_ipc  # not before: it turns the lock of a free-threaded interpreter on

    queue = posix_ipc.MessageQueue(handle, posix_ipc.O_CREAT, max_messages=10, max_message_size=64)
    return queue.send if role == "send" else queue.receive  # type: ignore[no-any-return]


def _unlink_message_queue(handle: str) -> None:
    import posix_ipc

    with contextlib.suppress(posix_ipc.Error, ValueError):
        posix_ipc.unlink_message_queue(handle)


def _zmq() -> Any:  # noqa: ANN401
    return f"ipc://{tempfile.gettempdir()}/ipcbus-peer-{secrets.token_hex(4)}"


def _open_zmq(handle: str, role: str) -> Send | Receive:
    zmq: Any = importlib.import_module("zmq")
    socket_ = zmq.Context.instance().socket(zmq.PUSH if role == "send" else zmq.PULL)
    socket_.set_hwm(100_000)
    socket_.bind(handle) if role == "receive" else socket_.connect(handle)
    return socket_.send if role == "send" else socket_.recv  # type: ignore[no-any-return]


def _file() -> Any:  # noqa: ANN401
    return f"{tempfile.gettempdir()}/ipcbus-peer-{secrets.token_hex(4)}"


def _open_subetha(handle: str, role: str) -> Send | Receive:
    subetha: Any = importlib.import_module("subetha")
    try:
        ring = subetha.SpscRing(handle, 4096)
    except OSError:
        ring = subetha.SpscRing.open(handle, 4096)
    push, pop = ring.push, ring.pop

    def send(data: bytes) -> None:
        while not push(data):
            pass

    def receive() -> bytes:
        while not (data := pop()):
            pass
        return data  # type: ignore[no-any-return]

    return send if role == "send" else receive


def _faster_fifo() -> Any:  # noqa: ANN401
    return importlib.import_module("faster_fifo").Queue(max_size_bytes=1 << 22)


def _open_faster_fifo(handle: Any, role: str) -> Send | Receive:  # noqa: ANN401
    return handle.put if role == "send" else handle.get  # type: ignore[no-any-return]


def _name() -> Any:  # noqa: ANN401
    return f"peer{secrets.token_hex(4)}"


def _open_iceoryx2(handle: str, role: str) -> Send | Receive:
    iox2: Any = importlib.import_module("iceoryx2")
    payload = ctypes.c_uint8 * len(PAYLOAD)
    iox2.set_log_level(iox2.LogLevel.Error)
    node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
    service = (
        node.service_builder(iox2.ServiceName.new(handle))
        .publish_subscribe(payload)
        .enable_safe_overflow(False)
        .subscriber_max_buffer_size(1000)
        .open_or_create()
    )
    if role == "send":
        publisher = service.publisher_builder().create()
        while not service.dynamic_config.number_of_subscribers:
            time.sleep(0.001)  # what is sent before a subscriber has come reaches nobody

        def send(data: bytes) -> None:
            sample = publisher.loan_uninit()
            ctypes.memmove(sample.payload_ptr, data, len(data))
            sample.assume_init().send()

        # An object of the node has to live as long as the publisher.
        send.keeps = (node, service)  # type: ignore[attr-defined]
        return send
    subscriber = service.subscriber_builder().create()

    def receive() -> bytes:
        while (sample := subscriber.receive()) is None:
            pass
        return ctypes.string_at(sample.payload_ptr, len(PAYLOAD))

    receive.keeps = (node, service)  # type: ignore[attr-defined]
    return receive


def _open_ipcbus(handle: str, role: str, *, spins: bool) -> Send | Receive:
    context = _context(spins=spins)
    if role == "send":
        options: dict[str, Any] = dict(SMX) if spins else {}
        source = context.source(handle, **options)
        source.wait_for_receivers(1, 30)
        return source.send
    receiver = context.receiver(handle)
    take = receiver.receive

    def receive() -> bytes:
        while True:
            message = take()
            if message.type is ipcbus.MessageType.DATA:
                return message.data

    receive.join = functools.partial(receiver.wait_for_sources, 1, 30)  # type: ignore[attr-defined]
    return receive


@functools.cache
def _context(*, spins: bool) -> ipcbus.Context:
    """The one context of this process, which closes when the process ends."""
    mode = "sequential" if spins else "embedded"
    # Both processes have one parent.
    context = ipcbus.Context({"context": SPIN if spins else {}}, domain=f"peers{os.getppid()}", operational_mode=mode)
    atexit.register(context.close)
    return context


PEERS = [
    Peer(
        "ipcbus, receive(), LBT-SMX, spinning", _name, functools.partial(_open_ipcbus, spins=True), 2_000_000, 100_000
    ),
    Peer(
        "ipcbus, receive(), default options",
        _name,
        functools.partial(_open_ipcbus, spins=False),
        1_000_000,
        batches=True,
    ),
    Peer("multiprocessing.Pipe", _pipe, _open_pipe, 300_000),
    Peer("multiprocessing.Queue", _queue, _open_queue, 100_000),
    Peer("unix seqpacket socket", _seqpacket, _open_seqpacket, 300_000),
    Peer("POSIX message queue", _message_queue, _open_message_queue, 300_000),
]
_PACKAGES = (
    ("zmq", "pyzmq", Peer("pyzmq push/pull over ipc", _zmq, _open_zmq, 500_000)),
    ("subetha", "subetha-ipc", Peer("subetha-ipc, SPSC ring, spinning", _file, _open_subetha, 2_000_000, 100_000)),
    ("faster_fifo", "faster-fifo", Peer("faster-fifo", _faster_fifo, _open_faster_fifo, 200_000)),
    ("iceoryx2", "iceoryx2", Peer("iceoryx2, polling", _name, _open_iceoryx2, 200_000)),
)
"""By module and package."""

INSTALLED = [package for module, package, _ in _PACKAGES if importlib.util.find_spec(module)]
MISSING = [package for _, package, _ in _PACKAGES if package not in INSTALLED]
PEERS += [peer for _, package, peer in _PACKAGES if package in INSTALLED]


def _ends(station: Station, *opened: tuple[str, str]) -> list[Any]:
    """Opens ends, each of a direction in a role, and waits until the other process has opened its own."""
    peer: Peer = station.options["peer"]
    ends = [peer.open(station.options[direction], role) for direction, role in opened]
    for end in ends:
        # A context that its caller drives joins only while it is driven.
        getattr(end, "join", _nothing)()
    station.ready()
    return ends


def _both_ways(station: Station, there: str, back: str) -> list[Any]:
    """Returns what receives and what sends at once."""
    receive, send = _ends(station, (back, "receive"), (there, "send"))
    return [receive, functools.partial(send, flush=True) if station.options["peer"].batches else send]


def _nothing() -> None:
    pass


def stream(station: Station) -> Figures:
    """Sends one message after the other."""
    (send,) = _ends(station, ("there", "send"))
    for _ in range(station.messages):
        send(PAYLOAD)
    station.ready()
    return {}


def take(station: Station) -> Figures:
    """Receives them; the time begins when the first one is there."""
    (receive,) = _ends(station, ("there", "receive"))
    receive()
    begin = time.perf_counter()
    for _ in range(station.messages - 1):
        receive()
    seconds = time.perf_counter() - begin
    station.ready()
    return {"per_second": (station.messages - 1) / seconds}


def trip(station: Station) -> Figures:
    """Sends, and waits for the echo."""
    receive, send = _both_ways(station, "there", "back")
    times = []
    for _ in range(station.messages):
        begin = time.perf_counter_ns()
        send(PAYLOAD)
        receive()
        times.append(time.perf_counter_ns() - begin)
    station.ready()
    return {"p50": statistics.median(times[station.messages // 10 :])}


def echo(station: Station) -> Figures:
    """Sends back what comes."""
    receive, send = _both_ways(station, "back", "there")
    for _ in range(station.messages):
        receive()
        send(PAYLOAD)
    station.ready()
    return {}


def _measure(peer: Peer, parts: list[tuple[Part, int]], messages: int) -> list[Figures]:
    there, back = peer.prepare(), peer.prepare()
    try:
        return run(parts, messages, len(PAYLOAD), peer=peer, there=there, back=back)
    finally:
        for handle in (there, back):
            if isinstance(handle, str):
                _unlink_message_queue(handle)
                Path(handle.removeprefix("ipc://")).unlink(missing_ok=True)


def _rows(peer: Peer) -> list[Row]:
    def rate(factor: float) -> float:
        return _measure(peer, [(stream, 0), (take, 1)], max(1_000, int(peer.messages * factor)))[1]["per_second"]

    def round_trip(factor: float) -> float:
        return _measure(peer, [(trip, 0), (echo, 1)], max(200, int(peer.trips * factor)))[0]["p50"]

    return [
        Row(rate_name(peer), "msg/s", None, None, False, rate),
        Row(trip_name(peer), "ns", None, None, True, round_trip),
    ]


def rate_name(peer: Peer) -> str:
    """The name of its row of throughput."""
    return peer.name


def trip_name(peer: Peer) -> str:
    """The name of its row of round trips."""
    return f"{peer.name}, round trip"


PEER_ROWS: Final = [row for peer in PEERS for row in _rows(peer)]
