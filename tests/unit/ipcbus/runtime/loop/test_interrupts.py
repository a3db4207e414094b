"""Ctrl-C ends a wait with a traceback that ends where the application called."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import signal
import sys
import threading
import traceback
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ipcbus
from ipcbus.runtime.loop.driver_lock import DriverLock
from ipcbus.runtime.loop.event_loop import EventLoop
from ipcbus.runtime.loop.interrupts import shorten
from ipcbus.spark.identity import Deduplicator
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


def frames(error: BaseException) -> list[str]:
    """The functions of a traceback below this test."""
    return [frame.name for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]


def interrupted(*_: object) -> Any:  # noqa: ANN401
    raise KeyboardInterrupt


inside = FunctionType(interrupted.__code__, {"__name__": "ipcbus.inside", "KeyboardInterrupt": KeyboardInterrupt})
"""The same as a function of the package."""


@contextlib.contextmanager
def interrupted_asleep(context: ipcbus.Context) -> Iterator[None]:
    """Sends SIGINT to this thread when it sleeps as the driver of a context."""
    pump = context._event_loop.pump
    with interrupted_when(lambda: pump.asleep):
        yield


@contextlib.contextmanager
def interrupted_when(asleep: Callable[[], object]) -> Iterator[None]:
    """Sends SIGINT to this thread when it sleeps."""
    me, over = threading.get_ident(), threading.Event()

    def interrupt() -> None:
        while not over.wait(0.001):
            if asleep():
                signal.pthread_kill(me, signal.SIGINT)
                return

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def iterate(receiver: ipcbus.Receiver) -> None:
    for _ in receiver:
        pass


@contextlib.contextmanager
def interrupted_at(count: int) -> Iterator[None]:
    """Raises KeyboardInterrupt where this thread calls, or has called, something in the package for the nth time."""
    left = count

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        if event in ("call", "c_return") and "/ipcbus/" in frame.f_code.co_filename:
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    gc.disable()  # else the exception may come in the end of a context that another test has left
    sys.setprofile(look)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        sys.setprofile(None)
        gc.enable()


PULLS: dict[str, Callable[[ipcbus.Receiver], object]] = {
    "receive": lambda receiver: receiver.receive(),
    "receive_many": lambda receiver: receiver.receive_many(10),
    "receive_into": lambda receiver: receiver.receive_into(np.zeros((4, 8), np.uint8)),
    "for": iterate,
}


@pytest.mark.parametrize("form", PULLS)
def test_pulling(domain: str, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    with ipcbus.Context(domain=domain, operational_mode="sequential") as context:
        receiver = context.receiver("t")
        with monkeypatch.context() as patch:
            if form == "receive_into":  # it sleeps in Python
                patch.setattr(EventLoop, "_sleep", inside)
            with pytest.raises(KeyboardInterrupt) as caught, interrupted_asleep(context):
                PULLS[form](receiver)
        assert context._event_loop.pump.owner == 0
        # Compiled functions cannot leave their own line out.
        assert [name.rpartition(".")[2] for name in frames(caught.value)] == ["__next__" if form == "for" else form]


@pytest.mark.parametrize("mode", ["embedded", "sequential"])
def test_a_signal_anywhere_while_a_receiver_joins_leaves_the_context_usable(domain: str, mode: str) -> None:
    """The lock stayed taken, or the context forgot that it had to join, in one of five waits that a signal ended."""
    with ipcbus.Context(domain=domain) as sending:
        source = sending.source("t")
        for count in itertools.chain(range(0, 60, 3), range(60, 1500, 47)):
            with ipcbus.Context(domain=domain, operational_mode=mode) as context:
                receiver = context.receiver("t", events=False)
                with interrupted_at(count):
                    receiver.receive(0.02)

                def comes(receiver: ipcbus.Receiver = receiver) -> bool:
                    source.send(b"x", flush=True)
                    return receiver.receive(0.02) is not None

                until(comes, f"a message after an interrupt at {count}")
                assert receiver.lost == 0


def test_process_events(domain: str) -> None:
    with ipcbus.Context(domain=domain, operational_mode="sequential") as context:
        with pytest.raises(KeyboardInterrupt) as caught, interrupted_asleep(context):
            context.process_events(None)
        assert context._event_loop.pump.owner == 0
        assert not context._event_loop.pump.asleep
        assert frames(caught.value) == []


def test_dispatch() -> None:
    with ipcbus.EventQueue() as queue:
        with pytest.raises(KeyboardInterrupt) as caught, interrupted_when(lambda: queue._event_buffer.sleepers):
            queue.dispatch()
    assert frames(caught.value) == []


def test_waiting_for_others(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ipcbus.Context(domain=domain) as context:
        receiver, source = context.receiver("t"), context.source("other")
        with monkeypatch.context() as patch:
            patch.setattr(DriverLock, "wait_changed", inside)
            for wait in (receiver.wait_for_sources, source.wait_for_receivers):
                with pytest.raises(KeyboardInterrupt) as caught:
                    wait(1)
                assert frames(caught.value) == []


@pytest.mark.parametrize("form", ["areceive", "async for"])
def test_asyncio(domain: str, form: str) -> None:
    """`asyncio.run` cancels the task; the cancellation is printed before the KeyboardInterrupt that it becomes."""

    async def wait(receiver: ipcbus.Receiver) -> None:
        if form == "areceive":
            await receiver.areceive()
        async for _ in receiver:
            pass

    async def cancelled(receiver: ipcbus.Receiver) -> BaseException:
        task = asyncio.ensure_future(wait(receiver))
        await asyncio.sleep(0)  # until it waits
        task.cancel()
        try:
            await task
        except asyncio.CancelledError as error:
            return error
        raise AssertionError("it was not cancelled")

    with ipcbus.Context(domain=domain) as context:
        assert frames(asyncio.run(cancelled(context.receiver("t")))) == []


def test_what_a_callback_raises_keeps_its_traceback() -> None:
    """`interrupted` stands for a function of the application that the package called."""
    message: Any = type("Message", (), {"type": 1})
    with pytest.raises(KeyboardInterrupt) as caught:
        Deduplicator(interrupted)(message)
    before = traceback.extract_tb(caught.value.__traceback__)
    shorten(caught.value)
    assert traceback.extract_tb(caught.value.__traceback__) == before
    assert before[-1].name == "interrupted"


def test_errors_keep_their_tracebacks(domain: str) -> None:
    with ipcbus.Context(domain=domain) as context:
        receiver = context.receiver("t", lambda _: None)
        with pytest.raises(ipcbus.IpcBusError) as caught:
            receiver.receive()
        assert frames(caught.value)[0] == "ipcbus.delivery.puller.Puller.receive"
        assert frames(caught.value)[-2:] == ["_take_slowly", "_check_pull"]


@pytest.mark.parametrize(
    ("kind", "is_short"), [(KeyboardInterrupt, True), (asyncio.CancelledError, True), (OSError, False)]
)
def test_only_an_exception_that_ends_a_wait_loses_its_traceback(kind: type[BaseException], is_short: bool) -> None:
    def raise_it() -> None:
        raise kind

    try:
        FunctionType(raise_it.__code__, {"__name__": "threading"}, closure=raise_it.__closure__)()
    except BaseException as caught:
        error = caught.with_traceback(caught.__traceback__.tb_next if caught.__traceback__ else None)
    shorten(error)
    assert (error.__traceback__ is None) == is_short
