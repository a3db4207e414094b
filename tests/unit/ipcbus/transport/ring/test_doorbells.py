"""Ringing the doorbells of receivers, from many threads."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from ipcbus.resolution.local import object_names
from ipcbus.transport.ring import doorbells as module
from ipcbus.transport.ring.doorbells import Doorbells
from ringbuf import segment
from ringbuf.doorbell import DATA, Doorbell, DoorbellRinger
from ringbuf.slot_doorbells import SlotDoorbells
from tests.rings.channels import owned

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def doorbells(domain: str) -> Iterator[Doorbells]:
    with owned(domain) as channel:
        made = Doorbells(domain, "LBT-IPC:1:1", SlotDoorbells(channel.writer, bool))
        yield made
        made.close()


def test_who_changed_the_slot_is_rung_and_who_went_is_not(domain: str, doorbells: Doorbells) -> None:
    first, second = (Doorbell(object_names.bell(domain, number)) for number in (1, 2))
    assert doorbells.ring(0, 1, DATA)
    assert doorbells.ring(0, 2, DATA)
    assert (first.drain(), second.drain()) == (DATA, DATA)
    first.close()
    assert not doorbells.ring(0, 1, DATA)
    second.close()


def test_nobody_is_rung_after_the_end(domain: str, doorbells: Doorbells) -> None:
    bell = Doorbell(object_names.bell(domain, 1))
    doorbells.close()
    assert not doorbells.ring(0, 1, DATA)
    assert bell.drain() == b""
    bell.close()


def test_a_name_that_is_no_fifo_is_told_once(
    domain: str, doorbells: Doorbells, caplog: pytest.LogCaptureFixture
) -> None:
    path = segment.ROOT / object_names.bell(domain, 1)
    path.touch()
    with caplog.at_level(logging.WARNING):
        assert not doorbells.ring(0, 1, DATA)
        assert not doorbells.ring(0, 1, DATA)
    path.unlink()
    assert [record.message.count("cannot be woken") for record in caplog.records] == [1]


def test_threads_that_find_one_receiver_asleep_share_a_rope(
    domain: str, doorbells: Doorbells, monkeypatch: pytest.MonkeyPatch
) -> None:
    bell = Doorbell(object_names.bell(domain, 1))
    both = threading.Barrier(2)
    opened = []

    def slow(name: str) -> DoorbellRinger:
        # Two threads would meet here if they could; the one that is alone goes on.
        with suppress(threading.BrokenBarrierError):
            both.wait(0.2)
        opened.append(DoorbellRinger(name))
        return opened[-1]

    monkeypatch.setattr(module, "DoorbellRinger", slow)
    threads = [threading.Thread(target=doorbells.ring, args=(0, 1, DATA)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bell.drain() == 2 * DATA
    bell.close()
    assert len(opened) == 1
