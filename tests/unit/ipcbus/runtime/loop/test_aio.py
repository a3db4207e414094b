"""Tasks of asyncio that wait for a message: each delivery wakes its task, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, cast

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
        self.interrupts: Callable[[], object] = lambda: None

    def interrupt(self) -> None:
        self.interrupts()

    def fileno(self) -> int:
        return self.readable

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
        loop.interrupts = lambda: sink.queue.append(MESSAGE)
        await asyncio.wait_for(waiters.wait(sink), GIVE_UP_S)
        loop.close()

    asyncio.run(main())


def test_without_a_thread_the_task_drives_the_context_and_closes_its_copy_of_the_descriptor() -> None:
    async def main() -> None:
        loop, sink = Loop(), Sink(None, 1)
        turns = 0

        def work() -> None:
            nonlocal turns
            turns += 1
            if turns == 2:  # the first turn comes before the wait
                os.read(loop.readable, 1)
                sink.queue.append(MESSAGE)

        before = len(os.listdir("/proc/self/fd"))
        waiters = AsyncWaiters(cast("Any", loop), work)
        task = asyncio.ensure_future(waiters.wait(sink))
        await asyncio.sleep(0)
        assert (turns, task.done()) == (1, False)
        os.write(loop.ring, b"d")
        await asyncio.wait_for(task, GIVE_UP_S)
        assert turns == 2
        assert len(os.listdir("/proc/self/fd")) == before
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
