"""The sending handle."""

from __future__ import annotations

import logging
import os
import threading
from array import array
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ipcbus import ClosedError, Context, SourceEventType
from tests.kit.bus import GIVE_UP_S, LBTIPC, RINGS, Bus, Kind
from tests.kit.forms import CallbackTaker
from tests.kit.look import ring_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus import SourceEvent

every_kind = pytest.mark.parametrize("kind", RINGS, ids=lambda kind: str(kind.name))


@pytest.fixture
def bus(domain: str) -> Iterator[Bus]:
    made = Bus(domain, LBTIPC, "sequential")
    yield made
    made.close()


@every_kind
def test_a_new_source_tells_its_topic_session_and_limits(domain: str, kind: Kind) -> None:
    bus = Bus(domain, kind, "sequential")
    source = bus.source("quotes.AAPL")
    assert (source.topic, source.sequence_number, source.receivers, source.closed) == ("quotes.AAPL", -1, 0, False)
    name, session, number = source.source.split(":")
    assert (name, number) == (kind.title, str(kind.first_id))
    assert int(session, 16) == ring_header(source)["session_id"]
    assert source.message_max == 8192 - 16
    assert "'quotes.AAPL'" in repr(source)
    assert source.source in repr(source)
    source.close()
    assert source.closed
    assert "closed" in repr(source)
    bus.close()


@pytest.mark.parametrize(
    "data",
    [
        b"bytes",
        bytearray(b"bytes"),
        memoryview(b"xbytesx")[1:6],
        np.frombuffer(b"bytes", np.uint8),
        array("B", b"bytes"),
    ],
    ids=lambda data: type(data).__name__,
)
def test_whatever_is_bytes_like_can_be_sent(bus: Bus, data: object) -> None:
    source = bus.source()
    taker = CallbackTaker(bus)
    bus.joined(source)
    source.send(data, flush=True)
    assert taker.data(1) == [b"bytes"]


def test_the_bytes_are_copied_before_send_returns(bus: Bus) -> None:
    source = bus.source()
    taker = CallbackTaker(bus)
    bus.joined(source)
    data = bytearray(b"before")
    source.send(data)
    data[:] = b"after!"
    source.send(data, flush=True)
    assert taker.data(2) == [b"before", b"after!"]


def test_nobody_needs_to_receive(bus: Bus) -> None:
    source = bus.source(**LBTIPC.small())
    for _ in range(5000):
        source.send(bytes(100), block=False)
    assert source.sequence_number == 4999


def test_events_have_the_other_side_and_come_once(bus: Bus) -> None:
    events: list[SourceEvent] = []
    source = bus.source(on_event=events.append)
    receivers = [bus.receiver("t", None, bus.context(name)) for name in ("one", "two")]
    bus.joined(source, 2)
    bus.until(lambda: len(events) == 2, "two to connect")
    assert {(event.type, event.pid, event.context_name) for event in events} == {
        (SourceEventType.CONNECT, os.getpid(), "one"),
        (SourceEventType.CONNECT, os.getpid(), "two"),
    }
    receivers[0].close()
    bus.until(lambda: len(events) == 3, "one to disconnect")
    assert (events[2].type, events[2].context_name) == (SourceEventType.DISCONNECT, "one")
    for _ in range(5):
        bus.turn()
    assert len(events) == 3


def test_a_receiver_that_leaves_and_comes_back_between_two_looks_is_told_as_both(domain: str) -> None:
    bus = Bus(domain, LBTIPC, "sequential")
    events: list[SourceEvent] = []
    source = bus.source(on_event=events.append)
    context = bus.context("same")
    receiver = bus.receiver("t", None, context)
    bus.joined(source)
    bus.until(lambda: events, "the connect")
    receiver.close()
    bus.receiver("t", None, context)  # takes the same slot, before the source looks
    bus.until(lambda: len(events) == 3, "both events")
    kinds = [SourceEventType.CONNECT, SourceEventType.DISCONNECT, SourceEventType.CONNECT]
    assert [event.type for event in events] == kinds
    bus.close()


def test_an_event_callback_that_raises_is_logged_and_the_next_event_comes(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[SourceEvent] = []

    def fail(event: SourceEvent) -> None:
        events.append(event)
        raise RuntimeError("in on_event")

    source = bus.source("of interest", on_event=fail)
    with caplog.at_level(logging.ERROR, "ipcbus"):
        receiver = bus.receiver("of interest")
        bus.until(lambda: len(events) == 1, "the first event")
        receiver.close()
        bus.until(lambda: len(events) == 2, "the second event")
    assert "of interest" in caplog.text
    assert "in on_event" in caplog.text
    assert source.receivers == 0


def test_an_event_callback_may_use_the_source(domain: str) -> None:
    bus = Bus(domain, LBTIPC, "embedded")
    sent = threading.Event()

    def greet(event: SourceEvent) -> None:
        if event.type is SourceEventType.CONNECT:
            source.send(b"welcome", flush=True)
            sent.set()

    source = bus.source(on_event=greet)
    taker = CallbackTaker(bus)
    assert sent.wait(GIVE_UP_S)
    assert taker.data(1) == [b"welcome"]
    bus.close()


def test_an_event_callback_may_close_the_source(domain: str) -> None:
    bus = Bus(domain, LBTIPC, "embedded")
    closed = threading.Event()

    def close(event: SourceEvent) -> None:
        source.close()
        closed.set()

    source = bus.source(on_event=close)
    receiver = bus.receiver()
    assert closed.wait(GIVE_UP_S)
    bus.until(lambda: receiver.sessions == [], "the end")
    bus.close()


def test_a_source_of_a_dropped_context_still_sends(domain: str) -> None:
    with Context(domain=domain) as receiving:
        receiver = receiving.receiver("t")
        source = Context(domain=domain).source("t")
        source.wait_for_receivers(1, GIVE_UP_S)
        source.send(b"x", flush=True)
        got = [receiver.receive(GIVE_UP_S), receiver.receive(GIVE_UP_S)]
        assert [message.data for message in got if message] == [b"", b"x"]
        source._context.close()


@pytest.mark.parametrize("others", [0, 1])
def test_a_closed_source_says_so_until_its_context_is_closed(domain: str, others: int) -> None:
    """Also where the session ended with its last source."""
    with Context(domain=domain) as context:
        for number in range(others):
            context.source(f"other {number}")
        source = context.source("t")
        source.close()
        uses = (lambda: source.send(b"x"), lambda: source.send_many([b"x"]), lambda: source.acquire(1).__enter__())
        for use in (*uses, lambda: source.send(bytes(100_000)), lambda: source.wait_for_receivers(1, 0)):
            with pytest.raises(ClosedError, match="^the source of topic 't' is closed; make a new one with ctx.source"):
                use()
    for use in uses:
        with pytest.raises(ClosedError, match="^the context of the source of topic 't' is closed; make a new Context"):
            use()


def test_what_is_not_bytes_like_is_named_with_its_topic_place_and_cure(bus: Bus) -> None:
    source = bus.source("t")
    taker = CallbackTaker(bus, "t")
    bus.joined(source)
    for headers in (None, {"a": b"b"}):
        with pytest.raises(TypeError, match="^topic 't': 'x' is of type str, not bytes-like; encode it first"):
            source.send("x", headers=headers)
    with pytest.raises(TypeError, match="^topic 't': 5 is of type int, not bytes-like; turn it into bytes"):
        source.send(5)
    text = "^topic 't': message 2 of send_many: 'bad' is of type str, .*encode it first.* Messages sent before it: 2$"
    with pytest.raises(TypeError, match=text):
        source.send_many([b"a", b"b", "bad", b"c"], flush=True)  # type: ignore[list-item]
    assert taker.data(2) == [b"a", b"b"]
    assert source.sequence_number == 1
