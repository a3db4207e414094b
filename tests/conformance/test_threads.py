"""How the threads that receive wait, and where they run."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageType
from ringbuf.layout import control_view
from tests.kit.bus import GIVE_UP_S, on_rings
from tests.kit.forms import ReceiveTaker
from tests.kit.look import ring_header
from tests.kit.payload import body

if TYPE_CHECKING:
    from ipcbus import Context, Message, Source
    from tests.kit.bus import Bus

threaded = pytest.mark.parametrize("mode", ["embedded", "split"])
COUNT = 200


def behaves(bus: Bus, behavior: str) -> dict[str, object]:
    """The context option for how the transport's receiving thread waits."""
    return {f"transport_{bus.kind.transport}_receiver_thread_behavior": behavior}


def cpus(thread: threading.Thread) -> str:
    """Where the system lets a thread run."""
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return next(line.split()[1] for line in status.splitlines() if line.startswith("Cpus_allowed_list:"))


class Counting:
    """A callback that counts messages and notes its thread."""

    def __init__(self) -> None:
        self.count = 0
        self.came = threading.Semaphore(0)
        self.threads: set[threading.Thread] = set()

    def __call__(self, message: Message) -> None:
        if message.type is MessageType.DATA:
            self.count += 1
            self.threads.add(threading.current_thread())
            self.came.release()


def parked(source: Source) -> int:
    """Mask of the receiving contexts that sleep."""
    return int(control_view(source._session.channel.control.view())[0]["parked"])


def one_by_one(bus: Bus, context: Context, *, parks: bool) -> tuple[Source, Counting]:
    """Sends each message when the one before has been delivered, and the receiver sleeps if it ever does."""
    counting = Counting()
    context.receiver("t", counting)
    source = bus.source("t", bus.context("sending", mode="embedded"))
    source.wait_for_receivers(1, GIVE_UP_S)
    stop = threading.Event()
    pause = threading.Event()

    def process() -> None:
        while not stop.is_set():
            context.process_events(0.05)

    thread = threading.Thread(target=process) if bus.sequential else None
    if thread is not None:
        thread.start()
    for number in range(COUNT):
        while parks and not parked(source):
            pause.wait(0.0002)
        source.send(body(number), flush=True)
        assert counting.came.acquire(timeout=GIVE_UP_S)
    stop.set()
    if thread is not None:
        thread.join(GIVE_UP_S)
    assert counting.threads == {thread or context._thread}
    return source, counting


@on_rings
@threaded
def test_a_thread_that_busy_waits_never_has_to_be_woken(bus: Bus) -> None:
    context = bus.context("spinning", **behaves(bus, "busy_wait"))
    source, counting = one_by_one(bus, context, parks=False)
    assert counting.count == COUNT
    assert ring_header(source)["wakes_sent"] == 0
    assert not parked(source)


@on_rings
@threaded
def test_a_thread_that_pends_sleeps_and_is_woken(bus: Bus) -> None:
    context = bus.context("pending", **behaves(bus, "pend"))
    source, counting = one_by_one(bus, context, parks=True)
    assert counting.count == COUNT
    assert ring_header(source)["wakes_sent"] >= COUNT


@pytest.mark.parametrize("linger", [1, 5000])
def test_a_thread_that_pends_may_linger_before_it_sleeps(bus: Bus, linger: int) -> None:
    context = bus.context("lingering", transport_lbtipc_pend_behavior_linger_loop_count=linger)
    assert context._event_loop.loops == linger
    taker = ReceiveTaker(bus, context=context)
    source = bus.source("t", bus.context("sending", mode="embedded"))
    bus.joined(source)
    for number in range(COUNT):
        source.send(body(number), flush=True)
        assert taker.data(number + 1)[-1] == body(number)


@threaded
def test_the_contexts_thread_is_pinned_and_no_other_is(bus: Bus) -> None:
    cpu = max(os.sched_getaffinity(0))
    context = bus.context("pinned", thread_cpu=cpu)
    counting = Counting()
    context.receiver("t", counting)
    source = bus.source("t", bus.context("free", mode="embedded"))
    source.wait_for_receivers(1, GIVE_UP_S)  # it joined, so it runs
    source.send(b"x", flush=True)
    bus.until(lambda: counting.count, "the message")
    pinned, free = context._thread, source._context._thread
    assert pinned is not None
    assert free is not None
    assert cpus(pinned) == str(cpu)
    assert cpus(free) == cpus(threading.current_thread()) == cpus(threading.main_thread())
