"""Camera frames from one process to another: frames a second, and the latency at 30 and at 60 frames a second.

On every way the sender copies a picture of its own into the frame, and the receiver looks at the frame where it lies;
the ways with a copy make one of their own on the receiver's side first. The latency is that of the whole frame: from
before the sender's copy until the receiver has looked at it. The frames of the first round through a ring are not
counted, because each way then waits for pages of memory.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context, shared_memory
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import ipcbus
from benchmarks.pairs import run
from benchmarks.rows import Row, Shared
from benchmarks.scenarios import SPIN
from ipcbus import MessageType

if TYPE_CHECKING:
    from benchmarks.pairs import Figures, Part, Station
    from ipcbus.config.keywords import ContextKeywords

SIZES: Final = (("1080p", 6_220_800, 4), ("4K", 24_883_200, 2), ("16 MiB", 1 << 24, 2))
"""Names, bytes, and how many frames each way has in flight at most."""
RATES: Final = (30, 60)
WARM_UP: Final = 16
FRAMES_A_RUN: Final = 240
BYTES_A_RUN: Final = 1 << 32
TOPIC: Final = "frames"

Put = Callable[[np.ndarray[Any, Any]], object]
_STAMPS: Final = 2
"""Numbers at the begin of a frame: when it was sent, and its own."""


def _frames(station: Station, put: Put) -> Figures:
    """Sends the frames: as fast as they go, or at a rate."""
    picture = np.arange(station.size, dtype=np.uint8)
    stamps = picture[: 8 * _STAMPS].view(np.int64)
    pause = 1 / station.options["rate"] if station.options["rate"] else 0.0
    station.ready()
    begin = time.perf_counter()
    for number in range(station.messages):
        while pause and (left := begin + number * pause - time.perf_counter()) > 0:
            time.sleep(left)
        stamps[:] = time.perf_counter_ns(), number
        put(picture)
    station.ready()
    return {}


class Look:
    """Looks at frames, and measures."""

    def __init__(self, frames: int) -> None:
        """Expects so many frames."""
        self.frames = frames
        self.latencies: list[int] = []
        self.times: list[float] = []
        self.done = threading.Event()

    def __call__(self, frame: np.ndarray[Any, Any]) -> None:
        """Looks at the next frame."""
        sent, number = frame[: 8 * _STAMPS].view(np.int64).tolist()
        if number != len(self.times) or int(frame[4096::4096].sum()) != 0:
            raise RuntimeError(f"frame {len(self.times)} came as {number}, or with other bytes")
        self.latencies.append(time.perf_counter_ns() - sent)
        self.times.append(time.perf_counter())
        if len(self.times) == self.frames:
            self.done.set()

    def figures(self) -> Figures:
        """Frames a second and percentiles, without the first ones."""
        latencies = np.percentile(self.latencies[WARM_UP:], [50, 99])
        seconds = self.times[-1] - self.times[WARM_UP - 1]
        return {
            "per_second": (len(self.times) - WARM_UP) / seconds,
            "p50": float(latencies[0]),
            "p99": float(latencies[1]),
        }


# ---------------------------------------------------------------------------------------- ipcbus


def _source(context: ipcbus.Context, station: Station) -> ipcbus.Source:
    source = context.source(TOPIC, message_max=station.size, messages_in_flight=station.options["in_flight"])
    source.wait_for_receivers(1, 30)
    return source


def send_ipcbus(station: Station) -> Figures:
    """`send` copies the picture."""
    with ipcbus.Context(domain=station.domain) as context:
        return _frames(station, _source(context, station).send)


def write_ipcbus(station: Station) -> Figures:
    """`acquire_array`, and a copy of the picture into it."""
    with ipcbus.Context(domain=station.domain) as context:
        source = _source(context, station)

        def put(picture: np.ndarray[Any, Any]) -> None:
            with source.acquire_array(station.size, np.uint8) as frame:
                frame[:] = picture

        return _frames(station, put)


def look_ipcbus(station: Station, options: ContextKeywords | None = None) -> Figures:
    """A callback looks at the frame in the ring; the context's thread sleeps in between."""
    look = Look(station.messages)

    def on_message(message: ipcbus.Message) -> None:
        if message.type is MessageType.DATA:
            look(message.array(station.size, np.uint8))

    with ipcbus.Context({"context": options or {}}, domain=station.domain) as context:
        context.receiver(TOPIC, on_message).wait_for_sources(1, 30)
        station.ready()
        look.done.wait()
        station.ready()
        return look.figures()


def spin_ipcbus(station: Station) -> Figures:
    """The same callback in a thread that looks again and again, as the poll of iceoryx2 does."""
    return look_ipcbus(station, SPIN)


def copy_ipcbus(station: Station) -> Figures:
    """`receive()`, of which each message has bytes of its own."""
    look = Look(station.messages)
    with ipcbus.Context(domain=station.domain) as context:
        receiver = context.receiver(TOPIC, events=False)
        receiver.wait_for_sources(1, 30)
        station.ready()
        while len(look.times) < station.messages:
            message = receiver.receive()
            if message is not None:
                look(message.array(station.size, np.uint8))
        station.ready()
        return look.figures()


def lease_ipcbus(station: Station) -> Figures:
    """`lease()`, which shows the frame in the ring."""
    look = Look(station.messages)
    with ipcbus.Context(domain=station.domain) as context:
        receiver = context.receiver(TOPIC, events=False)
        receiver.wait_for_sources(1, 30)
        station.ready()
        while len(look.times) < station.messages:
            with receiver.lease() as message:
                if message is not None:
                    look(message.array(station.size, np.uint8))
        station.ready()
        return look.figures()


# ---------------------------------------------------------------------------------------- shared_memory and a Pipe


def write_shared(station: Station) -> Figures:
    """Copies into the next free place; its number goes through a pipe, and comes back when the frame was looked at."""
    pipe, memory = station.options["ends"][0], shared_memory.SharedMemory(station.options["name"])
    places = np.ndarray((station.options["in_flight"], station.size), np.uint8, memory.buf)
    free = list(range(station.options["in_flight"]))

    def put(picture: np.ndarray[Any, Any]) -> None:
        while not free or pipe.poll():
            free.append(pipe.recv())
        place = free.pop()
        places[place] = picture
        pipe.send(place)

    return _frames(station, put)


def look_shared(station: Station) -> Figures:
    """Looks at the frame where it lies, or at a copy, and gives the place back."""
    pipe, memory = station.options["ends"][1], shared_memory.SharedMemory(station.options["name"])
    places = np.ndarray((station.options["in_flight"], station.size), np.uint8, memory.buf)
    look, copies = Look(station.messages), station.options["copies"]
    station.ready()
    for _ in range(station.messages):
        place = pipe.recv()
        if copies:
            frame = places[place].copy()
            pipe.send(place)
            look(frame)
        else:
            look(places[place])
            pipe.send(place)
    station.ready()
    return look.figures()


# ---------------------------------------------------------------------------------------- other buses


def write_zmq(station: Station) -> Figures:
    """`send` copies the picture."""
    zmq: Any = importlib.import_module("zmq")
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.set_hwm(station.options["in_flight"])
        socket.connect(station.options["path"])
        return _frames(station, socket.send)


def look_zmq(station: Station) -> Figures:
    """`recv(copy=False)` gives the buffer of the message."""
    zmq: Any = importlib.import_module("zmq")
    look = Look(station.messages)
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        socket.set_hwm(station.options["in_flight"])
        socket.bind(station.options["path"])
        station.ready()
        for _ in range(station.messages):
            look(np.frombuffer(socket.recv(copy=False), np.uint8))
        station.ready()
        return look.figures()


def _service(station: Station) -> tuple[Any, Any]:
    iox2: Any = importlib.import_module("iceoryx2")
    iox2.set_log_level(iox2.LogLevel.Error)
    node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
    builder = node.service_builder(iox2.ServiceName.new(station.domain))
    builder = builder.publish_subscribe(ctypes.c_uint8 * station.size).enable_safe_overflow(False)
    return node, builder.subscriber_max_buffer_size(station.options["in_flight"]).open_or_create()


def write_iceoryx2(station: Station) -> Figures:
    """A loan, and a copy of the picture into it."""
    _node, service = _service(station)
    publisher = service.publisher_builder().create()
    while not service.dynamic_config.number_of_subscribers:
        time.sleep(0.001)

    def put(picture: np.ndarray[Any, Any]) -> None:
        sample = publisher.loan_uninit()
        ctypes.memmove(sample.payload_ptr, picture.ctypes.data, station.size)
        sample.assume_init().send()

    return _frames(station, put)


def look_iceoryx2(station: Station) -> Figures:
    """Polls, and looks at the frame where it lies."""
    _node, service = _service(station)
    subscriber = service.subscriber_builder().create()
    look = Look(station.messages)
    frames = ctypes.POINTER(ctypes.c_uint8 * station.size)
    station.ready()
    while len(look.times) < station.messages:
        sample = subscriber.receive()
        if sample is not None:
            look(np.ctypeslib.as_array(ctypes.cast(sample.payload_ptr, frames).contents))
            sample.delete()
    station.ready()
    return look.figures()


# ---------------------------------------------------------------------------------------- rows


def _run_alone(parts: list[tuple[Part, int]], messages: int, size: int, **options: int) -> list[Figures]:
    return run(parts, messages, size, **options)


def _run_shared(
    parts: list[tuple[Part, int]], messages: int, size: int, *, copies: bool, **options: int
) -> list[Figures]:
    ends = get_context("spawn").Pipe()
    memory = shared_memory.SharedMemory(create=True, size=options["in_flight"] * size)
    try:
        return run(parts, messages, size, ends=ends, name=memory.name, copies=copies, **options)
    finally:
        memory.close()
        memory.unlink()
        for end in ends:
            end.close()


def _run_zmq(parts: list[tuple[Part, int]], messages: int, size: int, **options: int) -> list[Figures]:
    with tempfile.TemporaryDirectory() as folder:
        return run(parts, messages, size, path=f"ipc://{folder}/frames", **options)


IN_PLACE: Final = "ipcbus, send, array in place"
SPINNING: Final = "ipcbus, send, array in place, spinning"
MADE_IN_PLACE: Final = "ipcbus, acquire_array, array in place"
LEASED: Final = "ipcbus, send, lease()"
COPY: Final = "ipcbus, send, receive()"
SHARED: Final = "shared_memory, Pipe"
SHARED_COPY: Final = "shared_memory, Pipe, copy"
_WAYS: Final[tuple[tuple[str, str, Callable[..., list[Figures]], Part, Part], ...]] = (
    (SHARED, "", partial(_run_shared, copies=False), write_shared, look_shared),
    (SHARED_COPY, "", partial(_run_shared, copies=True), write_shared, look_shared),
    (IN_PLACE, SHARED, _run_alone, send_ipcbus, look_ipcbus),
    (SPINNING, SHARED, _run_alone, send_ipcbus, spin_ipcbus),
    (MADE_IN_PLACE, SHARED, _run_alone, write_ipcbus, look_ipcbus),
    (LEASED, SHARED, _run_alone, send_ipcbus, lease_ipcbus),
    (COPY, SHARED_COPY, _run_alone, send_ipcbus, copy_ipcbus),
    *([("pyzmq", "", _run_zmq, write_zmq, look_zmq)] if importlib.util.find_spec("zmq") else []),
    *(
        [("iceoryx2, polling", "", _run_alone, write_iceoryx2, look_iceoryx2)]
        if importlib.util.find_spec("iceoryx2")
        else []
    ),
)
"""The name of each way, the one that it has to be ahead of, what runs it, and its two parts."""


def _measure(way: tuple[Any, ...], size: int, in_flight: int, rate: int) -> Shared:
    _name, _beside, runs, write, look = way

    def measure(factor: float) -> dict[str, float]:
        frames = int((FRAMES_A_RUN if rate else BYTES_A_RUN // size) * factor)
        parts = [(write, 0), (look, 1)]
        found: list[Figures] = runs(parts, WARM_UP + max(20, frames), size, rate=rate, in_flight=in_flight)
        return found[1]

    return Shared(measure)


def _rows() -> list[Row]:
    rows = []
    for title, size, in_flight in SIZES:
        for rate in (0, *RATES):
            head = f"{title} at {rate}/s, p99: " if rate else f"{title}: "
            key, unit = ("p99", "ns") if rate else ("per_second", "msg/s")
            for way in _WAYS:
                name, beside, *_ = way
                limit, other = (1.0, head + beside) if beside else (None, "")
                measure = _measure(way, size, in_flight, rate).row(key)
                rows.append(Row(head + name, unit, limit, limit, rate > 0, measure, other, is_ratio=bool(beside)))
    return rows


FRAMES: Final = _rows()
