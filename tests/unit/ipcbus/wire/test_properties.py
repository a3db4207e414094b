"""Header blocks: every limit from both sides, and bytes that contradict themselves."""

from __future__ import annotations

from collections import ChainMap
from typing import TYPE_CHECKING

import numpy as np
import pytest

import ipcbus
from ipcbus.wire.properties import KEY_MAX, block_length, pack, unpack
from tests.kit.cases import each_of

if TYPE_CHECKING:
    from ipcbus.wire.properties import Headers

BLOCK_MAX = 65535
ONE = b"\x0a\x00" + b"\x01k" + b"\x04\x00data"[:2] + b"data"


def test_the_bytes_are_those_of_the_picture() -> None:
    assert pack({"k": b"data"}) == ONE
    assert pack([("k", b"data"), ("été", b"")]) == b"\x12\x00" + ONE[2:] + b"\x05" + "été".encode() + b"\0\0"


@each_of("none", [{}, (), [], iter(())])
def test_no_headers_are_no_block(none: Headers) -> None:
    assert pack(none) == b""
    assert unpack(b"") == ()


@pytest.mark.parametrize(
    "headers",
    [
        {"a": b"1", "b": b"2"},
        ChainMap({"a": b"1", "b": b"2"}),
        [("a", bytearray(b"1")), ["b", memoryview(b"2")]],
        (("a", np.array([0x31], np.uint8)), ("b", b"2")),
        (pair for pair in [("a", b"1"), ("b", b"2")]),
    ],
    ids=["dict", "mapping", "list", "tuple", "generator"],
)
def test_headers_may_be_given_in_many_forms(headers: Headers) -> None:
    assert sorted(unpack(pack(headers))) == [("a", b"1"), ("b", b"2")]


class Interrupted:
    """Raises where a signal handler may: while `isinstance` asks for the class."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise KeyboardInterrupt


def test_an_exception_while_the_form_of_headers_is_found_reaches_the_caller() -> None:
    with pytest.raises(KeyboardInterrupt):
        pack(Interrupted())  # type: ignore[arg-type]


def test_order_and_repeated_names_stay() -> None:
    headers = (("b", b"1"), ("a", b""), ("b", b"1"), ("ключ", bytes(range(256))))
    assert unpack(pack(headers)) == headers


def test_the_longest_block_and_one_byte_more() -> None:
    room = BLOCK_MAX - 2 - 3 - 1
    block = pack({"k": bytes(room)})
    assert len(block) == BLOCK_MAX
    assert unpack(block) == (("k", bytes(room)),)
    with pytest.raises(ipcbus.MessageTooLarge, match=r"65536 bytes.*65535.*message itself"):
        pack({"k": bytes(room + 1)})


def test_the_longest_name_and_one_byte_more() -> None:
    longest = "é" * (KEY_MAX // 2) + "x"
    assert unpack(pack({longest: b"v"})) == ((longest, b"v"),)
    with pytest.raises(ValueError, match="256 bytes of UTF-8"):
        pack({longest + "x": b"v"})


@each_of(
    ("headers", "error", "words"),
    [
        (5, TypeError, "mapping or a sequence of pairs, not int"),
        ("ab", TypeError, "a header must be a pair of a text and bytes, not str"),
        (b"ab", TypeError, "a header must be a pair of a text and bytes, not int"),
        ([("a",)], TypeError, "not tuple"),
        ([("a", b"", b"")], TypeError, "not tuple"),
        ([(b"a", b"")], TypeError, "name of a header must be a text, not bytes"),
        ([("", b"")], ValueError, "0 bytes of UTF-8, but must have 1"),
        ([("\ud800", b"")], ValueError, r"'\\ud800' of a header cannot be encoded as UTF-8"),
        ([("a", "b")], TypeError, "value of header 'a' is str, not bytes-like; encode it"),
        ([("a", 5)], TypeError, "value of header 'a' is int"),
        ([("a", None)], TypeError, "value of header 'a' is NoneType"),
    ],
)
def test_what_is_no_header_is_refused(headers: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        pack(headers)  # type: ignore[arg-type]


@each_of(
    "damaged",
    [
        b"\x0a",
        ONE[:-1],
        b"\x00\x00" + ONE[2:],
        b"\x01\x00" + ONE[2:],
        b"\x02\x00",
        b"\x03\x00" + ONE[2:],
        b"\x09\x00" + ONE[2:],
        b"\x0b\x00" + ONE[2:] + b"\x01",
        b"\x0a\x00" + b"\x00" + ONE[3:],
        b"\x0a\x00" + b"\xff" + ONE[3:],
        b"\x0a\x00\x01k" + b"\x05\x00" + b"data",
        b"\x0a\x00\x01k" + b"\x03\x00" + b"data",
        b"\x0a\x00\x01k" + b"\xff\xff" + b"data",
        b"\x0a\x00\x01\xff" + ONE[4:],
        b"\x07\x00\x01k" + b"\x00\x00" + b"\x01",
    ],
)
def test_what_contradicts_itself_is_no_block(damaged: bytes) -> None:
    assert block_length(damaged) == 0
    assert block_length(damaged + bytes(2)) in (0, len(ONE))
    with pytest.raises(ValueError, match="not exactly one header block"):
        unpack(damaged)


def test_a_block_is_found_before_whatever_follows() -> None:
    assert block_length(ONE) == block_length(ONE + b"rest") == block_length(bytearray(ONE + bytes(70_000))) == len(ONE)
    assert block_length(b"") == 0
    with pytest.raises(ValueError, match="not exactly one header block"):
        unpack(ONE + b"r")


@pytest.mark.parametrize("data", ["text", None, 5])
def test_only_bytes_are_looked_at(data: object) -> None:
    with pytest.raises(TypeError):
        block_length(data)
    with pytest.raises(TypeError):
        unpack(data)  # type: ignore[arg-type]
