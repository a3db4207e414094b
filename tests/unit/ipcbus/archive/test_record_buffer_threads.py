"""Two threads at a stage: one that waits for memory or puts messages, and one that writes."""

from __future__ import annotations

import random
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from ipcbus.archive.record_buffer import BUFFER_BYTES_MIN, RecordBuffer
from tests.kit.staging import OWN, PART, ROW, Desk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def restless() -> Iterator[None]:
    """Has the interpreter change threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Room(threading.Event):
    """Does not wait."""

    def wait(self, timeout: float | None = None) -> bool:
        return True


def write_beside(desk: Desk, sender: threading.Thread, started: Callable[[], object] = lambda: None) -> None:
    """Writes what comes, on this thread, while another one sends."""
    sender.start()
    started()
    while sender.is_alive():
        if desk.hold():
            desk.write()
        desk.stage.flush_notes()
    sender.join()


def test_both_put_what_was_noted(restless: None) -> None:
    """The context puts messages while the thread that writes puts the note of a dropped one: each does it whole."""
    rng = random.Random(5)
    for _ in range(200):
        desk = Desk()
        desk.stage = RecordBuffer(BUFFER_BYTES_MIN, int, Room())
        for number in range(3):
            desk.send(number, bytes(100_000))
        assert desk.stage.dropped == 1
        go = threading.Event()

        def send(desk: Desk = desk, go: threading.Event = go, turns: int = rng.randrange(400)) -> None:
            go.wait()
            for _ in range(turns):
                pass
            for number in range(3, 8):
                desk.send(number, bytes(10))

        sender = threading.Thread(target=send)
        write_beside(desk, sender, go.set)
        following = 0
        for row in desk.drain():
            assert row.first == following
            following = row.last + 1
        assert following == 8


@pytest.mark.parametrize("length", [30_000, 200_000, 1 << 21])
def test_a_long_message_is_copied_where_nobody_else_puts(length: int, restless: None) -> None:
    desk = Desk()
    desk.stage = RecordBuffer(BUFFER_BYTES_MIN, int, Room())

    def send() -> None:
        for number in range(400):
            desk.send(number, bytes([number & 0xFF]) * (length if number % 3 else 10))

    sender = threading.Thread(target=send)
    write_beside(desk, sender)
    following = 0
    for row in desk.drain():
        assert row.first == following
        assert row.type == OWN or row.value == bytes([row.first & 0xFF]) * len(row.value)
        following = row.last + 1
    assert following == 400


def test_a_message_waits_for_memory() -> None:
    desk = Desk(waits=True)
    value = bytes(PART - ROW)

    def send() -> None:
        for number in range(20):
            desk.send(number, value)

    sender = threading.Thread(target=send)
    sender.start()
    while sender.is_alive() or desk.stage.filled:
        if desk.hold():
            desk.write()
    sender.join()
    assert [row.first for row in desk.drain()] == list(range(20))
    assert desk.stage.dropped == 0


def test_a_message_that_waits_can_be_let_go() -> None:
    desk = Desk(waits=True)
    full = threading.Event()

    def send() -> None:
        desk.send(0, bytes(PART - ROW))
        desk.send(1, bytes(PART - ROW))
        full.set()
        desk.send(2)

    sender = threading.Thread(target=send)
    sender.start()
    assert full.wait(30)
    desk.stage.waits = False
    sender.join()
    assert [row[2:5] for row in desk.drain()] == [(0, 0, 0), (0, 1, 1), (OWN, 2, 2)]


def test_a_signal_ends_the_wait() -> None:
    class Room(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    desk = Desk()
    desk.stage = RecordBuffer(BUFFER_BYTES_MIN, int, Room(), waits=True)
    desk.send(0, bytes(PART - ROW))
    desk.send(1, bytes(PART - ROW))
    with pytest.raises(KeyboardInterrupt):
        desk.send(2)
    assert [row[2:5] for row in desk.drain()] == [(0, 0, 0), (0, 1, 1), (OWN, 2, 2)]
