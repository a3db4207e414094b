"""A receiver over TCP: how much it holds back until it knows where its topics begin."""

from __future__ import annotations

import time
from unittest.mock import Mock

import pytest

from ipcbus.transport.tcp.tcp_receiver import TcpReceiver
from ipcbus.transport.udp.udp_receiver import BACKLOG_BYTES

HOUR_NS = 3600 * 10**9


@pytest.mark.parametrize(("held_back", "reads_on"), [(0, True), (BACKLOG_BYTES - 1, True), (BACKLOG_BYTES, False)])
def test_what_is_held_back_is_bounded_and_then_delivered(held_back: int, reads_on: bool) -> None:
    receiver = Mock(spec=TcpReceiver)
    receiver.spare = 0
    receiver.reliable_receiver.over = receiver.reliable_receiver.is_unregistered = False
    receiver._awaiting_start, receiver._start_deadline_ns = {3: print}, time.monotonic_ns() + HOUR_NS
    receiver._backlog, receiver._backlog_bytes = [(b"", 0)], held_back
    receiver._holds_back = lambda now_ns: TcpReceiver._holds_back(receiver, now_ns)
    assert TcpReceiver.takes_more(receiver) is reads_on
    # Else the answer that it waits for stays behind what is not read.
    assert TcpReceiver._holds_back(receiver, time.monotonic_ns()) is reads_on
    receiver.reliable_receiver.is_unregistered = True  # no such answer comes
    assert not TcpReceiver._holds_back(receiver, time.monotonic_ns())
