"""The context itself: options, modes, threads, timers, ends."""

from __future__ import annotations

import functools
import gc
import os
import threading
import weakref
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import Context, MessageType
from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTIPC_SOURCE_PACED, Bus
from tests.kit.cases import each_of
from tests.kit.forms import CallbackTaker
from tests.kit.look import advert, objects
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from ipcbus import Message


def test_an_embedded_context_has_a_thread_of_its_own_until_it_is_closed(domain: str) -> None:
    before = threading.active_count()
    context = Context(domain=domain)
    assert threading.active_count() == before + 1
    context.close()
    assert threading.active_count() == before


def test_a_sequential_context_has_no_thread(domain: str) -> None:
    before = threading.active_count()
    with Context(domain=domain, operational_mode="sequential") as context:
        context.receiver("t")
        assert threading.active_count() == before


def test_its_name_is_shown_to_others_and_comes_from_the_call_first(domain: str) -> None:
    config = {"context": {"context_name": "from the config"}}
    with Context(config, domain=domain) as one, Context(config, name="from the call", domain=domain) as other:
        assert (one.name, other.name) == ("from the config", "from the call")
        assert advert(other).name == "from the call"
        assert "'from the call'" in repr(other)
        assert domain in repr(other)


def test_an_unknown_keyword_is_refused_with_the_cure(domain: str) -> None:
    with pytest.raises(ipcbus.ConfigError, match=r"give it to ctx.source\(topic, transport='lbtipc'\)"):
        Context(domain=domain, transport="lbtipc")


def test_an_unknown_keyword_of_a_handle_names_the_nearest(domain: str) -> None:
    with Context(domain=domain) as context:
        with pytest.raises(ipcbus.ConfigError, match="did you mean on_event"):
            context.source("t", on_evnt=print)  # type: ignore[call-arg]
        makers: list[Callable[..., object]] = [context.receiver, context.wildcard_receiver]
        for make in makers:
            with pytest.raises(ipcbus.ConfigError, match="did you mean on_message"):
                make("t", on_mesage=print)
        with pytest.raises(ipcbus.ConfigError, match="did you mean on_create"):
            context.wildcard_receiver("t", on_creat=print)  # type: ignore[call-arg]


def test_its_mode_may_come_from_the_config(domain: str, tmp_path: Path) -> None:
    path = tmp_path / "bus.toml"
    path.write_text('[context]\noperational_mode = "sequential"\n[source]\ntransport = "LBT-SMX"\n')
    with Context(path, domain=domain) as context:
        assert context.process_events(0) == 0
        assert context.source("t").source.startswith("LBT-SMX:")
        assert context.source("t", transport="lbtipc").source.startswith("LBT-IPC:")
    with Context(path, domain=domain, operational_mode="embedded") as context, pytest.raises(ipcbus.WrongThread):
        context.process_events(0)


def test_process_events_returns_how_many_messages_and_events_it_delivered(domain: str) -> None:
    bus = Bus(domain, LBTIPC, "sequential")
    receiving = bus.context("receiving")
    got: list[Message] = []
    bus.receiver("t", got.append, receiving)
    source = bus.source()
    bus.joined(source)
    assert receiving.process_events(0) == 0
    for number in range(100):
        source.send(body(number))
    source.flush()
    handled = 0
    while handled < 101:
        handled += receiving.process_events(GIVE_UP_S)
    assert handled == len(got) == 101
    bus.close()


def test_process_events_without_time_finds_new_sources_too(domain: str) -> None:
    with (
        Context({"context": {"resolution_scan_interval": 10}}, domain=domain, operational_mode="sequential") as context,
        Context(domain=domain, operational_mode="sequential") as sending,
    ):
        context.receiver("t")
        context.process_events(0)
        source = sending.source("t")
        while not source.receivers:
            context.process_events(0)


def test_a_message_that_a_timer_delivers_ends_the_wait_for_it(domain: str) -> None:
    bus = Bus(domain, LBTIPC_SOURCE_PACED, "sequential")
    receiving = bus.context("receiving")
    receiver = bus.receiver("t", None, receiving)
    source = bus.source()
    bus.joined(source)
    source.send(b"x", flush=True)
    receiving._timers._next["owners"] = 0
    receiving._event_loop.hurry()
    assert receiving.process_events(GIVE_UP_S) == 2  # the beginning and the message
    assert receiver.delivered == 1
    bus.close()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_whatever_a_callback_raises_the_context_goes_on(
    domain: str, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    bus = Bus(domain, LBTIPC, "embedded")
    came = threading.Semaphore(0)

    def fail(message: Message) -> None:
        came.release()
        if message.type is MessageType.DATA:
            raise error

    bus.receiver("t", fail)
    source = bus.source()
    bus.joined(source)
    for number in range(3):
        source.send(body(number), flush=True)
    for _ in range(4):
        assert came.acquire(timeout=GIVE_UP_S)
    bus.close()
    assert error.__name__ in caplog.text


def test_an_interrupt_in_sequential_mode_reaches_the_caller_and_loses_nothing(domain: str) -> None:
    bus = Bus(domain, LBTIPC, "sequential")
    receiving = bus.context("receiving")
    got: list[int] = []

    def interrupted(message: Message) -> None:
        got.append(message.sequence_number)
        if message.sequence_number == 1:
            raise KeyboardInterrupt

    bus.receiver("t", interrupted, receiving)
    source = bus.source()
    bus.joined(source)
    for number in range(4):
        source.send(body(number))
    source.flush()
    with pytest.raises(KeyboardInterrupt):
        bus.until(lambda: len(got) == 5, "all of it")
    bus.until(lambda: len(got) == 5, "the rest")
    assert got == [-1, 0, 1, 2, 3]
    bus.close()


def test_the_thread_is_pinned_where_the_option_says(domain: str) -> None:
    cpu = max(os.sched_getaffinity(0))
    seen: list[set[int]] = []
    with Context({"context": {"thread_cpu": cpu}}, domain=domain) as context:
        context.receiver("t", lambda message: seen.append(os.sched_getaffinity(0)))
        source = context.source("t")
        source.wait_for_receivers(1, GIVE_UP_S)
        source.send(b"x", flush=True)
        while len(seen) < 2:
            source._context._event_loop.wait_changed(0.001)
    assert seen == [{cpu}, {cpu}]


def test_a_cpu_that_does_not_exist_is_a_warning(domain: str, caplog: pytest.LogCaptureFixture) -> None:
    with Context({"context": {"thread_cpu": 1023}}, domain=domain) as context:
        source = context.source("t")
        context.receiver("t")
        source.wait_for_receivers(1, GIVE_UP_S)
    assert "thread_cpu = 1023" in caplog.text


def test_a_context_closes_at_the_end_of_its_block_whatever_happens(domain: str) -> None:
    with pytest.raises(ZeroDivisionError), Context(domain=domain) as context:
        context.source("t")
        _ = 1 / 0
    assert objects(domain) == []
    assert "closed" in repr(context)
    with pytest.raises(ipcbus.ClosedError):
        context.__enter__().source("t")


def test_several_contexts_of_a_process_are_independent(domain: str) -> None:
    bus = Bus(domain, LBTIPC, "embedded")
    contexts = [bus.context(f"number {number}") for number in range(8)]
    takers = [CallbackTaker(bus, context=context) for context in contexts[1:]]
    source = bus.source("t", contexts[0])
    bus.joined(source, 7)
    takers[0].context.close()
    bus.until(lambda: source.receivers == 6, "the leaving")
    source.send(b"x", flush=True)
    for taker in takers[1:]:
        assert taker.data(1) == [b"x"]
    bus.close()


def test_a_closed_context_is_not_kept_alive(domain: str) -> None:
    context = Context(domain=domain)
    context.receiver("t", print)
    context.source("t")
    context.close()
    gone = weakref.ref(context)
    del context
    gc.collect()
    assert gone() is None


def test_contexts_that_start_and_end_all_the_time_do_not_disturb_each_other(domain: str) -> None:
    bus = Bus(domain, LBTIPC, "embedded")
    source = bus.source()
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            Context(domain=domain, operational_mode="sequential").close()

    threads = [threading.Thread(target=come_and_go) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(20):
        with Context(domain=domain) as context:
            receiver = context.receiver("t")
            source.wait_for_receivers(1, GIVE_UP_S)
            source.send(body(number), flush=True)
            got = receiver.receive(GIVE_UP_S)
            while got is not None and got.type is not MessageType.DATA:
                got = receiver.receive(GIVE_UP_S)
            assert got is not None
            assert got.data == body(number)
        bus.until(lambda: source.receivers == 0, "the leaving")
    stop.set()
    for thread in threads:
        thread.join(GIVE_UP_S)
    bus.close()


@each_of("domain", ["", 5, None, b"x"])
def test_a_domain_is_a_text(domain: object) -> None:
    with pytest.raises(ipcbus.ConfigError, match="is not a valid name of a domain"):
        ipcbus.Context(domain=domain)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "names"),
    [
        ("source", ["on_event"]),
        ("receiver", ["on_message", "source_notification"]),
        ("wildcard_receiver", ["on_message", "source_notification", "on_create", "on_delete"]),
    ],
)
def test_what_cannot_be_called_back_is_refused_at_once(domain: str, make: str, names: list[str]) -> None:
    with ipcbus.Context(domain=domain) as context:
        for name in names:
            with pytest.raises(ipcbus.ConfigError, match=f"{name} = 5 cannot be called"):
                getattr(context, make)("t", **{name: 5})
            for function in (_async_callback, functools.partial(_async_callback), _AsyncCallable(), _async_generator):
                with pytest.raises(ipcbus.ConfigError, match=f"{name} = .* is an async function.*give a plain"):
                    getattr(context, make)("t", **{name: function})
        assert not context._sources
        assert not context._receivers


async def _async_callback(_: object) -> None:
    raise AssertionError("never awaited")


async def _async_generator(_: object) -> AsyncIterator[None]:
    yield


class _AsyncCallable:
    async def __call__(self, _: object) -> None:
        raise AssertionError("never awaited")


def test_a_context_does_not_read_receivers_to_find_sources(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    monkeypatch.setattr("ipcbus.resolution.local.adverts.ReceiverAdvert", lambda *given: read.append(given))
    with ipcbus.Context(domain=domain, operational_mode="sequential") as context:
        for number in range(3):
            context.receiver(f"t{number}")
        context.process_events(0)
    assert read == []
