from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ringbuf import segment
from ringbuf.shared_words import SharedWords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ringbuf.memory import Mapping

SIZE = 4096


@pytest.fixture
def mapping(domain: str) -> Iterator[Mapping]:
    """A writable page of shared memory."""
    fd = segment.create(f"ipcbus.{domain}.w", SIZE)
    yield segment.map_fd(fd, write=True)
    os.close(fd)
    segment.remove(f"ipcbus.{domain}.w")


def test_words_are_the_bytes_of_the_mapping(mapping: Mapping) -> None:
    words = SharedWords(mapping)
    words.store32(4, 0x01020304)
    words.store64(SIZE - 8, 0x1112131415161718)
    assert bytes(mapping.view(4, 4)) == bytes([4, 3, 2, 1])
    assert bytes(mapping.view(SIZE - 8)) == bytes(range(0x18, 0x10, -1))
    assert words.load32(4) == 0x01020304
    assert words.load64(SIZE - 8) == 0x1112131415161718


def test_compare_and_swap_changes_only_what_it_expected(mapping: Mapping) -> None:
    words = SharedWords(mapping)
    assert words.cas32(8, 0, 7)
    assert not words.cas32(8, 0, 9)
    assert words.load32(8) == 7
    assert words.cas64(8, 7, 1 << 40)
    assert not words.cas64(8, 7, 9)
    assert words.load64(8) == 1 << 40


def test_changes_return_what_the_word_was(mapping: Mapping) -> None:
    words = SharedWords(mapping)
    assert words.exchange32(0, 5) == 0
    assert words.or32(0, 0x8000000A) == 5
    assert words.load32(0) == 0x8000000F
    assert words.or64(8, 1 << 63 | 1) == 0
    assert words.and64(8, ~1 & 0xFFFFFFFFFFFFFFFF) == 1 << 63 | 1
    assert words.load64(8) == 1 << 63
    words.fence()


@pytest.mark.parametrize("offset", [1, 2, SIZE, SIZE - 2, SIZE + 4, 1 << 32, (1 << 64) - 4])
def test_word_outside_or_across_is_refused(mapping: Mapping, offset: int) -> None:
    words = SharedWords(mapping)
    with pytest.raises(ValueError, match=f"no 32-bit word at byte {offset} of a mapping of {SIZE} bytes"):
        words.load32(offset)


@pytest.mark.parametrize("offset", [4, SIZE - 4, SIZE, (1 << 64) - 8])
def test_long_word_outside_or_across_is_refused(mapping: Mapping, offset: int) -> None:
    with pytest.raises(ValueError, match="no 64-bit word"):
        SharedWords(mapping).load64(offset)


def test_negative_offset_is_refused(mapping: Mapping) -> None:
    with pytest.raises(OverflowError):
        SharedWords(mapping).load32(-4)


@pytest.mark.parametrize(
    "change",
    [
        lambda words: words.store32(0, 1),
        lambda words: words.store64(0, 1),
        lambda words: words.cas32(0, 0, 1),
        lambda words: words.cas64(0, 0, 1),
        lambda words: words.exchange32(0, 1),
        lambda words: words.or32(0, 1),
        lambda words: words.or64(0, 1),
        lambda words: words.and64(0, 0),
    ],
)
def test_change_in_a_read_only_mapping_is_refused(domain: str, change: Callable[[SharedWords], object]) -> None:
    name = f"ipcbus.{domain}.o"
    os.close(segment.create(name, SIZE))
    fd = segment.open_fd(name, write=False)
    segment.remove(name)
    words = SharedWords(segment.map_fd(fd, write=False))
    os.close(fd)
    assert words.load32(0) == 0
    with pytest.raises(ValueError, match="reading only"):
        change(words)


def test_a_mask_says_which_of_many_words_have_a_value(mapping: Mapping) -> None:
    words = SharedWords(mapping)
    words.store32(64, 3)
    words.store32(64 + 63 * 8, 3)
    assert words.equal32(64, 8, 64, 3) == 1 << 63 | 1
    assert words.equal32(64, 8, 64, 0) == ~(1 << 63 | 1) & 0xFFFFFFFFFFFFFFFF
    for count in (0, 65):
        with pytest.raises(ValueError, match="1 to 64 bits"):
            words.equal32(64, 8, count, 3)
    with pytest.raises(ValueError, match="no 32-bit word"):
        words.equal32(SIZE - 8, 8, 2, 0)
