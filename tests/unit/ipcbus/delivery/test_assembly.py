"""Room for one message: every byte at its place, and none outside."""

from __future__ import annotations

import pytest

from ipcbus.delivery.assembly import Assembly
from ipcbus.wire.properties import pack


def test_pieces_in_any_order_make_the_message() -> None:
    assembly = Assembly(10)
    assembly.put(8, b"89")
    assembly.put(0, memoryview(b"0123"))
    assert assembly.filled == 6
    assembly.put(4, bytearray(b"4567"))
    assert assembly.bytes() == b"0123456789"


def test_what_is_incomplete_is_not_given() -> None:
    assembly = Assembly(4)
    assembly.put(0, b"abc")
    with pytest.raises(ValueError, match="3 of 4 bytes"):
        assembly.bytes()


@pytest.mark.parametrize(("offset", "piece"), [(5, b""), (4, b"x"), (0, b"abcde"), (3, b"ab"), (2**64 - 1, b"ab")])
def test_nothing_is_written_outside(offset: int, piece: bytes) -> None:
    assembly = Assembly(4)
    with pytest.raises(ValueError, match="outside"):
        assembly.put(offset, piece)
    assert assembly.filled == 0


def test_what_has_no_bytes_is_refused() -> None:
    with pytest.raises(TypeError):
        Assembly(4).put(0, "text")


def test_what_no_memory_can_hold_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        Assembly(2**62)


@pytest.mark.parametrize("value", [b"", b"v", bytes(range(256)) * 300])
def test_header_block_and_value_come_apart(value: bytes) -> None:
    block = pack({"name": b"header", "other": bytes(40)})
    assembly = Assembly(len(block) + len(value))
    assembly.put(10, (block + value)[10:])
    with pytest.raises(ValueError, match="bytes were put"):
        assembly.parts()
    assembly.put(0, block[:10])
    assert assembly.parts() == (block, value)


def test_a_damaged_header_block_takes_nothing_apart() -> None:
    assembly = Assembly(4)
    assembly.put(0, b"\xff\xffab")
    assert assembly.parts() is None
    assert assembly.bytes() == b"\xff\xffab"
