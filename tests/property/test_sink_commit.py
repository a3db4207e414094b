"""The sink's staging and commits on a disk that is cut off anywhere: each row is published once, or marked."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from ipcbus.errors import StorageFull
from ipcbus.spark.sink.sink_commit import Application
from tests.kit.disks import CutOff, FaultyDisk
from tests.kit.sinking import FakeBus, staged

if TYPE_CHECKING:
    from collections.abc import Sequence

BATCHES = [[[b"a", b"b"], [b"c"]], [[b"d"], [], [b"e", b"f", b"g"]]]
ALL = [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
OPERATIONS = 170
"""A few more than the two batches take."""


def shuffled(partitions: Sequence[Sequence[bytes]], rng: random.Random) -> list[list[bytes]]:
    """The rows of a batch as a replay may have them."""
    values = [value for values in partitions for value in values]
    rng.shuffle(values)
    cut = rng.randrange(len(values) + 1)
    return [values[:cut], values[cut:]]


def publish(disk: FaultyDisk, bus: FakeBus, rng: random.Random) -> None:
    """What a query does from its last commit on, which Spark never learnt of: all batches once more."""
    for number, batch in enumerate(BATCHES):
        application = Application(disk, Path("/staging"), "app")
        files = staged(application.directory, number, shuffled(batch, rng), disk)
        if rng.random() < 0.2:
            application.abort(files)
            files = staged(application.directory, number, shuffled(batch, rng), disk)
        application.commit("query", number, files, bus.open)


@settings(max_examples=100)
@given(
    seed=st.integers(0, 2**32), cuts=st.lists(st.integers(1, OPERATIONS), min_size=1, max_size=3), power=st.booleans()
)
def test_every_row_is_published_once_or_marked(seed: int, cuts: list[int], power: bool) -> None:
    rng = random.Random(seed)
    disk, bus = FaultyDisk(rng), FakeBus()
    crashes = 0
    for cut_at in cuts:
        disk.cut_at = cut_at
        try:
            publish(disk, bus, rng)
        except CutOff:
            crashes += 1
        disk = disk.lost_power() if power else disk.killed()
    publish(disk, bus, rng)
    assert sorted(bus.once()) == ALL
    doubles = len(bus.sent) - len(ALL)
    assert doubles <= len(bus.flagged), "a double that is not marked"
    assert power or len(bus.flagged) <= crashes
    assert set(disk.content()) == {Path("/staging/app/ledger")}


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), room=st.integers(0, 6000))
def test_a_full_disk_is_an_error_and_nothing_is_lost(seed: int, room: int) -> None:
    rng = random.Random(seed)
    disk, bus = FaultyDisk(rng), FakeBus()
    disk.room = room
    with contextlib.suppress(StorageFull):
        publish(disk, bus, rng)
    disk.room = None
    publish(disk, bus, rng)
    assert sorted(bus.once()) == ALL
    assert len(bus.sent) - len(ALL) <= len(bus.flagged)
