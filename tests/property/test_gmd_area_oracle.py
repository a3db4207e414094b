"""A sender's area against sqlite: whatever is done to both, both have the same messages."""

from __future__ import annotations

import random
import sqlite3

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ipcbus.errors import GmdAreaFull
from ipcbus.gmd.delivery_modes import ALL, SOME
from ipcbus.wire import topic_places
from tests.kit.disks import FaultyDisk
from tests.kit.gmd_areas import entries, opened


class AreaMachine(RuleBasedStateMachine):
    """An area on a simulated disk, and a table."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = FaultyDisk(random.Random(0))
        self.table = sqlite3.connect(":memory:")
        self.table.execute("create table messages (number integer primary key, mode, timeout, time, block, data)")
        self.last = self.notes = 0
        self.last_was_save = False
        self.max_size = 0
        self.open(1 << 10, "process")

    def open(self, capacity: int, durability: str) -> None:
        self.area = opened(self.disk, capacity=capacity, durability=durability, max_size=self.max_size)
        found = self.area.recovered()
        assert found.damage == []
        noted = [int(note.split()[-1]) for note in found.notes]
        assert max(noted, default=0) == self.notes
        self.area.checkpoint = lambda: [b"up to %d" % self.notes]

    @rule(
        mode=st.sampled_from((SOME, ALL)),
        timeout=st.integers(0, 1 << 62),
        block=st.binary(max_size=20),
        data=st.binary(max_size=300),
    )
    def save(self, mode: int, timeout: int, block: bytes, data: bytes) -> None:
        need = 48 + (len(block) + len(data) + 7) // 8 * 8
        if self.max_size and self.area.size + need > self.max_size:
            with pytest.raises(GmdAreaFull):
                self.area.save(mode, timeout, self.last, block, data)
            return
        number = self.area.save(mode, timeout, self.last, block, data)
        self.last += 1
        assert number == self.last
        self.table.execute(
            "insert into messages values (?,?,?,?,?,?)", (number, mode, timeout, number - 1, block, data)
        )
        self.last_was_save = True

    @precondition(lambda self: self.last_was_save)
    @rule()
    def unsave(self) -> None:
        self.area.unsave(self.last)
        self.table.execute("delete from messages where number = ?", (self.last,))
        self.last -= 1
        self.last_was_save = False

    @rule(back=st.integers(0, 20), count=st.integers(1, 10))
    def release(self, back: int, count: int) -> None:
        first = max(self.last - back, 1)
        self.area.release(first, first + count)
        self.table.execute("delete from messages where number between ? and ?", (first, first + count))
        self.last_was_save = False

    @rule()
    def note(self) -> None:
        self.notes += 1
        self.area.note(b"note %d" % self.notes)
        self.last_was_save = False

    @rule()
    def sync(self) -> None:
        self.area.sync()
        assert self.area.durable_number == self.last

    @rule(max_size=st.sampled_from((0, 500, 5000)))
    def resize(self, max_size: int) -> None:
        self.area.max_size = self.max_size = max_size

    @rule(
        how=st.sampled_from(("close", "kill", "power")),
        capacity=st.sampled_from((1 << 10, 1 << 12)),
        durability=st.sampled_from(("process", "group", "each")),
    )
    def end(self, how: str, capacity: int, durability: str) -> None:
        if how != "close":
            self.note()  # writes down what is released
        if how == "power":
            self.area.sync()
        if how == "close":
            self.area.close()
        self.disk = self.disk.lost_power() if how == "power" else self.disk.killed()
        self.open(capacity, durability)
        self.last_was_save = False
        assert self.area.last_number >= self.last
        if how != "power":
            assert self.area.last_number == self.last
        self.last = self.area.last_number

    @rule(first=st.integers(1, 60), count=st.integers(0, 20), bytes_max=st.integers(0, 1000))
    def entries_of_a_range(self, first: int, count: int, bytes_max: int) -> None:
        rows = self.table.execute(
            "select * from messages where number between ? and ? order by number", (first, first + count)
        ).fetchall()
        expected: list[tuple[object, ...]] = []
        used = 0
        for row in rows:
            used += 40 + (len(row[4]) + len(row[5]) + 7) // 8 * 8
            if expected and used > bytes_max:
                break
            expected.append((row[0], row[3], 7, topic_places.unpack(row[2]), row[4], row[5]))
        assert [tuple(each) for each in entries(self.area, first, first + count, bytes_max)] == expected

    @invariant()
    def both_are_equal(self) -> None:
        rows = self.table.execute("select * from messages order by number").fetchall()
        assert [self.area.load(row[0]) for row in rows] == rows
        assert self.area.size == sum(48 + (len(row[4]) + len(row[5]) + 7) // 8 * 8 for row in rows)
        assert self.area.last_number == self.last

    def teardown(self) -> None:
        self.area.close()
        self.table.close()


TestArea = AreaMachine.TestCase
TestArea.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
