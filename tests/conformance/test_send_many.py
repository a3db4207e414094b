"""Many messages in one call."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np
import pytest

import ipcbus
from tests.kit.bus import LBTSMX, RECEIVER_PACED
from tests.kit.forms import CallbackTaker
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.bus import Bus
    from tests.kit.forms import Taker

COUNT = 120


def test_rows_of_bytes_are_messages(bus: Bus, form: type[Taker]) -> None:
    source = bus.source()
    taker = form(bus, row=24)
    bus.joined(source)
    rows = np.arange(COUNT * 24, dtype=np.uint32).astype(np.uint8).reshape(COUNT, 24)
    assert source.send_many(rows, flush=True) == COUNT
    assert taker.data(COUNT) == [row.tobytes() for row in rows]
    assert source.sequence_number == COUNT - 1


def test_records_of_a_structured_array_are_messages(bus: Bus, form: type[Taker]) -> None:
    source = bus.source()
    kind = np.dtype([("price", "<f8"), ("size", "<u4"), ("side", "S1")])
    taker = form(bus, row=kind.itemsize)
    bus.joined(source)
    records = np.zeros(COUNT, kind)
    records["price"], records["size"], records["side"] = np.arange(COUNT) / 4, np.arange(COUNT), b"B"
    assert source.send_many(records, flush=True) == COUNT
    got = np.frombuffer(b"".join(taker.data(COUNT)), kind)
    assert (got == records).all()


def test_numbers_of_a_plain_array_are_messages(bus: Bus) -> None:
    source = bus.source()
    taker = CallbackTaker(bus)
    bus.joined(source)
    assert source.send_many(np.arange(COUNT, dtype=np.int64), flush=True) == COUNT
    assert [int.from_bytes(data, "little") for data in taker.data(COUNT)] == list(range(COUNT))


def test_an_iterable_may_mix_whatever_is_bytes_like(bus: Bus) -> None:
    source = bus.source()
    taker = CallbackTaker(bus)
    bus.joined(source)
    messages = [b"bytes", bytearray(b"bytearray"), memoryview(b"a view")[2:], array("H", [1, 2]), b"", np.arange(3)]
    assert source.send_many(messages) == len(messages)
    source.flush()
    assert taker.data(len(messages)) == [bytes(memoryview(message).cast("B")) for message in messages]  # type: ignore[arg-type]


def test_a_generator_is_taken_to_its_end(bus: Bus) -> None:
    source = bus.source()
    taker = CallbackTaker(bus)
    bus.joined(source)
    assert source.send_many((body(number) for number in range(COUNT)), flush=True) == COUNT
    assert taker.data(COUNT) == [body(number) for number in range(COUNT)]


def test_what_an_iterable_gave_before_it_failed_is_sent(bus: Bus) -> None:
    source = bus.source()
    taker = CallbackTaker(bus)
    bus.joined(source)

    def failing() -> Iterator[bytes]:
        yield b"one"
        yield b"two"
        raise RuntimeError("the reader of a file")

    with pytest.raises(RuntimeError, match="the reader of a file"):
        source.send_many(failing())
    assert source.sequence_number == 1
    source.send(b"three", flush=True)
    assert taker.data(3) == [b"one", b"two", b"three"]


def test_nothing_is_sent_of_nothing(bus: Bus) -> None:
    source = bus.source()
    assert source.send_many([]) == 0
    assert source.send_many(np.zeros((0, 8), np.uint8), flush=True) == 0
    assert source.send_many(np.zeros((3, 0), np.uint8), flush=True) == 3
    assert source.sequence_number == 2


@pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))
def test_more_than_the_ring_holds_goes_through_while_somebody_reads(bus: Bus) -> None:
    source = bus.source(**bus.kind.small())
    bus.mode = "embedded"  # the receiver has to read meanwhile
    taker = CallbackTaker(bus, context=bus.context())
    source.wait_for_receivers(1, 30)
    count = 4 * bus.kind.window // 80
    assert source.send_many([body(number) for number in range(count)], flush=True) == count
    bus.sequential = False
    assert taker.data(count) == [body(number) for number in range(count)]


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros(8, np.uint8),
        np.zeros((2, 3, 4), np.uint8),
        np.zeros((2, 4), np.uint32),
        b"one message",
    ],
    ids=["1-D bytes", "3-D", "2-D numbers", "bytes"],
)
def test_a_buffer_of_another_shape_is_refused_with_the_cure(bus: Bus, rows: object) -> None:
    source = bus.source()
    with pytest.raises(TypeError, match="2-D array of uint8"):
        source.send_many(rows)
    assert source.sequence_number == -1


@pytest.mark.parametrize("rows", [np.array([b"a", None]), np.zeros(2, [("a", "<i8"), ("b", object)])])
def test_references_to_objects_are_not_sent(bus: Bus, rows: object) -> None:
    source = bus.source()
    with pytest.raises(TypeError, match="references to objects"):
        source.send_many(rows)
    assert source.sequence_number == -1


def test_rows_that_do_not_lie_together_are_refused(bus: Bus) -> None:
    source = bus.source()
    with pytest.raises((BufferError, ValueError), match="contiguous"):
        source.send_many(np.zeros((8, 8), np.uint8)[:, ::2])
    with pytest.raises(TypeError):
        source.send_many([b"one", "text"])  # type: ignore[list-item]
    assert source.sequence_number == 0


@pytest.mark.parametrize("kind", [LBTSMX], ids=lambda kind: str(kind.name))
def test_a_row_that_is_too_long_is_refused(bus: Bus) -> None:
    source = bus.source()
    with pytest.raises(ipcbus.MessageTooLarge):
        source.send_many([b"one", bytes(source.message_max + 1), b"three"])
    assert source.sequence_number == 0
