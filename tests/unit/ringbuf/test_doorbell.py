from __future__ import annotations

import os
import select
import stat
from typing import TYPE_CHECKING

import pytest

from ringbuf import segment
from ringbuf.doorbell import DATA, NEWS, Doorbell, DoorbellRinger
from ringbuf.ring_errors import SegmentRefused
from tests.rings.children import Children
from tests.rings.systems import as_nobody

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def name(domain: str) -> str:
    """A name for a doorbell."""
    return f"ipcbus.{domain}.b"


@pytest.fixture
def bell(name: str) -> Iterator[Doorbell]:
    """A doorbell; closed at the end."""
    made = Doorbell(name)
    yield made
    made.close()


@pytest.fixture
def path(name: str) -> Iterator[Path]:
    """Where the doorbell's FIFO is; whatever is there afterwards is removed."""
    where = segment.ROOT / name
    yield where
    if where.is_dir():
        where.rmdir()
    where.unlink(missing_ok=True)


def readable(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])


def test_ringing_makes_the_owner_readable_until_it_drains(name: str, bell: Doorbell) -> None:
    rope = DoorbellRinger(name)
    assert not readable(bell.fd)
    rope.ring(DATA)
    rope.ring(NEWS)
    assert readable(bell.fd)
    assert bell.drain() == DATA + NEWS
    assert not readable(bell.fd)
    assert bell.drain() == b""
    rope.close()
    rope.close()


def test_two_ropes_ring_one_bell(name: str, bell: Doorbell) -> None:
    doorbells = [DoorbellRinger(name), DoorbellRinger(name)]
    for rope in doorbells:
        rope.ring(DATA)
    assert bell.drain() == DATA + DATA
    for rope in doorbells:
        rope.close()


@pytest.mark.parametrize("umask", [0, 0o022, 0o377])
def test_bell_is_the_owners_only_whatever_the_umask(name: str, path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        bell = Doorbell(name)
    finally:
        os.umask(before)
    found = path.stat()
    assert stat.S_ISFIFO(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert not os.get_inheritable(bell.fd)
    bell.close()
    assert not path.exists()


def test_taken_name_is_refused(name: str, bell: Doorbell) -> None:
    with pytest.raises(FileExistsError):
        Doorbell(name)
    rope = DoorbellRinger(name)
    rope.ring(DATA)
    assert bell.drain() == DATA
    rope.close()


def test_unknown_group_is_refused_and_nothing_is_left(name: str, path: Path) -> None:
    with pytest.raises(SegmentRefused, match="no such group"):
        Doorbell(name, group="no such group")
    assert not path.exists()


def test_ringing_a_full_bell_is_harmless(name: str, bell: Doorbell) -> None:
    rope = DoorbellRinger(name)
    for _ in range(70):
        rope.ring(DATA * 1000)
    assert readable(bell.fd)
    while bell.drain():
        pass
    rope.ring(NEWS)
    assert bell.drain() == NEWS
    rope.close()


def test_ringing_a_bell_whose_owner_was_killed_is_harmless(name: str, path: Path) -> None:
    def die() -> None:
        Doorbell(name)
        os.kill(os.getpid(), 9)

    with Children() as children:
        assert children.run(die).wait() == -9
        rope = DoorbellRinger(name)
        for _ in range(100):
            rope.ring(DATA * 1000)
        rope.close()


def test_ringing_after_the_bell_was_closed_is_harmless(name: str) -> None:
    bell = Doorbell(name)
    rope = DoorbellRinger(name)
    bell.close()
    rope.ring(DATA)
    rope.close()
    bell.close()
    with pytest.raises(FileNotFoundError):
        DoorbellRinger(name)


def test_a_forked_child_that_abandons_leaves_the_bell_to_its_parent(name: str, bell: Doorbell) -> None:
    with Children() as children:
        children.run(bell.abandon).result()
    rope = DoorbellRinger(name)
    rope.ring(DATA)
    assert bell.drain() == DATA
    rope.close()


def test_regular_file_in_the_bells_place_is_refused_and_untouched(name: str, path: Path) -> None:
    path.write_bytes(b"secret")
    with pytest.raises(SegmentRefused, match=f"{name} is not a FIFO"):
        DoorbellRinger(name)
    assert path.read_bytes() == b"secret"


def test_link_in_the_bells_place_is_not_followed(name: str, path: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SegmentRefused, match=name):
        DoorbellRinger(name)


def test_directory_in_the_bells_place_is_refused(name: str, path: Path) -> None:
    path.mkdir()
    with pytest.raises(SegmentRefused, match=f"{name} is not a FIFO"):
        DoorbellRinger(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_bell_of_another_user_is_refused(name: str, bell: Doorbell) -> None:
    def ring() -> str:
        as_nobody()
        with pytest.raises(SegmentRefused) as caught:
            DoorbellRinger(name)
        return str(caught.value)

    with Children() as children:
        assert "run both sides as one user" in children.run(ring).result()
    assert bell.drain() == b""


@pytest.mark.parametrize("bad", ["", "a/b", "n" * 31])
def test_unusable_name_is_refused(bad: str) -> None:
    for use in (Doorbell, DoorbellRinger):
        with pytest.raises(ValueError, match="is not a valid name"):
            use(bad)
