"""Senders' areas whose processes are killed, and areas on a disk that is full, in real files."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest

from ipcbus.errors import GmdAreaFull, GmdAreaLocked
from ipcbus.gmd.acknowledgement_file import FileReceiverArea
from ipcbus.gmd.area_identity import AreaIdentity
from ipcbus.gmd.delivery_modes import ALL
from ipcbus.storage.files import Disk
from ipcbus.storage.locks import UNKNOWN
from tests.kit.gmd_areas import opened, pending, save, value
from tests.kit.killing import KillingDisk, Steps
from tests.rings.children import Children
from tests.rings.systems import in_small_shm

SIZE = 2 << 20


class Notebook:
    """Memory that a child writes and its parent reads, also after the child's end.

    A number is written by one instruction. `struct.pack_into` clears its place first: a kill after that left a zero.
    """

    def __init__(self) -> None:
        self._numbers = memoryview(mmap.mmap(-1, 4096)).cast("Q")

    def __setitem__(self, place: int, number: int) -> None:
        self._numbers[place] = number

    def __getitem__(self, place: int) -> int:
        return self._numbers[place]


SAVED, TRYING, RELEASED, RELEASING, STEPS = range(5)
MESSAGES = 15


def work(folder: Path, notebook: Notebook, kill_at: int, durability: str) -> None:
    """Saves, takes back, releases, syncs, and changes its segments, with one message that nobody acknowledges."""
    steps = Steps(kill_at, lambda number, _: notebook.__setitem__(STEPS, number))
    area = opened(KillingDisk(steps), folder, durability=durability, capacity=1 << 10)
    for number in range(1, MESSAGES + 1):
        notebook[TRYING] = number
        save(area, number)
        if number % 6 == 0:
            area.unsave(number)
            save(area, number)
        notebook[SAVED] = number
        if number > 3:
            notebook[RELEASING] = number - 2
            area.release(number - 2, number - 2)
            notebook[RELEASED] = number - 2
        if number % 7 == 0:
            area.note(b"note")
            area.sync()
    area.close()


def settle(folder: Path, notebook: Notebook) -> None:
    """Holds what a killed process left against what it has noted."""
    area = opened(Disk(), folder, capacity=1 << 10)
    there = pending(area)
    assert area.recovered().damage == []
    saved, trying = set(range(1, notebook[SAVED] + 1)), notebook[TRYING]
    released = set(range(2, notebook[RELEASED] + 1))
    maybe = {trying, notebook[RELEASING]} - {0}
    assert saved - released - maybe <= there.keys() <= saved | maybe
    assert there == {number: value(number) for number in there}
    assert area.last_number in (notebook[SAVED], trying)
    area.close()


@pytest.mark.parametrize("durability", ["process", "each"])
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
def test_kills_at_each_step(tmp_path: Path, durability: str, every: int) -> None:
    for kill_at in itertools.count(1, every):
        notebook = Notebook()
        folder = tmp_path / str(kill_at)
        with Children() as children:
            status = children.run(work, folder, notebook, kill_at, durability).wait()
        settle(folder, notebook)
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert notebook[STEPS] < kill_at
    assert kill_at > 120


def save_for_ever(folder: Path, notebook: Notebook) -> None:
    """Saves as fast as it can, and releases what is more than a hundred messages old."""
    area = opened(Disk(), folder, capacity=1 << 16)
    for number in itertools.count(area.last_number + 1):
        notebook[TRYING] = number
        save(area, number)
        notebook[SAVED] = number
        if number % 50 == 0 and number > 200:
            notebook[RELEASING] = number - 100
            area.release(1, number - 100)
            notebook[RELEASED] = number - 100


def kills(folder: Path, count: int) -> None:
    """Kills a sender at random moments, and opens its area after each."""
    notebook, seen = Notebook(), 0
    for _ in range(count):
        with Children() as children:
            child = children.run(save_for_ever, folder, notebook)
            begun = notebook[SAVED]
            while notebook[SAVED] < begun + 1 + 37 * (seen % 100):
                os.sched_yield()
            child.kill()
            child.wait()
        area = opened(Disk(), folder)
        there = pending(area)
        assert area.recovered().damage == []
        assert set(range(notebook[RELEASING] + 1, notebook[SAVED] + 1)) <= there.keys()
        assert there.keys() <= set(range(notebook[RELEASED] + 1 - 64 * 50, notebook[TRYING] + 1))
        assert there == {number: value(number) for number in there}
        assert area.last_number in (notebook[SAVED], notebook[TRYING])
        seen = area.last_number
        notebook[SAVED] = notebook[TRYING] = seen
        area.close()


def test_random_kills(tmp_path: Path) -> None:
    kills(tmp_path, 25)


@pytest.mark.long
def test_a_thousand_random_kills(tmp_path: Path) -> None:
    kills(tmp_path, 1000)


def fill() -> list[Any]:
    """Fills an area until its disk, of 2 MiB, is full; notes, drains, and goes on."""
    if not in_small_shm(SIZE):
        return []
    folder = Path("/dev/shm/area")
    area = opened(Disk(), folder)
    rounds = []
    for _ in range(3):
        first = area.last_number + 1
        with contextlib.suppress(GmdAreaFull):
            while True:
                area.save(ALL, 0, 0, b"", bytes(200))
        last = area.last_number
        for _ in range(300):
            area.note(b"an acknowledgement")
        # The first half is acknowledged in order, but for one message.
        for number in range(first, last + 1):
            if number != first + 5:
                area.release(number, number)
        noted = area.pending
        saved = area.save(ALL, 0, 0, b"", bytes(200))
        area.close()
        area = opened(Disk(), folder)
        rounds.append((last - first, noted, saved - last, sorted(pending(area)), area.recovered().damage))
        area.release(1, saved)
    area.close()
    return rounds


def test_a_full_disk_takes_notes_and_drains() -> None:
    with Children() as children:
        rounds = children.run(fill).result()
    if not rounds:
        pytest.skip("a process cannot have a small /dev/shm here")
    first = 1
    for count, noted, more, there, damage in rounds:
        assert count > 5000
        assert (noted, more, damage) == (1, 1, [])
        assert there == [first + 5, first + count + 1]
        first += count + 2


def fill_and_release_one_by_one() -> list[int]:
    """Fills an area until its disk is full; each release is a record of its own, and there are many notes."""
    if not in_small_shm(SIZE):
        return []
    folder = Path("/dev/shm/area")
    area = opened(Disk(), folder)
    counts = []
    for _ in range(3):
        area.checkpoint = lambda: [b"the state"]
        first = area.last_number + 1
        with contextlib.suppress(GmdAreaFull):
            while True:
                area.save(ALL, 0, 0, b"", bytes(100))
        last = area.last_number
        for start in (first, first + 1):
            for number in range(start, last + 1, 2):
                area.release(number, number)
                with contextlib.suppress(GmdAreaFull):
                    area.note(b"an acknowledgement")
        assert area.save(ALL, 0, 0, b"", b"goes on") == last + 1
        counts.append(last - first)
        area.close()
        area = opened(Disk(), folder)
        assert pending(area) == {last + 1: b"goes on"}
        area.release(last + 1, last + 1)
    area.close()
    return counts


def test_a_full_disk_drains_when_the_room_for_notes_is_used_up() -> None:
    with Children() as children:
        counts = children.run(fill_and_release_one_by_one).result()
    if not counts:
        pytest.skip("a process cannot have a small /dev/shm here")
    assert min(counts) > 8_000


RECEIVER = AreaIdentity("settlement", "orders", "default")


def fill_all() -> None:
    """Fills an area and the rest of the disk, beside a receiver's area, and ends without closing them."""
    FileReceiverArea.open(Disk(), Path("/dev/shm/receiver"), RECEIVER).record("gateway", 1, 0, [])
    area = opened(Disk(), Path("/dev/shm/area"))
    with contextlib.suppress(GmdAreaFull):
        while True:
            area.save(ALL, 0, 0, b"", bytes(200))
    with Path("/dev/shm/others").open("wb", 0) as others, contextlib.suppress(OSError):
        while True:
            others.write(bytes(64))


def note_and_acknowledge(life: int) -> int:
    """What both sides do first after a start; ends without closing the areas. Returns the last number."""
    area = opened(Disk(), Path("/dev/shm/area"), durability=("process", "each")[life % 2])
    area.note(b"a registration")
    agent = Disk().lock(Path("/dev/shm/agent"))
    assert agent is not None
    assert life or Disk().holder(Path("/dev/shm/agent")) == UNKNOWN  # the disk has no room for its text
    receiver = FileReceiverArea.open(Disk(), Path("/dev/shm/receiver"), RECEIVER)
    assert receiver.known("gateway", 1).floor == 20 * life
    for number in range(20):
        receiver.record("gateway", 1, 20 * life + number + 1, [])
    return area.last_number


def drain() -> list[int]:
    """Acknowledges all but the last message; returns the numbers of those that are pending when sending goes on."""
    area = opened(Disk(), Path("/dev/shm/area"))
    for number in range(1, area.last_number):
        area.release(number, number)
    area.save(ALL, 0, 0, b"", b"goes on")
    assert area.recovered().damage == []
    return sorted(pending(area))


def lives_on_a_full_disk(lives: int) -> tuple[int, list[int]] | None:
    """Lets one process after the other die beside a full disk."""
    if not in_small_shm(SIZE):
        return None
    last = 0
    with Children() as children:
        children.run(fill_all).result()
        for life in range(lives):
            last = children.run(note_and_acknowledge, life).result()
        return last, children.run(drain).result()


@pytest.mark.parametrize("lives", [3, *(pytest.param(lives, marks=pytest.mark.long) for lives in (0, 1, 2, 10))])
def test_a_full_disk_drains_after_kills(lives: int) -> None:
    with Children() as children:
        found = children.run(lives_on_a_full_disk, lives).result()
    if found is None:
        pytest.skip("a process cannot have a small /dev/shm here")
    last, there = found
    assert len(there) == 2
    assert there[0] > 5000
    assert there == [last or there[0], there[0] + 1]


def limited(folder: Path) -> list[Any]:
    """Saves where the system lets no file grow beyond 100 kB: a write that does not fit is done in part."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    area = opened(Disk(), folder)
    area.save(ALL, 0, 0, b"", b"first")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, limit))
    with contextlib.suppress(GmdAreaFull):
        while True:
            area.save(ALL, 0, 0, b"", bytes(1000))
    last = area.last_number
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    area.save(ALL, 0, 0, b"", b"more")
    area.close()
    area = opened(Disk(), folder)
    found = [last, area.last_number, area.pending, area.recovered().damage, area.load(last + 1)]
    area.close()
    return found


def test_a_short_write_leaves_nothing(tmp_path: Path) -> None:
    with Children() as children:
        last, number, count, damage, message = children.run(limited, tmp_path).result()
    assert last > 10
    assert (number, count, damage) == (last + 1, last + 1, [])
    assert message is not None
    assert message.data == b"more"


def hold(folder: Path, notebook: Notebook) -> None:
    """Opens an area and keeps it."""
    area = opened(Disk(), folder)
    notebook[SAVED] = save(area, 1)
    signal.pause()


def test_a_dead_owner_does_not_block(tmp_path: Path) -> None:
    notebook = Notebook()
    with Children() as children:
        child = children.run(hold, tmp_path, notebook)
        while not notebook[SAVED]:
            os.sched_yield()
        with pytest.raises(GmdAreaLocked, match=f"in use by pid {child.pid} on "):
            opened(Disk(), tmp_path)
        child.kill()
        child.wait()
    area = opened(Disk(), tmp_path)
    assert pending(area) == {1: value(1)}
    area.close()


def soak(folder: Path) -> tuple[int, int, int]:
    """Saves and releases half a million messages, but one; returns growth of memory, and bytes of memory and disk."""
    area = opened(Disk(), folder, capacity=1 << 20)
    sizes = []
    for part in range(2):
        for number in range(1 + part * 250_000, 250_001 + part * 250_000):
            save(area, number)
            if number > 100:
                area.release(number - 99, number - 99)
        sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * 4096)
    disk = sum(path.stat().st_size for path in folder.iterdir())
    assert pending(area).keys() == {1, *range(499_902, 500_001)}
    area.close()
    return sizes[1] - sizes[0], area.index.count, disk


def test_one_late_acknowledgement_costs_no_memory_and_no_disk(tmp_path: Path) -> None:
    with Children() as children:
        growth, count, disk = children.run(soak, tmp_path).result()
    assert count == 100
    assert growth < 4 << 20
    assert disk < 4 << 20
