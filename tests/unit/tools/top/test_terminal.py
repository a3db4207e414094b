from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipcbus_tools.top.terminal import decode


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"sq?", ["s", "q", "?"]),
        (b"\x1b[A\x1b[B\x1bOC\x1bOD", ["up", "down", "right", "left"]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[4~", ["pageup", "pagedown", "home", "end"]),
        (b"\r\n\x7f\x08", ["enter", "enter", "backspace", "backspace"]),
        ("é日".encode(), ["é", "日"]),
        (b"\x1bx", ["escape", "x"]),
        (b"\x1b[200~a\x1b[1;5A", ["a"]),  # sequences that mean nothing here
        (b"\xff\xfea", ["a"]),
        (b"\x1b[<0;12;4M\x1b[<0;12;4m", ["click 11 3"]),  # pressed and let go
        (b"\x1b[<64;1;1M\x1b[<65;1;1M", ["up", "down"]),
        (b"\x1b[<2;5;5M\x1b[<35;5;5Ma", ["a"]),  # another button, a move
    ],
)
def test_keys(data: bytes, keys: list[str]) -> None:
    assert decode(data + b" ") == ([*keys, " "], b"")


@pytest.mark.parametrize("data", [b"\x1b", b"\x1b[", b"\x1b[1;5", b"\x1bO", b"\xe6\x97"])
def test_the_rest_is_to_come(data: bytes) -> None:
    assert decode(b"a" + data) == (["a"], data)


@given(st.binary(), st.integers(0, 50))
def test_however_the_bytes_are_cut(data: bytes, cut: int) -> None:
    whole, rest = decode(data)
    first, middle = decode(data[:cut])
    second, end = decode(middle + data[cut:])
    assert (first + second, end) == (whole, rest)
