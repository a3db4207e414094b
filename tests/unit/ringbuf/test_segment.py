from __future__ import annotations

import grp
import os
import resource
import stat
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest

from ringbuf import segment
from ringbuf.ring_errors import SegmentFull, SegmentGone, SegmentRefused
from tests.kit.cases import each_of
from tests.rings.channels import owned
from tests.rings.children import Children
from tests.rings.systems import NOBODY, as_nobody, in_small_shm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SMALL = 256 * 1024
"""Bytes of the small /dev/shm of these tests."""


@pytest.fixture
def name(domain: str) -> Iterator[str]:
    """A name for an object; whatever it names afterwards is removed."""
    yield f"ipcbus.{domain}.s"
    segment.remove(f"ipcbus.{domain}.s")


def make(name: str, size: int = 4096, *, group: str = "", mode: int = 0o600) -> None:
    os.close(segment.create(name, size, group=group, mode=mode))


def status(name: str) -> os.stat_result:
    return os.stat(segment.ROOT / name)


def test_new_object_is_zero_and_really_allocated(name: str) -> None:
    fd = segment.create(name, 3 * 4096)
    found = os.fstat(fd)
    assert found.st_size == 3 * 4096
    assert found.st_blocks * 512 >= 3 * 4096
    assert os.pread(fd, 1 << 20, 0) == bytes(3 * 4096)
    assert not os.get_inheritable(fd)
    os.close(fd)


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_permissions_do_not_depend_on_the_umask(name: str, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        make(name, mode=mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE(status(name).st_mode) == mode


@pytest.mark.parametrize("number", [False, True])
def test_group_gets_the_object_and_may_write(name: str, number: bool) -> None:
    gid = os.getegid()
    make(name, group=str(gid) if number else grp.getgrgid(gid).gr_name)
    assert stat.S_IMODE(status(name).st_mode) == 0o660
    assert status(name).st_gid == gid


@pytest.mark.parametrize("group", ["no such group", "9" * 30])
def test_unknown_group_is_refused_and_nothing_is_left(name: str, group: str) -> None:
    with pytest.raises(SegmentRefused, match=f"{name} cannot be given to group '{group}'.*group that exists"):
        make(name, group=group)
    assert not (segment.ROOT / name).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_group_of_others_is_refused(name: str) -> None:
    def give_to_root() -> str:
        as_nobody()
        with pytest.raises(SegmentRefused, match=r"cannot be given to group .* group that exists") as caught:
            make(name, group=grp.getgrgid(0).gr_name)
        return str(caught.value)

    with Children() as children:
        assert name in children.run(give_to_root).result()
    assert not (segment.ROOT / name).exists()


def test_taken_name_is_refused_and_the_object_stays_as_it_was(name: str) -> None:
    fd = segment.create(name, 4096)
    os.pwrite(fd, b"mine", 0)
    with pytest.raises(FileExistsError, match=f"{name} exists already"):
        segment.create(name, 8192)
    assert os.fstat(fd).st_size == 4096
    assert os.pread(fd, 4, 0) == b"mine"
    os.close(fd)


@each_of("bad", ["", "a/b", "/a", "n" * (segment.NAME_MAX + 1)])
def test_unusable_name_is_refused(bad: str) -> None:
    uses: list[Callable[[], object]] = [
        lambda: segment.create(bad, 1),
        lambda: segment.open_fd(bad, write=False),
        lambda: segment.remove(bad),
    ]
    for use in uses:
        with pytest.raises(ValueError, match="is not a valid name of a shared object: give 1 to 30 characters"):
            use()


def test_longest_name_is_fine(domain: str) -> None:
    longest = f"ipcbus.{domain}.".ljust(segment.NAME_MAX, "n")
    make(longest)
    assert segment.names(f"ipcbus.{domain}.") == [longest]
    assert segment.remove(longest)
    assert not segment.remove(longest)
    assert segment.names(f"ipcbus.{domain}.") == []


def test_missing_object_is_gone(name: str) -> None:
    with pytest.raises(SegmentGone, match=f"{name} does not exist"):
        segment.open_fd(name, write=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_object_of_another_user_is_refused_with_both_users(name: str) -> None:
    def open_it(write: bool) -> str:
        as_nobody()
        with pytest.raises(SegmentRefused) as caught:
            segment.open_fd(name, write=write)
        return str(caught.value)

    make(name)
    with Children() as children:
        for write in (False, True):
            text = children.run(open_it, write).result()
            assert f"owner uid 0, this process uid {NOBODY}" in text
            assert "shared_memory_group" in text


def test_object_opened_for_reading_cannot_be_written(name: str) -> None:
    make(name)
    fd = segment.open_fd(name, write=False)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(fd, b"x")
    with pytest.raises(OSError, match="Permission denied"):
        segment.map_fd(fd, write=True)
    os.close(fd)


@dataclass
class Refusal:
    """What a request for too much came to in a small /dev/shm."""

    text: str
    free_before: int | None
    free_after: int | None
    left: list[str]


def in_full_shm(ask: Callable[[], object], *, unasked: bool = False) -> Refusal | None:
    """Runs in a child: asks for too much where there is little.

    Args:
        ask: asks for it.
        unasked: the first question for the free bytes is not answered, as when others take them at that moment.
    """
    if not in_small_shm(SMALL):
        return None
    before = segment.free_bytes()
    if unasked:
        real, first = segment.free_bytes, iter([None])
        segment.free_bytes = lambda: next(first, real())
    with pytest.raises(SegmentFull) as caught:
        ask()
    return Refusal(str(caught.value), before, segment.free_bytes(), segment.names(""))


def refusal(ask: Callable[[], object], *, unasked: bool = False) -> Refusal:
    with Children() as children:
        found = children.run(partial(in_full_shm, ask, unasked=unasked)).result()
    if found is None:
        pytest.skip("this system does not let tests have a /dev/shm of their own")
    return found


@pytest.mark.parametrize("unasked", [False, True])
def test_full_shared_memory_is_an_error_that_names_need_and_free_bytes(name: str, unasked: bool) -> None:
    found = refusal(lambda: segment.create(name, 4 * SMALL), unasked=unasked)
    assert found.free_before == SMALL
    assert f"{name} needs {4 * SMALL} bytes of /dev/shm, " in found.text
    assert "are free" in found.text
    assert "--shm-size" in found.text
    assert found.free_after == SMALL
    assert found.left == []


def test_free_bytes_in_the_error_are_those_before_the_request(name: str) -> None:
    def ask() -> None:
        make(name + "1", SMALL // 2)
        try:
            segment.create(name, SMALL)
        finally:
            segment.remove(name + "1")

    assert f"needs {SMALL} bytes of /dev/shm, {SMALL // 2} are free" in refusal(ask).text


@pytest.mark.parametrize("size", [SMALL // 2, SMALL])
def test_channel_that_does_not_fit_leaves_nothing(domain: str, size: int) -> None:
    def ask() -> None:
        with owned(domain, window=size):
            pass

    def ask_for_the_rest() -> None:
        make("x", SMALL // 2)
        ask()

    found = refusal(ask if size == SMALL else ask_for_the_rest)
    assert "bytes of /dev/shm" in found.text
    assert found.left == ([] if size == SMALL else ["x"])


def in_small_files(ask: Callable[[], object]) -> str:
    """Runs in a child: asks for more than the system lets a file of this process have."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    with pytest.raises(SegmentFull) as caught:
        ask()
    return str(caught.value)


def test_a_limit_of_the_size_of_files_is_named_with_its_cure(name: str) -> None:
    with Children() as children:
        text = children.run(partial(in_small_files, partial(segment.create, name, 20_000))).result()
    assert f"cannot make {name} of 20000 bytes: this process may make files" in text
    assert "at most 10000 bytes each; raise the limit (ulimit -f" in text
    assert segment.names(name) == []


def test_object_that_just_fits_can_be_written_to_its_last_byte(name: str) -> None:
    def work() -> bool:
        if not in_small_shm(SMALL):
            return False
        fd = segment.create(name, SMALL)
        segment.map_fd(fd, write=True).view()[:] = b"\xff" * SMALL
        return os.pread(fd, SMALL, 0) == b"\xff" * SMALL

    with Children() as children:
        if not children.run(work).result():
            pytest.skip("this system does not let tests have a /dev/shm of their own")


def test_growing_asks_only_for_what_is_missing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = segment.create(name, 8192)
    monkeypatch.setattr(segment, "free_bytes", lambda: 4096)
    segment.allocate(fd, name, 12288)
    assert os.fstat(fd).st_size == 12288
    with pytest.raises(SegmentFull, match=f"{name} needs 4097 bytes of /dev/shm, 4096 are free"):
        segment.allocate(fd, name, 12288 + 4097)
    assert os.fstat(fd).st_size == 12288
    os.close(fd)
