"""What is sent arrives, whole, in order and numbered, in every form of receiving."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ipcbus import MessageType
from tests.kit.bus import on_all
from tests.kit.payload import body

if TYPE_CHECKING:
    from tests.kit.bus import Bus
    from tests.kit.forms import Taker

COUNT = 200


@on_all
def test_every_message_arrives_in_order_with_its_number(bus: Bus, form: type[Taker]) -> None:
    source = bus.source()
    taker = form(bus)
    bus.joined(source)
    sent = [body(number) for number in range(COUNT)]
    for message in sent:
        source.send(message)
    source.flush()
    assert taker.data(COUNT) == sent
    assert source.sequence_number == COUNT - 1
    if taker.numbers:
        assert taker.numbers == list(range(COUNT))


@on_all
def test_an_array_of_objects_is_not_sent(bus: Bus) -> None:
    source = bus.source()
    for array in (np.array([1, None], dtype=object), np.zeros(2, dtype=[("a", "O")])):
        with pytest.raises(TypeError, match="send sends bytes, and an array of .* holds references to objects"):
            source.send(array)
    source.send(np.zeros(2, dtype=[("Origin", "f8")]))  # only the name has an O
    assert source.sequence_number == 0


def test_messages_of_all_lengths_arrive_whole(bus: Bus, form: type[Taker]) -> None:
    source = bus.source()
    taker = form(bus, row=8)
    bus.joined(source)
    longest = source.message_max
    lengths = [0, 1, 7, 8, 9, 0, 8, 63, 64, 65, 1000, 8, longest, 8, 0]
    sent = [bytes([1 + index]) * length for index, length in enumerate(lengths)]
    for message in sent:
        source.send(message)
    source.flush()
    assert taker.data(len(sent)) == sent
    assert taker.kinds == [MessageType.BOS] + [MessageType.DATA] * len(sent)


def test_an_empty_message_is_a_message(bus: Bus, form: type[Taker]) -> None:
    source = bus.source()
    taker = form(bus)
    bus.joined(source)
    source.send(b"", flush=True)
    assert taker.data(1) == [b""]
    assert taker.got[-1].number == 0


def test_messages_come_between_bos_and_eos(bus: Bus, form: type[Taker]) -> None:
    source = bus.source()
    taker = form(bus)
    bus.joined(source)
    for number in range(5):
        source.send(body(number))
    source.close()  # publishes the open batch
    taker.event(MessageType.EOS)
    assert taker.kinds == [MessageType.BOS] + [MessageType.DATA] * 5 + [MessageType.EOS]


def test_a_receiver_may_be_there_before_its_source(bus: Bus, form: type[Taker]) -> None:
    taker = form(bus)
    bus.turn()
    source = bus.source()
    bus.joined(source)
    for number in range(50):
        source.send(body(number), flush=True)
    assert taker.data(50) == [body(number) for number in range(50)]


def test_a_closed_receiver_ends_after_what_it_has(bus: Bus, form: type[Taker]) -> None:
    source = bus.source()
    taker = form(bus)
    bus.joined(source)
    source.send(body(0), flush=True)
    taker.data(1)
    taker.receiver.close()
    assert taker.receiver.closed
    source.send(body(1), flush=True)
    bus.until(lambda: source.receivers == 0, "the receiver's leaving")
    assert taker.kinds == [MessageType.BOS, MessageType.DATA]
