from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ringbuf import liveness, segment
from tests.rings.children import Children, Flag

if TYPE_CHECKING:
    from collections.abc import Iterator

BYTE = 3


@pytest.fixture
def name(domain: str) -> Iterator[str]:
    """A shared object."""
    made = f"ipcbus.{domain}.l"
    os.close(segment.create(made, 4096))
    yield made
    segment.remove(made)


@pytest.fixture
def fd(name: str) -> Iterator[int]:
    """The looking side's descriptor."""
    number = segment.open_fd(name, write=True)
    yield number
    os.close(number)


def hold(name: str, taken: Flag, until: Flag) -> bool:
    """Takes the lock in another process and keeps it until told otherwise."""
    own = segment.open_fd(name, write=True)
    first = liveness.take(own, BYTE)
    taken.raise_it()
    until.wait()
    return first


def test_lock_is_held_by_its_description_only(name: str, fd: int) -> None:
    other = segment.open_fd(name, write=True)
    assert liveness.take(fd, BYTE)
    assert liveness.take(fd, BYTE)
    assert not liveness.held_by_other(fd, BYTE)
    assert not liveness.take(other, BYTE)
    assert liveness.held_by_other(other, BYTE)
    liveness.release(fd, BYTE)
    assert not liveness.held_by_other(other, BYTE)
    assert liveness.take(other, BYTE)
    os.close(other)


def test_bytes_are_locked_one_by_one_and_need_not_exist(name: str, fd: int) -> None:
    other = segment.open_fd(name, write=True)
    for byte in (0, 1, 64, 1 << 40):
        assert liveness.take(fd, byte)
    assert [liveness.held_by_other(other, byte) for byte in (0, 1, 2, 63, 64, 65)] == [1, 1, 0, 0, 1, 0]
    os.close(other)


def test_a_descriptor_for_reading_may_ask(name: str, fd: int) -> None:
    reading = segment.open_fd(name, write=False)
    assert not liveness.held_by_other(reading, BYTE)
    assert liveness.take(fd, BYTE)
    assert liveness.held_by_other(reading, BYTE)
    os.close(reading)


def test_lock_survives_another_descriptor_of_the_same_file_being_closed(name: str, fd: int) -> None:
    assert liveness.take(fd, BYTE)
    os.close(segment.open_fd(name, write=True))
    looking = segment.open_fd(name, write=True)
    assert liveness.held_by_other(looking, BYTE)
    os.close(looking)


def test_lock_goes_with_the_last_descriptor(name: str, fd: int) -> None:
    first = segment.open_fd(name, write=True)
    second = os.dup(first)
    assert liveness.take(first, BYTE)
    os.close(first)
    assert liveness.held_by_other(fd, BYTE)
    os.close(second)
    assert not liveness.held_by_other(fd, BYTE)


def test_kill_releases_the_lock(name: str, fd: int) -> None:
    with Children() as children, Flag() as taken, Flag() as never:
        child = children.run(hold, name, taken, never)
        children.until(taken)
        assert liveness.held_by_other(fd, BYTE)
        child.kill()
        assert not liveness.held_by_other(fd, BYTE)
        assert liveness.take(fd, BYTE)


def test_a_stopped_process_keeps_its_lock(name: str, fd: int) -> None:
    with Children() as children, Flag() as taken, Flag() as until:
        child = children.run(hold, name, taken, until)
        children.until(taken)
        child.stop()
        assert liveness.held_by_other(fd, BYTE)
        assert not liveness.take(fd, BYTE)
        child.go_on()
        until.raise_it()
        assert child.result()
        assert not liveness.held_by_other(fd, BYTE)


def test_lock_survives_the_removal_of_the_name(name: str, fd: int) -> None:
    with Children() as children, Flag() as taken, Flag() as until:
        child = children.run(hold, name, taken, until)
        children.until(taken)
        segment.remove(name)
        assert liveness.held_by_other(fd, BYTE)
        until.raise_it()
        child.result()
        assert not liveness.held_by_other(fd, BYTE)


def test_a_forked_child_that_closes_does_not_release(name: str, fd: int) -> None:
    own = segment.open_fd(name, write=True)
    assert liveness.take(own, BYTE)
    with Children() as children:
        children.run(os.close, own).result()
        assert liveness.held_by_other(fd, BYTE)
    os.close(own)
    assert not liveness.held_by_other(fd, BYTE)


def test_a_descriptor_that_cannot_lock_is_an_error() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        liveness.take(-1 & 0x7FFFFFFF, BYTE)
