"""Each message has a send time of its own, whatever carries it and however it is received."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from ipcbus import stats
from tests.kit.bus import LBTIPC, LBTIPC_SOURCE_PACED, LBTRU, LBTSMX
from tests.kit.look import ring_header

if TYPE_CHECKING:
    from ipcbus import Message, Source
    from tests.kit.bus import Bus
    from tests.kit.forms import Taker

pytestmark = pytest.mark.parametrize("mode", ["sequential"])
batching = pytest.mark.parametrize("kind", [LBTIPC, LBTIPC_SOURCE_PACED, LBTRU], ids=lambda kind: str(kind.name))

NEVER: dict[str, object] = {"implicit_batching_interval": 3_600_000, "implicit_batching_minimum_length": 2**20}
SLACK_NS = 2_000_000
"""The clocks are not read at the same moment, and know each other's rate to some millionths."""
COUNT = 8


def spread(source: Source, count: int, size: int = 24) -> list[tuple[int, int]]:
    """Sends some, each 10 ms at least after the one before; returns between which times each was sent."""
    between: list[tuple[int, int]] = []
    for number in range(count):
        while number and time.time_ns() < between[-1][1] + 10_000_000:
            pass
        begun = time.time_ns()
        source.send(bytes([number]) * size)
        between.append((begun, time.time_ns()))
    source.flush()
    return between


def check(found: list[int], between: list[tuple[int, int]]) -> None:
    """Every message was sent when it was sent."""
    off = [sent - begun for sent, (begun, ended) in zip(found, between, strict=True)]
    limits = [(-SLACK_NS, ended - begun + SLACK_NS) for begun, ended in between]
    assert all(low <= each <= high for each, (low, high) in zip(off, limits, strict=True)), off


@batching
def test_of_a_batch_in_every_form(bus: Bus, form: type[Taker]) -> None:
    source = bus.source(**NEVER)
    taker = form(bus)
    bus.joined(source)
    between = spread(source, COUNT)
    taker.data(COUNT)
    if taker.numbers:  # rows have neither numbers nor times
        check(taker.send_times, between)


@batching
@pytest.mark.parametrize("size", range(8))
def test_of_messages_of_every_length(bus: Bus, size: int) -> None:
    got: list[Message] = []
    source = bus.source(**NEVER)
    bus.receiver("t", got.append)
    bus.joined(source)
    between = spread(source, 3, size)
    bus.until(lambda: len(got) == 4, "three messages")
    check([message.send_time_ns for message in got[1:]], between)
    assert [message.data for message in got[1:]] == [bytes([number]) * size for number in range(3)]
    assert {message.flags for message in got[1:]} == {0}


@pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))
def test_of_fragments_it_is_that_of_the_first(bus: Bus) -> None:
    got: list[Message] = []
    source = bus.source(**NEVER)
    bus.receiver("t", got.append)
    bus.joined(source)
    between = spread(source, 3, 30_000)
    bus.until(lambda: len(got) == 4, "three messages")
    check([message.send_time_ns for message in got[1:]], between)


@pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))
def test_the_wait_in_the_batch_is_counted_and_latencies_are_those_of_messages(bus: Bus) -> None:
    source = bus.source(**NEVER)
    receiver = bus.receiver("t", lambda _: None, bus.context("reader", latency_sampling_interval=1))
    bus.joined(source)
    between = [spread(source, COUNT) for _ in range(3)]
    bus.until(lambda: receiver.delivered == 3 * COUNT, "all messages")
    (session,) = (each for context in stats.take_snapshot(bus.domain).contexts for each in context.sessions)
    waits = [batch[-1][1] - sent for batch in between for _, sent in batch]
    assert session.batch_wait_ns is not None
    assert abs(session.batch_wait_ns - sum(waits) / len(waits)) < 2 * SLACK_NS
    assert abs(session.counters["batch_wait_max"] - max(waits)) < 2 * SLACK_NS
    (slot,) = session.receivers
    assert slot.latency.count == 3 * COUNT
    first = between[0][0][0]
    assert slot.counters["latency_max"] <= time.time_ns() - first + SLACK_NS


@pytest.mark.parametrize("kind", [LBTSMX], ids=lambda kind: str(kind.name))
def test_where_nothing_is_batched_nothing_waits_and_messages_bear_no_stamp(bus: Bus) -> None:
    source = bus.source()
    bus.receiver("t", lambda _: None)
    bus.joined(source)
    source.send(bytes(64))
    assert int(ring_header(source)["bytes_sent"]) == 96
    source.send_many([bytes(64)] * 3)
    assert int(ring_header(source)["bytes_sent"]) == 96 + 16 + 3 * 80
    assert int(ring_header(source)["batch_wait_max"]) == 0
