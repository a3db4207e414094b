"""Memory of long messages serves again, and never while anything refers to it."""

from __future__ import annotations

import gc
import random
import sys
from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ipcbus.delivery.spare_bytes import copy_of, drop
from tests.kit.cases import each_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONG = 1 << 18
LIMIT = 1 << 25
with_lock = pytest.mark.skipif(
    not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="another thread may hold what seems unused"
)


@pytest.fixture(autouse=True)
def _no_spares() -> Iterator[None]:
    drop()
    yield
    drop()


def data(length: int, first: int = 0) -> bytes:
    """Bytes of which no two blocks of a page are the same."""
    return (np.arange(first, first + length // 4 + 1, dtype=np.uint32) * 2_654_435_761).astype("<u4").tobytes()[:length]


@pytest.mark.parametrize(
    "length",
    [0, 1, 4095, 4096, 4097, 4159, LONG - 1, LONG, (1 << 23) - 1, *((1 << 23) + n for n in (0, 1, 63, 64, 65))],
)
def test_a_copy_has_the_bytes(length: int) -> None:
    for first in range(3):  # the second and the third copy of a long one lie in memory of an earlier one
        assert copy_of(data(length, first)) == data(length, first)


@with_lock
def test_what_nothing_refers_to_is_filled_again() -> None:
    first, second = copy_of(data(LONG)), copy_of(data(LONG, 1))
    at = {id(first), id(second)}
    assert len(at) == 2
    del first, second
    third, fourth = copy_of(data(LONG, 2)), copy_of(data(LONG, 3))
    assert {id(third), id(fourth)} == at
    assert id(copy_of(data(LONG))) not in at
    assert (third, fourth) == (data(LONG, 2), data(LONG, 3))


@with_lock
def test_memory_serves_other_lengths_too() -> None:
    lengths = [3 * LONG, 3 * LONG - 1, 2 * LONG, 3 * LONG, 3 * LONG + 100]
    found = []
    for number, length in enumerate(lengths):
        copy = copy_of(data(length, number))
        assert (len(copy), copy) == (length, data(length, number))
        assert hash(copy) == hash(data(length, number))
        assert bytes(memoryview(copy)) + b"x" == copy + b"x"
        found.append(id(copy))
        del copy
    assert len(set(found[:4])) == 1
    assert id(copy_of(data(LONG))) != found[0]  # not half as long: the rest would be wasted


def test_random_lengths_need_few_objects() -> None:
    chance = random.Random(5)
    kept: deque[tuple[int, bytes]] = deque(maxlen=2)
    for number in range(300):
        length = chance.randrange(LONG, 8 * LONG)
        kept.append((number, copy_of(data(length, number))))
        for first, copy in kept:
            assert copy == data(len(copy), first)
    assert drop(unused_only=True) <= 6


@each_of(
    "keep",
    [
        lambda copy: copy,
        lambda copy: [copy],
        memoryview,
        lambda copy: memoryview(copy)[5:],
        lambda copy: np.frombuffer(copy, np.uint8),
        lambda copy: np.frombuffer(memoryview(copy), np.uint8)[::7],
        lambda copy: {copy: 1},
    ],
)
def test_what_is_kept_never_changes(keep: Callable[[bytes], object]) -> None:
    kept = keep(copy_of(data(LONG)))
    copies = [copy_of(data(LONG, number)) for number in range(1, 12)]
    assert copies == [data(LONG, number) for number in range(1, 12)]
    expected = keep(data(LONG))
    assert np.array_equal(kept, expected) if isinstance(kept, np.ndarray) else kept == expected
    del copies
    for number in range(12):
        assert hash(copy_of(data(LONG, number))) == hash(data(LONG, number))  # it does not remember an earlier one
    assert np.array_equal(kept, expected) if isinstance(kept, np.ndarray) else kept == expected


def test_few_are_kept_and_none_for_long() -> None:
    kept = [copy_of(data(LONG + number)) for number in range(20)]
    copy_of(bytes(LIMIT + 1))
    copy_of(bytes(LONG - 1))
    del kept
    assert drop(unused_only=True) == 6
    copy_of(data(LONG + 19))
    assert drop(unused_only=True) == 1
    assert drop(unused_only=True) == 0


def test_the_memory_is_given_back() -> None:
    drop()
    before = sys.getallocatedblocks()
    for number in range(20):
        copy_of(bytes(LONG + number))
    drop()
    gc.collect()
    assert sys.getallocatedblocks() - before < 20
