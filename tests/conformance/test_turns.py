"""A turn of the event loop with nothing rare to do runs compiled code only."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from tests.kit.bus import GIVE_UP_S, mode_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUNDS = 100
TURNS = 1000


def python_calls(run: Callable[[], object], *public: str) -> int:
    """Returns how many Python functions besides `public` ones a thousand turns call.

    Timers come due in between, so the best of some rounds counts.
    """

    def turns() -> None:
        for _ in range(TURNS):
            run()

    least = TURNS
    for _ in range(ROUNDS):
        least = min(least, calls_in(turns, *public, "turns"))
        if not least:
            break
    return least


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

    def __init__(self, context: ipcbus.Context, on_message: Callable[[ipcbus.Message], object] | None = None) -> None:
        self.context = context
        self.receiver = context.receiver("t", on_message)
        self.source = context.source("t", transport="lbtsmx")
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
where_a_guest_drives = pytest.mark.parametrize("mode", ["sequential", "embedded"])


@in_sequential_mode
def test_an_idle_process_events_calls_nothing(context: ipcbus.Context) -> None:
    Stand(context, lambda _: None)
    assert python_calls(lambda: context.process_events(0), "<lambda>", "process_events") == 0


@where_a_guest_drives
def test_an_idle_receive_calls_nothing(context: ipcbus.Context) -> None:
    receiver = Stand(context).receiver
    assert python_calls(lambda: receiver.receive(0), "<lambda>", "receive") == 0
    assert python_calls(lambda: receiver.receive_many(9, 0), "<lambda>", "receive_many") == 0


@where_a_guest_drives
def test_a_receive_with_a_message_there_calls_nothing(context: ipcbus.Context) -> None:
    stand = Stand(context)

    def turn() -> None:
        stand.source.send(b"x")
        got.append(stand.receiver.receive(0))

    got: list[object] = []
    assert python_calls(turn, "turn", "receive") == 0
    missed = got.count(None)  # while the own thread had the driver lock
    for _ in range(missed):
        assert stand.receiver.receive(GIVE_UP_S) is not None
    assert stand.receiver.receive(0) is None


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
    assert len(got) % TURNS == 2  # the first message, and the beginning of the source


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
