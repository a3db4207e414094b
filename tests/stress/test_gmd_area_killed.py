"""Senders' areas whose processes are killed, and areas on a disk that is full, in real files."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import resource
import signal
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ipcbus.errors import GmdAreaFull, GmdAreaLocked
from ipcbus.gmd.delivery_modes import ALL
from ipcbus.storage.files import Disk, DiskFile
from tests.kit.gmd_areas import opened, pending, save, value
from tests.rings.children import Children
from tests.rings.systems import in_small_shm

if TYPE_CHECKING:
    from typing_extensions import Buffer

SIZE = 2 << 20


class Notebook:
    """Memory that a child writes and its parent reads, also after the child's end."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 4096)

    def __setitem__(self, place: int, number: int) -> None:
        struct.pack_into("<Q", self._memory, 8 * place, number)

    def __getitem__(self, place: int) -> int:
        return int(struct.unpack_from("<Q", self._memory, 8 * place)[0])


SAVED, TRYING, RELEASED, RELEASING, STEPS = range(5)


class KillingFile(DiskFile):
    """A file whose process ends at a certain step."""

    disk: KillingDisk

    @property
    def descriptor(self) -> int:
        """Compiled code calls `write_at`."""
        return -1

    def write_at(self, offset: int, data: Buffer) -> None:
        self.disk.step()
        view = memoryview(data).cast("B")
        super().write_at(offset, view[: len(view) // 2])
        self.disk.step()
        super().write_at(offset, view)
        self.disk.step()

    def append(self, *pieces: Buffer) -> int:
        self.disk.step()
        return super().append(*pieces)

    def allocate(self, offset: int, length: int) -> None:
        self.disk.step()
        super().allocate(offset, length)

    def truncate(self, size: int) -> None:
        self.disk.step()
        super().truncate(size)
        self.disk.step()

    def sync(self) -> None:
        self.disk.step()
        super().sync()
        self.disk.step()


class KillingDisk(Disk):
    """Files whose process is killed before, in the middle of, or after each call that changes something."""

    def __init__(self, notebook: Notebook, kill_at: int) -> None:
        self._notebook, self._kill_at, self._steps = notebook, kill_at, 0

    def step(self) -> None:
        """Counts a step."""
        self._steps += 1
        self._notebook[STEPS] = self._steps
        if self._steps == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def open(self, path: Path, *, write: bool = False, create: bool = False, exclusive: bool = False) -> KillingFile:
        self.step()
        file = super().open(path, write=write, create=create, exclusive=exclusive)
        file.__class__ = KillingFile
        assert isinstance(file, KillingFile)
        file.disk = self
        return file

    def rename(self, old: Path, new: Path) -> None:
        self.step()
        super().rename(old, new)
        self.step()

    def remove(self, path: Path) -> None:
        self.step()
        super().remove(path)
        self.step()

    def sync_dir(self, path: Path) -> None:
        self.step()
        super().sync_dir(path)


def work(folder: Path, notebook: Notebook, kill_at: int, durability: str) -> None:
    """Saves, takes back, releases, syncs, and changes its segments, with one message that nobody acknowledges."""
    area = opened(KillingDisk(notebook, kill_at), folder, durability=durability, capacity=1 << 10)
    for number in range(1, 25):
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
def test_kills_at_each_step(tmp_path: Path, durability: str) -> None:
    for kill_at in itertools.count(1):
        notebook = Notebook()
        folder = tmp_path / str(kill_at)
        with Children() as children:
            status = children.run(work, folder, notebook, kill_at, durability).wait()
        settle(folder, notebook)
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert notebook[STEPS] < kill_at
    assert kill_at > 150


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
