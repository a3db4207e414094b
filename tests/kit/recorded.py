"""Rows as an archive gives them, with everything planted that an audit has to find; drawn from a seed."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ipcbus import MessageType
from ipcbus.archive.archive_layout import TYPE_LOSS_DAMAGE, TYPE_LOSS_RECORDER

if TYPE_CHECKING:
    from collections.abc import Iterable

Row = dict[str, Any]
Key = tuple[int, str, int, str]

BOS, DATA, EOS = int(MessageType.BOS), int(MessageType.DATA), int(MessageType.EOS)
LOSS, BURST = int(MessageType.UNRECOVERABLE_LOSS), int(MessageType.UNRECOVERABLE_LOSS_BURST)
COVERING = (DATA, LOSS, BURST, TYPE_LOSS_RECORDER)

SCHEMA = pa.schema(
    [
        *(("key", pa.binary()), ("value", pa.binary())),
        pa.field("topic", pa.string(), nullable=False),
        *(pa.field(name, pa.int32(), nullable=False) for name in ("partition",)),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
        *(pa.field(n, pa.int64(), nullable=False) for n in ("session", "seq", "publishTimeNs")),
        pa.field("batchWaitNs", pa.int64()),
        pa.field("receiveTimeNs", pa.int64(), nullable=False),
        *(pa.field(name, pa.int32(), nullable=False) for name in ("flags", "type")),
        pa.field("numbers", pa.int64(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
    ]
)

BEGIN_NS = 1_700_000_000_123_456_789


def table(rows: Iterable[Row]) -> pa.Table:
    """Rows as the data source gives them."""
    return pa.Table.from_pylist(list(rows), SCHEMA)


@dataclass
class Log:
    """What one recorder writes: the streams of several topics, mixed."""

    partition: int
    random: random.Random
    rows: list[Row] = field(default_factory=list)

    def add(self, source: str, topic: str, kind: int, seq: int, numbers: int = 1) -> None:
        """The next row."""
        offset = len(self.rows) * 1
        received = BEGIN_NS + offset * 1_000_003 + self.random.randrange(1000)
        latency = self.random.choice([0, self.random.randrange(1, 99), int(self.random.lognormvariate(9, 2)), -5])
        self.rows.append(
            {
                "value": bytes(self.random.randrange(40)) if kind == DATA else None,
                "topic": topic,
                "partition": self.partition,
                "offset": offset,
                "timestamp": received // 1000,
                "timestampType": 0,
                "session": 0 if not source else 1 + sum(source.encode()),
                "seq": seq,
                "publishTimeNs": 0 if self.random.random() < 0.05 else received - latency,
                "batchWaitNs": self.random.choice([None, 0, 16, int(self.random.lognormvariate(12, 3))]),
                "receiveTimeNs": received,
                "flags": 0,
                "type": kind,
                "numbers": numbers,
                "source": source,
            }
        )

    def interleave(self, streams: list[list[tuple[str, str, int, int, int]]]) -> None:
        """Adds the rows of several streams, each in its order."""
        left = [list(reversed(stream)) for stream in streams if stream]
        while left:
            stream = self.random.choice(left)
            self.add(*stream.pop())
            left = [each for each in left if each]


def drawn(seed: int) -> list[Row]:
    """What a recorder wrote in one run of the dice: the partition is the seed."""
    dice = random.Random(seed)
    log = Log(seed, dice)
    streams = [_stream(dice, f"LBT-IPC:{seed:x}:{session}", f"t{topic}") for session in (1, 2) for topic in (1, 2, 3)]
    log.interleave(streams)
    return log.rows


def _stream(dice: random.Random, source: str, topic: str) -> list[tuple[str, str, int, int, int]]:
    """One topic of one session; a third of them undisturbed."""
    found: list[tuple[str, str, int, int, int]] = []
    quiet = dice.random() < 0.34
    number = dice.choice([0, 0, 5000, 2**40])

    def add(kind: int, numbers: int = 1) -> None:
        nonlocal number
        number += numbers
        found.append((source, topic, kind, number - 1, numbers))

    if dice.random() < 0.9:
        found.append((source, topic, BOS, 0, 1))
    for _ in range(dice.randrange(60)):
        act = (
            ""
            if quiet
            else dice.choice([""] * 12 + ["lost", "burst", "full", "missing", "again", "swap", "away", "damage"])
        )
        if act == "lost":
            for _ in range(dice.randrange(1, 4)):
                add(LOSS)
        elif act in ("burst", "full"):
            add(BURST if act == "burst" else TYPE_LOSS_RECORDER, dice.randrange(1, 50))
        elif act == "missing":
            number += dice.randrange(1, 9)
        elif act == "again" and found:
            found.append(dice.choice(found))
        elif act == "swap" and len(found) > 3:
            found.append(found.pop(-dice.randrange(1, 4)))
        elif act == "away":
            number += dice.randrange(9)
            found.append((source, topic, BOS, 0, 1))
        elif act == "damage":
            found.append(("", "", TYPE_LOSS_DAMAGE, 0, dice.randrange(1, 5)))
            number += dice.randrange(3)
        add(DATA, dice.choice([1, 1, 1, 1, 1, 2, 7]))
    if dice.random() < 0.5:
        found.append((source, topic, EOS, number - 1, 1))
    return found


# ---------------------------------------------------------------------------- the audit, said naively


def account(rows: list[Row]) -> dict[Key, dict[str, Any]]:
    """What an audit has to say of rows: number by number, with sets and loops."""
    by_key: dict[Key, list[Row]] = defaultdict(list)
    damages: dict[int, list[int]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["partition"], row["offset"])):
        if row["type"] in (*COVERING, BOS, TYPE_LOSS_DAMAGE):
            by_key[row["partition"], row["source"], row["session"], row["topic"]].append(row)
        if row["type"] == TYPE_LOSS_DAMAGE:
            damages[row["partition"]].append(row["offset"])
    return {key: _account(found, damages[key[0]]) for key, found in by_key.items()}


def _account(rows: list[Row], damages: list[int]) -> dict[str, Any]:
    lost: Counter[str] = Counter()
    data: Counter[int] = Counter()
    all_of: Counter[int] = Counter()
    holders: list[tuple[int, int, int, int, int]] = []  # first, offset, last, run, type
    run = late = begins = messages = 0
    highest = None
    for row in rows:
        kind, numbers, last = row["type"], row["numbers"], row["seq"]
        if kind == BOS:
            run, begins = run + 1, begins + 1
        if kind in (LOSS, BURST):
            lost["lost_bus"] += numbers
        elif kind == TYPE_LOSS_RECORDER:
            lost["lost_recorder"] += numbers
        elif kind == TYPE_LOSS_DAMAGE:
            lost["lost_repair"] += numbers
        if kind not in COVERING:
            continue
        span = range(last - numbers + 1, last + 1)
        holders.append((span[0], row["offset"], last, run, kind))
        all_of.update(span)
        if kind == DATA:
            messages += 1
            late += sum(n not in data and highest is not None and n <= highest for n in span)
            data.update(span)
            highest = last if highest is None else max(highest, last)
    found: dict[str, Any] = {
        "first": min(all_of, default=None),
        "last": max(all_of, default=None),
        "messages": messages,
        "numbers": data.total(),
        **{name: lost[name] for name in ("lost_bus", "lost_recorder", "lost_repair")},
        **_holes(holders, damages),
        "duplicates": sum(n - 1 for n in data.values()),
        "late": late,
        "begins": begins,
    }
    found["contradicted"] = sum(n - 1 for n in all_of.values()) - found["duplicates"]
    found["gaps"] = _jumps([holder for holder in holders if holder[4] == DATA])
    found["verdict"] = _verdict(found)
    return found


def _holes(holders: list[tuple[int, int, int, int, int]], damages: list[int]) -> dict[str, int]:
    counts = {"missing": 0, "damaged": 0, "absent": 0}
    reached: tuple[int, int, int] | None = None  # last, run, offset
    for first, offset, last, run, _ in sorted(holders):
        if reached is not None and first > reached[0] + 1:
            between = any(min(reached[2], offset) < damage < max(reached[2], offset) for damage in damages)
            kind = "absent" if reached[1] != run else "damaged" if between else "missing"
            counts[kind] += first - reached[0] - 1
        reached = max(reached, (last, run, offset)) if reached else (last, run, offset)
    return counts


def _jumps(holders: list[tuple[int, int, int, int, int]]) -> int:
    found, reached = 0, None
    for first, offset, last, run, _ in sorted(holders):
        found += reached is not None and first > reached[0] + 1 and reached[1] == run
        reached = max(reached, (last, run, offset)) if reached else (last, run, offset)
    return found


def _verdict(found: dict[str, Any]) -> str:
    lost = found["lost_bus"] + found["lost_recorder"] + found["lost_repair"] + found["damaged"]
    for name, is_so in (
        ("missing", found["missing"]),
        ("lost", lost),
        ("absent", found["absent"]),
        ("duplicates", found["duplicates"]),
    ):
        if is_so:
            return name
    return "complete"
