from __future__ import annotations

import contextlib
import os
import pty
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from ipcbus_tools.top.terminal import Terminal, decode
from tests.kit.cases import each_of

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG_S = 30.0


@each_of(
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


@each_of("data", [b"\x1b", b"\x1b[", b"\x1b[1;5", b"\x1bO", b"\xe6\x97"])
def test_the_rest_is_to_come(data: bytes) -> None:
    assert decode(b"a" + data) == (["a"], data)


@given(st.binary(), st.integers(0, 50))
def test_however_the_bytes_are_cut(data: bytes, cut: int) -> None:
    whole, rest = decode(data)
    first, middle = decode(data[:cut])
    second, end = decode(middle + data[cut:])
    assert (first + second, end) == (whole, rest)


@contextlib.contextmanager
def terminal_of_20_by_4() -> Iterator[tuple[Terminal, int]]:
    """A terminal, and the other end of its line."""
    line, theirs = pty.openpty()
    # pytest puts streams of its own into `sys` again before each test, so a fixture would come too early.
    with (
        pytest.MonkeyPatch.context() as patch,
        open(line, "rb", buffering=0),
        open(theirs, "rb", buffering=0) as keyboard,
        open(os.dup(theirs), "w") as screen,
    ):
        for name, value in (("TERM", "xterm"), ("COLUMNS", "20"), ("LINES", "4")):
            patch.setenv(name, value)
        patch.setattr(sys, "stdin", keyboard)
        patch.setattr(sys, "stdout", screen)
        with Terminal() as terminal:
            yield terminal, line


def drawn(line: int, end: bytes) -> bytes:
    """What came over the line, up to an end."""
    data = b""
    while not data.endswith(end):
        data += os.read(line, 4096)
    return data


@pytest.mark.parametrize(
    ("pieces", "keys"),
    [
        ((b"\x1b[<0;7", b"1;4M"), ["click 70 3"]),
        ((b"\x1b", b"[A"), ["up"]),
        ((b"\xc3", b"\xa9"), ["\u00e9"]),
    ],
)
def test_a_sequence_may_come_in_pieces(pieces: tuple[bytes, bytes], keys: list[str]) -> None:
    with terminal_of_20_by_4() as (terminal, line):
        os.write(line, pieces[0])
        assert terminal.keys(LONG_S) == []
        assert terminal.keys(0) == []  # the next screen was due; that says nothing about the line
        os.write(line, pieces[1])
        assert terminal.keys(LONG_S) == keys


def test_an_escape_character_alone_is_a_key() -> None:
    with terminal_of_20_by_4() as (terminal, line):
        os.write(line, b"\x1b")
        assert terminal.keys(LONG_S) == []
        assert terminal.keys(LONG_S) == ["escape"]


def test_a_screen_is_drawn_over_the_one_before() -> None:
    with terminal_of_20_by_4() as (terminal, line):
        drawn(line, b"\x1b[?25l")  # the cursor is hidden
        for text in (b"first", b"second"):
            terminal.show(Text(f"{text.decode()}\n2\n3\nlast"))
            screen = drawn(line, b"last" + b" " * 16)
            assert screen.startswith(b"\x1b[H" + text), screen
            assert screen.count(b"\n") == 3  # nothing scrolls
