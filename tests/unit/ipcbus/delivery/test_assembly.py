"""Room for one message: every byte at its place, and none outside."""

from __future__ import annotations

import pytest

from ipcbus.delivery.assembly import Assembly, MemoryBudget
from ipcbus.wire.properties import pack
from ipcbus.wire.wire_layout import FLAG_GUARANTEED, FLAG_PROPERTIES, FLAG_REQUEST
from tests.kit.cases import each_of


def test_pieces_in_any_order_make_the_message() -> None:
    assembly = Assembly(10)
    assembly.put(8, b"89")
    assembly.put(0, memoryview(b"0123"))
    assert assembly.filled == 6
    assembly.put(4, bytearray(b"4567"))
    assert assembly.bytes() == b"0123456789"


@each_of("length", [4095, 4096, 4097, 4159, 4160, (1 << 18) - 1, 1 << 18, (1 << 18) + 63])
def test_a_long_piece_leaves_its_neighbours_alone(length: int) -> None:
    """Copies begin on a cache line behind the first bytes; the place begins anywhere in a line."""
    piece = bytes(index * 167 % 251 for index in range(length))
    for offset in range(64):
        front, behind = bytes([1]) * offset, bytes([2]) * 64
        assembly = Assembly(offset + length + 64)
        assembly.put(0, front)
        assembly.put(offset + length, behind)
        assembly.put(offset, piece)
        assert assembly.bytes() == front + piece + behind


def test_what_is_incomplete_is_not_given() -> None:
    assembly = Assembly(4)
    assembly.put(0, b"abc")
    with pytest.raises(ValueError, match="3 of 4 bytes"):
        assembly.bytes()


@each_of(("offset", "piece"), [(5, b""), (4, b"x"), (0, b"abcde"), (3, b"ab"), (2**64 - 1, b"ab")])
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
        assembly.parts(FLAG_PROPERTIES)
    assembly.put(0, block[:10])
    assert assembly.parts(FLAG_PROPERTIES) == (None, 0, block, value)


@each_of("value", [b"", b"v", bytes(range(256)) * 300])
@each_of("block", [b"", pack({"name": b"header"})])
def test_a_request_header_comes_off_first(block: bytes, value: bytes) -> None:
    whole = (0xFEDCBA9876543210).to_bytes(8, "little") + block + value
    assembly = Assembly(len(whole))
    assembly.put(0, whole)
    flags = FLAG_REQUEST | (FLAG_PROPERTIES if block else 0)
    assert assembly.parts(flags) == (0xFEDCBA9876543210, 0, block or None, value)


def test_a_message_without_parts_is_its_value() -> None:
    assembly = Assembly(3)
    assembly.put(0, b"abc")
    assert assembly.parts(0) == (None, 0, None, b"abc")


def test_a_request_shorter_than_its_header_is_not_whole() -> None:
    assembly = Assembly(7)
    assembly.put(0, bytes(7))
    assert assembly.parts(FLAG_REQUEST) is None


def test_a_damaged_header_block_takes_nothing_apart() -> None:
    assembly = Assembly(4)
    assembly.put(0, b"\xff\xffab")
    assert assembly.parts(FLAG_PROPERTIES) is None
    assert assembly.bytes() == b"\xff\xffab"


@pytest.mark.parametrize("flags", [FLAG_GUARANTEED, FLAG_GUARANTEED | FLAG_REQUEST])
def test_a_guaranteed_header_comes_off_behind_a_request_header(flags: int) -> None:
    asks = bool(flags & FLAG_REQUEST)
    whole = (5).to_bytes(8, "little") * asks + (9).to_bytes(8, "little") + b"value"
    assembly = Assembly(len(whole))
    assembly.put(0, whole)
    assert assembly.parts(flags) == (5 if asks else None, 9, None, b"value")


@pytest.mark.parametrize("whole", [bytes(7), bytes(8), bytes(12)])
def test_a_guaranteed_message_without_its_number_is_not_whole(whole: bytes) -> None:
    assembly = Assembly(len(whole))
    assembly.put(0, whole)
    assert assembly.parts(FLAG_GUARANTEED) is None


def test_a_budget_gives_what_was_released() -> None:
    budget = MemoryBudget(1000)
    assert budget.reserve(900)
    assert not budget.reserve(900)
    budget.release(900)
    assert budget.reserve(1000)
