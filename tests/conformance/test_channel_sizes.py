"""The options for the sizes of control channels: small and large values work, and the limits hold."""

from __future__ import annotations

import threading

import pytest

import ipcbus
from ipcbus import MessageType
from tests.kit.bus import GIVE_UP_S, LBTSMX, RECEIVER_PACED, Bus, Kind
from tests.kit.forms import CallbackTaker
from tests.kit.payload import body

KIB, MIB = 1 << 10, 1 << 20
SMALL = {
    "control_channel_size": 16 * KIB,
    "control_channel_queue_maximum": 64 * KIB,
    "control_channel_message_maximum": 128 * KIB,
}
LARGE = {
    "control_channel_size": 4 * MIB,
    "control_channel_queue_maximum": 64 * MIB,
    "control_channel_message_maximum": 256 * MIB,
}
LONG = {"transport_lbtsmx_datagram_max_size": MIB, "transport_lbtsmx_transmission_window_size": 4 * MIB}
embedded = pytest.mark.parametrize("mode", ["embedded"])
sizes = pytest.mark.parametrize("options", [SMALL, LARGE], ids=["small", "large"])


@pytest.fixture(params=RECEIVER_PACED, ids=lambda kind: str(kind.name))
def kind(request: pytest.FixtureRequest) -> Kind:
    """A ring."""
    found: Kind = request.param
    return found


@embedded
@sizes
def test_late_join_and_responses_work_with_every_size(bus: Bus, options: dict[str, object]) -> None:
    sending = bus.context("sending", **options)
    source = bus.source(context=sending, late_join=1)
    for number in range(2000):
        source.send(body(number, 1000))
    source.flush()
    receiving = bus.context("receiving", **options)
    taker = CallbackTaker(bus, context=receiving)
    assert taker.data(2000) == [body(number, 1000) for number in range(2000)]
    responding = bus.context("responding", **options)
    bus.receiver("asked", lambda m: m.respond(m.data * 100) if m.type is MessageType.REQUEST else None, responding)
    asking = bus.source("asked", sending)
    for _ in range(20):
        assert asking.request(bytes(1000), timeout=30).data == bytes(100_000)


@embedded
def test_a_response_may_have_the_length_of_the_option_and_no_more(bus: Bus) -> None:
    longest = 128 * KIB - 16
    refused: list[ipcbus.MessageTooLarge] = []

    def answer(message: ipcbus.Message) -> None:
        if message.type is not MessageType.REQUEST:
            return
        try:
            message.respond(bytes(longest + 1))
        except ipcbus.MessageTooLarge as error:
            refused.append(error)
        message.respond(bytes(longest))

    bus.receiver("t", answer, bus.context("responding", **SMALL))
    assert bus.source("t", bus.context("asking", **SMALL)).request(b"x", timeout=30).data == bytes(longest)
    assert f"longer than the limit of {longest}" in str(refused[0])
    assert "control_channel_message_maximum" in str(refused[0])


@embedded
def test_a_response_that_is_too_long_for_the_asking_side_is_dropped_there(bus: Bus) -> None:
    def answer(message: ipcbus.Message) -> None:
        if message.type is MessageType.REQUEST:
            message.respond(bytes(MIB))
            message.respond(b"short")

    bus.receiver("t", answer, bus.context("responding", **LARGE))
    assert bus.source("t", bus.context("asking", **SMALL)).request(b"x", timeout=30).data == b"short"


@embedded
@pytest.mark.parametrize(("options", "least"), [(SMALL, 50_000), (LARGE, 32 * MIB)], ids=["small", "large"])
def test_the_queue_takes_as_much_as_the_option_says(bus: Bus, options: dict[str, object], least: int) -> None:
    """The asking context is not driven meanwhile, so responses wait in the pipe and then in the queue."""
    asking = bus.context("asking", mode="sequential", **options)
    answering = bus.context("answering", **options)
    taken: list[int] = []
    full = threading.Event()

    def answer(message: ipcbus.Message) -> None:
        if message.type is not MessageType.REQUEST:
            return
        try:
            for number in range(1, 200_000):
                message.respond(bytes(10_000))
                taken.append(10_000 * number)
        except ipcbus.WouldBlock:
            full.set()

    bus.receiver("t", answer, answering)
    source = bus.source("t", asking)
    bus.joined(source)
    got: list[int] = []
    with source.requests(b"x", lambda message: got.append(len(message.data))):
        assert full.wait(GIVE_UP_S)
        bus.until(lambda: len(got) == len(taken), "all that the queue took")
    held = int(options["control_channel_queue_maximum"]) + int(options["control_channel_size"])  # type: ignore[call-overload]
    assert least <= taken[-1] <= held + 10_000 * 2
    assert set(got) == {10_000}


@embedded
@pytest.mark.parametrize("kind", [LBTSMX], ids=["lbtsmx"])
def test_a_message_that_is_too_long_to_be_sent_again_is_reported_lost(bus: Bus) -> None:
    """LBT-SMX has no fragments, so a message may be longer than a control message."""
    sending = bus.context("sending", **SMALL)
    source = bus.source(context=sending, late_join=1, **LONG)
    for size in (100, 200 * KIB, 100):
        source.send(body(source.sequence_number + 1, size))
    receiving = bus.context("receiving", **SMALL)
    taker = CallbackTaker(bus, context=receiving)
    taker.take(lambda: taker.count() == 2)
    assert [(got.type, got.number) for got in taker.got if got.type is not MessageType.BOS] == [
        (MessageType.DATA, 0),
        (MessageType.UNRECOVERABLE_LOSS, 1),
        (MessageType.DATA, 2),
    ]
