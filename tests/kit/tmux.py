"""A program in a real terminal: a server of tmux of its own, keys sent to it, its screen read."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import threading
import time
from typing import TYPE_CHECKING

from tests.kit.bus import GIVE_UP_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Self

MISSING = "" if shutil.which("tmux") else "tmux is not installed: there is no terminal to try it in"
"""Why these tests cannot run; empty when they can."""


_numbers = itertools.count()


class Screen:
    """A terminal with one program in it."""

    def __init__(self, directory: Path, command: str, width: int = 80, height: int = 24, **environment: str) -> None:
        """Starts it.

        Args:
            directory: for the server's socket.
            command: line for the shell; what comes after it in the line sees how it ended.
            width: columns.
            height: lines.
            environment: more variables; an empty one is taken away.
        """
        self._socket = str(directory / f"tmux{next(_numbers)}")  # a server that ends must not meet the next one
        self._pause = threading.Event()
        known = {name: value for name, value in os.environ.items() if not name.startswith(("TMUX", "COLUMNS", "LINES"))}
        known |= {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", **environment}
        self._environment = {name: value for name, value in known.items() if value}
        # The window outlives its program, so that what is left of it can be read.
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), f"{command}; read -r _")

    def keys(self, *keys: str) -> Self:
        """Presses keys, by tmux's names for them."""
        self._tmux("send-keys", *keys)
        return self

    def type(self, text: str) -> Self:
        """Types a text."""
        self._tmux("send-keys", "-l", text)
        return self

    def resize(self, width: int, height: int) -> Self:
        """Gives the terminal another size."""
        self._tmux("resize-window", "-x", str(width), "-y", str(height))
        return self

    def text(self) -> str:
        """What is on the screen."""
        return self._tmux("capture-pane", "-p")

    def lines(self) -> list[str]:
        """The same, line by line."""
        return self.text().rstrip("\n").split("\n")

    def until(self, condition: Callable[[str], object], what: str) -> str:
        """Looks again and again until the condition holds for the screen; returns its text."""
        deadline = time.monotonic() + GIVE_UP_S
        while not condition(text := self.text()):
            assert time.monotonic() < deadline, f"waited in vain for {what}; the screen:\n{text}"
            self._pause.wait(0.02)
        return text

    def shows(self, wanted: str) -> str:
        """Waits for a text on the screen."""
        return self.until(lambda text: wanted in text, repr(wanted))

    def lacks(self, unwanted: str) -> str:
        """Waits until a text is not on the screen any more."""
        return self.until(lambda text: unwanted not in text, f"the end of {unwanted!r}")

    def pid(self) -> int:
        """Process id of the shell in the window."""
        return int(self._tmux("display-message", "-p", "#{pane_pid}"))

    def close(self) -> None:
        """Ends the server and all that runs in it."""
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], capture_output=True, check=False)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it."""
        self.close()

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, *arguments], capture_output=True, text=True, env=self._environment, check=False
        )
        assert done.returncode == 0, f"tmux {arguments}: {done.stderr}"
        return done.stdout
