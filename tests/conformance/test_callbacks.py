"""What a callback may do, and what its exceptions do."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import Message, MessageType
from tests.kit.bus import GIVE_UP_S
from tests.kit.forms import CallbackTaker
from tests.kit.look import advert, callback_errors
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Context, Receiver
    from tests.kit.bus import Bus

BOS, DATA, EOS = MessageType.BOS, MessageType.DATA, MessageType.EOS


class Acting:
    """A receiver whose callback acts at the first message of a kind."""

    def __init__(
        self, bus: Bus, at: MessageType, act: Callable[[], object], topic: str = "t", context: Context | None = None
    ) -> None:
        self.at, self.act = at, act
        self.got: list[tuple[MessageType, bytes]] = []
        self.acted = threading.Event()
        self.receiver: Receiver = bus.receiver(topic, self, context)

    def __call__(self, message: Message) -> None:
        self.got.append((message.type, message.data))
        if message.type is self.at and not self.acted.is_set():
            try:
                self.act()
            finally:
                self.acted.set()


def test_exceptions_are_counted_logged_once_and_delivery_goes_on(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    got = []

    def fail(message: Message) -> None:
        got.append(message.type)
        if message.type is DATA:
            raise KeyError(f"at {message.sequence_number}")

    receiver = bus.receiver("failing", fail)
    source = bus.source("failing")
    bus.joined(source)
    with caplog.at_level(logging.WARNING, "ipcbus"):
        for number in range(20):
            source.send(body(number))
        source.close()
        bus.until(lambda: got and got[-1] is EOS, "the end")
    assert got == [BOS] + [DATA] * 20 + [EOS]
    assert callback_errors(receiver) == 20
    (row,) = advert(bus.contexts[0]).receivers
    assert (row.callback_errors, row.lbm_msgs_rcved) == (20, 20)
    (record,) = caplog.records
    assert "failing" in record.getMessage()
    assert record.exc_info is not None


def test_exceptions_in_events_are_counted_too(bus: Bus) -> None:
    def fail(message: Message) -> None:
        raise ValueError(message.type.name)

    receiver = bus.receiver("t", fail)
    source = bus.source()
    bus.joined(source)
    source.send(b"x")
    source.close()
    bus.until(lambda: callback_errors(receiver) == 3, "BOS, the message and EOS")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_exception_costs_no_message(
    bus: Bus, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """Every callback of two receivers raises: the context's own thread counts and goes on, others hear of it."""
    receiving = bus.context("receiving")
    got: dict[int, list[int]] = {0: [], 1: []}
    before_raise: list[int] = []

    def callback(number: int) -> Callable[[Message], None]:
        def fail(message: Message) -> None:
            got[number].append(message.sequence_number if message.type is DATA else -int(message.type) - 1)
            before_raise.append(threading.get_ident())
            raise error(message.type.name)

        return fail

    receivers = [bus.receiver("t", callback(number), receiving) for number in range(2)]
    source = bus.source("t")
    caught = 0

    def until(condition: Callable[[], object], what: str) -> None:
        nonlocal caught
        while True:
            try:
                return bus.until(condition, what)
            except error:
                caught += 1

    until(lambda: source.receivers, "the receiving context")
    for number in range(1000):
        while True:
            try:
                source.send(body(number), flush=number % 7 == 0)
                break
            except error:  # a send that waits for room drives a sequential context
                caught += 1
    while not source.closed:
        try:
            source.close()
        except error:
            caught += 1
    until(lambda: all(each[-1:] == [-int(EOS) - 1] for each in got.values()), "the end")
    expected = [-int(BOS) - 1, *range(1000), -int(EOS) - 1]
    assert got == {0: expected, 1: expected}
    assert [callback_errors(receiver) for receiver in receivers] == [1002, 1002]
    in_own_thread = before_raise.count(threading.get_ident()) == 0
    assert (caught == 0) is in_own_thread
    if in_own_thread:
        assert sum(record.exc_info is not None for record in caplog.records) == 2  # once a receiver


@pytest.mark.parametrize("at", [BOS, DATA, EOS], ids=lambda at: str(at.name))
def test_a_callback_may_close_its_own_receiver(bus: Bus, at: MessageType) -> None:
    acting = Acting(bus, at, lambda: acting.receiver.close())
    context = bus.contexts[0]
    source = bus.source()
    bus.joined(source)
    for number in range(5):
        source.send(body(number))
    source.close()
    bus.until(acting.acted.is_set, "the callback")
    assert acting.receiver.closed
    # The context works on.
    taker = CallbackTaker(bus, "afterwards", context)
    later = bus.source("afterwards")
    bus.joined(later)
    later.send(b"on", flush=True)
    assert taker.data(1) == [b"on"]
    assert acting.got[-1][0] is at
    if at is DATA:
        assert len(acting.got) == 2


@pytest.mark.parametrize("at", [BOS, DATA, EOS], ids=lambda at: str(at.name))
def test_a_callback_may_close_another_receiver_of_the_topic(bus: Bus, at: MessageType) -> None:
    context = bus.context("both")
    acting = Acting(bus, at, lambda: other.receiver.close(), context=context)
    other = CallbackTaker(bus, context=context)
    source = bus.source()
    bus.joined(source)
    for number in range(5):
        source.send(body(number))
    source.close()
    bus.until(lambda: acting.got and acting.got[-1][0] is EOS, "the end")
    assert [kind for kind, _ in acting.got] == [BOS] + [DATA] * 5 + [EOS]
    assert other.receiver.closed
    if at is DATA:
        assert other.kinds == [BOS]


def test_a_callback_may_make_receivers_and_sources(bus: Bus) -> None:
    context = bus.context("busy")
    made: list[CallbackTaker] = []
    sources: list[ipcbus.Source] = []

    def act() -> None:
        made.append(CallbackTaker(bus, "second", context))
        sources.append(bus.source("second", context))

    acting = Acting(bus, DATA, act, context=context)
    source = bus.source()
    bus.joined(source)
    source.send(body(0), flush=True)
    bus.until(acting.acted.is_set, "the callback")
    bus.joined(sources[0])
    sources[0].send(b"made inside", flush=True)
    assert made[0].data(1) == [b"made inside"]
    source.send(body(1), flush=True)
    bus.until(lambda: len(acting.got) == 3, "delivery to go on")


def test_a_callback_may_close_its_context(bus: Bus) -> None:
    context = bus.context("closing itself")
    acting = Acting(bus, DATA, context.close, context=context)
    source = bus.source()
    bus.joined(source)
    for number in range(100):
        source.send(body(number))
    source.flush()
    bus.until(acting.acted.is_set, "the callback")
    bus.until(lambda: source.receivers == 0, "the leaving")
    assert [kind for kind, _ in acting.got] == [BOS, DATA]
    with pytest.raises(ipcbus.ClosedError):
        context.source("x")


def test_a_callback_may_answer(bus: Bus) -> None:
    near, far = bus.context("near"), bus.context("far")
    ping = bus.source("ping", near)
    pong = bus.source("pong", far)

    def answer(message: Message) -> None:
        if message.type is DATA:
            pong.send(message.data, flush=True)

    bus.receiver("ping", answer, far)
    back = CallbackTaker(bus, "pong", near)
    bus.joined(ping)
    bus.joined(pong)
    for number in range(30):
        ping.send(body(number), flush=True)
        assert back.data(number + 1)[-1] == body(number)


def test_waiting_and_driving_inside_a_callback_are_refused(bus: Bus) -> None:
    context = bus.context("inside")
    pulled = bus.receiver("pulled", None, context)
    own = bus.source("own", context)
    raised: list[BaseException] = []

    def act() -> None:
        calls: list[Callable[[], object]] = [
            lambda: pulled.receive(1),
            lambda: pulled.receive_many(3, 1),
            lambda: own.wait_for_receivers(1, 1),
        ]
        if bus.sequential:
            calls += [lambda: context.process_events(0), lambda: context.process_events(1)]
        for call in calls:
            try:
                call()
            except ipcbus.IpcBusError as error:
                raised.append(error)

    acting = Acting(bus, DATA, act, context=context)
    source = bus.source()
    bus.joined(source)
    source.send(b"x", flush=True)
    bus.until(acting.acted.is_set, "the callback")
    assert len(raised) == (5 if bus.sequential else 3)
    assert all("inside" in str(error) for error in raised)


def test_a_callback_may_take_what_another_receiver_holds_already(bus: Bus) -> None:
    context = bus.context("both")
    pulled = bus.receiver("pulled", None, context)
    first, second = bus.source("pulled"), bus.source()
    taken: list[bytes] = []

    def act() -> None:
        message = pulled.receive(0)
        while message is not None:
            taken.append(message.data)
            message = pulled.receive(0) if pulled._sink.queue else None

    acting = Acting(bus, DATA, act, context=context)
    bus.joined(first)
    bus.joined(second)
    first.send(b"held", flush=True)
    bus.until(lambda: pulled.delivered == 1, "the held message")
    second.send(b"go", flush=True)
    bus.until(acting.acted.is_set, "the callback")
    assert taken == [b"", b"held"]


@pytest.mark.parametrize("mode", ["embedded"])  # in sequential mode the caller itself runs the callback
def test_closing_a_receiver_waits_for_its_running_callback(bus: Bus) -> None:
    inside, go_on = threading.Event(), threading.Event()
    left = []

    def slow(message: Message) -> None:
        inside.set()
        go_on.wait(GIVE_UP_S)
        left.append(message.type)

    receiver = bus.receiver("t", slow)
    source = bus.source()
    bus.joined(source)
    source.send(b"x", flush=True)
    assert inside.wait(GIVE_UP_S)
    closer = threading.Thread(target=receiver.close)
    closer.start()
    go_on.set()
    closer.join(GIVE_UP_S)
    count = len(left)
    assert count >= 1
    source.send(b"y", flush=True)
    bus.until(lambda: source.receivers == 0, "the leaving")
    assert len(left) == count
