from __future__ import annotations

import os
import select
import time

from ipcbus.runtime.loop import rests
from ringbuf.poller import Poller

LONG_NS = 60_000_000_000


def test_a_rest_ends_when_a_descriptor_is_readable_or_the_time_is_over_or_the_context_closes() -> None:
    bell = os.eventfd(1)
    with select.epoll() as epoll:
        epoll.register(bell, select.EPOLLIN)
        rests.poll(epoll, time.monotonic_ns() + LONG_NS)
        os.eventfd_read(bell)
        rests.poll(epoll, time.monotonic_ns() - 1)
    os.close(bell)
    rests.poll(epoll, time.monotonic_ns() + LONG_NS)


def test_a_spin_ends_when_the_poller_is_poked_or_the_time_is_over() -> None:
    poller = Poller()
    poller.poke()
    assert not rests.spin(poller, 1 << 62, time.monotonic_ns() + LONG_NS)
    assert not rests.spin(poller, 1 << 62, time.monotonic_ns() - 1)
