"""Locks of files: one holder, whose name others can read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ipcbus.storage import locks

if TYPE_CHECKING:
    from pathlib import Path


def opened(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    return os.open(path, flags)


def test_one_holder_at_a_time_and_others_read_who_it_is(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = locks.take(opened(path))
    assert lock is not None
    other = opened(path)
    assert f"pid {os.getpid()} on " in str(locks.holder(other))
    assert locks.take(os.dup(other)) is None
    lock.release()
    lock.release()
    assert locks.holder(other) is None
    again = locks.take(other)
    assert again is not None
    again.release()


def test_a_descriptor_that_cannot_be_written_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    fd = opened(path, os.O_RDONLY)
    with pytest.raises(OSError, match="Bad file descriptor"):
        locks.take(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_holder_that_wrote_nothing_printable_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = locks.take(opened(path))
    assert lock is not None
    path.write_bytes(b"\x00\x1b\n")
    fd = opened(path)
    assert locks.holder(fd) == "an unknown process"
    os.close(fd)
    lock.release()
