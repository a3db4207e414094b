"""Waiting for what other threads and processes do."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from tests.kit.bus import GIVE_UP_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PAUSE = threading.Event()


def until(condition: Callable[[], object], what: str) -> None:
    """Looks again and again until the condition holds."""
    deadline = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        _PAUSE.wait(0.002)


@contextlib.contextmanager
def repeated(call: Callable[[], object], pause_s: float) -> Iterator[None]:
    """Calls something again and again in another thread, with a pause before each call."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(pause_s):
            call()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
