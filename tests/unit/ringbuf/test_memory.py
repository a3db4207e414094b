from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ringbuf import segment
from ringbuf.memory import Mapping
from tests.rings.children import Children

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = 4096
SIZE = 4 * PAGE


@pytest.fixture
def name(domain: str) -> Iterator[str]:
    """A name that nobody else uses; removed at the end."""
    yield f"ipcbus.{domain}.m"
    segment.remove(f"ipcbus.{domain}.m")


@pytest.fixture
def fd(name: str) -> Iterator[int]:
    """A shared object with a different byte on each page."""
    number = segment.create(name, SIZE)
    for page in range(SIZE // PAGE):
        os.pwrite(number, bytes([page + 1]) * PAGE, page * PAGE)
    yield number
    os.close(number)


def mapped_bytes(name: str) -> int:
    """Bytes of this process's address space that show the object."""
    total = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        if f"/{name}" in line:
            first, last = line.split()[0].split("-")
            total += int(last, 16) - int(first, 16)
    return total


def test_view_shows_the_object_and_writes_to_it(fd: int) -> None:
    mapping = Mapping(fd, SIZE, True)
    view = mapping.view(PAGE, 4)
    assert bytes(view) == b"\2\2\2\2"
    view[:] = b"abcd"
    assert os.pread(fd, 6, PAGE) == b"abcd\2\2"
    assert mapping.size == SIZE
    assert len(mapping.view()) == SIZE
    assert bytes(mapping.view(SIZE - 1)) == b"\4"
    assert bytes(mapping.view(SIZE)) == b""


def test_read_only_mapping_gives_read_only_views(fd: int) -> None:
    mapping = Mapping(fd, SIZE, False)
    view = mapping.view()
    assert view.readonly
    assert not mapping.writable
    with pytest.raises(TypeError):
        view[0] = 1
    assert not np.frombuffer(view, np.uint8).flags.writeable


def test_descriptor_may_be_closed_after_mapping(name: str) -> None:
    own = segment.create(name, PAGE)
    mapping = Mapping(own, PAGE, True)
    os.close(own)
    mapping.view()[:3] = b"xyz"
    assert bytes(mapping.view(0, 3)) == b"xyz"


@pytest.mark.parametrize(
    ("offset", "length"), [(-1, 1), (0, -1), (0, SIZE + 1), (SIZE, 1), (1 << 62, 1), (1, (1 << 63) - 1)]
)
def test_view_outside_is_refused(fd: int, offset: int, length: int) -> None:
    with pytest.raises(ValueError, match=f"lie outside the mapping of {SIZE} bytes"):
        Mapping(fd, SIZE, False).view(offset, length)


@pytest.mark.parametrize(("size", "twice_from"), [(0, 0), (SIZE, SIZE), (SIZE, SIZE + PAGE)])
def test_empty_mapping_is_refused(fd: int, size: int, twice_from: int) -> None:
    with pytest.raises(ValueError, match="nothing is left"):
        Mapping(fd, size, False, twice_from)


def test_system_refusal_is_an_error(fd: int) -> None:
    before = mapped_bytes(f"ipcbus.{os.getpid()}")
    with pytest.raises(OSError, match="cannot map"):
        Mapping(fd, SIZE, False, twice_from=100)
    with pytest.raises(OSError, match="cannot reserve"):
        Mapping(fd, SIZE, False, reserve=1 << 62)
    assert mapped_bytes(f"ipcbus.{os.getpid()}") == before


def test_second_mapping_continues_where_the_first_ends(fd: int) -> None:
    mapping = Mapping(fd, SIZE, True, twice_from=PAGE)
    assert mapping.size == SIZE
    across = mapping.view(SIZE - 2, 4)
    assert bytes(across) == b"\4\4\2\2"
    across[:] = b"abcd"
    assert bytes(mapping.view(SIZE - 2, 2)) == b"ab"
    assert bytes(mapping.view(PAGE, 2)) == b"cd"
    assert os.pread(fd, 2, PAGE) == b"cd"
    again = mapping.view(SIZE, SIZE - PAGE)
    assert bytes(again) == bytes(mapping.view(PAGE))
    with pytest.raises(ValueError, match="outside"):
        mapping.view(SIZE, SIZE - PAGE + 1)


def test_object_may_grow_in_place_within_the_reserve(name: str, fd: int) -> None:
    mapping = Mapping(fd, SIZE, True, reserve=8 * SIZE)
    segment.allocate(fd, name, 2 * SIZE)
    mapping.view(SIZE, SIZE)[:] = b"n" * SIZE
    assert os.pread(fd, SIZE, SIZE) == b"n" * SIZE


def test_mapping_lives_as_long_as_a_view_or_an_array_of_it(name: str, fd: int) -> None:
    mapping = Mapping(fd, SIZE, False, twice_from=PAGE)
    assert mapped_bytes(name) == 2 * SIZE - PAGE
    part = mapping.view(PAGE)[4:8]
    array = np.frombuffer(mapping.view(2 * PAGE), np.uint8)[1:]
    del mapping
    segment.remove(name)
    gc.collect()
    assert bytes(part) == b"\2\2\2\2"
    assert array[0] == 3
    del part
    assert mapped_bytes(name) == 2 * SIZE - PAGE
    assert array.sum() == 3 * (PAGE - 1) + 4 * PAGE
    del array
    gc.collect()
    assert mapped_bytes(name) == 0


def test_released_view_is_an_error_and_an_array_of_it_lives_on(fd: int) -> None:
    def use_after_release() -> tuple[int, str]:
        mapping = Mapping(fd, SIZE, False)
        view = mapping.view()
        array = np.frombuffer(view, np.uint8)
        view.release()
        with pytest.raises(ValueError, match="released"):
            bytes(view)
        del mapping, view
        gc.collect()
        return int(array.sum()), bytes(array[:4]).hex()

    with Children() as children:
        assert children.run(use_after_release).result() == (PAGE * (1 + 2 + 3 + 4), "01010101")


def test_writing_through_a_read_only_mapping_by_force_ends_only_the_one_who_does(name: str, fd: int) -> None:
    """What protects a source from its receivers is the page table, not good manners."""

    def force() -> None:
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        reading = segment.open_fd(name, write=False)
        array = np.frombuffer(Mapping(reading, SIZE, False).view(), np.uint8)
        ctypes.memset(array.ctypes.data, 0, 1)

    with Children() as children:
        assert children.run(force).wait() == -11
    assert os.pread(fd, 1, 0) == b"\1"
