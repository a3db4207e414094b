"""Large archives of made-up traffic, of which it is known what an audit has to find."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

import numpy as np

from ipcbus import MessageType
from ipcbus.archive import Archive, Limits
from ipcbus.archive.archive_layout import ROW, TYPE_LOSS_RECORDER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from ipcbus.archive import LogWriter

    Numbers = NDArray[np.int64]
    Rows = NDArray[np.void]

BEGIN_NS: Final = 1_723_161_255_000_000_000
CHUNK: Final = 1 << 20

_BETWEEN_NS: Final = 2_000
_NEAR: Final = 16
"""Nothing is planted so near to the first and last message of a topic in a chunk, or to something else."""


@dataclass
class Truth:
    """What was written, all in all; losses, missing, duplicates and late ones in sequence numbers."""

    messages: int = 0
    bytes: int = 0
    numbers: int = 0
    lost_bus: int = 0
    lost_recorder: int = 0
    missing: int = 0
    duplicates: int = 0
    late: int = 0
    unstamped: int = 0
    negative: int = 0

    def add(self, other: Truth) -> None:
        """Adds what another part holds."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass
class Traffic:
    """What is written.

    Attributes:
        rows: messages, about.
        topics: how many; the first ones are the busiest (Zipf).
        sessions: how many, with all topics each.
        payload: bytes of a message.
        disturbances: how many of each kind (losses by the bus and by the recorder, missing, twice, late) are planted
            in a million rows.
        seed: draws everything.
    """

    rows: int
    topics: int = 50
    sessions: int = 8
    payload: int = 32
    disturbances: int = 100
    seed: int = 0
    truth: Truth = field(default_factory=Truth, init=False)

    def write(self, path: Path, progress: Callable[[int], None] = lambda rows: None) -> Truth:
        """Writes an archive; `progress` is told how many rows are there."""
        dice = np.random.default_rng(self.seed)
        with Archive.create(path).writer("traffic", limits=Limits(segment_seconds=1e9)) as writer:
            numbers = Numbering(self, writer)
            writer.append(*numbers.begins())
            done = 0
            while done < self.rows:
                count = min(CHUNK, self.rows - done)
                rows, truth = numbers.chunk(dice, count)
                rows["position"] = np.cumsum(rows["length"]) - rows["length"]
                writer.append(rows, dice.bytes(int(rows["length"].sum())))
                self.truth.add(truth)
                done += count
                progress(done)
        return self.truth


class Numbering:
    """Numbers the messages of each session and topic, from chunk to chunk."""

    def __init__(self, traffic: Traffic, writer: LogWriter) -> None:
        """Names topics and sessions."""
        self._traffic = traffic
        topics = [writer.topic(f"topic_{number:02}") for number in range(1, traffic.topics + 1)]
        sessions = [writer.session(f"LBT-IPC:{0x10000000 + number:x}:20001") for number in range(traffic.sessions)]
        self._topic, self._session = (each.ravel() for each in np.meshgrid(topics, sessions))
        weights = 1 / np.arange(1, traffic.topics + 1)
        self._weights = np.tile(weights / weights.sum() / traffic.sessions, traffic.sessions)
        self._next = np.zeros(len(self._topic), np.int64)
        self._time_ns = BEGIN_NS

    def begins(self) -> tuple[Rows, bytes]:
        """A row for the begin of each topic of each session."""
        rows = np.zeros(len(self._topic), ROW)
        rows["topic"], rows["session"], rows["type"], rows["numbers"] = self._topic, self._session, MessageType.BOS, 1
        rows["receive_ns"] = self._time_ns
        return rows, b""

    def chunk(self, dice: np.random.Generator, count: int) -> tuple[Rows, Truth]:
        """So many rows, of which some are disturbed."""
        key = np.sort(dice.choice(len(self._weights), count, p=self._weights))
        rows = np.zeros(count, ROW)
        rows["topic"], rows["session"] = self._topic[key], self._session[key]
        rows["length"] = self._traffic.payload
        rows["numbers"] = np.where(dice.random(count) < 0.001, dice.integers(2, 9, count), 1)
        planted = self._planted(dice, key)
        for kind, where in zip((MessageType.UNRECOVERABLE_LOSS_BURST, TYPE_LOSS_RECORDER), planted[:2], strict=True):
            rows["type"][where], rows["length"][where] = int(kind), 0
            rows["numbers"][where] = dice.integers(1, 30, len(where))
        rows["sequence"] = self._sequence(key, rows["numbers"].astype(np.int64))
        missing, again, late = planted[2:]
        numbers = rows["numbers"].astype(np.int64)
        # Each topic has random moments, in the order of its numbers.
        moment = dice.random(count)
        moment = moment[np.lexsort((moment, key))]
        moment[late], moment[late + 1] = moment[late + 1], moment[late]
        copies = np.ones(count, np.int64)
        copies[missing], copies[again] = 0, 2
        kept = np.repeat(np.arange(count), copies)
        mixed = rows[kept[np.argsort(moment[kept], kind="stable")]]
        self._stamp(dice, mixed)
        truth = _truth(mixed)
        truth.missing, truth.duplicates, truth.late = (int(numbers[where].sum()) for where in (missing, again, late))
        return mixed, truth

    def _planted(self, dice: np.random.Generator, key: Numbers) -> list[Numbers]:
        """Where to disturb, for each kind: rows far from each other and from the ends of their topic."""
        count = len(key)
        places = np.arange(_NEAR, count - _NEAR, 2 * _NEAR)
        inside = places[(key[places - _NEAR] == key[places]) & (key[places + _NEAR] == key[places])]
        each = min(len(inside) // 5, max(1, count * self._traffic.disturbances // 1_000_000))
        chosen = dice.permutation(inside)[: 5 * each]
        return [np.sort(part) for part in np.split(chosen, 5)]

    def _sequence(self, key: Numbers, numbers: Numbers) -> Numbers:
        """The last number of each row; rows are sorted by key."""
        ends = np.cumsum(numbers)
        first = np.searchsorted(key, np.arange(len(self._next)))
        past = np.searchsorted(key, np.arange(len(self._next)), side="right")
        before = np.concatenate([[0], ends])
        sequence: Numbers = self._next[key] + ends - before[first][key] - 1
        self._next += before[past] - before[first]
        return sequence

    def _stamp(self, dice: np.random.Generator, rows: Rows) -> None:
        count = len(rows)
        rows["receive_ns"] = self._time_ns + np.cumsum(dice.integers(1, 2 * _BETWEEN_NS, count))
        self._time_ns = int(rows["receive_ns"][-1])
        latency = dice.lognormal(8.5 + rows["topic"] % 5 / 4, 0.6).astype(np.int64)
        latency[dice.random(count) < 0.00005] *= -1
        rows["send_ns"] = np.where(dice.random(count) < 0.001, 0, rows["receive_ns"] - latency)


def _truth(rows: Rows) -> Truth:
    numbers = rows["numbers"].astype(np.int64)
    data = rows["type"] == MessageType.DATA
    latency = rows["receive_ns"] - rows["send_ns"]
    return Truth(
        messages=int(data.sum()),
        bytes=int(rows["length"].sum()),
        numbers=int(numbers[data].sum()),
        lost_bus=int(numbers[rows["type"] == MessageType.UNRECOVERABLE_LOSS_BURST].sum()),
        lost_recorder=int(numbers[rows["type"] == TYPE_LOSS_RECORDER].sum()),
        unstamped=int((data & (rows["send_ns"] == 0)).sum()),
        negative=int((data & (rows["send_ns"] != 0) & (latency < 0)).sum()),
    )
