"""The event loops that asyncio code is tested on."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def _new_uvloop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop; there is none for free-threaded interpreters yet."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.SelectorEventLoop()
    import uvloop

    return uvloop.new_event_loop()


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": _new_uvloop,
}


T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T], loop: str = "asyncio") -> T:
    """Runs a coroutine to its end in a new loop of the kind."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(coroutine)


# libuv keeps a pipe for signals from its first loop on; opened within a test it would look like a leak of that test.
run(asyncio.sleep(0), "uvloop")
