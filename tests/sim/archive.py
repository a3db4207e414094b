"""Archives on a disk that fails, from seeds: `python -m tests.sim.archive [--seeds N] [--first N]`, or one: `--seed N`.

A seed draws some lives of a writer. In each it opens the log, appends, syncs, rolls, removes, and is cut off at any
operation: by SIGKILL, or by a power loss. What readers could have seen until then is the truth that the next life is
held against:

- everything that was published survives a kill, and what was synced a power loss, unless retention took it;
- what is read is what was appended, under the topic it was appended for;
- no offset means two different rows, ever, and what is lost is told as a hole;
- recovery may be cut off too, and done again it changes nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from ipcbus.archive import Archive, Limits, log_writer
from ipcbus.errors import ArchiveError, StorageError, StorageFull
from ipcbus.storage.files import FileMissing
from tests.kit.archives import made
from tests.kit.disks import CutOff, FaultyDisk
from tests.sim import seeds

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.archive import Log, LogWriter

ROOT = Path("/archive")
STREAM = "host"
PART = 100

Row = tuple[str, bytes]


class Wrong(AssertionError):
    """An archive broke its word."""


@dataclasses.dataclass
class World:
    """What a seed draws, and what is known of the archive so far."""

    rng: random.Random
    disk: FaultyDisk
    tried: dict[int, list[Row]] = dataclasses.field(default_factory=dict)
    """By offset, all that somebody wanted to write there."""
    shown: dict[int, Row] = dataclasses.field(default_factory=dict)
    """By offset, what readers could have seen."""
    end: int = 0
    """The offset after the last that readers could have been told of."""
    synced: int = 0
    """Offsets before this one were synced."""
    alive: set[int] = dataclasses.field(default_factory=set)
    """Offsets that were read when somebody looked last."""
    removing: bool = False
    """Whether retention may have removed segments."""
    made: int = 0
    """Values so far."""
    lives: list[str] = dataclasses.field(default_factory=list)
    """What happened, for people."""


def run(seed: int) -> World:
    """Runs a seed.

    Raises:
        Wrong: the archive broke its word.
    """
    rng = random.Random(seed)
    world = World(rng, FaultyDisk(rng))
    # So few that rows come to the end of what is reserved.
    with mock.patch.object(log_writer, "RESERVE_MIN", rng.choice((8, 1 << 16))):
        for _ in range(rng.randint(2, 4)):
            live(world)
            settle(world)
    return world


def live(world: World) -> None:
    """One life of a writer, until it is cut off, or closes in order."""
    rng, disk = world.rng, world.disk
    disk.cut_at = disk.operations + rng.choice((rng.randint(1, 40), rng.randint(1, 120), 10_000))
    limits = Limits(
        segment_bytes=rng.choice((4096, 1 << 20)),
        retain_bytes=rng.choice((None, 6000)),
        sync=rng.choice(("interval", "always", "never")),
        sync_seconds=rng.choice((0.0, 1e9)),
    )
    try:
        with Archive.create(ROOT, files=disk).writer(STREAM, limits=limits) as writer:
            for _ in range(rng.randint(0, 20)):
                act(world, writer)
            synced = writer.next_offset
        world.synced = synced
        world.lives.append("closed in order")
    except StorageError:
        if not disk.sync_fails:
            raise
        disk.sync_fails = False
        world.lives.append("gave up when it could not sync")
    except CutOff:
        disk.sync_fails = False
        world.lives.append(f"cut off at operation {disk.cut_at}")


def act(world: World, writer: LogWriter) -> None:
    """Something that a writer does."""
    rng = world.rng
    kind = rng.random()
    if kind < 0.7:
        append(world, writer)
    elif kind < 0.8:
        writer.sync()
        world.synced = writer.next_offset
    elif kind < 0.87:
        writer.roll()
    elif kind < 0.94:
        world.removing = True
        writer.retain(0)
    elif kind > 0.99:
        world.disk.sync_fails = True
    else:
        world.disk.room = world.disk.used() + rng.randint(0, 300)
        append(world, writer)
        world.disk.room = None


def append(world: World, writer: LogWriter) -> None:
    """Appends some rows; where there is no room, nothing of them may be there."""
    rng = world.rng
    topic = f"topic {rng.randint(0, 5)}"
    values = []
    for _ in range(rng.choice((1, 1, 5, 30))):
        world.made += 1
        values.append(f"{topic} {world.made}".encode() + b"x" * rng.choice((0, 3, 100)))
    first = writer.next_offset
    for offset, value in enumerate(values, first):
        world.tried.setdefault(offset, []).append((topic, value))
    try:
        rows = made(values, topic=writer.topic(topic), session=writer.session("s"), first=first)
        if writer.append(*rows) != first:
            raise Wrong(f"rows that should be at {first} are elsewhere")
    except StorageFull:
        if writer.next_offset != first or writer.log.bounds()[1] != first:
            raise Wrong(f"there was no room, but {first} was given") from None
        for offset in range(first, first + len(values)):
            world.tried[offset].pop()


def settle(world: World) -> None:
    """What the next process finds is looked at, mended, looked at again, and mended again."""
    rng = world.rng
    look(world, world.disk.killed(), "before it was mended")
    disk, power = next_disk(world, world.disk)
    glance(world, disk)
    while rng.random() < 0.3:  # the one that mends it is cut off too
        disk.cut_at = disk.operations + rng.randint(1, 15)
        try:
            Archive.create(ROOT, files=disk).writer(STREAM).close()
        except CutOff:
            world.lives[-1] += ", mending cut off"
        disk, lost = next_disk(world, disk)
        power = power or lost
    if not power:
        world.synced = world.end  # all of it survives
    with Archive.create(ROOT, files=disk).writer(STREAM) as writer:
        if writer.next_offset < world.end:
            raise Wrong(f"offset {writer.next_offset} is given again, {world.end} were known")
    found = look(world, disk, "after it was mended")
    again = disk.killed()
    with Archive.create(ROOT, files=again).writer(STREAM) as writer:
        if writer.next_offset != world.end or writer.recovered.hole or writer.recovered.cut_bytes:
            raise Wrong(f"mending a mended log changes it: {writer.recovered}")
    if look(world, again, "after it was mended twice") != found:
        raise Wrong("mending a mended log changes what is read")
    world.disk = disk
    world.synced = world.end


def next_disk(world: World, disk: FaultyDisk) -> tuple[FaultyDisk, bool]:
    """What a process finds after one that was killed, or after a power loss; which of both it was."""
    lost = world.rng.random() < 0.5
    world.lives[-1] += ", power lost" if lost else ", killed"
    return disk.lost_power() if lost else disk.killed(), lost


def look(world: World, disk: FaultyDisk, when: str) -> dict[int, Row]:
    """Reads all that there is, holds it against what is known, and learns what is new."""
    found: dict[int, Row] = {}
    holes: list[int] = []
    archive = Archive.create(ROOT, files=disk)
    logs = archive.logs()
    if not logs:
        if world.shown:
            raise Wrong(f"{when} the log is gone")
        return found
    (log,) = logs
    first, end = log.bounds()
    read(log, first, end, found, holes)
    if len(found) + sum(holes) != end - first:
        raise Wrong(f"{when} {end - first} offsets are kept, {len(found)} are read and {sum(holes)} told as lost")
    for offset, row in found.items():
        if row not in world.tried.get(offset, []):
            raise Wrong(f"{when} offset {offset} is {row}, appended were {world.tried.get(offset)}")
        if world.shown.get(offset, row) != row:
            raise Wrong(f"{when} offset {offset} is {row}, it was {world.shown[offset]}")
    kept = first if world.removing else 0
    missing = sorted(offset for offset in world.alive if kept <= offset < world.synced and offset not in found)
    if missing:
        raise Wrong(f"{when} offsets {missing[:5]} are missing, everything before {world.synced} was synced")
    world.alive = set(found)
    world.shown |= found
    world.end = max(world.end, end)
    return found


def glance(world: World, disk: FaultyDisk) -> None:
    """Reads what a crash left before anybody mends it: what can be read is right, all else a typed error."""
    found: dict[int, Row] = {}
    try:
        for log in Archive(ROOT, files=disk.killed()).logs():
            first, end = log.bounds()
            read(log, first, min(end, max(first, world.end)), found, [], lambda *_: None)
    except (ArchiveError, FileMissing):
        world.lives[-1] += ", not readable"
    for offset, row in found.items():
        if row not in world.tried.get(offset, []) or world.shown.get(offset, row) != row:
            raise Wrong(f"before it was mended, offset {offset} is {row}")


def read(
    log: Log,
    first: int,
    end: int,
    found: dict[int, Row],
    holes: list[int],
    on_damage: Callable[[int, int, str], None] | None = None,
) -> None:
    """Reads rows; damage is an error, unless it is told somebody."""
    topics = log.topics()

    def hole(start: int, stop: int) -> None:
        holes.append(stop - start)

    for chunk in log.read(first, end, on_hole=hole, on_damage=on_damage):
        data = chunk.data.tobytes()
        columns = (chunk.rows[name].tolist() for name in ("position", "length", "topic"))
        for offset, (position, length, topic) in enumerate(zip(*columns, strict=True), chunk.offset):
            at = position - chunk.data_start
            found[offset] = topics[topic], data[at : at + length]


def main() -> int:
    """Runs many; tells of every seed that fails."""
    asked = seeds.arguments("tests.sim.archive", "Archives on a disk that fails.", shows="what happened")
    if asked.seed is not None:
        world = run(asked.seed)
        print(*world.lives, f"{world.made} values, offsets up to {world.end}", sep="\n")
        return 0
    began = time.monotonic()
    failures: list[tuple[int, str]] = []
    with ProcessPoolExecutor(asked.processes, multiprocessing.get_context("spawn")) as pool:
        for failed in pool.map(functools.partial(seeds.attempt, run), seeds.parts(asked, PART)):
            failures += failed
    for seed, why in failures[:5]:
        print(f"seed {seed} fails; replay it with: python -m tests.sim.archive --seed {seed}\n{why}")
    print(f"{asked.seeds} seeds, {len(failures)} failed, {time.monotonic() - began:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
