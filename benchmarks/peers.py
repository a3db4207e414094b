"""What else a Python program can send 64-byte messages with, measured the same way: `python -m benchmarks.peers`.

Two pinned processes; throughput is the receiver's, from its first to its last message; a round trip is a message
there and back with both sides waiting the way the alternative waits. pyzmq is measured when it is installed (extra
`bench`).
"""

from __future__ import annotations

import argparse
import contextlib
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
from typing import TYPE_CHECKING, Any

import posix_ipc
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

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
    """

    name: str
    prepare: Callable[[], Any]
    open: Callable[[Any, str], Any]
    messages: int


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
    queue = posix_ipc.MessageQueue(handle, posix_ipc.O_CREAT, max_messages=10, max_message_size=64)
    return queue.send if role == "send" else queue.receive  # type: ignore[no-any-return]


def _zmq() -> Any:  # noqa: ANN401
    return f"ipc://{tempfile.gettempdir()}/ipcbus-peer-{secrets.token_hex(4)}"


def _open_zmq(handle: str, role: str) -> Send | Receive:
    zmq: Any = importlib.import_module("zmq")
    socket_ = zmq.Context.instance().socket(zmq.PUSH if role == "send" else zmq.PULL)
    socket_.set_hwm(100_000)
    socket_.bind(handle) if role == "receive" else socket_.connect(handle)
    return socket_.send if role == "send" else socket_.recv  # type: ignore[no-any-return]


PEERS = [
    Peer("multiprocessing.Pipe", _pipe, _open_pipe, 300_000),
    Peer("multiprocessing.Queue", _queue, _open_queue, 100_000),
    Peer("unix seqpacket socket", _seqpacket, _open_seqpacket, 300_000),
    Peer("POSIX message queue", _message_queue, _open_message_queue, 300_000),
]
if importlib.util.find_spec("zmq"):
    PEERS.append(Peer("pyzmq push/pull over ipc", _zmq, _open_zmq, 500_000))


def _stream(peer: Peer, there: Any, _back: Any, messages: int) -> None:  # noqa: ANN401
    os.sched_setaffinity(0, {0})
    send = peer.open(there, "send")
    for _ in range(messages):
        send(PAYLOAD)


def _echo(peer: Peer, there: Any, back: Any, messages: int) -> None:  # noqa: ANN401
    os.sched_setaffinity(0, {0})
    receive, send = peer.open(there, "receive"), peer.open(back, "send")
    for _ in range(messages):
        receive()
        send(PAYLOAD)


def _run(peer: Peer, other: Callable[..., None], here: Callable[[Any, Any], float], messages: int) -> float:
    there, back = peer.prepare(), peer.prepare()
    process = multiprocessing.get_context("spawn").Process(
        target=other, args=(peer, there, back, messages), daemon=True
    )
    process.start()
    try:
        return here(there, back)
    finally:
        process.join()
        for handle in (there, back):
            if isinstance(handle, str):
                with contextlib.suppress(posix_ipc.ExistentialError, ValueError):
                    posix_ipc.unlink_message_queue(handle)
                Path(handle.removeprefix("ipc://")).unlink(missing_ok=True)


def throughput(peer: Peer) -> float:
    """Messages a second."""

    def here(there: Any, _back: Any) -> float:  # noqa: ANN401
        receive = peer.open(there, "receive")
        receive()
        begin = time.perf_counter()
        for _ in range(peer.messages - 1):
            receive()
        return (peer.messages - 1) / (time.perf_counter() - begin)

    return _run(peer, _stream, here, peer.messages)


def round_trip(peer: Peer, messages: int = 3_000) -> float:
    """Median of a message there and back, in ns."""

    def here(there: Any, back: Any) -> float:  # noqa: ANN401
        receive, send = peer.open(back, "receive"), peer.open(there, "send")
        times = []
        for _ in range(messages):
            begin = time.perf_counter_ns()
            send(PAYLOAD)
            receive()
            times.append(time.perf_counter_ns() - begin)
        return statistics.median(times[messages // 10 :])

    return _run(peer, _echo, here, messages)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="interleaved runs (default 3)")
    runs = parser.parse_args().runs
    os.sched_setaffinity(0, {1})
    rates: dict[str, list[float]] = {peer.name: [] for peer in PEERS}
    trips: dict[str, list[float]] = {peer.name: [] for peer in PEERS}
    for _ in range(runs):
        for peer in PEERS:
            rates[peer.name].append(throughput(peer))
            trips[peer.name].append(round_trip(peer))
    table = Table(title=f"64-byte messages, two pinned processes, median of {runs} runs")
    for column in ("alternative", "msg/s", "round trip"):
        table.add_column(column, justify="left" if column == "alternative" else "right")
    for name, values in rates.items():
        rate, trip = statistics.median(values), statistics.median(trips[name])
        table.add_row(name, f"{rate / 1e6:.2f} M", f"{trip / 1000:.1f} us")
    console = Console()
    if not importlib.util.find_spec("zmq"):
        console.print("pyzmq is not installed, so it is left out: pip install -e '.[bench]'", markup=False)
    console.print(table)


if __name__ == "__main__":
    main()
