"""Snapshots of live contexts."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from ipcbus import stats
from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTSMX, Bus, Kind
from tests.kit.look import ring_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.stats import SessionStats, SlotStats


@pytest.fixture(params=[LBTIPC, LBTSMX], ids=lambda kind: kind.name)
def bus(request: pytest.FixtureRequest, domain: str) -> Iterator[Bus]:
    kind: Kind = request.param
    found = Bus(domain, kind, "sequential")
    yield found
    found.close()


def slots(domain: str) -> list[SlotStats]:
    return [slot for session in stats.take_snapshot(domain).sessions for slot in session.receivers]


def test_sent_is_received(bus: Bus) -> None:
    receiver = bus.receiver("t", lambda message: None, bus.context("reader", latency_sampling_interval=1))
    source = bus.source("t", bus.context("writer"))
    bus.joined(source)
    for number in range(100):
        source.send(b"%04d" % number)
    source.flush()
    bus.until(lambda: receiver.delivered == 100, "100 messages")
    found = stats.take_snapshot(bus.domain)
    reader, writer = found.contexts
    assert [context.name for context in found.contexts] == ["reader", "writer"]
    (session,) = writer.sessions
    assert (session.source, session.transport, session.pid) == (source.source, bus.kind.title, os.getpid())
    assert session.counters["lbm_msgs_sent"] == 100
    assert session.counters["num_clients"] == 1
    (topic,) = session.sources
    assert (topic.topic, topic.receivers) == ("t", 1)
    assert (topic.counters["lbm_msgs_sent"], topic.counters["bytes_sent"]) == (100, 400)
    (slot,) = session.receivers
    assert (slot.context_id, slot.context_name, slot.topics) == (reader.context_id, "reader", ("t",))
    assert (slot.state, slot.alive, slot.lag, slot.position) == ("active", True, 0, session.tail)
    assert slot.counters["lbm_msgs_rcved"] == 100
    assert slot.counters["msgs_rcved"] == session.counters["msgs_sent"]
    assert slot.counters["bytes_rcved"] == session.counters["bytes_sent"]
    assert slot.latency.count == slot.counters["lbm_msgs_rcved"]
    (received,) = reader.receivers
    assert received.counters["lbm_msgs_rcved"] == 100
    assert received.counters["bytes_rcved"] == 400
    assert received.counters["events"] == 1  # BOS


def test_lag_of_a_reader_that_waits(bus: Bus) -> None:
    reader = bus.context("reader")
    bus.receiver("t", None, reader)
    source = bus.source()
    bus.joined(source)
    source.send(b"x" * 100, flush=True)
    (session,) = stats.take_snapshot(bus.domain).sessions
    (slot,) = session.receivers
    assert slot.lag == session.tail > 100
    assert slot.latency.count == 0


def test_a_send_that_was_refused_names_who_is_in_its_way(bus: Bus) -> None:
    reader = bus.context("reader")
    bus.receiver("t", None, reader)
    source = bus.source(**bus.kind.small())
    bus.joined(source)
    with pytest.raises(ipcbus.WouldBlock):
        while True:
            source.send(b"x" * 1000, block=False)
    (session,) = stats.take_snapshot(bus.domain).sessions
    assert (session.wait, session.blocked_for_ns) == ("refused", 0)
    assert session.fill is not None
    assert session.fill > 0.5
    assert session.held_up_by == session.receivers[0]


def test_a_send_that_waits_says_since_when(bus: Bus) -> None:
    reader = bus.context("reader", mode="sequential")
    receiver = bus.receiver("t", None, reader)
    source = bus.source("t", bus.context("writer", mode="embedded"), **bus.kind.small())
    bus.joined(source)

    def send() -> None:
        for _ in range(200):
            source.send(b"x" * 1000)
        source.flush()

    def session() -> SessionStats:
        (found,) = stats.take_snapshot(bus.domain).sessions
        return found

    thread = threading.Thread(target=send)
    thread.start()
    while session().wait != "blocked":
        os.sched_yield()
    blocked = session()
    assert blocked.blocked_for_ns > 0
    assert session().blocked_for_ns > blocked.blocked_for_ns
    assert blocked.counters["blocked_ns"] == 0  # counted when it ends
    assert blocked.held_up_by == blocked.receivers[0]
    bus.until(lambda: receiver.receive_many(100, 0) is not None and not thread.is_alive(), "the end of the sending")
    thread.join()
    done = session()
    assert (done.wait, done.blocked_for_ns) == ("", 0)
    assert done.counters["blocked_ns"] > blocked.blocked_for_ns
    assert done.counters["send_blocked"] >= 1


def test_two_threads_that_wait_are_shown_until_both_go_on(bus: Bus) -> None:
    receiver = bus.receiver("a", None, bus.context("reader", mode="sequential"))
    writer = bus.context("writer", mode="embedded")
    options = {**bus.kind.small(), **bus.kind.id(1)}
    one, other = bus.source("a", writer, **options), bus.source("b", writer, **options)
    assert one.source == other.source
    bus.joined(one)

    def send(source: ipcbus.Source) -> None:
        with contextlib.suppress(ipcbus.ClosedError):
            for _ in range(200):
                source.send(b"x" * 1000)

    threads = [threading.Thread(target=send, args=(source,)) for source in (one, other)]
    for thread in threads:
        thread.start()
    session = one._session
    while len(session._waiting_sends) < 2:
        os.sched_yield()
    since = min(session._waiting_sends.values())
    assert int(ring_header(one)["blocked_since"]) == since
    other.close()
    threads[1].join()
    (found,) = stats.take_snapshot(bus.domain).sessions
    assert found.wait == "blocked"
    bus.until(lambda: receiver.receive_many(100, 0) is not None and not threads[0].is_alive(), "the end of the sending")
    (found,) = stats.take_snapshot(bus.domain).sessions
    assert (found.wait, found.blocked_for_ns) == ("", 0)


@pytest.mark.parametrize("pause_s", [0.004])
def test_a_slow_callback_is_seen_to_move(domain: str, pause_s: float) -> None:
    seen: list[int] = []
    done = threading.Event()

    def slowly(message: ipcbus.Message) -> None:
        if message.type is ipcbus.MessageType.DATA:
            until = time.perf_counter() + pause_s
            while time.perf_counter() < until:
                pass
            if len(seen) % 10 == 0:
                (slot,) = slots(domain)
                seen.append(slot.counters["lbm_msgs_rcved"])
            else:
                seen.append(seen[-1])
            if len(seen) == 150:
                done.set()

    with ipcbus.Context(domain=domain) as reader, ipcbus.Context(domain=domain) as writer:
        reader.receiver("t", slowly)
        source = writer.source("t")
        source.wait_for_receivers(1, GIVE_UP_S)
        for _ in range(150):
            source.send(b"x" * 64)
        source.flush()
        assert done.wait(GIVE_UP_S)
    # The first pass may take many messages; from then on the counters are a few behind.
    assert all(number - count <= 20 for number, count in enumerate(seen) if number % 10 == 0), seen


def test_takes_no_slot_and_changes_nothing(bus: Bus) -> None:
    bus.receiver()
    source = bus.source()
    bus.joined(source)
    before = stats.take_snapshot(bus.domain)
    assert [stats.take_snapshot(bus.domain).contexts for _ in range(20)] == [before.contexts] * 20
    assert source.receivers == 1


def test_many_topics(bus: Bus) -> None:
    sending, reading = bus.context("sending"), bus.context("reading")
    names = [f"t{number}" for number in range(12)]
    session_id: dict[str, Any] = bus.kind.id(100)
    sources = [bus.source(name, sending, **session_id) for name in names]
    for name in names[::2]:
        bus.receiver(name, lambda message: None, reading)
    for source in sources[::2]:
        bus.joined(source)
    for number, source in enumerate(sources):
        for _ in range(number):
            source.send(b"-")
    sources[0].flush()
    bus.until(lambda: all(slot.lag == 0 for slot in slots(bus.domain)), "all read")
    (session,) = stats.take_snapshot(bus.domain).sessions
    assert {each.topic: each.counters["lbm_msgs_sent"] for each in session.sources} == {
        name: number for number, name in enumerate(names)
    }
    assert {each.topic: each.receivers for each in session.sources} == {
        name: int(number % 2 == 0) for number, name in enumerate(names)
    }
    (slot,) = session.receivers
    assert set(slot.topics) == set(names[::2])
    assert slot.counters["lbm_msgs_rcved"] == sum(range(0, 12, 2))
    assert slot.counters["lbm_msgs_no_topic_rcved"] == sum(range(1, 12, 2))


def test_after_the_end_nothing_is_left(bus: Bus) -> None:
    bus.receiver()
    bus.joined(bus.source())
    bus.close()
    assert stats.take_snapshot(bus.domain).contexts == ()
    assert bus.domain not in stats.domains()


def test_loss_of_a_source_paced_session_is_counted(domain: str) -> None:
    bus = Bus(domain, LBTIPC, "sequential")
    try:
        receiver = bus.receiver("t", lambda message: None)
        options: dict[str, Any] = LBTIPC.small()
        source = bus.source("t", transport_lbtipc_behavior="source_paced", **options)
        bus.joined(source)
        for _ in range(5000):
            source.send(b"x" * 64)
        source.flush()
        bus.until(lambda: receiver.delivered + receiver.lost == 5000, "5000 messages, received or lost")
        source.send(b"last", flush=True)  # with it the reader shows how far it is
        bus.until(lambda: receiver.delivered + receiver.lost == 5001, "the last message")
        (session,) = stats.take_snapshot(domain).sessions
        (slot,) = session.receivers
        assert session.pacing == "source_paced"
        assert slot.counters["lost"] > 0
        assert slot.counters["overruns"] > 0
        assert slot.counters["lost"] + slot.counters["lbm_msgs_rcved"] == session.counters["lbm_msgs_sent"] == 5001
    finally:
        bus.close()


def test_other_domains_are_not_seen(domain: str) -> None:
    other = domain[:-1] + "-"
    with ipcbus.Context(domain=domain), ipcbus.Context(domain=other):
        assert [len(stats.take_snapshot(each).contexts) for each in (domain, other)] == [1, 1]
        assert {domain, other} <= set(stats.domains())
