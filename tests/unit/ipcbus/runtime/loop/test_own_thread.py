"""The life of a context's own thread, run in the thread of the test."""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any

from ipcbus.config import ContextOptions
from ipcbus.runtime.loop.own_thread import OwnThread

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class Loop:
    """An event loop that closes after the turns that it is given."""

    def __init__(self, *turns: Callable[[object], Any]) -> None:
        self.turns = list(turns)
        self.got: list[object] = []

    @property
    def closing(self) -> bool:
        return not self.turns

    def turn(self, woken: object) -> Any:  # noqa: ANN401 - what the thread rests on
        self.got.append(woken)
        return self.turns.pop(0)(woken)

    def rouse(self) -> None:
        self.got.append("roused")

    def wait_changed(self, timeout: float) -> None:
        assert timeout > 0
        self.got.append("waited")


def run(find: Callable[[], Any], **options: Any) -> None:  # noqa: ANN401
    OwnThread(find, ContextOptions(options), "a").run()


def test_the_result_of_a_rest_goes_to_the_next_turn_and_closing_ends_the_thread() -> None:
    loop = Loop(lambda _: lambda: "woken", lambda _: None)
    run(lambda: loop)
    assert loop.got == [None, "woken", "roused"]


def test_a_fault_of_a_turn_is_logged_and_the_thread_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: object) -> None:
        raise SystemExit("no")

    loop = Loop(fail, lambda _: None)
    with caplog.at_level(logging.ERROR, "ipcbus"):
        run(lambda: loop, context_name="mine")
    assert loop.got == [None, "waited", None, "roused"]
    assert "'mine'" in caplog.text
    assert "SystemExit" in caplog.text


def test_a_resting_thread_keeps_no_event_loop_alive_and_closes_what_the_finalizer_hands_to_it() -> None:
    alive: list[bool] = []
    loops = [Loop(lambda _: rest)]
    found = weakref.ref(loops[0])
    thread = OwnThread(found, ContextOptions(), "a")  # type: ignore[arg-type]

    def rest() -> None:
        loops.clear()  # the application drops its last reference
        alive.append(found() is not None)
        thread.handed.append(lambda: alive.append(False))

    thread.run()
    assert alive == [False, False]


def test_a_processor_that_does_not_exist_gives_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    with caplog.at_level(logging.WARNING, "ipcbus"):
        run(lambda: loop, thread_cpu=1023)
    assert "thread_cpu = 1023 cannot be used" in caplog.text
    assert loop.got == ["roused"]
