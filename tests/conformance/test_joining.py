"""Who meets whom, and that nothing sent to those who have met is missed."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

import ipcbus
from tests.kit.bus import GIVE_UP_S, on_all
from tests.kit.forms import CallbackTaker
from tests.kit.payload import body

if TYPE_CHECKING:
    from tests.kit.bus import Bus


@on_all
def test_several_receivers_in_several_contexts_all_get_everything(bus: Bus) -> None:
    source = bus.source()
    contexts = [bus.context(f"receiving {number}") for number in range(3)]
    takers = [CallbackTaker(bus, context=context) for context in contexts for _ in range(2)]
    bus.joined(source, 3)
    for number in range(40):
        source.send(body(number))
    source.flush()
    for taker in takers:
        assert taker.data(40) == [body(number) for number in range(40)]


@on_all
@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.long)])
def test_receivers_of_many_topics_come_and_go(bus: Bus, count: int) -> None:
    """Each receiver is made, and closed, while all others are there."""
    topics = [f"t.{number}" for number in range(count)]
    sending, receiving = bus.context("sending"), bus.context("receiving")
    sources = [bus.source(topic, sending) for topic in topics]
    for _ in range(2):
        takers = [CallbackTaker(bus, topic, receiving) for topic in topics]
        for number, (source, taker) in enumerate(zip(sources, takers, strict=True)):
            bus.joined(source)
            source.send(body(number), flush=True)
            assert taker.data(1) == [body(number)]
        for taker in takers:
            taker.receiver.close()
        bus.until(lambda: not any(source.receivers for source in sources), "the receivers to leave")


@on_all
def test_a_context_receives_what_it_sends_itself(bus: Bus) -> None:
    context = bus.context("both")
    source = bus.source("t", context)
    taker = CallbackTaker(bus, context=context)
    source.wait_for_receivers(1, GIVE_UP_S)
    for number in range(20):
        source.send(body(number))
    source.flush()
    assert taker.data(20) == [body(number) for number in range(20)]


@on_all
def test_sources_of_one_topic_in_two_contexts_are_two_streams(bus: Bus) -> None:
    one, two = bus.source("t", bus.context()), bus.source("t", bus.context())
    taker = CallbackTaker(bus)
    bus.joined(one)
    bus.joined(two)
    for number in range(10):
        one.send(body(number, sender=1))
        two.send(body(number, sender=2))
    one.flush()
    two.flush()
    got = taker.data(20)
    assert [data for data in got if data[4] == 1] == [body(number, sender=1) for number in range(10)]
    assert [data for data in got if data[4] == 2] == [body(number, sender=2) for number in range(10)]
    assert {session.source for session in taker.receiver.sessions} == {one.source, two.source}


@on_all
def test_two_sources_of_one_topic_in_one_context_are_two_streams(bus: Bus) -> None:
    context = bus.context()
    one, two = (bus.source("t", context, **bus.kind.id(number)) for number in (700, 700))
    taker = CallbackTaker(bus)
    bus.joined(one)
    bus.joined(two)
    for number in range(10):
        one.send(body(number, sender=1))
        two.send(body(number, sender=2))
    one.flush()
    got = taker.data(20)
    assert [data for data in got if data[4] == 1] == [body(number, sender=1) for number in range(10)]
    assert [data for data in got if data[4] == 2] == [body(number, sender=2) for number in range(10)]
    assert taker.receiver.lost == 0


def test_topics_are_compared_whole(bus: Bus) -> None:
    topics = ["a", "ab", "a.b", "A", "ä", "x" * 255, "ä" * 127]
    context, receiving = bus.context(), bus.context()
    sources = [bus.source(topic, context, **bus.kind.id(700)) for topic in topics]
    takers = [CallbackTaker(bus, topic, receiving) for topic in topics]
    for source in sources:
        bus.joined(source)
    for source in sources:
        source.send(source.topic.encode())
    sources[0].flush()
    for taker in takers:
        taker.data(1)
    assert [taker.got[1].data.decode() for taker in takers] == topics


def test_domains_do_not_see_each_other(bus: Bus, domain: str) -> None:
    source = bus.source()
    other = ipcbus.Context(domain=domain[:-1], operational_mode="sequential")
    receiver = other.receiver("t")
    other.process_events(0.01)
    own = CallbackTaker(bus)
    bus.joined(source)
    other.process_events(0.01)
    assert receiver.sessions == []
    assert source.receivers == 1
    assert own.receiver.sessions[0].source == source.source
    other.close()


def test_waiting_for_receivers_counts_contexts_the_own_one_too(bus: Bus) -> None:
    context = bus.context("both")
    source = bus.source("t", context)
    assert source.receivers == 0
    bus.receiver("t", None, context)
    bus.receiver("t", None, context)  # the same context once more
    source.wait_for_receivers(1, GIVE_UP_S)
    assert source.receivers == 1
    bus.receiver("t")
    bus.joined(source, 2)
    source.wait_for_receivers(2, 0)
    bus.receiver("another")
    bus.turn()
    assert source.receivers == 2


def test_waiting_in_vain_says_how_many_had_joined(bus: Bus) -> None:
    source = bus.source()
    bus.receiver()
    bus.joined(source)
    with pytest.raises(TimeoutError, match="'t': 1 of 3 receiving contexts had joined after 0.01 s; .* the same topic"):
        source.wait_for_receivers(3, 0.01)
    with pytest.raises(TimeoutError, match="1 of 2"):
        source.wait_for_receivers(2, 0)
    source.wait_for_receivers(0, 0)


def test_waiting_ends_with_the_source(bus: Bus) -> None:
    source = bus.source()
    source.close()
    with pytest.raises(ipcbus.ClosedError, match="'t'"):
        source.wait_for_receivers(1, GIVE_UP_S)


@on_all
def test_a_receiver_that_leaves_is_counted_no_more(bus: Bus) -> None:
    source = bus.source()
    receivers = [bus.receiver() for _ in range(3)]
    bus.joined(source, 3)
    for left, receiver in enumerate(receivers):
        receiver.close()
        bus.until(lambda left=left: source.receivers == 2 - left, "the leaving")  # type: ignore[misc]


@pytest.mark.parametrize("mode", ["embedded"])  # the parties run at the same time
def test_nothing_is_missed_after_waiting_whoever_was_first(bus: Bus) -> None:
    context, receiving = bus.context("sending"), bus.context("receiving")
    for attempt in range(40):
        topic = f"attempt {attempt}"
        start = threading.Barrier(2)
        takers: list[CallbackTaker] = []

        def receive(topic: str = topic, start: threading.Barrier = start, takers: list[CallbackTaker] = takers) -> None:
            start.wait(GIVE_UP_S)
            takers.append(CallbackTaker(bus, topic, receiving))

        thread = threading.Thread(target=receive)
        thread.start()
        start.wait(GIVE_UP_S)
        source = bus.source(topic, context, **bus.kind.small())
        source.wait_for_receivers(1, GIVE_UP_S)
        for number in range(3):
            source.send(body(number), flush=True)
        thread.join(GIVE_UP_S)
        assert takers[0].data(3) == [body(number) for number in range(3)]
        assert takers[0].numbers == [0, 1, 2]
        source.close()
        takers[0].receiver.close()


@on_all
def test_a_receiver_that_is_made_again_joins_again(bus: Bus) -> None:
    source = bus.source()
    context = bus.context("receiving")
    for life in range(5):
        taker = CallbackTaker(bus, context=context)
        bus.joined(source)
        source.send(body(life), flush=True)
        assert taker.data(1) == [body(life)]
        taker.receiver.close()
        bus.until(lambda: source.receivers == 0, "the leaving")


@on_all
def test_sessions_tell_what_a_receiver_is_joined_to(bus: Bus) -> None:
    source = bus.source()
    receiver = bus.receiver()
    assert bus.receiver("nothing").sessions == []
    bus.joined(source)
    source.send(b"12345678", flush=True)
    bus.until(lambda: receiver.delivered == 1, "the message")
    (session,) = receiver.sessions
    assert (session.source, session.transport, session.owner_pid) == (source.source, bus.kind.title, os.getpid())
    assert (session.state, session.reason) == ("joined", "")
    assert session.counters["lbm_msgs_rcved"] == session.counters["msgs_rcved"] == 1
    assert session.counters["bytes_rcved"] == 16 + 16 + 8
    assert session.counters["lost"] == session.counters["malformed"] == 0


def test_asking_for_sessions_again_and_again_does_not_keep_messages_away(bus: Bus) -> None:
    got: list[bytes] = []
    receiver = bus.receiver("t", lambda message: got.append(message.data))
    source = bus.source()
    bus.joined(source)
    for number in range(1, 20):
        bus.until(lambda: receiver.sessions, "being joined")
        source.send(body(number), flush=True)
        bus.until(lambda number=number: receiver.sessions and len(got) > number, "the message")  # type: ignore[misc]


def test_a_handle_that_is_dropped_lives_on(bus: Bus) -> None:
    got: list[bytes] = []
    context = bus.context()
    context.receiver("t", lambda message: got.append(message.data) if len(message) else None)
    source = bus.source("t", bus.context("sending"))
    bus.joined(source)
    source.send(b"x", flush=True)
    bus.until(lambda: got == [b"x"], "the message")


def test_what_is_no_topic_name_is_refused(bus: Bus) -> None:
    context = bus.context()
    for topic in ("", "x" * 256, "ä" * 128, "with\0zero", "half \udc80", 5, None, b"bytes"):
        for make in (context.source, context.receiver):
            with pytest.raises(ipcbus.ConfigError, match="1 to 255 bytes"):
                make(topic)  # type: ignore[operator]
