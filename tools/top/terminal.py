"""The terminal: keys one by one, the other screen, and everything as it was before at the end."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import termios
import tty
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from ipcbus_tools.common import Misuse

if TYPE_CHECKING:
    from types import FrameType
    from typing import Self

    from rich.console import RenderableType

_SEQUENCES: Final = {
    **dict.fromkeys((b"[A", b"OA"), "up"),
    **dict.fromkeys((b"[B", b"OB"), "down"),
    **dict.fromkeys((b"[C", b"OC"), "right"),
    **dict.fromkeys((b"[D", b"OD"), "left"),
    **dict.fromkeys((b"[H", b"OH", b"[1~", b"[7~"), "home"),
    **dict.fromkeys((b"[F", b"OF", b"[4~", b"[8~"), "end"),
    b"[5~": "pageup",
    b"[6~": "pagedown",
}
_NAMES: Final = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace"}
_CLICK: Final = re.compile(rb"\[<(\d{1,3});(\d{1,5});(\d{1,5})M")
_BUTTONS: Final = {0: "click", 64: "up", 65: "down"}
"""The left button and the wheel; other buttons do nothing."""
_MOUSE: Final = {True: "\x1b[?1000h\x1b[?1006h", False: "\x1b[?1006l\x1b[?1000l"}
"""Clicks come as sequences with decimal numbers, or not at all (xterm, modes 1000 and 1006)."""
_SETTLE_S: Final = 0.1
_ESCAPE_S: Final = 0.05
"""A lone escape key is one after which nothing has come for so long; slow lines send sequences in pieces."""


def decode(data: bytes) -> tuple[list[str], bytes]:
    """Names of the keys in what a terminal sent, and the beginning of a sequence that is not all there yet."""
    keys: list[str] = []
    while data:
        if data[0] == 0x1B:
            length = _sequence_length(data)
            key = _SEQUENCES.get(data[1:length], "escape" if length == 1 else _clicked(data[1:length]))
        else:
            length = _utf8_length(data)
            text = data[:length].decode(errors="ignore")
            key = _NAMES.get(text, text)
        if not 0 < length <= len(data):
            break
        keys += [key] if key else []
        data = data[length:]
    return keys, data


def _clicked(sequence: bytes) -> str:
    """What the mouse has done: `click COLUMN LINE`, both from 0, or a key that a wheel stands for."""
    found = _CLICK.fullmatch(sequence)
    if found is None:
        return ""
    button = _BUTTONS.get(int(found[1]), "")
    return f"{button} {int(found[2]) - 1} {int(found[3]) - 1}" if button == "click" else button


def _utf8_length(data: bytes) -> int:
    """Length of the character at the beginning, as its first byte says; 1 where the rest is none of it."""
    length = 1 if data[0] < 0xC2 else 2 if data[0] < 0xE0 else 3 if data[0] < 0xF0 else 4 if data[0] < 0xF5 else 1
    return length if all(0x80 <= byte < 0xC0 for byte in data[1:length]) else 1


def _sequence_length(data: bytes) -> int:
    """Length of the escape sequence at the beginning; 0 when more of it is to come."""
    if len(data) == 1:
        return 0
    if data[1] == ord("O"):
        return 3 if len(data) > 2 else 0
    if data[1] != ord("["):
        return 1
    return next((i + 1 for i in range(2, len(data)) if 0x40 <= data[i] <= 0x7E), 0)


class Terminal:
    """Use it as a context manager; in between, the screen belongs to the program."""

    def __init__(self) -> None:
        """On standard input and output.

        Raises:
            Misuse: one of them is no terminal, or one that cannot place its cursor.
        """
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise Misuse("top needs a terminal; --once prints one look, --json one line a look for programs")
        self.console = Console(highlight=False, markup=False, emoji=False)
        if self.console.is_dumb_terminal:
            raise Misuse(f"the terminal (TERM={os.environ.get('TERM', '')!r}) cannot place its cursor; use --once")
        self._fd = sys.stdin.fileno()
        self._rest = b""
        self._wake, self._woken = -1, -1
        self._before: dict[int, Any] = {}
        self._wakeup = -1
        self._suspend = False
        self._settling = False
        self._mouse = False

    def __enter__(self) -> Self:
        """Takes the screen, and keys without waiting for the end of a line."""
        self._modes = termios.tcgetattr(self._fd)
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Each signal puts a byte there, so that one that comes between a look and a sleep still ends the sleep.
        self._wakeup = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number, handler in ((signal.SIGWINCH, self._resized), (signal.SIGTSTP, self._suspended)):
            self._before[number] = signal.signal(number, handler)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        """Gives the terminal back as it was."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        self._give_back()
        os.close(self._wake)
        os.close(self._woken)

    def show(self, lines: RenderableType) -> None:
        """Draws a screen full of lines."""
        self._screen.update(lines)

    def use_mouse(self, wanted: bool) -> None:
        """Has clicks come as keys, or leaves the mouse to the terminal, which marks text with it."""
        if wanted != self._mouse:
            self._mouse = wanted
            self._tell_mouse(wanted)

    def keys(self, timeout: float) -> list[str] | None:
        """Keys that were pressed, as soon as there are any.

        Args:
            timeout: seconds to wait at most.

        Returns:
            Their names; none when the time is over or the size of the screen has changed; None when the terminal
            has gone.
        """
        wait = min(timeout, _ESCAPE_S) if self._rest else timeout
        # What was drawn while the terminal itself still changed its size may have gone astray: it is drawn once more.
        settling, self._settling = self._settling, False
        wait = min(wait, _SETTLE_S) if settling else wait
        ready, _, _ = select.select([self._fd, self._woken], [], [], max(0.0, wait))
        if self._woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, 4096)
        if self._suspend:
            self._stop()
            return []
        if self._fd not in ready:
            lone, self._rest = self._rest, b""
            return ["escape"] if lone == b"\x1b" else []
        try:
            data = os.read(self._fd, 4096)
        except OSError:
            return None
        if not data:
            return None
        found, self._rest = decode(self._rest + data)
        return found

    def _take(self) -> None:
        tty.setcbreak(self._fd, termios.TCSADRAIN)
        self._screen = self.console.screen(hide_cursor=True)
        self._screen.__enter__()
        if self._mouse:
            self._tell_mouse(True)

    def _give_back(self) -> None:
        with contextlib.suppress(OSError, termios.error):
            if self._mouse:
                self._tell_mouse(False)
            self._screen.__exit__(None, None, None)
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._modes)

    def _tell_mouse(self, wanted: bool) -> None:
        self.console.file.write(_MOUSE[wanted])
        self.console.file.flush()

    def _resized(self, _number: int, _frame: FrameType | None) -> None:
        """The wait has ended, and the next drawing asks for the size."""
        self._settling = True

    def _suspended(self, _number: int, _frame: FrameType | None) -> None:
        """Ctrl-Z: only remembered, as it may come in the middle of a drawing; the wait for keys has ended."""
        self._suspend = True

    def _stop(self) -> None:
        """The shell gets its screen, and `fg` brings ours back."""
        self._suspend = False
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._suspended)
        self._take()
