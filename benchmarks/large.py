"""Large messages, 64 KiB to 16 MiB: default options, a datagram that holds the message, and a pipe beside them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final

import ipcbus
from benchmarks import native, scenarios
from benchmarks.pairs import run
from benchmarks.rows import Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.pairs import Figures, Part, Station

DATA: Final = ipcbus.MessageType.DATA
KIB: Final = 1 << 10
MIB: Final = 1 << 20
SIZES: Final = ((64 * KIB, "64 KiB"), (MIB, "1 MiB"), (16 * MIB, "16 MiB"))
BYTES_A_RUN: Final = 1 << 30
RING_BYTES: Final = 4 * MIB
"""The window of LBT-IPC by default; a pipe and memcpy walk through as much."""


def _context(station: Station) -> ipcbus.Context:
    if station.options["tuned"]:
        return scenarios._context(station)
    return ipcbus.Context(domain=station.domain)


def send_large(station: Station) -> Figures:
    """`send` of one message after the other, all of them from the same memory."""
    payload = bytes(station.size)
    with _context(station) as context:
        source = context.source(scenarios.TOPIC, **station.options["source"])
        source.wait_for_receivers(1, 30)
        station.ready()
        for _ in range(station.messages):
            source.send(payload)
        source.flush()
        scenarios._until_read(source)
        return {}


def take_large(station: Station) -> Figures:
    """A callback that asks for the bytes, or for the view of them."""
    times: list[float] = []
    looks = station.options["view"]

    def on_message(message: ipcbus.Message) -> None:
        if message.type is DATA:
            kept = message.view if looks else message.data
            if len(kept) == station.size:
                times.append(time.perf_counter())

    with _context(station) as context:
        receiver = context.receiver(scenarios.TOPIC, on_message)
        if station.options["tuned"]:
            scenarios._join(context, receiver)
            station.ready()
            while len(times) < station.messages:
                context.process_events(1)
        else:
            receiver.wait_for_sources(1, 30)
            station.ready()
            while len(times) < station.messages:
                time.sleep(0.01)  # the context's thread measures
        return {"per_second": (len(times) - 1) / (times[-1] - times[0])}


def write_pipe(station: Station) -> Figures:
    """Writes to a named pipe with the largest buffer that a user may ask for."""
    import fcntl

    payload = bytes(station.size)
    at = os.open(station.options["path"], os.O_WRONLY)
    fcntl.fcntl(at, fcntl.F_SETPIPE_SZ, MIB)
    station.ready()
    for _ in range(station.messages):
        left = memoryview(payload)
        while left:
            left = left[os.write(at, left) :]
    os.close(at)
    return {}


def read_pipe(station: Station) -> Figures:
    """Reads messages of known length from it, each into bytes of its own."""
    at = os.open(station.options["path"], os.O_RDONLY)
    station.ready()
    begin = 0.0
    for index in range(station.messages):
        message = bytearray(station.size)
        left = memoryview(message)
        while left:
            left = left[os.readv(at, [left]) :]
        begin = begin if index else time.perf_counter()
    seconds = time.perf_counter() - begin
    os.close(at)
    return {"per_second": (station.messages - 1) / seconds}


def _messages(size: int, factor: float) -> int:
    return max(8, int(BYTES_A_RUN * factor) // (size + 30 * KIB))


def _bus(size: int, source: dict[str, Any], *, view: bool = False, tuned: bool = False) -> Callable[[float], float]:
    def measure(factor: float) -> float:
        parts: list[tuple[Part, int]] = [(send_large, 0), (take_large, 1)]
        found = run(parts, _messages(size, factor), size, source=source, view=view, tuned=tuned)
        return found[1]["per_second"] * size

    return measure


def _pipe(size: int) -> Callable[[float], float]:
    def measure(factor: float) -> float:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "pipe")
            os.mkfifo(path)
            parts: list[tuple[Part, int]] = [(write_pipe, 0), (read_pipe, 1)]
            return run(parts, _messages(size, factor), size, path=path)[1]["per_second"] * size

    return measure


def _copy(size: int) -> Callable[[float], float]:
    def measure(_factor: float) -> float:
        return float(native.run("memcpy", str(size), str(max(RING_BYTES, 2 * size)))["set_bytes_s"])

    return measure


def _smx(size: int) -> dict[str, Any]:
    return {
        "transport": "lbtsmx",
        "transport_lbtsmx_datagram_max_size": size + 16,
        "transport_lbtsmx_transmission_window_size": max(RING_BYTES, 4 * size),
    }


def _row(size: str, what: str, measure: Callable[[float], float], must: float = 0.3, stretch: float = 0.45) -> Row:
    beside, also = f"{size}: C, memcpy", (f"{size}: pipe", 1.5)
    return Row(f"{size}: {what}", "B/s", must, stretch, False, measure, beside, is_ratio=True, also=also)


def _rows() -> list[Row]:
    rows = []
    for size, name in SIZES:
        rows += [
            Row(f"{name}: C, memcpy", "B/s", None, None, False, _copy(size)),
            Row(f"{name}: pipe", "B/s", None, None, False, _pipe(size), f"{name}: C, memcpy"),
            _row(name, "LBT-IPC, default", _bus(size, {})),
            _row(name, "LBT-IPC, spinning", _bus(size, {}, tuned=True)),
            _row(name, "LBT-SMX, copy", _bus(size, _smx(size), tuned=True)),
            _row(name, "LBT-SMX, view in place", _bus(size, _smx(size), view=True, tuned=True), 0.5, 0.8),
        ]
    return rows


LARGE: Final = _rows()
