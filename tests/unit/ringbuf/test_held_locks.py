from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ringbuf import liveness, segment
from ringbuf.held_locks import HeldLocks

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def fds(domain: str) -> Iterator[tuple[int, int]]:
    """Two open file descriptions of one object: the holder's, and the one that looks."""
    name = f"ipcbus.{domain}.l"
    opened = segment.create(name, 4096), segment.open_fd(name, write=False)
    yield opened
    for fd in opened:
        os.close(fd)
    segment.remove(name)


def test_all_locks_are_held_until_one_is_released(fds: tuple[int, int]) -> None:
    holder, looking = fds
    for byte in (0, 3, 1 << 40):
        assert liveness.take(holder, byte)
    locks = HeldLocks((looking, byte) for byte in (0, 3, 1 << 40))
    assert locks.all_held()
    liveness.release(holder, 3)
    assert not locks.all_held()


def test_a_lock_of_the_looking_description_is_not_held_by_another(fds: tuple[int, int]) -> None:
    assert liveness.take(fds[0], 1)
    assert not HeldLocks([(fds[0], 1)]).all_held()


def test_no_locks_are_all_held() -> None:
    assert HeldLocks([]).all_held()


def test_a_closed_descriptor_counts_as_a_free_lock(fds: tuple[int, int]) -> None:
    closed = os.dup(fds[1])
    os.close(closed)
    assert liveness.take(fds[0], 1)
    assert not HeldLocks([(closed, 1)]).all_held()


def test_what_is_not_a_lock_is_refused() -> None:
    with pytest.raises(TypeError):
        HeldLocks([("fd", 1)])  # type: ignore[list-item]
