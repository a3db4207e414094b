"""A full ring: waiting, refusing, waking up again; full pull receivers that hold it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import MessageType, SourceEvent, SourceEventType
from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTIPC_SOURCE_PACED, RECEIVER_PACED
from tests.kit.forms import FORMS, CallbackTaker, ReceiveTaker
from tests.kit.look import queued, ring_header
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Message, Source
    from tests.kit.bus import Bus
    from tests.kit.forms import Taker

PULLING = [form for form in FORMS if form is not CallbackTaker]
receiver_paced = pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))


def fill(source: Source) -> int:
    """Sends without waiting until the ring is full; returns how many messages went in."""
    sent = 0
    while True:
        try:
            source.send(body(source.sequence_number + 1), flush=True, block=False)
        except ipcbus.WouldBlock:
            return sent
        sent += 1


@receiver_paced
def test_a_send_that_may_not_wait_takes_no_number(bus: Bus) -> None:
    source = bus.source(**bus.kind.small())
    taker = ReceiveTaker(bus, receive_queue_maximum=1)
    bus.joined(source)
    sent = fill(source)
    assert source.sequence_number == sent - 1
    for _ in range(3):
        with pytest.raises(ipcbus.WouldBlock, match="WAKEUP"):
            source.send(bytes(64), block=False)
    with pytest.raises(ipcbus.WouldBlock, match="'taking'"):  # names who holds it up
        source.send_many([bytes(64)], block=False)
    assert source.sequence_number == sent - 1
    assert ring_header(source)["send_would_block"] >= 4
    assert taker.data(sent) == [body(number) for number in range(sent)]
    bus.until(lambda: _accepts(source, body(sent)), "room")
    assert taker.data(sent + 1)[-1] == body(sent)
    assert taker.receiver.lost == 0


def _accepts(source: Source, message: bytes) -> bool:
    try:
        source.send(message, flush=True, block=False)
    except ipcbus.WouldBlock:
        return False
    return True


@receiver_paced
def test_a_wakeup_event_tells_every_source_of_the_session_that_there_is_room(bus: Bus) -> None:
    events: list[list[SourceEvent]] = [[], []]
    context = bus.context("sending")
    options = {**bus.kind.small(), **bus.kind.id(700)}
    one = bus.source("t", context, on_event=events[0].append, **options)
    bus.source("other", context, on_event=events[1].append, **options)
    taker = ReceiveTaker(bus, receive_queue_maximum=1)
    bus.joined(one)
    sent = fill(one)
    assert not any(event.type is SourceEventType.WAKEUP for event in events[0])
    taker.data(sent)
    for told in events:
        bus.until(lambda told=told: SourceEventType.WAKEUP in [event.type for event in told], "the event")  # type: ignore[misc]
    one.send(body(sent), flush=True, block=False)
    assert taker.data(sent + 1)[-1] == body(sent)


@receiver_paced
def test_a_send_inside_a_callback_never_waits(bus: Bus) -> None:
    context = bus.context("both")
    refused: list[ipcbus.WouldBlock] = []
    woken: list[SourceEvent] = []
    echo = bus.source("echo", context, on_event=woken.append, **bus.kind.small())
    taker = ReceiveTaker(bus, "echo", receive_queue_maximum=1)
    bus.joined(echo)
    full = fill(echo)

    def answer(message: Message) -> None:
        if message.type is MessageType.DATA:
            try:
                echo.send(message.data)
            except ipcbus.WouldBlock as error:
                refused.append(error)

    bus.receiver("t", answer, context)
    source = bus.source()
    bus.joined(source)
    source.send(b"x" * 200, flush=True)
    bus.until(lambda: refused, "the refusal")
    assert "inside a callback" in str(refused[0])
    assert "WAKEUP" in str(refused[0])
    assert echo.sequence_number == full - 1
    assert taker.data(full) == [body(number) for number in range(full)]
    bus.until(lambda: SourceEventType.WAKEUP in [event.type for event in woken], "the event")


CALLS: dict[str, Callable[[Source], object]] = {
    "send": lambda source: source.send(bytes(200)),
    "send_flushed": lambda source: source.send(bytes(200), flush=True),
    "send_many": lambda source: source.send_many([bytes(200), bytes(200)]),
    "acquire": lambda source: source.acquire(200).__enter__(),
}


@receiver_paced
@pytest.mark.parametrize("call", CALLS)
def test_whatever_sends_inside_a_callback_is_refused_instead_of_waiting(bus: Bus, call: str) -> None:
    context = bus.context("both")
    full = bus.source("full", context, **bus.kind.small())
    taker = ReceiveTaker(bus, "full", receive_queue_maximum=1)
    bus.joined(full)
    sent = fill(full)
    refused: list[BaseException] = []

    def try_it(message: Message) -> None:
        if message.type is MessageType.DATA:
            full.flush()  # has nothing to wait for
            try:
                CALLS[call](full)
            except ipcbus.WouldBlock as error:
                refused.append(error)

    bus.receiver("t", try_it, context)
    source = bus.source()
    bus.joined(source)
    source.send(b"now", flush=True)
    bus.until(lambda: refused, "the refusal")
    assert "inside a callback" in str(refused[0])
    assert taker.data(sent) == [body(number) for number in range(sent)]


@receiver_paced
@pytest.mark.parametrize("call", [*CALLS, "flush"])
def test_whatever_sends_inside_a_callback_does_not_wait_for_a_reservation(bus: Bus, call: str) -> None:
    context = bus.context("both")
    busy = bus.source("busy", context)
    refused: list[BaseException] = []

    def try_it(message: Message) -> None:
        if message.type is MessageType.DATA:
            try:
                busy.flush() if call == "flush" else CALLS[call](busy)
            except ipcbus.WouldBlock as error:
                refused.append(error)

    bus.receiver("t", try_it, context)
    source = bus.source()
    bus.joined(source)
    reserved, go_on = threading.Event(), threading.Event()

    def reserve() -> None:
        with busy.acquire(8):
            reserved.set()
            go_on.wait(GIVE_UP_S)

    thread = threading.Thread(target=reserve)
    thread.start()
    assert reserved.wait(GIVE_UP_S)
    source.send(b"now", flush=True)
    bus.until(lambda: refused, "the refusal")
    go_on.set()
    thread.join(GIVE_UP_S)
    assert "acquire" in str(refused[0])


@receiver_paced
def test_a_send_that_waits_goes_on_when_there_is_room(bus: Bus) -> None:
    if bus.sequential:
        bus.sequential = False  # the receiver needs a thread of its own while this one waits
    source = bus.source("t", bus.context("sending"), **bus.kind.small())
    taker = CallbackTaker(bus, context=bus.context("receiving", mode="embedded"))
    bus.joined(source)
    count = 6 * bus.kind.window // 80
    for number in range(count):
        source.send(body(number))
    source.flush()
    assert taker.data(count) == [body(number) for number in range(count)]
    assert taker.numbers == list(range(count))


@receiver_paced
def test_a_send_that_waits_in_sequential_mode_drives_its_own_receivers(bus: Bus) -> None:
    context = bus.context("both", mode="sequential")
    got: list[bytes] = []
    context.receiver("t", lambda message: got.append(message.data))
    source = bus.source("t", context, **bus.kind.small())
    source.wait_for_receivers(1, GIVE_UP_S)
    count = 4 * bus.kind.window // 80
    for number in range(count):
        source.send(body(number))
    source.flush()
    bus.sequential = True
    bus.until(lambda: len(got) == count + 1, "the rest")
    assert got[1:] == [body(number) for number in range(count)]


@receiver_paced
@pytest.mark.parametrize("form", PULLING, ids=lambda form: str(form.name))
def test_a_full_receiver_holds_the_session_and_loses_nothing(bus: Bus, form: type[Taker]) -> None:
    source = bus.source(**bus.kind.small())
    taker = form(bus, receive_queue_maximum=3)
    bus.joined(source)
    sent = fill(source)
    bus.until(lambda: queued(taker.receiver) >= 3, "a full receiver")
    sent += fill(source)
    assert sent * 80 > bus.kind.window // 2
    assert taker.data(sent) == [body(number) for number in range(sent)]
    assert taker.receiver.lost == 0
    assert taker.receiver.delivered == sent


@receiver_paced
def test_a_full_receiver_holds_up_other_topics_of_its_session_only(bus: Bus) -> None:
    context, receiving = bus.context("sending"), bus.context("receiving")
    held = bus.source("held", context, **bus.kind.small())
    free = bus.source("free", context, **bus.kind.small())
    assert held.source != free.source
    full, flowing = ReceiveTaker(bus, "held", receiving, receive_queue_maximum=1), CallbackTaker(bus, "free", receiving)
    bus.joined(held)
    bus.joined(free)
    sent = fill(held)
    for number in range(20):
        free.send(body(number), flush=True)
    assert flowing.data(20) == [body(number) for number in range(20)]
    assert full.data(sent) == [body(number) for number in range(sent)]


@receiver_paced
def test_closing_a_full_receiver_frees_the_source(bus: Bus) -> None:
    source = bus.source(**bus.kind.small())
    context = bus.context("receiving")
    full = ReceiveTaker(bus, context=context, receive_queue_maximum=1)
    flowing = CallbackTaker(bus, context=context)
    bus.joined(source)
    sent = fill(source)
    full.receiver.close()
    assert flowing.data(sent) == [body(number) for number in range(sent)]
    bus.until(lambda: _accepts(source, body(sent)), "room")


@receiver_paced
def test_two_full_receivers_of_a_topic_go_at_the_pace_of_the_slower_one(bus: Bus) -> None:
    source = bus.source(**bus.kind.small())
    context = bus.context("receiving")
    one = ReceiveTaker(bus, context=context, receive_queue_maximum=2)
    two = ReceiveTaker(bus, context=context, receive_queue_maximum=5)
    bus.joined(source)
    sent = fill(source)
    messages = [body(number) for number in range(sent)]
    for number in range(1, sent + 1):
        assert one.data(number)[-1] == messages[number - 1]
        assert two.data(number)[-1] == messages[number - 1]
    assert one.receiver.lost == two.receiver.lost == 0


@pytest.mark.parametrize("kind", [LBTIPC_SOURCE_PACED], ids=lambda kind: str(kind.name))
def test_a_source_paced_send_never_waits(bus: Bus) -> None:
    source = bus.source(**bus.kind.small())
    taker = ReceiveTaker(bus, receive_queue_maximum=1)
    bus.joined(source)
    count = 10 * bus.kind.window // 80
    for number in range(count):
        source.send(body(number), flush=True, block=False)
    assert ring_header(source)["send_would_block"] == 0
    source.close()
    taker.event(MessageType.EOS)
    assert taker.kinds[0] is MessageType.BOS
    assert taker.receiver.delivered + taker.receiver.lost == count
    assert taker.receiver.lost > 0


@pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))
def test_a_batch_that_finds_no_room_is_sent_when_there_is(bus: Bus) -> None:
    source = bus.source(**bus.kind.small(), implicit_batching_minimum_length=4000, implicit_batching_interval=10**6)
    taker = ReceiveTaker(bus, receive_queue_maximum=1)
    bus.joined(source)
    sent = 0
    with pytest.raises(ipcbus.WouldBlock):
        while True:
            source.send(body(sent), block=False)
            sent += 1
    assert taker.data(sent) == [body(number) for number in range(sent)]


@receiver_paced
def test_many_threads_send_on_one_session(bus: Bus) -> None:
    context = bus.context("sending", mode="embedded")
    options = {**bus.kind.small(), **bus.kind.id(700)}
    topics = ["one", "two", "three"]
    sources = [bus.source(topic, context, **options) for topic in topics]
    receiving = bus.context("receiving", mode="embedded")
    bus.sequential = False
    takers = [CallbackTaker(bus, topic, receiving) for topic in topics]
    for source in sources:
        source.wait_for_receivers(1, GIVE_UP_S)
    count = 400

    def send(source: Source) -> None:
        for number in range(count):
            size = 16 + number * 37 % (source.message_max - 16)
            if number % 5 == 0:
                with source.acquire(size) as place:
                    place[:] = body(number, size)
            else:
                source.send(body(number, size), flush=number % 3 == 0)
        source.flush()

    threads = [threading.Thread(target=send, args=(source,)) for source in sources]
    for thread in threads:
        thread.start()
    for taker in takers:
        got = taker.data(count)
        assert got == [body(number, 16 + number * 37 % (sources[0].message_max - 16)) for number in range(count)]
        assert taker.numbers == list(range(count))
    for thread in threads:
        thread.join(GIVE_UP_S)
