"""A turn of the event loop with nothing rare to do runs compiled code only."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ipcbus
from tests.kit.bus import GIVE_UP_S, mode_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUNDS = 100
TURNS, PART = 1000, 50


def python_calls(run: Callable[[], object], *public: str) -> int:
    """Returns how many Python functions besides `public` ones a thousand turns call.

    Timers come due in between, so the best of some rounds counts. A part of the turns takes less time than there is
    between two timers, on a busy machine too.
    """

    def turns() -> None:
        for _ in range(PART):
            run()

    total = 0
    for _ in range(TURNS // PART):
        rounds = (calls_in(turns, *public, "turns") for _ in range(ROUNDS))
        least = next(rounds)
        while least and (found := next(rounds, None)) is not None:
            least = min(least, found)
        total += least
    return total


def calls_in(run: Callable[[], object], *public: str) -> int:
    """Returns how many Python functions besides `public` ones a call of `run` calls."""
    calls = 0

    def note(frame: Any, event: str, _: object) -> None:  # noqa: ANN401 - whatever the interpreter gives
        nonlocal calls
        calls += event == "call" and frame.f_code.co_name not in public

    gc.disable()  # other packages call back when it collects
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


class Stand:
    """A source and a receiver of one context, without anything left to do."""

    def __init__(
        self,
        context: ipcbus.Context,
        on_message: Callable[[ipcbus.Message], object] | None = None,
        event_queue: ipcbus.EventQueue | None = None,
        transport: str = "lbtsmx",
    ) -> None:
        self.context = context
        self.receiver = context.receiver("t", on_message, event_queue=event_queue)
        self.source = context.source("t", transport=transport)
        self.source.wait_for_receivers(1, GIVE_UP_S)
        self.receiver.wait_for_sources(1, GIVE_UP_S)
        self.source.send(b"first")
        if on_message is None:
            while self.receiver.receive(GIVE_UP_S).type is not ipcbus.MessageType.DATA:  # type: ignore[union-attr]
                pass


@pytest.fixture
def context(domain: str, mode: str) -> Iterator[ipcbus.Context]:
    with ipcbus.Context({"context": mode_options(mode)}, domain=domain) as made:
        yield made


in_sequential_mode = pytest.mark.parametrize("mode", ["sequential"])
where_a_guest_drives = pytest.mark.parametrize("mode", ["sequential", "embedded", "split"])
where_a_caller_processes = pytest.mark.parametrize("mode", ["sequential", "split"])


over_rings_and_udp = pytest.mark.parametrize("transport", ["lbtsmx", "lbtru"])


@where_a_caller_processes
@over_rings_and_udp
def test_an_idle_process_events_calls_nothing(context: ipcbus.Context, transport: str) -> None:
    Stand(context, lambda _: None, transport=transport)
    assert python_calls(lambda: context.process_events(0), "<lambda>", "process_events") == 0


@where_a_guest_drives
@over_rings_and_udp
def test_an_idle_receive_calls_nothing(context: ipcbus.Context, transport: str) -> None:
    receiver = Stand(context, transport=transport).receiver
    assert python_calls(lambda: receiver.receive(0), "<lambda>") == 0
    assert python_calls(lambda: receiver.receive_many(9, 0), "<lambda>") == 0


@in_sequential_mode
def test_an_idle_turn_of_a_context_with_a_descriptor_calls_nothing(context: ipcbus.Context) -> None:
    receiver = Stand(context).receiver
    context.fileno()
    assert python_calls(lambda: context.process_events(0), "<lambda>", "process_events") == 0
    assert python_calls(lambda: receiver.receive(0), "<lambda>") == 0


@in_sequential_mode
def test_a_dispatched_message_calls_its_callback_and_nothing_else(context: ipcbus.Context) -> None:
    with ipcbus.EventQueue() as queue:
        got: list[ipcbus.Message] = []
        stand = Stand(context, got.append, queue)

        def turn() -> None:
            stand.source.send(b"x")
            context.process_events(0)
            assert queue.dispatch(0) == 1

        while not got or got[-1].type is not ipcbus.MessageType.DATA:  # the first one
            context.process_events(GIVE_UP_S)
            queue.dispatch(0)
        assert python_calls(turn, "turn", "process_events", "dispatch") == 0
        assert python_calls(lambda: queue.dispatch(0), "<lambda>", "dispatch") == 0


@where_a_guest_drives
def test_a_receive_with_a_message_there_calls_nothing(context: ipcbus.Context) -> None:
    stand = Stand(context)

    def turn() -> None:
        stand.source.send(b"x")
        got.append(stand.receiver.receive(0))

    got: list[object] = []
    assert python_calls(turn, "turn") == 0
    missed = got.count(None)  # while the own thread had the driver lock
    for _ in range(missed):
        assert stand.receiver.receive(GIVE_UP_S) is not None
    assert stand.receiver.receive(0) is None


@where_a_guest_drives
def test_a_for_and_receive_many_with_messages_there_call_nothing(context: ipcbus.Context) -> None:
    stand = Stand(context)
    pulls = iter(stand.receiver)

    def turn() -> None:
        stand.source.send(b"x")
        next(pulls)

    def many() -> None:
        stand.source.send(b"x")
        taken.extend(stand.receiver.receive_many(9, 0))

    taken: list[object] = []
    assert python_calls(turn, "turn") == 0
    assert python_calls(many, "many") == 0


@where_a_guest_drives
def test_a_step_of_async_for_calls_nothing_and_makes_no_task(context: ipcbus.Context) -> None:
    stand = Stand(context)
    tasks: list[object] = []

    def make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[object]:  # noqa: ANN401
        tasks.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    async def least_calls() -> int:
        asyncio.get_running_loop().set_task_factory(make_task)
        least = TURNS
        for _ in range(ROUNDS):
            calls = 0

            def note(frame: Any, event: str, _: object) -> None:  # noqa: ANN401 - whatever the interpreter gives
                nonlocal calls
                calls += event == "call" and frame.f_code.co_name != "steps"

            gc.disable()
            sys.setprofile(note)
            try:
                await steps()
            finally:
                sys.setprofile(None)
                gc.enable()
            least = min(least, calls)
        assert tasks == []
        return least

    async def steps() -> None:
        for _ in range(TURNS):
            stand.source.send(b"x")
            await anext(messages)

    messages = aiter(stand.receiver)
    # The turns of the event loop, once in a millisecond, are Python's.
    assert asyncio.run(least_calls()) < TURNS // 10


@where_a_guest_drives
def test_rows_that_are_filled_call_nothing(context: ipcbus.Context) -> None:
    stand = Stand(context)
    rows = np.zeros((4, 8), np.uint8)
    sent = filled = 0

    def turn(count: int) -> None:
        nonlocal sent, filled
        sent += stand.source.send_many(rows[:count])
        filled += stand.receiver.receive_into(rows, 0)
        while filled < sent:  # the own thread had the driver lock: with full rows, what it queued would wait for ever
            filled += stand.receiver.receive_into(rows, GIVE_UP_S)

    public = "<lambda>", "turn", "check_references"
    assert python_calls(lambda: turn(3), *public) == 0  # with a free row at the end
    assert python_calls(lambda: turn(4), *public) == 0
    assert stand.receiver.delivered == sent + 1
    assert python_calls(lambda: stand.receiver.receive_into(rows, 0), "<lambda>") == 0


@in_sequential_mode
def test_many_messages_are_no_work_for_the_garbage_collector(context: ipcbus.Context) -> None:
    stand = Stand(context)
    sent = np.zeros((TURNS, 8), np.uint8)  # more than the objects after which a collection runs
    least = TURNS
    for _ in range(ROUNDS):
        stand.source.send_many(sent)
        runs: list[str] = []

        def note(phase: str, _: object, runs: list[str] = runs) -> None:
            runs.append(phase)

        gc.collect()
        gc.callbacks.append(note)
        try:
            taken: list[ipcbus.Message] = []
            while len(taken) < TURNS:
                taken += stand.receiver.receive_many(TURNS, 0)
        finally:
            gc.callbacks.remove(note)
        least = min(least, len(runs))
        if not least:
            break
    assert least == 0


@in_sequential_mode
def test_messages_behind_full_rows_need_no_attention(context: ipcbus.Context) -> None:
    stand = Stand(context)
    rows, sent = np.zeros((1, 8), np.uint8), np.zeros((TURNS, 8), np.uint8)
    least = TURNS
    for _ in range(ROUNDS):
        stand.source.send_many(sent)
        filled: list[int] = []

        def turns(filled: list[int] = filled) -> None:
            filled.extend([stand.receiver.receive_into(rows, 0) for _ in range(TURNS)])

        least = min(least, calls_in(turns, "turns", "<listcomp>"))
        assert filled == [1] * TURNS
        if not least:
            break
    assert least == 0


@in_sequential_mode
def test_a_message_calls_its_callback_only(context: ipcbus.Context) -> None:
    got: list[bytes] = []

    def on_message(message: ipcbus.Message) -> None:
        got.append(message.data)

    stand = Stand(context, on_message)

    def turn() -> None:
        stand.source.send(b"x")
        assert context.process_events(0) > 0

    assert python_calls(turn, "turn", "process_events", "on_message") == 0
    assert len(got) % PART == 2  # the first message, and the beginning of the source


@pytest.mark.parametrize(("datagram", "length"), [(500, 440_000), (65535, 2_900_000)])
def test_fragments_call_the_callback_of_their_message_only(domain: str, datagram: int, length: int) -> None:
    got: list[bytes] = []

    def on_message(message: ipcbus.Message) -> None:
        got.append(message.data)

    sending = {"transport_lbtipc_datagram_max_size": datagram}
    with (
        ipcbus.Context({"context": sending}, domain=domain) as sender,
        ipcbus.Context({"context": mode_options("sequential")}, domain=domain) as context,
    ):
        receiver = context.receiver("t", on_message)
        source = sender.source("t")
        receiver.wait_for_sources(1, GIVE_UP_S)
        sent = bytes(range(250)) * (length // 250)

        def until_whole() -> None:
            while len(got) < whole:
                context.process_events(0)

        least = TURNS
        for _ in range(ROUNDS):
            source.send(sent, flush=True)
            whole = len(got) + 1 + (not got)  # the beginning of the source comes first
            least = min(least, calls_in(until_whole, "until_whole", "process_events", "on_message"))
            if not least:
                break
        assert least == 0
        assert set(got) == {b"", sent}
