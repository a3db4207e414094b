"""The application reads the rings; the context's own thread does the rest."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import MessageType, SourceEventType
from ipcbus.transport.receiving_session import ReceivingSession
from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTIPC_SOURCE_PACED, RECEIVER_PACED
from tests.kit.forms import CallbackTaker, ReceiveTaker
from tests.kit.loops import LOOPS, run
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ipcbus import Context, Message, SourceEvent
    from tests.kit.bus import Bus

BOS, DATA, EOS = MessageType.BOS, MessageType.DATA, MessageType.EOS

pytestmark = pytest.mark.parametrize("mode", ["split"])
one_transport = pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))


class Heard:
    """A callback that notes what came, and in which thread."""

    def __init__(self) -> None:
        self.kinds: list[MessageType] = []
        self.threads: set[threading.Thread] = set()
        self.came = threading.Semaphore(0)

    def __call__(self, message: Message) -> None:
        self.kinds.append(message.type)
        self.threads.add(threading.current_thread())
        self.came.release()


def own_turns(context: Context, turns: int = 3) -> None:
    """Waits until the context's own thread has looked after everything so many times."""
    driver = context._event_loop
    seen = threading.Semaphore(0)
    look_after = driver._run_split_turn

    def counted() -> None:
        look_after()
        seen.release()

    driver._run_split_turn = counted  # type: ignore[method-assign]
    try:
        for _ in range(turns):
            driver.hurry()
            driver.kick()
            assert seen.acquire(timeout=GIVE_UP_S)
    finally:
        driver._run_split_turn = look_after  # type: ignore[method-assign]


def test_callbacks_run_in_the_thread_that_processes_events_only(bus: Bus) -> None:
    heard, late = Heard(), Heard()
    context = bus.context("receiving", liveness_check_interval=10, resolution_scan_interval=10)
    context.receiver("t", heard)
    source = bus.source("t", bus.context("sending", mode="embedded"))
    source.wait_for_receivers(1, GIVE_UP_S)
    source.send(b"first", flush=True)
    own_turns(context)
    assert heard.kinds == []
    bus.until(lambda: DATA in heard.kinds, "the message")
    # The session has begun, so that this one is told of its beginning as it joins.
    context.receiver("t", late)
    source.close()
    own_turns(context)
    assert (heard.kinds, late.kinds) == ([BOS, DATA], [])
    bus.until(lambda: EOS in heard.kinds and EOS in late.kinds, "the end")
    assert late.kinds == [BOS, EOS]
    assert heard.threads | late.threads == {threading.current_thread()}


def test_a_receiver_joined_by_another_threads_call_is_told_by_the_thread_that_processes(bus: Bus) -> None:
    heard = Heard()
    context = bus.context("both")
    options = bus.kind.id(700)
    context.receiver("first", Heard())
    context.receiver("second", heard)
    first = bus.source("first", context, **options)
    first.wait_for_receivers(1, GIVE_UP_S)
    first.send(b"begins the session", flush=True)
    bus.turn()
    thread = threading.Thread(target=lambda: bus.source("second", context, **options))
    thread.start()
    thread.join(GIVE_UP_S)
    own_turns(context)
    bus.until(lambda: BOS in heard.kinds, "the beginning")
    assert heard.threads == {threading.current_thread()}


@pytest.mark.parametrize("kind", [LBTIPC, LBTIPC_SOURCE_PACED], ids=lambda kind: str(kind.name))
def test_the_end_of_a_dead_source_is_told_by_the_thread_that_processes(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    context = bus.context("receiving", liveness_check_interval=10)
    context.receiver("t", heard)
    source = bus.source("t", bus.context("sending", mode="embedded"))
    source.wait_for_receivers(1, GIVE_UP_S)
    source.send(b"last words", flush=True)
    monkeypatch.setattr(ReceivingSession, "owner_died", lambda _: True)
    own_turns(context)
    assert heard.kinds == []
    bus.until(lambda: EOS in heard.kinds, "the end")
    assert heard.kinds == [BOS, DATA, EOS]
    assert heard.threads == {threading.current_thread()}


def test_a_parked_thread_is_woken_by_each_message(bus: Bus) -> None:
    heard = Heard()
    context = bus.context("receiving")
    context.receiver("t", heard)
    source = bus.source("t", bus.context("sending", mode="embedded"))
    source.wait_for_receivers(1, GIVE_UP_S)
    closed = threading.Event()

    def process() -> None:
        try:
            while True:
                context.process_events(None)
        except ipcbus.ClosedError:
            closed.set()

    thread = threading.Thread(target=process)
    thread.start()
    # Were they found by timers only, so many would take minutes.
    source.send(body(0), flush=True)
    for number in range(1, 300):
        assert heard.came.acquire(timeout=GIVE_UP_S)
        source.send(body(number), flush=True)
    while heard.kinds.count(DATA) < 300:
        assert heard.came.acquire(timeout=GIVE_UP_S)
    assert heard.threads == {thread}
    context.close()  # ends the wait
    assert closed.wait(GIVE_UP_S)
    thread.join(GIVE_UP_S)


def test_the_contexts_own_thread_resolves_flushes_and_tells_sources(bus: Bus) -> None:
    context = bus.context("split")
    events: list[SourceEvent] = []
    told = threading.Event()

    def note(event: SourceEvent) -> None:
        events.append(event)
        told.set()

    source = bus.source("t", context, on_event=note, implicit_batching_interval=5)
    bus.sequential = False
    taker = CallbackTaker(bus, context=bus.context("receiving", mode="embedded"))
    source.wait_for_receivers(1, GIVE_UP_S)
    assert told.wait(GIVE_UP_S)
    assert [event.type for event in events] == [SourceEventType.CONNECT]
    source.send(b"in a batch")
    assert taker.data(1) == [b"in a batch"]
    # And a receiver joins without being asked to.
    context.receiver("u", Heard())
    other = bus.source("u", bus.context("other", mode="embedded"))
    other.wait_for_receivers(1, GIVE_UP_S)


@pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))
def test_a_send_that_waits_delivers_to_its_own_receivers(bus: Bus) -> None:
    heard = Heard()
    context = bus.context("both")
    context.receiver("t", heard)
    source = bus.source("t", context, **bus.kind.small())
    source.wait_for_receivers(1, GIVE_UP_S)
    count = 4 * bus.kind.window // 80
    for number in range(count):
        source.send(body(number))
    source.flush()
    bus.until(lambda: heard.kinds.count(DATA) == count, "the rest")
    assert heard.threads == {threading.current_thread()}


@pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))
def test_a_send_that_waits_leaves_callbacks_to_the_thread_that_processes(bus: Bus) -> None:
    heard = Heard()
    context = bus.context("both")
    context.receiver("t", heard)
    source = bus.source("t", context, **bus.kind.small())
    source.wait_for_receivers(1, GIVE_UP_S)
    context.process_events(0)
    count = 8 * bus.kind.window // 80

    def send() -> None:
        for number in range(count):
            source.send(body(number))
        source.flush()

    thread = threading.Thread(target=send)
    thread.start()
    own_turns(context, 20)
    bus.until(lambda: heard.kinds.count(DATA) == count, "all of it")
    thread.join(GIVE_UP_S)
    assert heard.threads == {threading.current_thread()}


@pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))
def test_room_is_told_while_nobody_processes(bus: Bus) -> None:
    room = threading.Event()

    def note(event: SourceEvent) -> None:
        if event.type is SourceEventType.WAKEUP:
            room.set()

    context = bus.context("sending")
    source = bus.source("t", context, on_event=note, **bus.kind.small())
    taker = ReceiveTaker(bus, context=bus.context("receiving", mode="embedded"), receive_queue_maximum=1)
    source.wait_for_receivers(1, GIVE_UP_S)
    with pytest.raises(ipcbus.WouldBlock):
        while True:
            source.send(body(source.sequence_number + 1), block=False)
    assert not room.is_set()
    taker.data(source.sequence_number + 1)
    assert room.wait(GIVE_UP_S)
    source.send(b"again", flush=True, block=False)


@one_transport
@pytest.mark.parametrize("of", ["share", "guaranteed delivery"])
def test_a_wait_for_receivers_lets_members_of_shares_and_named_receivers_join(
    bus: Bus, of: str, tmp_path: Path
) -> None:
    sends = {"guaranteed delivery": {"gmd_name": "s", "delivery_mode": "all", "ipc_gmd_directory": str(tmp_path / "s")}}
    takes = {
        "share": {"share": "workers"},
        "guaranteed delivery": {"gmd_name": "r", "ipc_gmd_directory": str(tmp_path / "r")},
    }
    source = bus.source("t", bus.context("sending"), **sends.get(of, {}))
    bus.context("receiving", mode="embedded").receiver("t", Heard(), **takes[of])
    source.wait_for_receivers(1, GIVE_UP_S)  # nothing else drives the context of the source


@one_transport
def test_two_threads_that_process_take_turns(bus: Bus) -> None:
    heard = Heard()
    context = bus.context("receiving")
    context.receiver("t", heard)
    source = bus.source("t", bus.context("sending", mode="embedded"))
    source.wait_for_receivers(1, GIVE_UP_S)
    stop = threading.Event()

    def process() -> None:
        while not stop.is_set():
            context.process_events(0.01)

    threads = [threading.Thread(target=process) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(200):
        source.send(body(number), flush=True)
    while heard.kinds.count(DATA) < 200:
        assert heard.came.acquire(timeout=GIVE_UP_S)
    stop.set()
    for thread in threads:
        thread.join(GIVE_UP_S)
    assert heard.threads <= set(threads)


@one_transport
def test_events_may_not_be_processed_inside_a_source_event(bus: Bus) -> None:
    raised: list[BaseException] = []
    context = bus.context("split")
    tried = threading.Event()

    def note(event: SourceEvent) -> None:
        calls: list[Callable[[], object]] = [lambda: context.process_events(0), lambda: context.process_events(1)]
        for call in calls:
            try:
                call()
            except ipcbus.IpcBusError as error:
                raised.append(error)
        tried.set()

    bus.source("t", context, on_event=note)
    bus.receiver("t", None, bus.context("receiving", mode="embedded"))
    assert tried.wait(GIVE_UP_S)
    assert len(raised) == 2
    assert all("inside" in str(error) for error in raised)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_context_may_be_closed_from_another_thread_while_a_task_waits(bus: Bus, loop: str) -> None:
    context = bus.context("receiving")
    receiver = context.receiver("t")

    async def close_while_it_waits() -> None:
        task = asyncio.create_task(receiver.areceive())
        await asyncio.sleep(0)
        closer = threading.Thread(target=context.close)
        closer.start()
        with pytest.raises(ipcbus.ClosedError):
            await asyncio.wait_for(task, GIVE_UP_S)
        closer.join(GIVE_UP_S)

    run(close_while_it_waits(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_task_is_woken_by_each_message(bus: Bus, loop: str) -> None:
    receiver = bus.receiver("t", None, bus.context("receiving", resolution_scan_interval=60_000))
    source = bus.source("t", bus.context("sending", mode="embedded"))
    source.wait_for_receivers(1, GIVE_UP_S)

    async def answer() -> list[bytes]:
        got = []
        source.send(body(0), flush=True)
        async for message in receiver:
            if message.type is DATA:
                got.append(message.data)
                if len(got) == 300:
                    break
                source.send(body(len(got)), flush=True)
        return got

    assert run(asyncio.wait_for(answer(), 2 * GIVE_UP_S), loop) == [body(number) for number in range(300)]
