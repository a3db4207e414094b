"""Requests and responses over every ring, in every mode."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import MessageType
from ipcbus.wire.wire_layout import UPLINK
from tests.kit.bus import LBTIPC, on_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.synchronize import Event

    from ipcbus import Message, Source
    from tests.kit.bus import Bus

one_mode = pytest.mark.parametrize("mode", ["embedded"])
on_one = pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))


def echo(message: Message) -> None:
    """Answers with the value in brackets."""
    if message.type is MessageType.REQUEST:
        message.respond(b"[" + message.data + b"]")


@on_all
@pytest.mark.parametrize("contexts", [1, 2])
def test_requests_are_answered(bus: Bus, contexts: int) -> None:
    """With one context on both sides every mode works; with two, the answering one delivers by itself."""
    asking = bus.context("asking")
    bus.receiver("t", echo, asking if contexts == 1 else bus.context("answering", mode="embedded"))
    source = bus.source("t", asking)
    for number in range(50):
        message = source.request(b"%d" % number, timeout=20)
        assert (message.type, message.data, message.source) == (
            *(MessageType.RESPONSE, b"[%d]" % number),
            source.source,
        )


@on_all
@one_mode
def test_many_threads_ask_at_once(bus: Bus) -> None:
    bus.receiver("t", echo)
    source = bus.source("t")
    got: dict[int, list[bytes]] = {}

    def ask(which: int) -> None:
        got[which] = [source.request(b"%d/%d" % (which, number), timeout=30).data for number in range(50)]

    threads = [threading.Thread(target=ask, args=(which,)) for which in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {which: [b"[%d/%d]" % (which, number) for number in range(50)] for which in range(4)}


@on_all
def test_several_responders_answer_one_request(bus: Bus) -> None:
    def answers(name: bytes) -> Callable[[Message], None]:
        return lambda message: message.respond(name) if message.type is MessageType.REQUEST else None

    for name in (b"a", b"b", b"c"):
        bus.receiver("t", answers(name))
    source = bus.source("t")
    bus.joined(source, 3)
    got: list[bytes] = []
    with source.requests(b"x", lambda message: got.append(message.data)) as request:
        bus.until(lambda: len(got) == 3, "three responses")
    assert (sorted(got), request.responses) == ([b"a", b"b", b"c"], 3)


@on_all
def test_a_message_answered_later_and_twice(bus: Bus) -> None:
    asked: list[Message] = []
    bus.receiver("t", lambda m: asked.append(m) if m.type == 2 else None)
    source = bus.source("t")
    got: list[bytes] = []
    request = source.requests(b"x", lambda message: got.append(message.data))
    bus.until(lambda: asked, "the request")
    asked[0].respond(b"1")
    asked[0].respond(b"2")
    bus.until(lambda: len(got) == 2, "both responses")
    request.close()
    asked[0].respond(b"3")
    counters = source._context._sending_sessions.requests.counters
    bus.until(lambda: counters()["resps_late"] == 1, "the late one")
    assert got == [b"1", b"2"]


@on_all
@one_mode
def test_responses_may_be_long(bus: Bus) -> None:
    value = bytes(range(256)) * 40960  # 10 MiB
    bus.receiver("t", lambda m: m.respond(value[: int(m.data)]) if m.type == 2 else None)
    source = bus.source("t")
    for length in (0, 1, 65536, 300_000, len(value), 5):
        assert source.request(b"%d" % length, timeout=30).data == value[:length]


@on_all
@one_mode
def test_a_response_that_is_too_long_is_refused(bus: Bus) -> None:
    errors: list[Exception] = []

    def answer(message: Message) -> None:
        if message.type is MessageType.REQUEST:
            try:
                message.respond(bytes(1 << 26))
            except ipcbus.MessageTooLarge as error:
                errors.append(error)
            message.respond(b"short")

    bus.receiver("t", answer)
    assert bus.source("t").request(b"x", timeout=20).data == b"short"
    assert "longer than the limit" in str(errors[0])


@on_all
@one_mode
def test_a_full_way_makes_a_callback_fail_and_another_thread_wait(bus: Bus) -> None:
    """The asking context does not read until the end."""
    asking = bus.context("asking", mode="sequential")
    answering = bus.context("answering")
    asked: list[Message] = []
    refused: list[ipcbus.WouldBlock] = []
    done = threading.Event()

    def answer(message: Message) -> None:
        if message.type is not MessageType.REQUEST:
            return
        try:
            for _ in range(100):
                message.respond(bytes(100_000))
        except ipcbus.WouldBlock as error:
            refused.append(error)
        asked.append(message)
        done.set()

    bus.receiver("t", answer, answering)
    source = bus.source("t", asking)
    while not source.receivers:
        asking.process_events(0.001)
    got: list[bytes] = []
    source.requests(b"x", lambda message: got.append(message.data))
    assert done.wait(30)
    assert "a callback never waits" in str(refused[0])
    waiting = threading.Thread(target=lambda: asked[0].respond(b"last" * 25_000))
    waiting.start()
    while not answering._responses.blocked:
        waiting.join(0.001)
    while not got or got[-1] != b"last" * 25_000:
        asking.process_events(0.01)
    waiting.join()
    found = answering._responses.counters()
    assert (found["resp_would_block"], found["resp_blocked"]) == (1, 1)
    assert found["resps_sent"] == len(got)


@on_all
@one_mode
def test_another_process_answers_by_the_return_address(bus: Bus) -> None:
    addresses: list[bytes] = []
    bus.receiver("t", lambda m: addresses.append(m.return_address) if m.type == 2 else None)
    source = bus.source("t")
    got: list[bytes] = []
    source.requests(b"x", lambda message: got.append(message.data))
    bus.until(lambda: addresses, "the request")
    process = multiprocessing.get_context("spawn").Process(
        target=answer_there, args=(bus.domain, bus.kind.context_options, addresses[0], 3)
    )
    process.start()
    try:
        bus.until(lambda: len(got) == 3, "its answers")
    finally:
        process.join()
    assert got == [b"there 0", b"there 1", b"there 2"]
    assert process.exitcode == 0


def answer_there(domain: str, options: dict[str, object], address: bytes, count: int) -> None:
    """Answers in the place of the receiver, in a context of its own."""
    for mode, first in (("embedded", 0), ("sequential", 1)):
        with ipcbus.Context({"context": options}, domain=domain, operational_mode=mode) as context:
            for number in range(first, first + 1 if mode == "embedded" else count):
                context.respond(address, b"there %d" % number)


@one_mode
@on_one
def test_odd_return_addresses_are_refused(bus: Bus) -> None:
    addresses: list[bytes] = []

    def answer(message: Message) -> None:
        addresses.append(message.return_address)
        echo(message)

    bus.receiver("t", answer)
    source = bus.source("t")
    source.request(b"x", timeout=20)
    address = next(each for each in addresses if each)
    context = bus.context("other")
    with pytest.raises(ValueError, match="not a return address"):
        context.respond(address[:-1], b"x")
    with ipcbus.Context(domain=bus.domain + "2") as elsewhere, pytest.raises(ValueError, match="belongs to domain"):
        elsewhere.respond(address, b"x")
    for odd in (None, 5, "text", [1, 2]):
        with pytest.raises(TypeError, match=f"must be bytes, not {type(odd).__name__}; give Message.return_address"):
            context.respond(odd, b"x")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        context.respond(address, 5)
    source.close()
    with pytest.raises(ipcbus.SessionGone, match="has ended"):
        context.respond(address, b"x")


@on_all
@one_mode
def test_a_context_that_only_answered_leaves_again(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipcbus.runtime.receiving.response_sessions.KEPT_NS", 0)
    addresses: list[bytes] = []
    receiver = bus.receiver("t", lambda m: addresses.append(m.return_address) if m.type == 2 else None)
    source = bus.source("t")
    got: list[bytes] = []
    source.requests(b"x", lambda message: got.append(message.data))
    bus.until(lambda: addresses, "the request")
    bus.context("other").respond(addresses[0], b"x")
    bus.until(lambda: got, "the answer")
    bus.until(lambda: len(contexts_on(source)) == 1, "it to leave")
    assert receiver.sessions


def contexts_on(source: Source) -> set[int]:
    """The contexts that have joined the session of a source, whatever they receive."""
    session = source._session
    slots, udp_sender = session.channel.slots, session.udp_sender
    found = {slots.identity(slot).context_id for slot in range(slots.slots_max) if slots.active_mask() >> slot & 1}
    clients = udp_sender.reliable_sender.clients if udp_sender is not None else ()
    return found - {UPLINK} | {client.context_id for client in clients}


@on_all
@one_mode
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_responder_that_is_killed_is_told(bus: Bus, when: str) -> None:
    """Before: it dies with the request in hand. After: it has answered once."""
    spawn = multiprocessing.get_context("spawn")
    asked = spawn.Event()
    process = spawn.Process(
        target=answer_until_killed, args=(bus.domain, bus.kind.context_options, when == "after", asked)
    )
    process.start()
    source = bus.source("t")
    try:
        source.wait_for_receivers(1, 30)
        if when == "after":
            assert source.request(b"x", timeout=30).data == b"once"
        killer = threading.Thread(target=lambda: os.kill(process.pid or 0, signal.SIGKILL * asked.wait()))
        killer.start()
        with pytest.raises(ipcbus.NoResponder, match="gone or died"):
            source.request(b"die", timeout=30)
        killer.join()
    finally:
        process.kill()
        process.join()
    bus.until(lambda: not source._session._is_read(), "its slot to be free")


def answer_until_killed(domain: str, options: dict[str, object], once: bool, asked: Event) -> None:
    """Answers the first request at most."""
    with ipcbus.Context({"context": options}, domain=domain) as context:
        for message in context.receiver("t"):
            if message.type is MessageType.REQUEST:
                if once and message.data != b"die":
                    message.respond(b"once")
                else:
                    asked.set()


@on_all
@one_mode
def test_a_message_answered_after_its_receiver_closed(bus: Bus) -> None:
    """The context joins the session again, only to answer."""
    asked: list[Message] = []
    answering = bus.context("answering")
    receiver = bus.receiver("t", lambda m: asked.append(m) if m.type == 2 else None, answering)
    bus.receiver("t", lambda _: None, bus.context("keeps the request alive"))
    source = bus.source("t")
    bus.joined(source, 2)
    got: list[bytes] = []
    source.requests(b"x", lambda message: got.append(message.data))
    bus.until(lambda: asked, "the request")
    receiver.close()
    asked[0].respond(b"late but right")
    bus.until(lambda: got, "the answer")
    answering.close()
    with pytest.raises(ipcbus.ClosedError):
        asked[0].respond(b"too late")


@on_all
@one_mode
def test_a_response_to_a_context_that_has_closed_is_refused(bus: Bus) -> None:
    """On one host that is known; over UDP its session would be joined, and end after its activity timeout."""
    came: list[Message] = []
    bus.receiver("t", came.append, bus.context("answering"))
    asking = bus.context("asking")
    source = bus.source("t", asking)
    bus.joined(source)
    source.requests(b"x", lambda _: None)
    bus.until(lambda: MessageType.REQUEST in [each.type for each in came], "the request")
    asking.close()
    bus.until(lambda: came[-1].type is MessageType.EOS, "the end of the session")
    request = next(each for each in came if each.type is MessageType.REQUEST)
    for _ in range(2):
        with pytest.raises(ipcbus.SessionGone, match="has ended; no response can reach it"):
            request.respond(b"too late")


@on_all
def test_in_asyncio(bus: Bus) -> None:
    context = bus.context("both")
    bus.receiver("t", echo, context)
    source = bus.source("t", context)

    async def ask() -> list[bytes]:
        found = await asyncio.gather(*(source.arequest(b"%d" % number, timeout=20) for number in range(20)))
        return [message.data for message in found]

    assert asyncio.run(ask()) == [b"[%d]" % number for number in range(20)]


@on_all
@one_mode
def test_a_request_that_comes_by_late_join_can_be_answered(bus: Bus) -> None:
    source = bus.source("t", late_join=1)
    bus.receiver("t", lambda _: None)
    bus.joined(source)
    answers: list[bytes] = []
    source.requests(b"x", lambda message: answers.append(message.data), timeout=60)
    bus.receiver("t", echo)
    bus.until(lambda: answers, "the answer")
    assert answers == [b"[x]"]
