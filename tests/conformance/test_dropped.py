"""Contexts that nobody refers to any more: they are closed, and those that somebody refers to in any way are not."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
import weakref
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import EventQueue, MessageType
from ipcbus.context_closing import dropped
from tests.kit.bus import GIVE_UP_S, KINDS, LBTIPC, Bus, Kind, mode_options
from tests.kit.look import objects
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Message

BUSY: dict[str, object] = {"transport_lbtipc_receiver_thread_behavior": "busy_wait"}

modes = pytest.mark.parametrize("mode", ["embedded", "sequential", "split", "spinning"])
one_transport = pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))


def options_of(mode: str) -> dict[str, object]:
    """Context options that choose a mode."""
    return BUSY if mode == "spinning" else mode_options(mode)


class App:
    """As applications are written: it has the context, and the context has its methods as callbacks."""

    def __init__(self, domain: str, mode: str) -> None:
        self.context = ipcbus.Context({"context": options_of(mode)}, name="dropped", domain=domain)
        self.receiver = self.context.receiver("t", self.on_message)
        self.context.wildcard_receiver("u.*", self.on_message, on_create=print)
        self.source = self.context.source("t", on_event=self.on_event)

    def on_message(self, message: Message) -> None:
        pass

    def on_event(self, event: object) -> None:
        pass


def collect_until(condition: Callable[[], object], what: str) -> None:
    """Collects garbage until the condition holds: a thread may have the context in hand at one moment."""
    pause = threading.Event()
    for _ in range(int(GIVE_UP_S / 0.01)):
        gc.collect()
        if condition():
            return
        pause.wait(0.01)
    pytest.fail(f"waited in vain for {what}")


@modes
def test_contexts_that_nobody_refers_to_are_closed_with_a_warning(domain: str, mode: str) -> None:
    count = 2 if mode == "spinning" else 5
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))

    def left() -> tuple[int, int, int]:
        return len(objects(domain)), threading.active_count() - threads, len(os.listdir("/proc/self/fd")) - descriptors

    def drop() -> None:
        for _ in range(count):
            App(domain, mode)
        collect_until(lambda: max(left()) <= 0, f"the end of what {count} contexts have left: {left()}")

    with pytest.warns(ResourceWarning, match="'dropped' in domain .* was not closed") as warned:
        drop()
    assert len(warned) == count


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.name))
@pytest.mark.parametrize("mode", ["embedded", "sequential"])
def test_what_a_dropped_context_has_sent_arrives_and_then_its_end(domain: str, kind: Kind, mode: str) -> None:
    bus = Bus(domain, kind, "embedded")
    receiver = bus.receiver()

    got: list[Message] = []

    def come() -> bool:
        got.extend(receiver.receive_many(20, 0))
        return bool(got) and got[-1].type is MessageType.EOS

    def send() -> None:
        given = {**kind.context_options, **mode_options(mode)}
        context = ipcbus.Context({"context": given}, domain=domain)
        source = context.source("t", transport=kind.transport, **kind.options)
        source.wait_for_receivers(1, GIVE_UP_S)
        for number in range(10):
            source.send(body(number))

    def drop() -> None:
        send()
        collect_until(come, "the end")
        bus.close()
        # The thread that closes the context removes the objects first and closes the descriptors after that.
        collect_until(lambda: not objects(domain) and not dropped, "the end of the context")

    with pytest.warns(ResourceWarning):
        drop()
    data = [message.data for message in got if message.type is MessageType.DATA]
    assert data == [body(number) for number in range(10)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.name))
@pytest.mark.parametrize("mode", ["embedded", "sequential"])
def test_a_dropped_context_that_has_received_is_closed(domain: str, kind: Kind, mode: str) -> None:
    bus = Bus(domain, kind, "embedded")
    source = bus.source()

    def drop() -> None:
        came = threading.Event()
        context = ipcbus.Context({"context": {**kind.context_options, **mode_options(mode)}}, domain=domain)
        _receiver = context.receiver("t", on_data=lambda _: came.set())
        joining = threading.Thread(target=source.wait_for_receivers, args=(1, GIVE_UP_S))
        joining.start()
        while joining.is_alive() or not came.is_set():
            source.send(body(0), flush=True)
            context.process_events(0.01) if mode == "sequential" else came.wait(0.01)
        joining.join()

    def close() -> None:
        drop()
        collect_until(lambda: not source.receivers, "the end of the receiver")
        bus.close()
        collect_until(lambda: not objects(domain) and not dropped, "the end of the context")

    with pytest.warns(ResourceWarning):
        close()


@modes
def test_whoever_refers_to_a_part_of_a_context_keeps_it(domain: str, mode: str) -> None:
    def make(kept: str) -> tuple[object, weakref.ref[ipcbus.Context]]:
        context = ipcbus.Context({"context": options_of(mode)}, domain=domain)
        parts: dict[str, object] = {"context": context, "source": context.source("t")}
        parts["receiver"] = context.receiver("t", print)
        parts["wildcard"] = context.wildcard_receiver("t.*", print)
        parts["queue"] = queue = EventQueue(10)
        context.receiver("t", print, event_queue=queue)
        return parts[kept], weakref.ref(context)

    made = {kept: make(kept) for kept in ("context", "source", "receiver", "wildcard", "queue")}
    for _ in range(3):
        gc.collect()
    found = {kept: context() for kept, (_, context) in made.items()}
    assert [kept for kept, context in found.items() if context is None or context._closed] == []
    for context in found.values():
        assert context is not None
        context.close()
    del context
    found.clear()
    contexts = [context for _, context in made.values()]
    made.clear()
    collect_until(lambda: not any(context() for context in contexts), "their end")  # queues keep no closed ones either


@one_transport
def test_a_queue_forgets_a_receiver_that_is_closed_or_was_not_made(domain: str, kind: Kind) -> None:
    queue = EventQueue(10)
    with ipcbus.Context(domain=domain) as context:
        context.receiver("t", print, event_queue=queue).close()
        context.receiver("t", print, event_queue=queue, ordered_delivery=1)
        with pytest.raises(ipcbus.ConfigError):
            context.receiver("t", print, event_queue=queue, ordered_delivery=-1)
        assert len(queue._receivers) == 1
    assert not queue._receivers
    assert kind is LBTIPC


_DROP_AND_EXIT = """
import gc, sys, weakref, ipcbus
gc.disable()  # no collection but the one below
def use(mode):
    context = ipcbus.Context(domain=sys.argv[1], operational_mode=mode)
    context.receiver("t", print)
    context.source("t")
    return weakref.ref(context)
used = use("embedded"), use("sequential")
# A context that works at this moment is not collected.
while sys.argv[2] == "collected" and any(context() for context in used):
    gc.collect()
"""


@pytest.mark.parametrize("when", ["collected", "kept to the end"])
def test_nothing_is_left_by_a_program_that_ends_at_once(domain: str, when: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", _DROP_AND_EXIT, domain, when],
        capture_output=True,
        text=True,
        timeout=GIVE_UP_S,
        check=True,
    )
    assert objects(domain) == []
    assert ran.stderr.count("was not closed") == (2 if when == "collected" else 0)


def test_a_child_of_a_fork_leaves_dropped_contexts_to_the_parent(domain: str) -> None:
    context = ipcbus.Context(domain=domain)
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            del context
            gc.collect()
            code = 0 if objects(domain) else 2
        os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    context.close()
