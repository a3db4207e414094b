"""Messages as arrays of numpy, in place: what is kept of them never changes, and changes nothing."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ipcbus
from tests.kit.bus import LBTSMX, Bus
from tests.kit.forms import CallbackTaker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ipcbus import Message, Receiver, Source

SHAPE = (24, 32, 3)
FRAME = 24 * 32 * 3


@pytest.fixture
def bus(domain: str) -> Iterator[Bus]:
    made = Bus(domain, LBTSMX, "sequential")
    yield made
    made.close()


@pytest.fixture
def source(bus: Bus) -> Source:
    return bus.context("sending").source("t", message_max=FRAME)


def write(source: Source, number: int) -> None:
    with source.acquire_array(SHAPE, np.uint8) as array:
        array[:] = number


def test_the_end_of_the_block_publishes_and_an_exception_cancels(bus: Bus, source: Source) -> None:
    taker = CallbackTaker(bus)
    bus.joined(source)
    for number in range(9):
        with source.acquire_array(SHAPE, np.uint8) as array:
            assert (array.shape, array.dtype, array.flags.writeable) == (SHAPE, np.uint8, True)
            array[:] = number
    with pytest.raises(ZeroDivisionError), source.acquire_array(4, "f8"):
        _ = 1 / 0
    with source.acquire_array((0, 4), "f8") as nothing:
        assert nothing.shape == (0, 4)
    with pytest.raises(ipcbus.MessageTooLarge, match=f"message_max = {FRAME}"):
        source.acquire_array(FRAME + 1, "u1").__enter__()
    assert taker.data(10) == [*(bytes([number]) * FRAME for number in range(9)), b""]


def test_after_the_block_the_array_is_empty_and_read_only(source: Source) -> None:
    with source.acquire_array(SHAPE, np.uint8) as array:
        array[:] = 1
    assert array.size == 0
    with pytest.raises(ValueError, match="read-only"):
        array[:] = 2


def in_shared_memory(array: np.ndarray[Any, Any]) -> bool:
    address = array.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= address < last:
            return "/dev/shm/" in line
    return False


def test_a_variable_that_outlives_the_block_keeps_nothing(source: Source) -> None:
    """Each block is lent a place of the ring: after an array that is kept it would get memory aside for a while."""
    for number in range(20):
        with source.acquire_array(SHAPE, np.uint8) as array:
            array[:] = number
            assert in_shared_memory(array)


KEEPERS: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "slice": lambda array: array[1:],
    "transposed": lambda array: array.T,
    "other items": lambda array: array.view(np.int8),
    "slice of a slice": lambda array: array[1:][:, 1],
    "second variable": lambda array: array,
    "memoryview": lambda array: memoryview(array),
    "flat": lambda array: array.flat,
    "strided": lambda array: np.lib.stride_tricks.as_strided(array, (FRAME,), (1,)),
    "dlpack": np.from_dlpack,
    "through a memoryview": lambda array: np.asarray(memoryview(array)[2:]),
}


@pytest.mark.parametrize("keeper", KEEPERS)
def test_what_was_made_from_the_array_does_not_reach_what_is_published(bus: Bus, source: Source, keeper: str) -> None:
    taker = CallbackTaker(bus)
    bus.joined(source)
    kept = []
    for number in range(1, 4):
        with source.acquire_array(SHAPE, np.uint8) as array:
            array[:] = number
            kept.append(KEEPERS[keeper](array))
    for each in kept:
        target = np.asarray(each) if isinstance(each, memoryview) else each
        try:
            target[:] = 99
        except ValueError as error:
            assert "read-only" in str(error)  # noqa: PT017 - it may be refused, or reach nothing
    assert taker.data(3) == [bytes([number]) * FRAME for number in range(1, 4)]


def test_arrays_in_a_callback_lie_in_the_ring_and_may_be_kept(bus: Bus, source: Source) -> None:
    kept: list[np.ndarray[Any, Any]] = []
    seen = []

    def look(message: Message) -> None:
        if message.type is not ipcbus.MessageType.DATA:
            return
        array = message.array(SHAPE, np.uint8)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
        seen.append(int(array[-1, -1, -1]))
        if len(seen) % 15 == 1:
            kept.append(array[1:])

    bus.receiver("t", look)
    bus.joined(source)
    for number in range(300):
        write(source, number % 251)
        bus.turn()
    bus.until(lambda: len(seen) == 300, "all frames")
    assert seen == [number % 251 for number in range(300)]
    assert [set(each.ravel().tolist()) for each in kept] == [{15 * index % 251} for index in range(20)]


def take(receiver: Receiver) -> Message:
    while True:
        message = receiver.receive(30)
        assert message is not None
        if message.type is ipcbus.MessageType.DATA:
            return message


def test_a_pulled_message_gives_an_array_of_its_own_bytes(bus: Bus, source: Source) -> None:
    receiver = bus.receiver("t", None)
    bus.joined(source)
    write(source, 7)
    message = take(receiver)
    array = message.array(SHAPE, np.uint8)
    del message
    gc.collect()
    for _ in range(20):
        write(source, 8)
        take(receiver)
    assert (array == 7).all()
    assert not array.flags.writeable
    write(source, 9)
    with pytest.raises(ValueError, match=rf"has {8 * FRAME} bytes, and the message has {FRAME}"):
        take(receiver).array(SHAPE, np.float64)


def test_other_libraries_see_the_same_bytes_read_only(bus: Bus, source: Source) -> None:
    receiver = bus.receiver("t", None)
    bus.joined(source)
    write(source, 7)
    array = take(receiver).array(SHAPE, np.uint8)
    assert array.__array_interface__["data"] == (array.ctypes.data, True)
    with pytest.raises(BufferError):  # for a consumer that does not know of read-only tensors
        array.__dlpack__()
    shared = np.from_dlpack(array)
    assert (shared.ctypes.data, shared.flags.writeable) == (array.ctypes.data, False)
    pyarrow = pytest.importorskip("pyarrow")
    buffer = pyarrow.py_buffer(array)
    assert (buffer.address, buffer.is_mutable) == (array.ctypes.data, False)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_frame_that_is_kept_for_a_minute_never_changes_and_holds_nobody_up(domain: str) -> None:
    shape, kept, seen = (480, 640, 3), [], 0

    def look(message: Message) -> None:
        nonlocal seen
        if message.type is ipcbus.MessageType.DATA:
            if seen == 10:
                kept.append(message.array(shape, np.uint8))
            seen += 1

    bus = Bus(domain, LBTSMX, "embedded")
    bus.receiver("t", look)
    source = bus.context("sending").source("t", message_max=480 * 640 * 3)
    bus.joined(source)
    begin, sent = time.monotonic(), 0
    while sent < 10_010 or time.monotonic() - begin < 60:
        with source.acquire_array(shape, np.uint8) as frame:
            frame[:] = sent % 251
        sent += 1
        if sent % 1000 == 0:
            assert (kept[0] == 10).all()
    bus.until(lambda: seen == sent, "all frames")
    assert (kept[0] == 10).all()
    bus.close()
