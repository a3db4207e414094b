"""Waiting for what other threads and processes do."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tests.kit.bus import GIVE_UP_S

if TYPE_CHECKING:
    from collections.abc import Callable

_PAUSE = threading.Event()


def until(condition: Callable[[], object], what: str) -> None:
    """Looks again and again until the condition holds."""
    deadline = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        _PAUSE.wait(0.002)
