"""Leases: a message stays in its place in the ring for a block, and nothing shows later bytes after it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ipcbus
from tests.kit.bus import LBTIPC, LBTRU, LBTSMX, LBTTCP, Bus, Kind
from tests.kit.loops import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus import Receiver, Source

SHAPE = (24, 32, 3)
FRAME = 24 * 32 * 3


@pytest.fixture(params=["sequential", "embedded"])
def bus(request: pytest.FixtureRequest, domain: str) -> Iterator[Bus]:
    made = Bus(domain, LBTSMX, request.param)
    yield made
    made.close()


@pytest.fixture
def source(bus: Bus) -> Source:
    return bus.context("sending").source("t", message_max=FRAME)


@pytest.fixture
def receiver(bus: Bus, source: Source) -> Receiver:
    made = bus.receiver("t", None, events=False)
    bus.joined(source)
    return made


def send(source: Source, number: int) -> None:
    source.send(bytes([number % 251]) * FRAME, flush=True)


def is_own(array: np.ndarray[Any, Any]) -> bool:
    """Whether the array lies in memory of its own: not in a mapping of shared memory."""
    address = array.ctypes.data
    with open("/proc/self/maps") as maps:
        for line in maps:
            first, last = (int(end, 16) for end in line.split()[0].split("-"))
            if first <= address < last:
                return "/dev/shm/" not in line
    return True


def test_a_lease_shows_the_ring_until_the_end_of_its_block(source: Source, receiver: Receiver) -> None:
    with receiver.lease(0) as message:
        assert message is None
    for number in range(60):
        send(source, number)
        with receiver.lease(30) as message:
            assert message is not None
            view, array, other = message.view, message.array(SHAPE, np.uint8), message.array(FRAME, np.uint8)
            assert (array == number).all()
            assert other[-1] == number
            assert not is_own(array)  # also in the blocks after others: nothing was kept of those
        assert (array.size, other.size, len(message)) == (0, 0, 0)
        with pytest.raises(ValueError, match="released"):
            view[0]
        with pytest.raises(ipcbus.ClosedError, match=f"the lease of message {number} has ended"):
            _ = message.data
        with pytest.raises(ipcbus.ClosedError):
            message.array(SHAPE, np.uint8)
    with receiver.lease(0) as message:
        assert message is None


def test_what_is_kept_of_a_lease_never_changes(source: Source, receiver: Receiver) -> None:
    kept = []
    for number in range(40):
        send(source, number)
        with receiver.lease(30) as message:
            assert message is not None
            array = message.array(SHAPE, np.uint8)
            kept.append(array[1:])
    assert [set(each.ravel().tolist()) for each in kept] == [{number} for number in range(40)]


def test_a_frame_is_leased_while_ten_thousand_follow(source: Source, receiver: Receiver) -> None:
    send(source, 7)
    with receiver.lease(30) as message:
        assert message is not None
        array, view = message.array(SHAPE, np.uint8), message.view
        for number in range(10_000):
            send(source, number)
            follower = receiver.receive(30)
            assert follower is not None
            assert follower.data[0] == number % 251
        assert (array == 7).all()
        assert view == message.data == bytes([7]) * FRAME
    assert array.size == 0


def test_leases_hold_back_half_of_the_ring(source: Source, receiver: Receiver) -> None:
    leases = [receiver.lease(30) for _ in range(300)]
    arrays: list[np.ndarray[Any, Any]] = []
    for number, lease in enumerate(leases):
        send(source, number)
        message = lease.__enter__()
        assert message is not None
        arrays.append(message.array(SHAPE, np.uint8))
    assert is_own(arrays[0])
    assert [int(array[0, 0, 0]) for array in arrays] == [number % 251 for number in range(300)]
    for lease in leases:
        lease.__exit__(None, None, None)
    assert [array.size for array in arrays] == [0] * 300
    for number in range(20):  # the source has the whole ring again
        send(source, number)
        assert receiver.receive(30) is not None


def test_frames_that_come_while_a_block_runs_wait_in_the_ring(bus: Bus, source: Source, receiver: Receiver) -> None:
    """Nobody copies them; the source gets as far as the ring has room."""
    with receiver.lease(0):
        pass

    def send_all() -> None:
        for number in range(100):
            send(source, number)

    sending = threading.Thread(target=send_all)
    sending.start()
    for number in range(100):
        with receiver.lease(30) as message:
            assert message is not None
            array = message.array(SHAPE, np.uint8)
            assert (array == number).all()
            assert not is_own(array)
            if number % 10 == 5:
                bus.turn()
    sending.join()


def test_what_ends_inside_the_block_leaves_the_frame_as_it_is(bus: Bus, source: Source, receiver: Receiver) -> None:
    send(source, 7)
    with receiver.lease(30) as message:
        assert message is not None
        array = message.array(SHAPE, np.uint8)
        child = os.fork()
        if child == 0:
            os._exit(0 if (array == 7).all() and message.data[0] == 7 else 1)
        receiver.close()
        for number in range(20):
            send(source, number)
        assert (array == 7).all()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(ipcbus.ClosedError), receiver.lease(0):
        pass


def test_another_thread_that_receives_gets_a_copy(source: Source, receiver: Receiver) -> None:
    """As when a thread that waits in `receive` takes what another one waits for in a lease."""
    queue = receiver._sink.queue
    queue.set_leases(True)
    queue.leasing = 1
    send(source, 7)
    message = receiver.receive(30)
    queue.leasing = 0
    assert message is not None
    for number in range(20):
        send(source, number)
        assert receiver.receive(30) is not None
    assert message.data == bytes([7]) * FRAME


def test_a_killed_process_leaves_nothing_of_its_leases(domain: str) -> None:
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            context = ipcbus.Context(domain=domain)
            with context.receiver("t", events=False).lease(60) as message:
                os.write(tell, message.view[:1] if message is not None else b"?")
                signal.pause()
        finally:
            traceback.print_exc()
            os._exit(1)
    with ipcbus.Context(domain=domain) as context:
        source = context.source("t", message_max=300_000)
        source.wait_for_receivers(1, 60)
        source.send(b"a" * 300_000, flush=True)
        assert os.read(told, 1) == b"a"
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        for _ in range(20):
            source.send(b"b" * 300_000)
    for end in (told, tell):
        os.close(end)


@pytest.mark.parametrize("transport", [LBTIPC, LBTRU, LBTTCP])
def test_each_transport_and_fragments(domain: str, transport: Kind) -> None:
    bus = Bus(domain, transport, "embedded")
    receiver = bus.receiver("t", None, events=False)
    source = bus.context("sending").source("t")
    bus.joined(source)
    kept: list[tuple[int, np.ndarray[Any, Any]]] = []
    for length in (100, 200_000) * 10:
        source.send(bytes([len(kept)]) * length, flush=True)
        with receiver.lease(30) as message:
            assert message is not None
            array = message.array(length, np.uint8)
            kept.append((length, array[:]))
        with pytest.raises(ipcbus.ClosedError):
            _ = message.view
        assert receiver.receive(0) is None
    assert all(set(array.tolist()) == {number} for number, (_length, array) in enumerate(kept))
    bus.close()


def test_in_asyncio(source: Source, receiver: Receiver) -> None:
    async def main() -> None:
        async with receiver.alease(0.01) as nothing:
            assert nothing is None
        for number in range(30):
            asyncio.get_running_loop().call_later(0.001 * (number % 2), send, source, number)
            async with receiver.alease(30) as message:
                assert message is not None
                array = message.array(SHAPE, np.uint8)
                assert (array == number).all()
                assert not is_own(array)
            assert array.size == 0

    run(main())


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_frame_is_leased_for_a_minute_while_ten_thousand_follow(domain: str) -> None:
    shape = (480, 640, 3)
    bus = Bus(domain, LBTSMX, "embedded")
    receiver, source = bus.receiver("t", None, events=False), bus.context("sending").source("t", message_max=921_600)
    bus.joined(source)
    with source.acquire_array(shape, np.uint8) as frame:
        frame[:] = 252
    begin, sent = time.monotonic(), 0
    with receiver.lease(30) as message:
        assert message is not None
        array = message.array(shape, np.uint8)
        while sent < 10_000 or time.monotonic() - begin < 60:
            with source.acquire_array(shape, np.uint8) as frame:
                frame[:] = sent % 251
            with receiver.lease(30) as follower:
                assert follower is not None
                assert follower.array(shape, np.uint8)[-1, -1, -1] == sent % 251
            sent += 1
            if sent % 1000 == 0:
                assert (array == 252).all()
        assert (array == 252).all()
    bus.close()
