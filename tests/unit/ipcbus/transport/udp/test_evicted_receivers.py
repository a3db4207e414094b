"""The receiving contexts that a session waits for after their eviction: until they return, or their time is over."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import Mock

from ipcbus.transport.udp.evicted_receivers import EvictedReceivers


def client(context_id: int) -> Any:  # noqa: ANN401 - only its id is looked at
    return cast("Any", Mock(context_id=context_id))


def test_it_is_waited_for_until_it_registers_anew_or_its_time_is_over() -> None:
    evicted, before = EvictedReceivers(100), client(1)
    assert (bool(evicted), evicted.due_ns) == (False, None)
    evicted.add(1, 11, before, 1000)
    evicted.add(2, 22, None, 1010)
    assert evicted.due_ns == 1100
    evicted.drop_returned([before, client(3)], 1050)  # the registration that is over has not been given up yet
    assert [(each.context_id, each.pid, each.until_ns) for each in evicted] == [(1, 11, 1100), (2, 22, 1110)]
    evicted.drop_returned([client(1)], 1050)
    assert [each.context_id for each in evicted] == [2]
    evicted.drop_returned([], 1109)
    assert evicted.due_ns == 1110
    evicted.drop_returned([], 1110)
    assert list(evicted) == []


def test_a_second_eviction_begins_its_time_anew() -> None:
    evicted = EvictedReceivers(100)
    evicted.add(1, 11, None, 1000)
    evicted.add(1, 11, None, 1050)
    assert [each.until_ns for each in evicted] == [1150]
