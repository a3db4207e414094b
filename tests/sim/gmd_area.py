"""Senders' areas on a disk that fails, from seeds: `python -m tests.sim.gmd_area [--seeds N] [--first N] [--seed N]`.

A seed draws some lives of an area. In each it is opened, saves, takes back, releases, notes, syncs and changes its
segments; calls fail, the disk is full, a sync fails; and the life ends in order, by SIGKILL or by a power loss, at any
operation. What the sender was told is the truth that the next life is held against:

- every message that was saved and not released is there after a kill, and, if it was synced, after a power loss;
- what is there is what was saved under this number, and no number is given to two messages;
- what a power loss took is named, and nothing is ever taken for damage.
"""

from __future__ import annotations

import dataclasses
import random
import sys
from typing import TYPE_CHECKING

from ipcbus.errors import GmdAreaFull, GmdError, StorageError, StorageFull
from ipcbus.gmd.delivery_modes import ALL, SOME
from tests.kit.disks import CutOff, FaultyDisk
from tests.kit.gmd_areas import opened, pending
from tests.sim import seeds

if TYPE_CHECKING:
    from ipcbus.gmd.file_area import FileArea


class Wrong(AssertionError):
    """An area broke its word."""


@dataclasses.dataclass
class World:
    """What a seed draws, and what is known of the area so far."""

    rng: random.Random
    disk: FaultyDisk
    saved: dict[int, bytes] = dataclasses.field(default_factory=dict)
    """What must be there."""
    maybe: dict[int, set[bytes]] = dataclasses.field(default_factory=dict)
    """What may be there too: the call had not returned, or its undoing had not."""
    released: set[int] = dataclasses.field(default_factory=set)
    tried: dict[int, set[bytes]] = dataclasses.field(default_factory=dict)
    """All values that a number was ever tried with."""
    synced: set[int] = dataclasses.field(default_factory=set)
    """Messages that a power loss must not take."""
    noted: int = 0
    """Notes that were written."""
    noted_maybe: int = 0
    noted_there: set[int] = dataclasses.field(default_factory=set)
    """Notes that must be there, or in the state that the last segment began with."""
    noted_synced: set[int] = dataclasses.field(default_factory=set)
    given: dict[int, bytes] = dataclasses.field(default_factory=dict)
    """The message that each number was given to, for ever: it may have been sent, wherever its copy is."""
    highest: int = 0
    """The highest number that a message was sent with."""
    values: int = 0
    lost_power: bool = False
    """Whether power was lost since the area was opened for the last time."""
    named: set[int] = dataclasses.field(default_factory=set)
    """Messages that were named as missing after a power loss."""
    lives: list[str] = dataclasses.field(default_factory=list)
    """What happened, for people."""


def run(seed: int) -> World:
    """Runs a seed.

    Raises:
        Wrong: the area broke its word.
    """
    rng = random.Random(seed)
    world = World(rng, FaultyDisk(rng))
    for _ in range(rng.randint(2, 5)):
        live(world)
    world.disk.cut_at = None
    area = opened(world.disk)
    settle(world, area)
    area.close()
    return world


def live(world: World) -> None:
    """One life of an area."""
    rng, disk = world.rng, world.disk
    disk.cut_at = disk.operations + rng.choice((rng.randint(1, 30), rng.randint(1, 200), 10_000))
    disk.fail_at = disk.calls + rng.choice((0, 0, rng.randint(1, 100)))
    disk.failure = rng.choice((StorageError, StorageFull))
    disk.room = rng.choice((None, None, disk.used() + rng.randint(200_000, 300_000)))
    durability = rng.choice(("process", "group", "each"))
    try:
        area = opened(disk, durability=durability, capacity=rng.choice((1 << 10, 1 << 12, 1 << 20)))
        try:
            settle(world, area)
            area.checkpoint = lambda: [b"state %d" % world.noted]
            for _ in range(rng.randint(0, 60)):
                act(world, area)
        finally:
            if not disk.cut_off:
                area.close()
        world.lives.append("closed in order")
        disk.fail_at = 0
    except GmdError as error:
        if disk.calls < disk.fail_at and not disk.sync_fails and not isinstance(error, GmdAreaFull):
            raise
        world.lives.append(f"error: {type(error).__name__}")
    except CutOff:
        world.lives.append("killed")
    disk.sync_fails, disk.fail_at, disk.room = False, 0, None
    if rng.random() < 0.4:
        world.disk = disk.lost_power()
        world.lives.append("lost power")
        world.lost_power = True
    else:
        world.disk = disk.killed()


def act(world: World, area: FileArea) -> None:
    """Something that a sender does."""
    rng, disk = world.rng, world.disk
    kind = rng.random()
    try:
        if kind < 0.5:
            save(world, area)
        elif kind < 0.6 and world.saved:
            release(world, area)
        elif kind < 0.7:
            world.noted_maybe = world.noted + 1
            area.note(b"note %d" % (world.noted + 1))
            world.noted += 1
            world.noted_there.add(world.noted)
        elif kind < 0.8:
            sync(world, area)
        elif kind < 0.82:
            disk.sync_fails = not disk.sync_fails
        elif kind < 0.9:
            there = pending(area)
            if there != world.saved:
                raise Wrong(f"while it lives, {sorted(there)} are there and not {sorted(world.saved)}")
        elif world.saved:
            number = rng.choice(list(world.saved))
            message = area.load(number)
            if message is None or message.data != world.saved[number]:
                raise Wrong(f"message {number} is {message}")
    except GmdAreaFull:
        world.lives.append("full")
    except GmdError:
        if area.refusal is None and not 0 < disk.fail_at <= disk.calls and not disk.sync_fails:
            raise


def save(world: World, area: FileArea) -> None:
    """Saves a message, and sometimes takes it back."""
    rng = world.rng
    world.values += 1
    number = area.last_number + 1
    data = b"%d:" % world.values + bytes(rng.choice((0, 1, 9, 40, 700, 5000)))
    block = bytes(rng.choice((0, 0, 16)))
    world.tried.setdefault(number, set()).add(data)
    maybe = world.maybe.setdefault(number, set())
    maybe.add(data)  # until `save` returns, and after a failed sync
    if area.save(rng.choice((SOME, ALL)), 0, world.values, block, data) != number:
        raise Wrong("the number is another one")
    if rng.random() < 0.1:
        area.unsave(number)
        maybe.discard(data)
        return
    if number in world.given:
        raise Wrong(f"number {number} is given to {data[:20]!r} after {world.given[number][:20]!r}; {world.lives}")
    world.given[number] = data
    world.saved[number] = data
    world.highest = max(world.highest, number)
    if area.durable_number >= number:
        world.synced.add(number)
    maybe.discard(data)


def release(world: World, area: FileArea) -> None:
    """Releases some messages."""
    first = world.rng.choice(list(world.saved))
    last = first + world.rng.choice((0, 0, 3, 1000))
    gone = {number for number in world.saved if first <= number <= last}
    for number in gone:
        world.maybe.setdefault(number, set()).add(world.saved.pop(number))
    world.synced -= gone
    world.released |= gone
    area.release(first, last)


def sync(world: World, area: FileArea) -> None:
    """Syncs what was saved."""
    area.sync()
    if area.durable_number < max(world.saved, default=0):
        raise Wrong("a sync left messages that are not durable")
    world.synced = set(world.saved)
    world.noted_synced = set(world.noted_there)


def settle(world: World, area: FileArea) -> None:
    """Holds an area that was opened against what its sender was told.

    Raises:
        Wrong: the area broke its word.
    """
    found = area.recovered()
    there = pending(area)
    named = {number for first, last in found.damage for number in range(first, last + 1)}
    for number, data in there.items():
        if data not in world.tried.get(number, ()):
            raise Wrong(f"message {number} was never saved as {data[:20]!r}")
    if {n for first, last in found.unreleased for n in range(first, last + 1)} != there.keys():
        raise Wrong(f"{found.unreleased} is not what is there")
    lost_power = world.lost_power
    must = world.saved if not lost_power else {number: world.saved[number] for number in world.synced}
    for number, data in must.items():
        if there.get(number) != data:
            raise Wrong(f"message {number} is {there.get(number, b'missing')[:20]!r}, not {data[:20]!r}; {world.lives}")
    if not lost_power:
        if not named <= world.named:
            raise Wrong(f"{named} are named as missing")
        if more := {
            number for number in there.keys() - must.keys() if there[number] not in world.maybe.get(number, ())
        }:
            raise Wrong(f"{more} came back; {world.lives}")
    elif silent := {number for number in world.saved.keys() - there.keys() - named if number < max(there, default=0)}:
        raise Wrong(f"{silent} are lost, and nothing says so")
    if area.last_number < world.highest:
        raise Wrong(f"number {world.highest} would be given again")
    check_notes(world, found.notes, lost_power=lost_power)
    world.named |= named
    world.saved, world.maybe = there, {}
    world.synced = set(there) if lost_power else world.synced & there.keys()
    world.lost_power = False
    world.highest = max(world.highest, *there, 0)


def check_notes(world: World, notes: list[bytes], *, lost_power: bool) -> None:
    """Holds the notes that were found against those that were written."""
    must = world.noted_synced if lost_power else world.noted_there
    found = set()
    for note in notes:
        kind, number = note.split()
        found |= set(range(1, int(number) + 1)) if kind == b"state" else {int(number)}
    if not must <= found or max(found, default=0) > max(world.noted, world.noted_maybe):
        raise Wrong(f"the notes are {sorted(found)}, but {sorted(must)} of {world.noted} must be there")
    world.noted = max(found, default=0)
    world.noted_there = found
    world.noted_synced = set(found) if lost_power else world.noted_synced & found


def replay(seed: int) -> list[str]:
    """Runs a seed; returns what happened."""
    return run(seed).lives


def main() -> int:
    """Runs the seeds that were asked for."""
    return seeds.run_many("tests.sim.gmd_area", __doc__ or "", "areas", replay, every=1000)


if __name__ == "__main__":
    sys.exit(main())
