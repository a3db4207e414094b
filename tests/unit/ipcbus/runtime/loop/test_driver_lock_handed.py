"""Who gets the driver lock when several threads wait for it."""

from __future__ import annotations

import functools
import random
import threading
from typing import TYPE_CHECKING

import pytest

from ipcbus.runtime.loop.driver_lock import DriverLock
from tests.kit.bus import GIVE_UP_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUNDS = 300


@pytest.fixture
def lock() -> Iterator[DriverLock]:
    made = DriverLock(sequential=False, split=False)
    yield made
    made._close_kick_fds()


def _start(*bodies: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=body, daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    return threads


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(GIVE_UP_S)
    assert not any(thread.is_alive() for thread in threads)


def _until_waiting(lock: DriverLock, count: int) -> None:
    while lock._guests < count:
        lock.wait_changed(0.001)


def test_a_thread_that_was_woken_and_does_not_want_the_lock_wakes_the_next(lock: DriverLock) -> None:
    main = threading.get_ident()
    woken = False
    taken = threading.Event()

    def changes_its_mind() -> None:
        # Not over when it is woken to take the lock, and over when it looks itself.
        assert not lock.take_as_guest(lambda: woken and threading.get_ident() != main, None)

    def waits() -> None:
        assert lock.take_as_guest(lambda: False, None)
        lock.give_back()
        taken.set()

    assert lock.pump.take()
    threads = _start(changes_its_mind)
    _until_waiting(lock, 1)
    threads += _start(waits)
    _until_waiting(lock, 2)
    woken = True
    lock.give_back()
    assert taken.wait(GIVE_UP_S)
    _join(threads)


def test_a_thread_whose_wait_is_over_goes_on_while_another_one_drives(lock: DriverLock) -> None:
    queue: list[int] = []
    assert lock.pump.take()
    threads = _start(lambda: lock.take_as_guest(lambda: queue, None))
    _until_waiting(lock, 1)
    queue.append(1)
    lock.notify()
    _join(threads)
    lock.give_back()


def test_no_wake_up_is_lost_among_threads_that_take_the_lock_in_every_way(lock: DriverLock) -> None:
    def guest(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(ROUNDS):
            assert lock.take_as_guest(lambda: False, None)
            if dice.random() < 0.5:
                lock.notify()
            lock.give_back()

    def impatient(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(ROUNDS):
            if lock.take_as_guest(lambda: dice.random() < 0.3, dice.choice((0, 0.0001, 0.001))):
                lock.give_back()

    def short() -> None:
        for _ in range(ROUNDS):
            if lock.pump.take_if_free():
                lock.pump.give_back()

    def urgent() -> None:
        for _ in range(ROUNDS // 10):
            with lock.driver_lock():
                pass

    _join(_start(*(functools.partial(body, seed) for body in (guest, impatient) for seed in range(3)), short, urgent))
    assert (lock._guests, lock.pump.owner) == (0, 0)
