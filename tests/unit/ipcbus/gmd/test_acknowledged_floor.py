"""How far a stream is acknowledged in order: taken and recorded by compiled code."""

from __future__ import annotations

import pytest

from ipcbus.errors import GmdError
from ipcbus.gmd.acknowledged_floor import AcknowledgedFloor


def test_the_next_numbers_are_taken_and_recorded_once() -> None:
    recorded: list[tuple[object, ...]] = []
    floor = AcknowledgedFloor(lambda *state: recorded.append(state), "gateway", 7)
    assert not floor.take(1, 1)
    floor.begin(4)
    assert not floor.take(4, 5)
    assert not floor.take(6, 6)
    assert not floor.take(5, 4)
    assert floor.take(5, 9)
    assert floor.take(10, 10)
    floor.record()
    floor.record()
    assert recorded == [("gateway", 7, 10, ())]
    assert (floor.floor, floor.recorded, floor.sent) == (10, 10, 4)
    floor.pause()
    assert not floor.take(11, 11)


def test_an_area_that_refuses_records_later() -> None:
    fails = True

    def record(*_: object) -> None:
        if fails:
            raise GmdError("full")

    floor = AcknowledgedFloor(record, "gateway", 7)
    floor.begin(0)
    floor.take(1, 2)
    with pytest.raises(GmdError):
        floor.record()
    assert (floor.floor, floor.recorded) == (2, 0)
    fails = False
    floor.record()
    assert floor.recorded == 2
