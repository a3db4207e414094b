"""The tables of `python -m benchmarks`, in their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.asyncio_trips import ASYNCIO
from benchmarks.catching_up import CATCHING_UP
from benchmarks.form_rows import ASLEEP, FORMS, GROWING, ONE_THREAD, SPINNING
from benchmarks.frames import FRAMES
from benchmarks.guaranteed import GUARANTEED
from benchmarks.large import LARGE
from benchmarks.peers import PEER_ROWS
from benchmarks.queue_rows import QUEUES
from benchmarks.recording import RECORDING
from benchmarks.request_rows import REQUESTS
from benchmarks.rows import FAN_OUT, LARGE_64, NATIVE, PARKED, THROUGHPUT, TRIPS, Row
from benchmarks.starting import STARTING
from benchmarks.step_rows import STEPS
from benchmarks.tcp_rows import TCP_BACK_TO_BACK, TCP_RATES, TCP_TRIPS
from benchmarks.thread_rows import THREADS
from benchmarks.udp_rows import UDP
from benchmarks.work_queue import WORK_QUEUES


@dataclass(frozen=True, slots=True)
class Group:
    """A table.

    Attributes:
        key: its name in the marks of a page.
        title: what stands above it.
        rows: what it shows.
        note: what the ratio is to.
    """

    key: str
    title: str
    rows: list[Row]
    note: str = ""


MAIN: Final = [
    Group("limits", "Limits of this machine, in C", NATIVE),
    Group("one-thread", "One thread, LBT-SMX", [*ONE_THREAD, *GROWING], "to the row of one receiver"),
    Group("throughput", "Throughput, LBT-SMX unless said", [*THROUGHPUT, *FORMS], "to the ring in C"),
    Group("spinning", "Round trip, both sides spin", [*TRIPS, *SPINNING], "to the ring in C; p99: to the median"),
    Group("asleep", "Round trip, both sides asleep, default options", [*PARKED, *ASLEEP], "to the futex in C"),
    Group("asyncio", "Round trip of two asyncio programs", ASYNCIO, "to streams over a Unix socket"),
    Group("large", "Large messages", [*LARGE_64, *LARGE], "to memcpy in C; also 1.5 times a pipe"),
    Group("receivers", "Receivers that share a processor, or wait", FAN_OUT),
    Group("steps", "Steps of a message, one thread, LBT-SMX", STEPS),
]
"""What `python -m benchmarks` measures if it is asked for nothing else."""

PEERS: Final = Group("peers", "Other buses, `receive()` or its like on both sides", PEER_ROWS, "")
_OVER_TCP: Final = "to the faster of pyzmq, zenoh"
BESIDE_PEERS: Final = [
    PEERS,
    Group("tcp", "Over the network on loopback", TCP_RATES, _OVER_TCP),
    Group("tcp-asleep", "Round trip over the network, both asleep", TCP_TRIPS, _OVER_TCP),
    Group("tcp-back-to-back", "Round trip over the network, back to back", TCP_BACK_TO_BACK, "to pyzmq over TCP"),
]
"""With `--peers`."""
OTHERS: Final = [
    *BESIDE_PEERS,
    Group("threads", "Two threads that send, LBT-SMX, free-threaded Python", THREADS),
    Group("requests", "Requests and responses", REQUESTS),
    Group("queues", "A queue of objects between processes", QUEUES, "to multiprocessing.Queue"),
    Group("work-queues", "Jobs for workers", WORK_QUEUES, "to multiprocessing.Queue"),
    Group("late-join", "Messages sent before", CATCHING_UP),
    Group("starting", "Start of the command", STARTING),
    Group("recorder", "Recorder", RECORDING),
    Group("guaranteed", "Guaranteed delivery", GUARANTEED),
    Group("frames", "Frames of a camera", FRAMES, "to shared_memory and a Pipe"),
    Group("udp", "Over UDP", UDP, "to pyzmq over tcp"),
]
EVERY: Final = [*MAIN, *OTHERS]
BY_NAME: Final = {row.name: row for group in EVERY for row in group.rows}
if len(BY_NAME) != sum(len(group.rows) for group in EVERY):
    raise ValueError("two rows of the benchmarks have one name")


def picked(text: str, groups: list[Group]) -> list[Group]:
    """Returns the groups with the rows whose name, or whose group's title or key, contains the text."""
    found = []
    for group in groups:
        rows = [row for row in group.rows if text in row.name or text in group.title or text in group.key]
        if rows or (not group.rows and text in (group.key, group.title)):
            found.append(Group(group.key, group.title, rows, group.note))
    return found


def with_limits(rows: list[Row]) -> list[Row]:
    """Returns the rows, and before them those that stand beside them."""
    found: dict[str, Row] = {}

    def add(row: Row) -> None:
        for name in (row.beside, row.or_beside, row.also[0] if row.also else ""):
            if name and name not in found:
                add(BY_NAME[name])
        found[row.name] = row

    for row in rows:
        add(row)
    # The order of the tables: a row whose run gives the figures of others has to come before them.
    return [row for row in BY_NAME.values() if row.name in found]
