"""Room for one message: every byte at its place, and none outside."""

from __future__ import annotations

import pytest

from ipcbus.delivery.assembly import Assembly


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
