"""Whether what is read from the ring of a receiver over the network is in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ipcbus.transport.udp.ring_order import RingOrder


def holds(order: RingOrder) -> bool:
    return order.holds


def test_datagrams_are_in_order_again_behind_the_last_late_one() -> None:
    reader: Any = SimpleNamespace(position=0)
    writer: Any = SimpleNamespace(head=100)
    order = RingOrder(reader, writer)
    order.wrote(misses=False, waits=False)
    assert holds(order)
    writer.head = 200
    order.wrote(misses=True, waits=False)
    reader.position = 200
    assert not holds(order)
    writer.head = 300  # the missing one, behind a later one
    order.wrote(misses=False, waits=False)
    assert not holds(order)
    reader.position = 300
    assert holds(order)
    writer.head = 400
    order.wrote(misses=False, waits=False)
    assert holds(order)


def test_a_late_datagram_may_still_wait_for_room() -> None:
    reader: Any = SimpleNamespace(position=100)
    writer: Any = SimpleNamespace(head=100)
    order = RingOrder(reader, writer)
    order.wrote(misses=True, waits=True)
    order.wrote(misses=False, waits=True)
    assert not holds(order)
    writer.head = reader.position = 200
    assert not holds(order)
    order.wrote(misses=False, waits=False)
    assert holds(order)
