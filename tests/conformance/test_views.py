"""What a message shows, inside its callback and afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ipcbus import Message, MessageType
from tests.kit.forms import CallbackTaker
from tests.kit.payload import body

if TYPE_CHECKING:
    from tests.kit.bus import Bus

COUNT = 50


class Keeper:
    """A callback that keeps something of every message."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.views: list[memoryview] = []
        self.inside: list[bytes] = []

    def __call__(self, message: Message) -> None:
        if message.type is MessageType.DATA:
            self.inside.append(bytes(message.view))
            self.views.append(message.view)

    def keep(self, message: Message) -> None:
        """Keeps the message itself."""
        if message.type is MessageType.DATA:
            self.messages.append(message)


def flow(bus: Bus, callback: object) -> None:
    """Sends 50 messages to a callback and waits for them."""
    source = bus.source()
    receiver = bus.receiver("t", callback)  # type: ignore[arg-type]
    bus.joined(source)
    for number in range(COUNT):
        source.send(body(number))
    source.flush()
    bus.until(lambda: receiver.delivered == COUNT, "the messages")


def test_the_view_shows_the_message_and_is_released_with_the_callback(bus: Bus) -> None:
    keeper = Keeper()
    flow(bus, keeper)
    bus.until(lambda: len(keeper.inside) == COUNT, "the last callback")
    assert keeper.inside == [body(number) for number in range(COUNT)]
    if bus.kind.source_paced:
        return  # there it is of the message's own copy
    bus.close()
    for view in keeper.views:
        with pytest.raises(ValueError, match="released"):
            bytes(view)


def test_a_view_is_read_only(bus: Bus) -> None:
    refused: list[BaseException] = []

    def write(message: Message) -> None:
        if message.type is MessageType.DATA:
            try:
                message.view[0] = 1
            except TypeError as error:
                refused.append(error)

    flow(bus, write)
    bus.until(lambda: len(refused) == COUNT, "the refusals")


def test_a_message_kept_after_its_callback_keeps_its_data(bus: Bus) -> None:
    keeper = Keeper()
    flow(bus, keeper.keep)
    bus.until(lambda: len(keeper.messages) == COUNT, "the last callback")
    bus.close()
    assert [message.data for message in keeper.messages] == [body(number) for number in range(COUNT)]
    assert [bytes(message.view) for message in keeper.messages] == [body(number) for number in range(COUNT)]
    assert [message.sequence_number for message in keeper.messages] == list(range(COUNT))
    assert len({id(message) for message in keeper.messages}) == COUNT


def test_a_message_kept_with_its_view_keeps_its_data(bus: Bus) -> None:
    kept: list[tuple[Message, memoryview]] = []

    def keep(message: Message) -> None:
        if message.type is MessageType.DATA:
            kept.append((message, message.view))

    flow(bus, keep)
    bus.until(lambda: len(kept) == COUNT, "the last callback")
    bus.close()
    for number, (message, view) in enumerate(kept):
        assert message.data == bytes(message.view) == body(number)
        if not bus.kind.source_paced:
            with pytest.raises(ValueError, match="released"):
                len(view)


def test_an_array_of_a_view_may_be_kept_without_a_crash(bus: Bus) -> None:
    arrays: list[np.ndarray[tuple[int], np.dtype[np.uint8]]] = []
    slices: list[memoryview] = []

    def keep(message: Message) -> None:
        if message.type is MessageType.DATA:
            arrays.append(np.frombuffer(message.view, np.uint8))
            slices.append(message.view[8:])

    flow(bus, keep)
    bus.until(lambda: len(slices) == COUNT, "the last callback")
    bus.close()
    assert [array.tobytes() for array in arrays] == [body(number) for number in range(COUNT)]
    assert [bytes(part) for part in slices] == [body(number)[8:] for number in range(COUNT)]
    assert not any(array.flags.writeable for array in arrays)


def test_messages_that_are_pulled_own_their_bytes(bus: Bus) -> None:
    source = bus.source()
    receiver = bus.receiver()
    bus.joined(source)
    for number in range(COUNT):
        source.send(body(number))
    source.flush()
    got: list[Any] = []
    while len(got) < COUNT + 1:
        got += receiver.receive_many(10, 30)
    views = [message.view for message in got]
    bus.close()
    assert [bytes(view) for view in views] == [b""] + [body(number) for number in range(COUNT)]


def test_a_message_says_where_and_when_it_comes_from(bus: Bus) -> None:
    source = bus.source("of interest")
    receiver = bus.receiver("of interest")
    bus.joined(source)
    source.send(b"12345", flush=True)
    begin = receiver.receive(30)
    message = receiver.receive(30)
    assert begin is not None
    assert message is not None
    assert (message.topic, message.source, len(message)) == ("of interest", source.source, 5)
    assert message.source.startswith(bus.kind.scheme + ":")
    assert bus.kind.over_udp or message.source.endswith(f":{bus.kind.first_id}")
    assert (message.sequence_number, message.first_sequence_number) == (0, 0)
    assert message.fragment_info is None
    assert message.send_time_ns > 1_600_000_000_000_000_000
    message.ack()
    assert (begin.type, begin.data, len(begin), bytes(begin.view)) == (MessageType.BOS, b"", 0, b"")
    assert (begin.topic, begin.source, begin.send_time_ns) == ("of interest", source.source, 0)


def test_a_callback_that_raises_may_keep_the_message(bus: Bus) -> None:
    keeper = Keeper()

    def keep(message: Message) -> None:
        keeper.keep(message)
        raise RuntimeError("after keeping")

    flow(bus, keep)
    bus.until(lambda: len(keeper.messages) == COUNT, "the last callback")
    assert [message.data for message in keeper.messages] == [body(number) for number in range(COUNT)]


def test_views_of_two_receivers_of_one_message_are_independent(bus: Bus) -> None:
    context = bus.context("two")
    first, second = Keeper(), Keeper()
    context.receiver("t", first)
    context.receiver("t", second.keep)
    source = bus.source()
    bus.joined(source)
    for number in range(COUNT):
        source.send(body(number))
    source.flush()
    bus.until(lambda: len(first.inside) == COUNT and len(second.messages) == COUNT, "all callbacks")
    assert first.inside == [message.data for message in second.messages]


def test_the_taker_of_copies_gets_equal_bytes(bus: Bus) -> None:
    source = bus.source()
    taker = CallbackTaker(bus)
    bus.joined(source)
    rows = np.random.default_rng(7).integers(0, 256, (COUNT, 100), np.uint8)
    source.send_many(rows, flush=True)
    assert taker.data(COUNT) == [row.tobytes() for row in rows]
