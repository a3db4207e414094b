"""Tasks of asyncio that wait for a message: each delivery wakes its task, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import weakref
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

import ipcbus
from ipcbus.delivery.pump import TASKS, Pump
from ipcbus.delivery.sink import Sink
from ipcbus.runtime.loop.aio import AsyncWaiters
from tests.kit.bus import GIVE_UP_S

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGE = cast("Any", "a message")


class Loop:
    """An event loop whose descriptor is one end of a pipe."""

    closing = False

    def __init__(self) -> None:
        self.pump = Pump()
        self.readable, self.ring = os.pipe()
        self.hand_overs: Callable[[], object] = lambda: None
        self.armed = False

    def hand_over(self) -> None:
        self.hand_overs()

    def stand_back(self) -> None: ...

    def watch_descriptor(self) -> int:
        self.armed = True
        return self.readable

    def ignore_descriptor(self) -> None:
        self.armed = False

    def close(self) -> None:
        os.close(self.readable)
        os.close(self.ring)


def test_a_delivery_wakes_only_the_tasks_of_its_receiver() -> None:
    async def main() -> None:
        loop = Loop()
        waiters = AsyncWaiters(cast("Any", loop), None)
        served, other = Sink(None, 1), Sink(None, 1)
        tasks = [asyncio.ensure_future(waiters.wait(sink)) for sink in (served, served, other)]
        await asyncio.sleep(0)
        served.queue.append(MESSAGE)
        waiters.delivered()
        await asyncio.wait_for(asyncio.gather(*tasks[:2]), GIVE_UP_S)
        assert not tasks[2].done()
        assert waiters.any()
        assert loop.pump.wants(TASKS)
        tasks[2].cancel()
        await asyncio.wait(tasks)
        assert not waiters.any()
        assert not loop.pump.wants(TASKS)
        loop.close()

    asyncio.run(main())


def test_a_message_that_comes_while_a_task_begins_to_wait_is_seen() -> None:
    async def main() -> None:
        loop, sink = Loop(), Sink(None, 1)
        waiters = AsyncWaiters(cast("Any", loop), None)
        # The thread of the context delivers between the look of the application and the wait.
        loop.hand_overs = lambda: sink.queue.append(MESSAGE)
        await asyncio.wait_for(waiters.wait(sink), GIVE_UP_S)
        loop.close()

    asyncio.run(main())


class Driven:
    """A context without a thread: each byte in the pipe is a message for the first sink of a list."""

    def __init__(self) -> None:
        self.loop, self.sinks = Loop(), [Sink(None, 1), Sink(None, 1)]
        self.turns: list[bool] = []
        self.waiters = AsyncWaiters(cast("Any", self.loop), self.work)
        self.descriptors = len(os.listdir("/proc/self/fd"))
        os.set_blocking(self.loop.readable, False)

    def work(self) -> None:
        self.turns.append(self.is_armed())
        with contextlib.suppress(BlockingIOError):
            os.read(self.loop.readable, 1)
            self.sinks[0].queue.append(MESSAGE)

    def is_armed(self) -> bool:
        return self.loop.armed

    async def wait(self) -> None:
        task = asyncio.ensure_future(self.waiters.wait(self.sinks[0]))
        await asyncio.sleep(0)
        assert not task.done()
        os.write(self.loop.ring, b"d")
        await asyncio.wait_for(task, GIVE_UP_S)
        self.sinks[0].queue.popleft()

    def copies(self) -> int:
        return len(os.listdir("/proc/self/fd")) - self.descriptors

    def close(self) -> None:
        self.waiters.close()
        self.loop.close()


def test_without_a_thread_the_task_drives_the_context_and_one_watch_serves_many_waits() -> None:
    async def main() -> None:
        driven = Driven()
        running = asyncio.get_running_loop()
        with mock.patch.object(running, "add_reader", wraps=running.add_reader) as added:
            for _ in range(3):
                await driven.wait()
                assert not driven.is_armed()  # sources need not ring while no task waits
        assert (added.call_count, driven.copies()) == (1, 1)
        # Armed before each sleep; not in the turn that brings the message, before the task has it.
        assert driven.turns == [True, False] * 3
        driven.waiters.close()
        assert driven.copies() == 0
        driven.loop.close()

    asyncio.run(main())


def test_the_descriptor_is_armed_again_for_a_task_that_waits_on() -> None:
    async def main() -> None:
        driven = Driven()
        other = asyncio.ensure_future(driven.waiters.wait(driven.sinks[1]))
        await driven.wait()
        assert driven.is_armed()
        assert driven.turns[-1]
        other.cancel()
        await asyncio.wait([other])
        assert not driven.is_armed()
        driven.close()

    asyncio.run(main())


def test_the_descriptor_is_not_readable_until_the_next_message(domain: str) -> None:
    """The bytes that rang for the first message kept it readable: the asyncio loop ran thousands of turns in vain."""
    turns = 0

    async def main(receiver: ipcbus.Receiver, source: ipcbus.Source, waiters: AsyncWaiters) -> None:
        nonlocal turns
        for _ in range(5):
            message = asyncio.ensure_future(receiver.areceive())
            while not waiters.any():
                await asyncio.sleep(0)
            source.send(b"x", flush=True)
            assert (await message).data == b"x"
        with mock.patch.object(AsyncWaiters, "readable", autospec=True, side_effect=AsyncWaiters.readable) as readable:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(receiver.areceive(), 0.3)
            turns = readable.call_count

    with (
        ipcbus.Context(domain=domain) as sending,
        ipcbus.Context(domain=domain, operational_mode="sequential") as context,
    ):
        source, receiver = sending.source("t"), context.receiver("t", events=False)
        while not source.receivers:
            context.process_events(0.01)
        asyncio.run(main(receiver, source, context._waiters))
    assert turns < 100  # timers end the wait a few times


def test_a_readable_descriptor_for_which_no_task_waits_is_not_watched_for_ever() -> None:
    async def main() -> None:
        driven = Driven()
        await driven.wait()
        os.write(driven.loop.ring, b"d")
        while driven.copies():
            await asyncio.sleep(0)
        assert len(driven.turns) == 2  # the application may drive in another thread now
        os.read(driven.loop.readable, 1)
        await driven.wait()
        assert driven.copies() == 1
        driven.close()

    asyncio.run(main())


def test_a_loop_that_ended_gives_way_to_the_next_one() -> None:
    driven = Driven()
    asyncio.run(driven.wait())
    asyncio.run(driven.wait())
    assert driven.copies() == 1
    driven.close()


def test_a_loop_with_a_waiting_task_keeps_the_watch() -> None:
    driven = Driven()
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()

    async def begin() -> asyncio.Task[None]:
        task = asyncio.ensure_future(driven.waiters.wait(driven.sinks[1]))
        await asyncio.sleep(0)
        return task

    task = first.run_until_complete(begin())
    with mock.patch.object(second, "add_reader", side_effect=AssertionError):
        other = second.run_until_complete(begin())
    driven.waiters.close()
    first.run_until_complete(task)
    second.run_until_complete(other)
    first.close()
    second.close()
    assert driven.copies() == 0
    driven.loop.close()


def test_the_asyncio_loop_keeps_no_context_alive() -> None:
    async def main() -> None:
        driven = Driven()
        await driven.wait()
        found, loop, copy = weakref.ref(driven.waiters), driven.loop, driven.waiters._watched
        del driven
        gc.collect()
        assert found() is None  # the finalizer of a context closes it before
        asyncio.get_running_loop().remove_reader(copy)
        os.close(copy)
        loop.close()

    asyncio.run(main())


def test_close_wakes_each_task() -> None:
    async def main() -> None:
        loop, sink = Loop(), Sink(None, 1)
        waiters = AsyncWaiters(cast("Any", loop), lambda: None)
        tasks = [asyncio.ensure_future(waiters.wait(sink)) for _ in range(3)]
        await asyncio.sleep(0)
        waiters.close()
        loop.close()
        await asyncio.wait_for(asyncio.gather(*tasks), GIVE_UP_S)

    asyncio.run(main())
