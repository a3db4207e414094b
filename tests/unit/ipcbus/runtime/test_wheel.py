"""Who may drive a split context."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from ipcbus.runtime.wheel import Wheel
from tests.kit.bus import GIVE_UP_S

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def wheel() -> Iterator[Wheel]:
    made = Wheel(sequential=False, split=True)
    yield made
    for fd in made._kicks:
        os.close(fd)


def test_only_a_guest_makes_a_noise(wheel: Wheel) -> None:
    quiet = [wheel.quiet]
    with wheel.wheel():
        quiet.append(wheel.quiet)
    assert wheel.take(lambda: False, 0)
    quiet.append(wheel.quiet)
    with wheel.wheel():  # inside a callback
        quiet.append(wheel.quiet)
    wheel.give()
    quiet.append(wheel.quiet)
    assert quiet == [True, True, False, False, True]


def test_a_blocked_send_helps_out_unless_another_thread_reads(wheel: Wheel) -> None:
    done = threading.Event()

    def read() -> None:
        assert wheel.take(lambda: False, GIVE_UP_S)
        wheel.give()
        assert wheel.may_help()
        done.wait(GIVE_UP_S)

    assert wheel.may_help()
    thread = threading.Thread(target=read)
    thread.start()
    while wheel._last_guest is None:
        wheel.wait_changed(0.001)
    assert not wheel.may_help()
    done.set()
    thread.join(GIVE_UP_S)
    assert wheel.may_help()


def test_who_drives_again_and_again_in_sequential_mode_lets_a_change_through() -> None:
    wheel = Wheel(sequential=True, split=False)
    changed = threading.Event()

    def drive() -> None:
        while not changed.is_set():
            with wheel.alone():
                changed.wait(0.01)

    thread = threading.Thread(target=drive)
    thread.start()
    while not wheel.pump.owner:
        wheel.wait_changed(0.001)
    change = threading.Thread(target=_change, args=(wheel, changed), daemon=True)
    change.start()
    came = changed.wait(GIVE_UP_S)
    changed.set()
    thread.join(GIVE_UP_S)
    change.join(GIVE_UP_S)
    for fd in wheel._kicks:
        os.close(fd)
    assert came


def test_the_compiled_shortcut_lets_a_change_through() -> None:
    wheel = Wheel(sequential=True, split=False)
    seen = [wheel.pump.wanted]
    with wheel.wheel():
        seen.append(wheel.pump.wanted)
    seen.append(wheel.pump.wanted)
    for fd in wheel._kicks:
        os.close(fd)
    assert seen == [False, True, False]


def _change(wheel: Wheel, changed: threading.Event) -> None:
    with wheel.wheel():
        changed.set()
