"""Requests of a context: who gets the responses, and how each request ends, over a stand-in for the channel."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import MessageType
from tests.kit.bus import LBTIPC, Bus
from tests.kit.loopback import Loopback

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus import Message, Request


@pytest.fixture(params=["embedded", "sequential"])
def mode(request: pytest.FixtureRequest) -> str:
    """Who drives the contexts."""
    return str(request.param)


@pytest.fixture
def bus(domain: str, mode: str) -> Iterator[Bus]:
    """A bus with one context on both sides, whose responses need no channel."""
    made = Bus(domain, LBTIPC, mode)
    made.context("both")
    Loopback(made.contexts[0])
    yield made
    made.close()


def echo(message: Message) -> None:
    """Answers with the value in brackets."""
    if message.type is MessageType.REQUEST:
        message.respond(b"[" + message.data + b"]")


class Answers:
    """Takes responses, as it must not."""

    async def take(self, _: object) -> None:
        """Is not awaited."""


def test_a_request_returns_the_first_response(bus: Bus) -> None:
    context = bus.contexts[0]
    bus.receiver("t", echo, context)
    source = bus.source("t", context)
    for number in range(5):
        message = source.request(b"%d" % number, timeout=20)
        assert (message.type, message.data) == (MessageType.RESPONSE, b"[%d]" % number)
        assert (message.topic, message.source) == ("t", source.source)
    found = context._sending_sessions.requests.counters()
    assert found == {"reqs_sent": 5, "reqs_pending": 0, "resps_rcved": 5, "resps_late": 0, "resps_unknown": 0}


def test_headers_go_with_a_request(bus: Bus) -> None:
    bus.receiver("t", lambda m: m.respond(dict(m.headers)["k"]) if m.type == 2 else None, bus.contexts[0])
    source = bus.source("t", bus.contexts[0])
    assert source.request(b"", timeout=20, headers={"k": b"v"}).data == b"v"


def test_without_an_answer_the_time_runs_out(bus: Bus) -> None:
    bus.receiver("t", lambda _: None, bus.contexts[0])
    source = bus.source("t", bus.contexts[0])
    bus.joined(source)
    with pytest.raises(ipcbus.RequestTimeout, match="no responses came in"):
        source.request(b"x", timeout=0.05)
    for none in (0, -1, -0.5):
        with pytest.raises(TimeoutError, match="timeout = 0 or less waits for no response; give seconds"):
            source.request(b"x", timeout=none)
    assert len(bus.contexts[0]._sending_sessions.requests._pending) == 0


def test_without_a_receiver_there_is_no_responder(bus: Bus) -> None:
    source = bus.source("t", bus.contexts[0])
    with pytest.raises(ipcbus.NoResponder, match="start a receiver"):
        source.request(b"x", timeout=20)
    with pytest.raises(ipcbus.NoResponder):
        source.request(b"x", timeout=0.01)
    assert source.sequence_number == -1


def test_a_second_answer_is_late_and_counted(bus: Bus) -> None:
    context = bus.contexts[0]
    kept: list[Message] = []

    def keep(message: Message) -> None:
        kept.append(message)
        echo(message)

    bus.receiver("t", keep, context)
    source = bus.source("t", context)
    source.request(b"x", timeout=20)
    kept[-1].respond(b"again")
    found = context._sending_sessions.requests.counters()
    assert (found["resps_rcved"], found["resps_late"], found["resps_unknown"]) == (1, 1, 0)
    context._responses.send(context._responses.responder(source._session.advert)._of(12345), b"stray", "test")
    assert context._sending_sessions.requests.counters()["resps_unknown"] == 1


def test_several_responses_reach_the_callback_until_it_is_closed(bus: Bus) -> None:
    context = bus.contexts[0]
    asked: list[Message] = []
    bus.receiver("t", lambda m: asked.append(m) if m.type == 2 else None, context)
    source = bus.source("t", context)
    got: list[bytes] = []
    ended: list[Request] = []
    request = source.requests(b"x", lambda m: got.append(m.data), on_end=ended.append)
    bus.until(lambda: asked, "the request")
    for number in range(3):
        asked[0].respond(b"%d" % number)
    bus.until(lambda: len(got) == 3, "the responses")
    assert (got, request.responses, request.closed, request.error) == ([b"0", b"1", b"2"], 3, False, None)
    request.close()
    request.close()
    asked[0].respond(b"late")
    assert (got, ended, request.closed, request.error) == ([b"0", b"1", b"2"], [request], True, None)
    assert repr(request) == "<Request 't': 3 responses (closed)>"


def test_the_time_of_several_responses_runs_out(bus: Bus) -> None:
    bus.receiver("t", echo, bus.contexts[0])
    source = bus.source("t", bus.contexts[0])
    got: list[Message] = []
    with source.requests(b"x", got.append, timeout=0.2) as request:
        bus.until(lambda: request.closed, "the end")
    assert len(got) == 1
    assert isinstance(request.error, ipcbus.RequestTimeout)


def test_the_end_without_a_responder_is_told(bus: Bus) -> None:
    source = bus.source("t", bus.contexts[0])
    request = source.requests(b"x", lambda _: None, timeout=0.05)
    bus.until(lambda: request.closed, "the end")
    assert isinstance(request.error, ipcbus.NoResponder)


def test_a_request_waits_for_its_first_receiver(bus: Bus) -> None:
    """The receiver is made later, and gets the request all the same."""
    source = bus.source("t", bus.contexts[0])
    got: list[Message] = []
    source.requests(b"early", got.append)
    bus.receiver("t", echo, bus.contexts[0])
    bus.until(lambda: got, "the response")
    assert got[0].data == b"[early]"


def test_too_many_at_a_time_are_refused(domain: str) -> None:
    bus = Bus(domain, LBTIPC, "sequential")
    context = bus.context("both", requests_outstanding_maximum=2)
    bus.receiver("t", lambda _: None, context)
    source = bus.source("t", context)
    bus.joined(source)
    first = source.requests(b"x", lambda _: None)
    source.requests(b"x", lambda _: None)
    with pytest.raises(ipcbus.WouldBlock, match="requests_outstanding_maximum"):
        source.requests(b"x", lambda _: None)
    first.close()
    source.requests(b"x", lambda _: None)
    bus.close()


def test_inside_a_callback_requests_goes_and_request_is_refused(bus: Bus) -> None:
    context = bus.contexts[0]
    bus.receiver("t", echo, context)
    source = bus.source("t", context)
    bus.joined(source)
    errors: list[Exception] = []
    got: list[bytes] = []

    def inside(message: Message) -> None:
        if message.type is not MessageType.DATA:
            return
        try:
            source.request(b"x")
        except ipcbus.WrongThread as error:
            errors.append(error)
        source.requests(b"inside", lambda response: got.append(response.data))

    bus.receiver("go", inside, context)
    go = bus.source("go", context)
    bus.joined(go)
    go.send(b"now", flush=True)
    bus.until(lambda: got, "the response")
    assert (got, "requests(data, on_response)" in str(errors[0])) == ([b"[inside]"], True)


def test_closing_the_source_ends_its_requests(bus: Bus) -> None:
    bus.receiver("t", lambda _: None, bus.contexts[0])
    source = bus.source("t", bus.contexts[0])
    bus.joined(source)
    request = source.requests(b"x", lambda _: None)
    source.close()
    assert isinstance(request.error, ipcbus.ClosedError)
    with pytest.raises(ipcbus.ClosedError):
        source.request(b"x")


def test_closing_the_context_ends_a_wait(domain: str) -> None:
    bus = Bus(domain, LBTIPC, "embedded")
    context = bus.context("both")
    asked = threading.Event()
    bus.receiver("t", lambda m: asked.set() if m.type == 2 else None, context)
    source = bus.source("t", context)
    errors: list[Exception] = []

    def ask() -> None:
        try:
            source.request(b"x", timeout=None)
        except ipcbus.IpcBusError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    asked.wait()
    context.close()
    thread.join()
    assert isinstance(errors[0], ipcbus.ClosedError)


def test_in_asyncio(bus: Bus) -> None:
    bus.receiver("t", echo, bus.contexts[0])
    source = bus.source("t", bus.contexts[0])

    async def ask() -> list[bytes]:
        messages = await asyncio.gather(*(source.arequest(b"%d" % number, timeout=20) for number in range(10)))
        return [message.data for message in messages]

    assert asyncio.run(ask()) == [b"[%d]" % number for number in range(10)]


def test_in_asyncio_the_time_runs_out_and_a_cancelled_request_ends(bus: Bus) -> None:
    bus.receiver("t", lambda _: None, bus.contexts[0])
    source = bus.source("t", bus.contexts[0])

    async def ask() -> None:
        with pytest.raises(ipcbus.RequestTimeout):
            await source.arequest(b"x", timeout=0.05)
        task = asyncio.ensure_future(source.arequest(b"x", timeout=None))
        done, _ = await asyncio.wait([task], timeout=0.05)
        assert not done
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask())
    assert len(bus.contexts[0]._sending_sessions.requests._pending) == 0


def test_what_a_callback_raises_is_logged_once_and_the_request_goes_on(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    context = bus.contexts[0]
    asked: list[Message] = []
    bus.receiver("t", lambda m: asked.append(m) if m.type == 2 else None, context)
    source = bus.source("t", context)

    def fail(_: Message) -> None:
        raise ValueError("mine")

    request = source.requests(b"x", fail)
    bus.until(lambda: asked, "the request")
    for _ in range(3):
        asked[0].respond(b"x")
    bus.until(lambda: request.responses == 3, "the responses")
    assert caplog.text.count("on_response of a request on 't' raised") == 1


@pytest.mark.parametrize("mode", ["embedded"])
def test_after_polling_in_vain_threads_sleep_at_once_for_some_requests(bus: Bus) -> None:
    bus.receiver("t", lambda _: None, bus.context("other", mode="embedded"))
    source = bus.source("t", bus.contexts[0])
    bus.joined(source)
    requests = bus.contexts[0]._sending_sessions.requests

    def unanswered() -> int:
        with pytest.raises(ipcbus.RequestTimeout):
            source.request(b"x", timeout=0.01)
        return requests._sleeps_at_once

    # A timer that is due may end the first polls early.
    bus.until(unanswered, "a poll that ends in vain")
    left = requests._sleeps_at_once
    assert [unanswered() for _ in range(left)] == list(range(left - 1, -1, -1))


def test_odd_arguments_send_nothing(bus: Bus) -> None:
    bus.receiver("t", lambda _: None, bus.contexts[0])
    source = bus.source("t", bus.contexts[0])
    with pytest.raises(TypeError):
        source.request("text")  # before a receiver has joined
    bus.joined(source)
    with pytest.raises(TypeError):
        source.request("text")
    with pytest.raises(TypeError):
        source.request(b"x", timeout="soon")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        source.requests(b"x", None)  # type: ignore[arg-type]
    with pytest.raises(ipcbus.ConfigError):
        source.requests(b"x", 5)  # type: ignore[arg-type]
    with pytest.raises(ipcbus.ConfigError, match="async"):
        source.requests(b"x", Answers().take)
    with pytest.raises(ipcbus.ConfigError, match="on_end"):
        source.requests(b"x", lambda _: None, on_end=Answers().take)
    assert source.sequence_number == -1
    assert len(bus.contexts[0]._sending_sessions.requests._pending) == 0


def test_a_callback_that_refers_to_its_request_is_freed_when_the_request_ends(bus: Bus) -> None:
    """The garbage collector would take as long as all else if it had to free such pairs."""
    context = bus.contexts[0]
    bus.receiver("t", echo, context)
    source = bus.source("t", context)
    bus.joined(source)
    freed: list[weakref.ref[object]] = []

    def ask() -> None:
        def take(_: Message) -> None:
            request.close()

        request = source.requests(b"x", take, on_end=lambda _: take)
        freed.append(weakref.ref(take))

    gc.disable()
    try:
        with context._event_loop.driver_lock():  # so that no response comes before the request is known
            ask()
        bus.until(lambda: freed[0]() is None, "the end of the callback")
    finally:
        gc.enable()
