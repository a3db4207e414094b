"""Ringing the doorbells of receivers, from many threads."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from ipcbus.resolution import names
from ipcbus.transport import ropes as module
from ipcbus.transport.ropes import Ropes
from ringbuf import segment
from ringbuf.doorbell import DATA, BellRope, Doorbell

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def ropes(domain: str) -> Iterator[Ropes]:
    made = Ropes(domain, "LBT-IPC:1:1")
    yield made
    made.close()


def test_who_changed_the_slot_is_rung_and_who_went_is_not(domain: str, ropes: Ropes) -> None:
    first, second = (Doorbell(names.bell(domain, number)) for number in (1, 2))
    assert ropes.ring(0, 1, DATA)
    assert ropes.ring(0, 2, DATA)
    assert (first.drain(), second.drain()) == (DATA, DATA)
    first.close()
    assert not ropes.ring(0, 1, DATA)
    second.close()


def test_nobody_is_rung_after_the_end(domain: str, ropes: Ropes) -> None:
    bell = Doorbell(names.bell(domain, 1))
    ropes.close()
    assert not ropes.ring(0, 1, DATA)
    assert bell.drain() == b""
    bell.close()


def test_a_name_that_is_no_fifo_is_told_once(domain: str, ropes: Ropes, caplog: pytest.LogCaptureFixture) -> None:
    path = segment.ROOT / names.bell(domain, 1)
    path.touch()
    with caplog.at_level(logging.WARNING):
        assert not ropes.ring(0, 1, DATA)
        assert not ropes.ring(0, 1, DATA)
    path.unlink()
    assert [record.message.count("cannot be woken") for record in caplog.records] == [1]


def test_threads_that_find_one_receiver_asleep_share_a_rope(
    domain: str, ropes: Ropes, monkeypatch: pytest.MonkeyPatch
) -> None:
    bell = Doorbell(names.bell(domain, 1))
    both = threading.Barrier(2)
    opened = []

    def slow(name: str) -> BellRope:
        # Two threads would meet here if they could; the one that is alone goes on.
        with suppress(threading.BrokenBarrierError):
            both.wait(0.2)
        opened.append(BellRope(name))
        return opened[-1]

    monkeypatch.setattr(module, "BellRope", slow)
    threads = [threading.Thread(target=ropes.ring, args=(0, 1, DATA)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bell.drain() == 2 * DATA
    bell.close()
    assert len(opened) == 1
