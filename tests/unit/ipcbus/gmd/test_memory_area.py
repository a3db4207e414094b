"""A sender's area in memory."""

from __future__ import annotations

import pytest

from ipcbus.errors import GmdAreaFull, GmdError
from ipcbus.gmd.delivery_modes import ALL, SOME
from ipcbus.gmd.memory_area import MemoryArea
from ipcbus.gmd.sender_area import SavedMessage
from tests.kit.gmd_areas import entries


def area(max_size: int = 0) -> MemoryArea:
    return MemoryArea("gateway", "orders", 77, max_size)


def test_messages_are_saved_and_released() -> None:
    some = area()
    assert [some.save(ALL, 0, 10 + n, b"", b"x" * n) for n in range(4)] == [1, 2, 3, 4]
    assert some.load(3) == SavedMessage(3, ALL, 0, 12, b"", b"xx")
    some.release(2, 3)
    assert some.load(3) is None
    assert [each.number for each in entries(some)] == [1, 4]
    assert [each.number for each in entries(some, 4, 4, 0)] == [4]
    some.release(1, 1 << 60)
    assert (some.size, some.last_number) == (0, 4)
    assert some.save(SOME, 5, 6, b"hh", b"v") == 5


def test_entries_end_at_the_sum_of_bytes() -> None:
    some = area()
    for _ in range(5):
        some.save(ALL, 0, 0, b"12", b"345")
    assert [each.number for each in entries(some, 2, 5, 96)] == [2, 3]
    assert [each.number for each in entries(some, 2, 5, 95)] == [2]


def test_a_full_area_refuses_exactly() -> None:
    some = area(max_size=2 * 56)
    some.save(ALL, 0, 0, b"", b"12345678")
    some.save(ALL, 0, 0, b"", b"1")
    with pytest.raises(GmdAreaFull, match="raise the maximum"):
        some.save(ALL, 0, 0, b"", b"")
    some.release(1, 1)
    assert some.save(ALL, 0, 0, b"", b"12345678") == 3


def test_only_the_last_save_can_be_taken_back() -> None:
    some = area()
    some.save(ALL, 0, 0, b"", b"a")
    some.save(ALL, 0, 0, b"", b"b")
    some.unsave(2)
    with pytest.raises(GmdError, match="cannot be taken back"):
        some.unsave(1)
    assert some.save(ALL, 0, 0, b"", b"c") == 2
    some.note(b"")
    with pytest.raises(GmdError, match="cannot be taken back"):
        some.unsave(2)


def test_a_closed_area_refuses() -> None:
    some = area()
    some.close()
    some.close()
    with pytest.raises(GmdError, match="closed"):
        some.save(ALL, 0, 0, b"", b"")
