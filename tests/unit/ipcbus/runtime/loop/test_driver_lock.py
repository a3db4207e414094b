"""Who may drive a split context."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from ipcbus.delivery.pump import URGENT
from ipcbus.runtime.loop.driver_lock import DriverLock
from tests.kit.bus import GIVE_UP_S

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def driver_lock() -> Iterator[DriverLock]:
    made = DriverLock(sequential=False, split=True)
    yield made
    for fd in made._kick_fds:
        os.close(fd)


def test_only_a_guest_makes_a_noise(driver_lock: DriverLock) -> None:
    quiet = [driver_lock.quiet]
    with driver_lock.driver_lock():
        quiet.append(driver_lock.quiet)
    assert driver_lock.take_as_guest(lambda: False, 0)
    quiet.append(driver_lock.quiet)
    with driver_lock.driver_lock():  # inside a callback
        quiet.append(driver_lock.quiet)
    driver_lock.give_back()
    quiet.append(driver_lock.quiet)
    assert quiet == [True, True, False, False, True]


def test_a_blocked_send_helps_out_unless_another_thread_reads(driver_lock: DriverLock) -> None:
    done = threading.Event()

    def read() -> None:
        assert driver_lock.take_as_guest(lambda: False, GIVE_UP_S)
        driver_lock.give_back()
        assert driver_lock.may_help()
        done.wait(GIVE_UP_S)

    assert driver_lock.may_help()
    thread = threading.Thread(target=read)
    thread.start()
    while not driver_lock.pump.last_guest:
        driver_lock.wait_changed(0.001)
    assert not driver_lock.may_help()
    done.set()
    thread.join(GIVE_UP_S)
    assert driver_lock.may_help()


def test_who_drives_again_and_again_in_sequential_mode_lets_a_change_through() -> None:
    driver_lock = DriverLock(sequential=True, split=False)
    changed = threading.Event()

    def drive() -> None:
        while not changed.is_set():
            with driver_lock.drive_alone():
                changed.wait(0.01)

    thread = threading.Thread(target=drive)
    thread.start()
    while not driver_lock.pump.owner:
        driver_lock.wait_changed(0.001)
    change = threading.Thread(target=_change, args=(driver_lock, changed), daemon=True)
    change.start()
    came = changed.wait(GIVE_UP_S)
    changed.set()
    thread.join(GIVE_UP_S)
    change.join(GIVE_UP_S)
    for fd in driver_lock._kick_fds:
        os.close(fd)
    assert came


def test_the_compiled_turn_lets_a_change_through() -> None:
    driver_lock = DriverLock(sequential=True, split=False)
    seen = [driver_lock.pump.wants(URGENT)]
    with driver_lock.driver_lock():
        seen.append(driver_lock.pump.wants(URGENT))
    seen.append(driver_lock.pump.wants(URGENT))
    for fd in driver_lock._kick_fds:
        os.close(fd)
    assert seen == [False, True, False]


def _change(driver_lock: DriverLock, changed: threading.Event) -> None:
    with driver_lock.driver_lock():
        changed.set()


@pytest.mark.parametrize("sequential", [False, True])
def test_a_free_lock_is_taken_for_a_short_change_and_a_held_one_is_not(sequential: bool) -> None:
    lock = DriverLock(sequential=sequential, split=False)
    try:
        assert lock.pump.take_if_free()
        assert lock.is_driver()
        assert not lock.pump.take_if_free()
        lock.pump.give_back()
        assert not lock.is_driver()
        with lock.driver_lock():
            assert not lock.pump.take_if_free()
    finally:
        lock._close_kick_fds()


def test_a_lock_that_is_free_is_taken_by_who_does_not_drive_and_others_wait_for_it() -> None:
    lock = DriverLock(sequential=True, split=False)
    driving = threading.Event()

    def drive() -> None:
        with lock.drive_alone():
            driving.set()

    thread = threading.Thread(target=drive, daemon=True)
    try:
        with lock.driver_lock_if_free() as taken:
            assert taken
            assert lock.is_driver()
            thread.start()
            assert not driving.is_set()
        assert driving.wait(GIVE_UP_S)  # without WrongThread
        thread.join(GIVE_UP_S)
        with lock.driver_lock():
            with lock.driver_lock_if_free() as taken:
                assert not taken
            assert lock.is_driver()
        assert not lock.pump.owner
    finally:
        lock._close_kick_fds()
