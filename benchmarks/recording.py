"""The recorder and the player: how fast they are, and what a recorder costs who sends."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import ipcbus
from benchmarks import scenarios
from benchmarks.pairs import Station, run
from benchmarks.rows import IPC, SMX, Row
from ipcbus.archive import Archive, Limits
from ipcbus.archive.archive_layout import ROW
from ipcbus.archive.player import Player
from ipcbus.archive.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.pairs import Figures, Part

_LOOK_S = 0.002
_PACE = 2_000_000
_SLICE = 2_000


def record(station: Station) -> Figures:
    """A recorder with the options of `ipcbus record`; times from its first message to the last one that is written."""
    with ipcbus.Context({"context": scenarios.PEND}, domain=station.domain) as context:
        archive = Archive.create(station.options["archive"])
        recorder = Recorder(context, archive, [scenarios.TOPIC], when_full=station.options.get("when_full", "drop"))
        with recorder:
            while not context._sessions_of(recorder._receivers[0]._subscription):
                time.sleep(_LOOK_S)
            station.ready()
            begin = 0.0
            while (found := recorder.stats).messages + found.dropped < station.messages:
                if not begin and found.buffered_bytes > ROW.itemsize:  # more than the beginning of the session
                    begin = time.perf_counter()
                time.sleep(_LOOK_S)
            seconds = time.perf_counter() - begin
    return {"per_second": found.messages / seconds, "dropped": found.dropped}


def send_paced(station: Station) -> Figures:
    """`send`, `_PACE` messages a second."""
    payload = b"x" * station.size
    with scenarios._context(station) as context:
        source = scenarios._source(context, station)
        source.wait_for_receivers(1, 30)
        station.ready()
        begin = time.perf_counter()
        for sent in range(0, station.messages, _SLICE):
            while time.perf_counter() < begin + sent / _PACE:
                pass
            for _ in range(_SLICE):
                source.send(payload)
        source.flush()
        scenarios._until_read(source)
    return {}


def play(station: Station) -> Figures:
    """A player at full speed."""
    with ipcbus.Context({"context": scenarios.SPIN}, domain=station.domain) as context:
        player = Player(Archive(station.options["archive"]), context, speed=0, transport="lbtipc")
        for source in player.sources:
            source.wait_for_receivers(1, 30)
        station.ready()
        player.play()
        scenarios._until_read(player.sources[0])
    return {}


def _made(directory: str, messages: int, size: int) -> None:
    """An archive of messages of one length."""
    rows = np.zeros(min(messages, 50_000), ROW)
    rows["length"], rows["numbers"] = size, 1
    rows["position"] = np.arange(len(rows), dtype=np.uint32) * size
    data = bytes(len(rows) * size)
    with Archive.create(directory).writer("made", limits=Limits(sync="never")) as writer:
        rows["topic"], rows["session"] = writer.topic(scenarios.TOPIC), writer.session("made")
        for _ in range(messages // len(rows)):
            writer.append(rows, data)


def _in_archive(parts: Sequence[tuple[Part, int]], messages: int, size: int = 64, **options: object) -> list[Figures]:
    """Runs the parts with an archive of their own on the disk that holds temporary files."""
    with tempfile.TemporaryDirectory(prefix="ipcbus-bench-") as directory:
        return run(parts, messages, size, archive=str(Path(directory) / "archive"), **options)


def _recorded(
    messages: int, source: dict[str, str | int], size: int = 64, *, unit: int = 1
) -> Callable[[float], float]:
    def measure(factor: float) -> float:
        parts = [(scenarios.send_each, 0), (record, 1)]
        found = _in_archive(parts, int(messages * factor), size, source=source, when_full="wait")
        return found[1]["per_second"] * unit

    return measure


def _dropped(factor: float) -> float:
    messages = int(6_000_000 * factor) // _SLICE * _SLICE
    return _in_archive([(send_paced, 0), (record, 1)], messages, source=IPC)[1]["dropped"]


def _sent(receiver: Part) -> Callable[[float], float]:
    """Messages a second of a source as fast as it goes; a recorder notes as lost what the disk does not take."""

    def measure(factor: float) -> float:
        messages = int(3_000_000 * factor)
        found = _in_archive([(scenarios.send_each, 0), (receiver, 1)], messages, source=IPC)
        return messages / found[0]["send_seconds"]

    return measure


def _burst(*receivers: Part) -> float:
    """Ns a send while all have room."""
    parts = [(scenarios.send_bursts, 0), *((each, 1) for each in receivers)]
    found = _in_archive(parts, 200_000, source=SMX, burst=2000, receivers=len(receivers))
    return found[0]["ns_per_send"]


def _cost(factor: float) -> float:
    del factor
    receiver = scenarios.count_in_callback
    pairs = [(_burst(receiver), _burst(receiver, record)) for _ in range(3)]
    return 100 * (statistics.median(both / alone for alone, both in pairs) - 1)


def _replayed(factor: float) -> float:
    messages = int(3_000_000 * factor) // 50_000 * 50_000
    with tempfile.TemporaryDirectory(prefix="ipcbus-bench-") as directory:
        archive = str(Path(directory) / "archive")
        _made(archive, messages, 64)
        return run([(play, 0), (scenarios.count_in_callback, 1)], messages, 64, archive=archive)[1]["per_second"]


RECORDING = [
    Row("recorder, LBT-IPC batching, lossless", "msg/s", 2e6, 4e6, False, _recorded(5_000_000, IPC)),
    Row("recorder, LBT-SMX, lossless", "msg/s", 2e6, 4e6, False, _recorded(5_000_000, SMX)),
    Row("recorder, 4 KiB messages, lossless", "B/s", None, None, False, _recorded(200_000, IPC, 4096, unit=4096)),
    Row("recorder at 2 M msg/s: not recorded", "msg", 0, 0, True, _dropped),
    Row("recorder beside a receiver: cost of a send", "%", 5, 1, True, _cost),
    Row("send -> one receiver", "msg/s", None, None, False, _sent(scenarios.count_in_callback)),
    Row("send -> one recorder that may drop", "msg/s", None, None, False, _sent(record), beside="send -> one receiver"),
    Row("player at full speed -> callback", "msg/s", None, None, False, _replayed),
]
"""Archives lie where temporary files do (TMPDIR); a recorder has one processor for its two threads and the system's.

Beside a source, a receiver and a recorder would have to share the other processor of two, so what both together cost is
measured in bursts that fit the ring, as is the cost of a second receiver.
"""
