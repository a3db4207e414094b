"""Writing a message in place."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

import ipcbus
from tests.kit.bus import GIVE_UP_S, LBTSMX
from tests.kit.forms import CallbackTaker
from tests.kit.look import published
from tests.kit.payload import SMALLEST, body

if TYPE_CHECKING:
    from tests.kit.bus import Bus
    from tests.kit.forms import Taker

NEVER_MS = 1_000_000


def test_the_end_of_the_block_publishes(bus: Bus, form: type[Taker]) -> None:
    source = bus.source(implicit_batching_interval=NEVER_MS)
    taker = form(bus)
    bus.joined(source)
    for number in range(20):
        with source.acquire(64) as place:
            assert len(place) == 64
            assert not place.readonly
            place[:] = body(number)
        assert source.sequence_number == number
    assert taker.data(20) == [body(number) for number in range(20)]


def test_an_exception_cancels_and_uses_no_number(bus: Bus, form: type[Taker]) -> None:
    source = bus.source()
    taker = form(bus)
    bus.joined(source)
    source.send(body(0))
    with pytest.raises(RuntimeError, match="changed my mind"), source.acquire(500) as place:
        place[:5] = b"never"
        raise RuntimeError("changed my mind")
    assert source.sequence_number == 0
    with source.acquire(64) as place:
        place[:] = body(1)
    assert taker.data(2) == [body(0), body(1)]


def test_what_was_batched_before_goes_first(bus: Bus) -> None:
    source = bus.source(implicit_batching_interval=NEVER_MS)
    taker = CallbackTaker(bus)
    bus.joined(source)
    source.send(b"before")
    with source.acquire(5) as place:
        place[:] = b"after"
    assert taker.data(2) == [b"before", b"after"]


def test_a_cancelled_reservation_leaves_no_empty_datagram(bus: Bus) -> None:
    source = bus.source()
    with pytest.raises(ZeroDivisionError), source.acquire(100):
        _ = 1 / 0
    source.flush()
    assert published(source) == 0


@pytest.mark.parametrize("length", [0, 1, 7, 8])
def test_any_length_can_be_reserved(bus: Bus, length: int) -> None:
    source = bus.source()
    taker = CallbackTaker(bus)
    bus.joined(source)
    with source.acquire(length) as place:
        place[:] = b"x" * length
    assert taker.data(1) == [b"x" * length]


def test_a_reservation_beyond_the_datagram_maximum_is_too_large(bus: Bus) -> None:
    source = bus.source()
    with source.acquire(source.message_max):
        pass
    longer = source.message_max + 1
    with pytest.raises(ipcbus.MessageTooLarge, match=rf"'t': acquire\({longer}\) exceeds") as raised:
        source.acquire(longer).__enter__()
    # The cures of the text work.
    found = re.search(r"make the source with message_max=(\d+)", str(raised.value))
    assert found is not None
    large = bus.context("sending").source("large", message_max=int(found[1]))
    with large.acquire(longer) as place:
        assert len(place) == longer
    assert "use send()" in str(raised.value)
    with pytest.raises(ValueError, match=r"acquire\(-1\)"):
        source.acquire(-1)
    assert source.sequence_number == 0
    if bus.kind is not LBTSMX:
        source.send(bytes(longer))


def test_the_same_thread_cannot_use_the_session_inside_the_block(bus: Bus) -> None:
    context = bus.context("sending")
    source, neighbour = (bus.source(topic, context, **bus.kind.id(100)) for topic in "ab")
    stranger = bus.source("c", context, **bus.kind.id(101))
    taker = CallbackTaker(bus, "a")
    bus.joined(source)
    with source.acquire(4) as place:
        place[:] = b"this"
        for use in (
            lambda: source.send(b"x"),
            lambda: neighbour.send(b"x"),
            lambda: source.send_many([b"x"]),
            lambda: source.acquire(1).__enter__(),
            lambda: neighbour.acquire(1).__enter__(),
            source.flush,
        ):
            with pytest.raises(ipcbus.ReservationError, match="leave the block"):
                use()
        stranger.send(b"on another session", flush=True)
    assert source.sequence_number == 0
    assert neighbour.sequence_number == -1
    neighbour.send(b"again")
    assert taker.data(1) == [b"this"]


def test_another_thread_waits_until_the_block_is_left(bus: Bus) -> None:
    context = bus.context("sending")
    source, neighbour = (bus.source(topic, context, **bus.kind.id(100)) for topic in "ab")
    first, second = CallbackTaker(bus, "a"), CallbackTaker(bus, "b")
    bus.joined(source)
    bus.joined(neighbour)
    begun = threading.Event()
    order = []

    def other() -> None:
        begun.set()
        neighbour.send(b"waited", flush=True)
        order.append("sent")

    thread = threading.Thread(target=other)
    with source.acquire(2) as place:
        thread.start()
        assert begun.wait(GIVE_UP_S)
        thread.join(0.05)  # time to go wrong in; the order below holds without it
        order.append("left")
        place[:] = b"me"
    thread.join(GIVE_UP_S)
    assert order == ["left", "sent"]
    assert first.data(1) == [b"me"]
    assert second.data(1) == [b"waited"]


def test_another_thread_that_may_not_wait_is_told_so(bus: Bus) -> None:
    source = bus.source()
    raised: list[BaseException] = []

    def other() -> None:
        try:
            source.send(b"x", block=False)
        except ipcbus.IpcBusError as error:
            raised.append(error)

    with source.acquire(1):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(GIVE_UP_S)
    assert [type(error) for error in raised] == [ipcbus.WouldBlock]
    assert "acquire" in str(raised[0])
    assert source.sequence_number == 0


def test_the_place_is_released_with_the_block(bus: Bus) -> None:
    source = bus.source()
    with source.acquire(8) as place:
        pass
    with pytest.raises(ValueError, match="released"):
        place[0] = 1


def test_an_array_of_the_place_may_outlive_everything(bus: Bus) -> None:
    source = bus.source()
    with source.acquire(8) as place:
        kept = np.frombuffer(place, np.uint8)
        kept[:] = 7
    source.send(body(1), flush=True)
    bus.close()
    assert kept.tolist() == [7] * 8  # in memory of its own


@pytest.mark.parametrize("closes", ["source", "context"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_block_in_which_the_source_is_closed_tells_that_its_message_was_not_sent(
    bus: Bus, closes: str, fails: bool
) -> None:
    context = bus.context("sending")
    source, taker = bus.source("t", context), CallbackTaker(bus)
    bus.joined(source)
    source.send(body(0, SMALLEST))
    error: type[Exception] = KeyError if fails else ipcbus.ClosedError
    with pytest.raises(error), source.acquire(SMALLEST) as place:
        (source if closes == "source" else context).close()
        place[:] = body(1, SMALLEST)
        if fails:
            raise KeyError
    with pytest.raises(ipcbus.ClosedError):
        source.send(b"x")
    taker.event(ipcbus.MessageType.EOS)
    assert taker.data(1) == [body(0, SMALLEST)]


def test_a_source_that_cannot_be_closed_now_can_be_closed_later(bus: Bus) -> None:
    context = bus.context("both")
    source, neighbour = (bus.source(topic, context, **bus.kind.id(100)) for topic in "ab")
    other = bus.source("c", context, **bus.kind.id(101))
    refused: list[ipcbus.WouldBlock] = []
    reserved, leave = threading.Event(), threading.Event()

    def close(message: ipcbus.Message) -> None:
        if message.type == ipcbus.MessageType.DATA:
            try:
                neighbour.close()
            except ipcbus.WouldBlock as error:
                refused.append(error)

    def reserve() -> None:
        with source.acquire(8):
            reserved.set()
            leave.wait(GIVE_UP_S)

    bus.receiver("c", close, context)
    bus.joined(other)
    thread = threading.Thread(target=reserve)
    thread.start()
    try:
        assert reserved.wait(GIVE_UP_S)
        other.send(b"x", flush=True)
        bus.until(lambda: refused, "the refusal")
    finally:
        leave.set()
        thread.join()
    neighbour.send(b"not closed")
    neighbour.close()
    assert neighbour.closed


@pytest.mark.parametrize("closes", ["source", "context"])
@pytest.mark.parametrize("kept", [False, True], ids=["", "kept"])
def test_close_waits_for_another_threads_block_for_a_while_only(bus: Bus, closes: str, kept: bool) -> None:
    context = bus.context("both", acquire_close_timeout=50)
    source, neighbour = (bus.source(topic, context, **bus.kind.id(100)) for topic in "ab")
    taker = CallbackTaker(bus, "b")
    bus.joined(neighbour)
    reserved, leave = threading.Event(), threading.Event()
    raised: list[BaseException] = []
    array: list[np.ndarray[tuple[int], np.dtype[np.uint8]]] = []

    def reserve() -> None:
        try:
            with source.acquire(64) as place:
                if kept:
                    array.append(np.frombuffer(place, np.uint8))
                reserved.set()
                leave.wait(GIVE_UP_S)
                place[:] = body(77)  # beside the ring
        except ipcbus.IpcBusError as error:
            raised.append(error)

    thread = threading.Thread(target=reserve)
    thread.start()
    try:
        assert reserved.wait(GIVE_UP_S)
        if closes == "context":
            context.close()
        else:
            source.close()
            neighbour.send(body(1), flush=True)  # takes the place that the block still writes to
    finally:
        leave.set()
        thread.join(GIVE_UP_S)
    assert [type(error) for error in raised] == [ipcbus.ClosedError]
    assert "acquire_close_timeout" in str(raised[0])
    if closes == "source":
        neighbour.send(body(2), flush=True)
        assert taker.data(2) == [body(1), body(2)]


def test_an_exception_inside_a_cancelled_block_goes_on(bus: Bus) -> None:
    context = bus.context("both", acquire_close_timeout=0)
    source = bus.source("a", context)
    reserved, leave = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def reserve() -> None:
        try:
            with source.acquire(8):
                reserved.set()
                leave.wait(GIVE_UP_S)
                _ = 1 / 0
        except ZeroDivisionError as error:
            raised.append(error)

    thread = threading.Thread(target=reserve)
    thread.start()
    assert reserved.wait(GIVE_UP_S)
    source.close()
    leave.set()
    thread.join(GIVE_UP_S)
    assert len(raised) == 1
