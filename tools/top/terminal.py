"""The terminal: single keys, the alternate screen, and the previous state at the end."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import termios
import time
import tty
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.control import Control

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
"""The left button and the mouse's scrolling; other buttons do nothing."""
_MOUSE: Final = {True: "\x1b[?1000h\x1b[?1006h", False: "\x1b[?1006l\x1b[?1000l"}
"""Switches reports of clicks on or off (xterm, modes 1000 and 1006)."""
_SETTLE_S: Final = 0.1
_ESCAPE_S: Final = 0.05
_UNFINISHED_S: Final = 2.0
"""Slow lines send sequences in pieces. After this silence the rest of a sequence does not come any more: soon if the
beginning is all that a key sends (Escape, or `[` or `O` with Alt), later otherwise."""
_PRESSED: Final = (b"\x1b", b"\x1b[", b"\x1bO")


def decode(data: bytes) -> tuple[list[str], bytes]:
    """Returns the names of the keys in bytes of a terminal, and the unfinished sequence at their end."""
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
    """Returns an action of the mouse: `click COLUMN LINE`, both from 0, or the key that scrolling stands for."""
    found = _CLICK.fullmatch(sequence)
    if found is None:
        return ""
    button = _BUTTONS.get(int(found[1]), "")
    return f"{button} {int(found[2]) - 1} {int(found[3]) - 1}" if button == "click" else button


def _utf8_length(data: bytes) -> int:
    """Returns the length of the first character, as its first byte says; 1 if it is not UTF-8."""
    length = 1 if data[0] < 0xC2 else 2 if data[0] < 0xE0 else 3 if data[0] < 0xF0 else 4 if data[0] < 0xF5 else 1
    return length if all(0x80 <= byte < 0xC0 for byte in data[1:length]) else 1


def _sequence_length(data: bytes) -> int:
    """Returns the length of the first escape sequence; 0 when it is unfinished."""
    if len(data) == 1:
        return 0
    if data[1] == ord("O"):
        return 3 if len(data) > 2 else 0
    if data[1] != ord("["):
        return 1
    return next((i + 1 for i in range(2, len(data)) if 0x40 <= data[i] <= 0x7E), 0)


class Terminal:
    """The terminal while the program has its screen; a context manager."""

    def __init__(self) -> None:
        """Uses standard input and output.

        Raises:
            Misuse: one of them is not a terminal, or the terminal cannot place its cursor.
        """
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise Misuse("top needs a terminal; --once prints one screen, --json one line a snapshot for programs")
        self.console = Console(highlight=False, markup=False, emoji=False)
        if self.console.is_dumb_terminal:
            raise Misuse(f"the terminal (TERM={os.environ.get('TERM', '')!r}) cannot place its cursor; use --once")
        self._fd = sys.stdin.fileno()
        self._rest, self._rest_until = b"", 0.0
        self._wake_write, self._wake_read = -1, -1
        self._previous: dict[int, Any] = {}
        self._wakeup = -1
        self._suspend = False
        self._settling = False
        self._mouse = False

    def __enter__(self) -> Self:
        """Switches to the alternate screen and to single keys."""
        self._modes = termios.tcgetattr(self._fd)
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Each signal writes a byte there, so that a signal right before the sleep ends it too.
        self._wakeup = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number, handler in ((signal.SIGWINCH, self._resized), (signal.SIGTSTP, self._suspended)):
            self._previous[number] = signal.signal(number, handler)
        self._enter_screen()
        return self

    def __exit__(self, *_: object) -> None:
        """Restores the terminal."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        self._leave_screen()
        os.close(self._wake_write)
        os.close(self._wake_read)

    def show(self, lines: RenderableType) -> None:
        """Draws the lines of a screen over those before, in one write."""
        with self.console:
            # Else the lines would scroll in from below, and a click or a look during that would meet another line.
            self.console.control(Control.home())
            self._screen.update(lines)

    def use_mouse(self, wanted: bool) -> None:
        """Reports clicks as keys, or leaves the mouse to the terminal, which marks text with it."""
        if wanted != self._mouse:
            self._mouse = wanted
            self._report_mouse(wanted)

    def keys(self, timeout: float) -> list[str] | None:
        """Returns the pressed keys, as soon as there are any.

        Args:
            timeout: seconds to wait at most.

        Returns:
            Their names; empty when the time is over or the size of the screen has changed; None when the terminal
            has gone.
        """
        wait = min(timeout, self._rest_until - time.monotonic()) if self._rest else timeout
        # A screen drawn while the terminal changed its size may be wrong, so it is drawn once more.
        settling, self._settling = self._settling, False
        wait = min(wait, _SETTLE_S) if settling else wait
        ready, _, _ = select.select([self._fd, self._wake_read], [], [], max(0.0, wait))
        if self._wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        if self._suspend:
            self._stop()
            return []
        if self._fd not in ready:
            return self._ended_by_silence()
        try:
            data = os.read(self._fd, 4096)
        except OSError:
            return None
        if not data:
            return None
        found, self._rest = decode(self._rest + data)
        self._rest_until = time.monotonic() + (_ESCAPE_S if self._rest in _PRESSED else _UNFINISHED_S)
        return found

    def _ended_by_silence(self) -> list[str]:
        """Returns the escape key if an escape character has stood alone long enough; forgets other beginnings."""
        if not self._rest or time.monotonic() < self._rest_until:
            return []
        pending, self._rest = self._rest, b""
        return ["escape"] if pending == b"\x1b" else []

    def _enter_screen(self) -> None:
        tty.setcbreak(self._fd, termios.TCSADRAIN)
        self._screen = self.console.screen(hide_cursor=True)
        self._screen.__enter__()
        if self._mouse:
            self._report_mouse(True)

    def _leave_screen(self) -> None:
        with contextlib.suppress(OSError, termios.error):
            if self._mouse:
                self._report_mouse(False)
            self._screen.__exit__(None, None, None)
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._modes)

    def _report_mouse(self, wanted: bool) -> None:
        self.console.file.write(_MOUSE[wanted])
        self.console.file.flush()

    def _resized(self, _number: int, _frame: FrameType | None) -> None:
        """Notes a new size; the signal has ended the wait, and the next drawing reads the size."""
        self._settling = True

    def _suspended(self, _number: int, _frame: FrameType | None) -> None:
        """Notes Ctrl-Z, which may come in the middle of a drawing; the signal has ended the wait for keys."""
        self._suspend = True

    def _stop(self) -> None:
        """Stops the process with the shell's screen; `fg` brings the program's screen back."""
        self._suspend = False
        self._leave_screen()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._suspended)
        self._enter_screen()
