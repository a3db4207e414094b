"""The event loops that asyncio code is tested on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import uvloop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}


T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T], loop: str = "asyncio") -> T:
    """Runs a coroutine to its end in a new loop of the kind."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(coroutine)


# libuv keeps a pipe for signals from its first loop on; opened within a test it would look like a leak of that test.
run(asyncio.sleep(0), "uvloop")
