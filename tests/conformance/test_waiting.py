"""Waiting without a thread: the context's descriptor, asyncio, time-outs."""

from __future__ import annotations

import asyncio
import select
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

import ipcbus
from ipcbus import MessageType, SourceEventType
from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTIPC_SOURCE_PACED, LBTRU, RECEIVER_PACED
from tests.kit.forms import AsyncForTaker, CallbackTaker, ReceiveTaker
from tests.kit.loops import LOOPS, run
from tests.kit.payload import body

if TYPE_CHECKING:
    from ipcbus import Message, SourceEvent
    from tests.kit.bus import Bus

embedded = pytest.mark.parametrize("mode", ["embedded"])
sequential = pytest.mark.parametrize("mode", ["sequential"])
split = pytest.mark.parametrize("mode", ["split"])
processed = pytest.mark.parametrize("mode", ["sequential", "split"])
on_each_loop = pytest.mark.parametrize("loop", LOOPS)
one_transport = pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))


def readable(fd: int, timeout: float) -> bool:
    """Whether a descriptor is readable within the time."""
    return bool(select.select([fd], [], [], timeout)[0])


def work_off(context: ipcbus.Context) -> None:
    """Processes events as long as the descriptor asks for it."""
    while readable(context.fileno(), 0):
        context.process_events(0)


@processed
def test_the_descriptor_is_readable_while_there_is_something_to_do(bus: Bus) -> None:
    receiving = bus.context("receiving")
    taker = CallbackTaker(bus, context=receiving)
    fd = receiving.fileno()
    assert receiving.fileno() == fd
    source = bus.source("t", bus.context("sending", mode="embedded"))  # over UDP it has to answer
    while not source.receivers:  # a new source makes it readable too
        assert readable(fd, GIVE_UP_S)
        receiving.process_events(0)
    work_off(receiving)
    for number in range(100):
        source.send(body(number), flush=True)
        assert readable(fd, GIVE_UP_S)
        assert readable(fd, GIVE_UP_S)  # level-triggered: nothing was done about it yet
        while taker.count() <= number:
            receiving.process_events(0)
        work_off(receiving)
    assert [got.data for got in taker.got[1:]] == [body(number) for number in range(100)]


@processed
def test_many_messages_keep_the_descriptor_readable_until_all_are_delivered(bus: Bus) -> None:
    receiving = bus.context("receiving")
    taker = CallbackTaker(bus, context=receiving)
    source = bus.source()
    bus.joined(source)
    fd = receiving.fileno()
    work_off(receiving)
    source.send_many([body(number) for number in range(5000)], flush=True)
    source.close()
    while not taker.count(MessageType.EOS):
        assert readable(fd, GIVE_UP_S)
        receiving.process_events(0)
    assert taker.count() == 5000


@sequential
@pytest.mark.parametrize("kind", [LBTIPC, LBTIPC_SOURCE_PACED, LBTRU], ids=lambda kind: str(kind.name))
def test_a_timer_makes_the_descriptor_readable(bus: Bus) -> None:
    sending = bus.context("sending")
    source = bus.source("t", sending, implicit_batching_interval=5)
    taker = CallbackTaker(bus, context=bus.context("receiving", mode="embedded"))
    bus.joined(source)
    fd = sending.fileno()
    work_off(sending)
    source.send(b"in a batch")
    while not taker.count():
        assert readable(fd, GIVE_UP_S)
        sending.process_events(0)


@sequential
@pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))
def test_room_makes_the_descriptor_of_the_source_readable(bus: Bus) -> None:
    sending = bus.context("sending")
    events: list[SourceEvent] = []
    source = bus.source("t", sending, on_event=events.append, **bus.kind.small())
    taker = ReceiveTaker(bus, receive_queue_maximum=1)
    bus.joined(source)
    fd = sending.fileno()
    with pytest.raises(ipcbus.WouldBlock):
        while True:
            source.send(body(source.sequence_number + 1), block=False)
    taker.data(source.sequence_number + 1)
    while SourceEventType.WAKEUP not in [event.type for event in events]:
        assert readable(fd, GIVE_UP_S)
        sending.process_events(0)


@pytest.mark.parametrize("mode", ["embedded"])
@one_transport
def test_only_a_sequential_context_has_a_descriptor_and_is_driven(bus: Bus) -> None:
    context = bus.context()
    for use in (context.fileno, context.process_events, lambda: context.process_events(1)):
        with pytest.raises(ipcbus.WrongThread, match="sequential"):
            use()


@sequential
@one_transport
def test_two_threads_cannot_drive_at_once(bus: Bus) -> None:
    context = bus.context()
    inside, go_on = threading.Event(), threading.Event()

    def stay(message: Message) -> None:
        inside.set()
        go_on.wait(GIVE_UP_S)

    context.receiver("t", stay)
    pulled = context.receiver("other")
    source = bus.source()
    bus.joined(source)
    source.send(b"x", flush=True)

    def drive() -> None:
        while not inside.is_set():
            context.process_events(0.01)

    thread = threading.Thread(target=drive)
    thread.start()
    assert inside.wait(GIVE_UP_S)
    for use in (
        lambda: context.process_events(0),
        lambda: context.process_events(1),
        lambda: pulled.receive(0),
        lambda: pulled.receive_into(np.zeros((1, 1), np.uint8), 0),
    ):
        with pytest.raises(ipcbus.WrongThread, match="two threads"):
            use()
    go_on.set()
    thread.join(GIVE_UP_S)
    context.process_events(0)  # one after the other is fine


def test_what_does_not_come_in_time_is_none(bus: Bus) -> None:
    receiver = bus.receiver()
    assert receiver.receive(0) is None
    assert receiver.receive(0.001) is None
    assert receiver.receive_many(5, 0) == []
    assert receiver.receive_many(5, 0.001) == []
    assert receiver.receive_into(np.zeros((4, 4), np.uint8), 0) == 0
    assert receiver.receive_into(np.zeros((4, 4), np.uint8), 0.001) == 0


@embedded
def test_what_does_not_come_in_time_is_none_also_while_another_waits(bus: Bus) -> None:
    context = bus.context()
    waiting, hasty = bus.receiver("a", None, context), bus.receiver("b", None, context)
    thread = threading.Thread(target=waiting.receive)
    thread.start()
    assert hasty.receive(0.002) is None
    assert hasty.receive_many(3, 0.002) == []
    assert hasty.receive_into(np.zeros((4, 4), np.uint8), 0.002) == 0
    source = bus.source("a")
    source.wait_for_receivers(1, GIVE_UP_S)
    source.send(b"x", flush=True)
    thread.join(GIVE_UP_S)
    assert not thread.is_alive()


@embedded
def test_many_threads_may_pull_in_one_context(bus: Bus) -> None:
    context, sending = bus.context("receiving"), bus.context("sending")
    topics = [f"topic {number}" for number in range(4)]
    takers = [ReceiveTaker(bus, topic, context) for topic in topics]
    sources = [bus.source(topic, sending, **bus.kind.id(700)) for topic in topics]
    for source in sources:
        source.wait_for_receivers(1, GIVE_UP_S)
    threads = [threading.Thread(target=taker.data, args=(200,)) for taker in takers]
    for thread in threads:
        thread.start()
    for number in range(200):
        for source in sources:
            source.send(body(number), flush=number % 7 == 0)
    sources[0].flush()
    for thread in threads:
        thread.join(GIVE_UP_S)
    for taker in takers:
        assert [got.data for got in taker.got[1:]] == [body(number) for number in range(200)]


@on_each_loop
def test_many_tasks_receive_in_one_loop(bus: Bus, loop: str) -> None:
    context, sending = bus.context("receiving"), bus.context("sending")
    topics = [f"topic {number}" for number in range(4)]
    receivers = [context.receiver(topic) for topic in topics]
    sources = [bus.source(topic, sending, **bus.kind.id(700)) for topic in topics]
    for source in sources:
        bus.joined(source)

    async def take(receiver: ipcbus.Receiver) -> list[bytes]:
        got: list[bytes] = []
        async for message in receiver:
            if message.type is MessageType.DATA:
                got.append(message.data)
            if len(got) == 50:
                break
        return got

    async def send() -> None:
        for number in range(50):
            for source in sources:
                source.send(body(number), flush=True)
            await asyncio.sleep(0)

    async def all_of_it() -> list[list[bytes]]:
        tasks = [asyncio.create_task(take(receiver)) for receiver in receivers]
        await send()
        return await asyncio.wait_for(asyncio.gather(*tasks), GIVE_UP_S)

    assert run(all_of_it(), loop) == [[body(number) for number in range(50)]] * 4


@on_each_loop
def test_request_and_answer_in_asyncio(bus: Bus, loop: str) -> None:
    near, far = bus.context("near"), bus.context("far")
    ping, pong = bus.source("ping", near), bus.source("pong", far)
    there, back = far.receiver("ping"), near.receiver("pong")
    bus.joined(ping)
    bus.joined(pong)

    async def answer() -> None:
        async for message in there:
            if message.type is MessageType.DATA:
                pong.send(message.data, flush=True)

    async def ask() -> list[bytes]:
        task = asyncio.create_task(answer())
        got = []
        for number in range(50):
            ping.send(body(number), flush=True)
            message = await back.areceive()
            while message.type is not MessageType.DATA:
                message = await back.areceive()
            got.append(message.data)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return got

    assert run(asyncio.wait_for(ask(), GIVE_UP_S), loop) == [body(number) for number in range(50)]


@pytest.mark.parametrize("ends", ["receiver", "context"])
@on_each_loop
def test_an_async_loop_ends_with_its_handle(bus: Bus, ends: str, loop: str) -> None:
    taker = AsyncForTaker(bus)

    async def take() -> int:
        count = 0
        async for _ in taker.receiver:
            count += 1
        return count

    async def close_while_it_waits() -> int:
        task = asyncio.create_task(take())
        await asyncio.sleep(0)  # it waits now
        (taker.receiver if ends == "receiver" else taker.context).close()
        return await asyncio.wait_for(task, GIVE_UP_S)

    assert run(close_while_it_waits(), loop) == 0


@on_each_loop
def test_a_cancelled_wait_loses_no_message(bus: Bus, loop: str) -> None:
    source = bus.source()
    taker = AsyncForTaker(bus)
    bus.joined(source)

    async def impatient() -> None:
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(taker.receiver.areceive(), 0.001)

    run(impatient(), loop)
    for number in range(10):
        source.send(body(number))
    source.flush()
    assert taker.data(10) == [body(number) for number in range(10)]


@on_each_loop
def test_a_step_of_an_async_loop_that_times_out_loses_no_message_and_may_be_followed_by_others(
    bus: Bus, loop: str
) -> None:
    source, receiver = bus.source(), bus.receiver()
    bus.joined(source)

    async def impatient() -> list[bytes]:
        messages, got = aiter(receiver), []
        for number in range(50):
            source.send(body(number), flush=True)
            for timeout in (0, 0.001, GIVE_UP_S):
                try:
                    message = await asyncio.wait_for(anext(messages), timeout)
                except TimeoutError:
                    continue
                if message.type is MessageType.DATA:
                    got.append(message.data)
                break
        while len(got) < 50:
            message = await anext(messages)
            if message.type is MessageType.DATA:
                got.append(message.data)
        return got

    assert run(asyncio.wait_for(impatient(), 2 * GIVE_UP_S), loop) == [body(number) for number in range(50)]


@on_each_loop
def test_tasks_share_one_receiver(bus: Bus, loop: str) -> None:
    source, receiver = bus.source(), bus.receiver()
    bus.joined(source)
    got: list[bytes] = []

    async def take() -> None:
        async for message in receiver:
            if message.type is MessageType.DATA:
                got.append(message.data)  # noqa: PERF401 - while others append too

    async def share() -> None:
        tasks = [asyncio.create_task(take()) for _ in range(3)]
        for number in range(200):
            source.send(body(number), flush=True)
            if number % 10 == 0:
                await asyncio.sleep(0)
        while len(got) < 200:
            await asyncio.sleep(0)
        tasks.pop().cancel()
        receiver.close()
        await asyncio.wait(tasks)

    run(asyncio.wait_for(share(), GIVE_UP_S), loop)
    assert got == [body(number) for number in range(200)]  # a task takes a message and notes it in one step


def test_pulling_from_a_receiver_with_a_callback_is_refused(bus: Bus) -> None:
    receiver = bus.receiver("t", print)
    rows = np.zeros((1, 1), np.uint8)
    for use in (receiver.receive, lambda: receiver.receive_many(1), lambda: receiver.receive_into(rows)):
        with pytest.raises(ipcbus.IpcBusError, match="callback"):
            use()
    with pytest.raises(ipcbus.IpcBusError, match="callback"):
        run(receiver.areceive())


@pytest.mark.parametrize("array", [np.zeros(8, np.uint8), np.zeros((2, 2, 2), np.uint8), np.zeros((2, 2), np.int32)])
@one_transport
def test_rows_of_another_shape_are_refused(bus: Bus, array: object) -> None:
    receiver = bus.receiver()
    with pytest.raises(TypeError, match="2-D uint8"):
        receiver.receive_into(array, 0)
    with pytest.raises((BufferError, ValueError, TypeError)):
        receiver.receive_into(b"read-only", 0)
    with pytest.raises((BufferError, ValueError)):
        receiver.receive_into(np.zeros((8, 8), np.uint8)[:, ::2], 0)


@one_transport
def test_rows_stop_before_an_event_and_a_message_of_another_length(bus: Bus) -> None:
    source = bus.source()
    receiver = bus.receiver()
    bus.joined(source)
    lengths = [8, 8, 8, 9, 8, 8]
    for number, length in enumerate(lengths):
        source.send(bytes([number]) * length)
    source.close()
    rows = np.zeros((2, 8), np.uint8)
    assert receiver.receive_into(rows, GIVE_UP_S) == 0  # BOS is next
    begin = receiver.receive(0)
    assert begin is not None
    assert begin.type is MessageType.BOS
    assert receiver.receive_into(rows, GIVE_UP_S) == 2
    assert rows.tolist() == [[0] * 8, [1] * 8]
    assert receiver.receive_into(rows, GIVE_UP_S) == 1
    assert rows[0].tolist() == [2] * 8
    with pytest.raises(ValueError, match="9 bytes"):
        receiver.receive_into(rows, GIVE_UP_S)
    odd = receiver.receive(0)
    assert odd is not None
    assert odd.data == bytes([3]) * 9
    assert receiver.receive_into(rows, GIVE_UP_S) == 2
    assert rows.tolist() == [[4] * 8, [5] * 8]
    assert receiver.receive_into(rows, GIVE_UP_S) == 0
    end = receiver.receive(GIVE_UP_S)
    assert end is not None
    assert end.type is MessageType.EOS
