"""Tests for ipcbus.transport.udp.udp_receiver."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from ipcbus.transport.udp.udp_receiver import UdpReceiver


class Udp(UdpReceiver):
    """A receiver that has got all datagrams, of which some wait for room in the ring."""

    def __init__(self, waiting: list[tuple[bytes, int]]) -> None:
        self._receiver = cast("Any", SimpleNamespace(catches_up=False))
        self._backlog = waiting


def test_datagrams_that_wait_for_room_in_the_ring_are_not_missing() -> None:
    assert Udp([(b"datagram", 0)]).catches_up
    assert not Udp([]).catches_up
