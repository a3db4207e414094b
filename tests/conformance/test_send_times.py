"""Each message has a send time of its own, whatever carries it and however it is received."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ipcbus import stats
from ipcbus.archive import Archive, Recorder
from tests.kit.bus import LBTIPC, LBTIPC_SOURCE_PACED, LBTRM, LBTRU, LBTSMX
from tests.kit.look import ring_header
from tests.kit.recording import messages, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ipcbus import Message, Source
    from tests.kit.bus import Bus
    from tests.kit.forms import Taker

    Headers = tuple[tuple[str, bytes], ...]

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


@batching
def test_of_rows_it_is_that_of_their_call(bus: Bus) -> None:
    got: list[Message] = []
    source = bus.source(**NEVER)
    bus.receiver("t", got.append)
    bus.joined(source)
    between: list[tuple[int, int]] = []
    for call in range(2):  # the first begins a datagram, the second joins it
        while between and time.time_ns() < between[-1][1] + 10_000_000:
            pass
        begun = time.time_ns()
        source.send_many(np.full((3, 24), call, np.uint8))
        between += [(begun, time.time_ns())] * 3
    source.flush()
    bus.until(lambda: len(got) == 7, "six messages")
    check([message.send_time_ns for message in got[1:]], between)
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


def recorded(bus: Bus, path: Path, send: Callable[[Source], None], count: int, **options: object) -> list[int]:
    """The waits in the batch that a recorder keeps of some messages."""
    source = bus.source(**options)
    archive = Archive.create(path)
    recorder = Recorder(bus.context("recording"), archive, ["t"], flush_seconds=0.001)
    recorder.start()
    bus.joined(source)
    send(source)
    bus.until(lambda: recorder.stats.messages == count, "everything to be recorded")
    recorder.stop()
    return [row.batch_wait_ns for row in messages(rows_of(archive))]


@pytest.mark.parametrize("kind", [LBTIPC, LBTIPC_SOURCE_PACED, LBTRM, LBTRU], ids=lambda kind: str(kind.name))
@pytest.mark.parametrize("headers", [None, (("key", b"k"),)], ids=["plain", "headers"])
def test_the_wait_of_each_message_in_its_batch_is_recorded(bus: Bus, tmp_path: Path, headers: Headers | None) -> None:
    limits: list[tuple[int, int]] = []

    def send(source: Source) -> None:
        for _ in range(2):
            between = []
            for _ in range(COUNT):
                begun = time.monotonic_ns()
                source.send(b"waits", headers=headers)
                between.append((begun, time.monotonic_ns()))
                while time.monotonic_ns() < begun + 5_000_000:
                    pass
            published = time.monotonic_ns()
            source.flush()
            ended = time.monotonic_ns()
            limits.extend((published - end, ended - begin) for begin, end in between)
        source.send(b"flushed", headers=headers, flush=True)

    *found, flushed = recorded(bus, tmp_path, send, 2 * COUNT + 1, **NEVER)
    assert flushed == 0
    off = list(zip(found, limits, strict=True))
    # The counter's rate is known to some millionths, and a row counts 16 ns.
    assert all(low - SLACK_NS // 100 <= wait <= high + SLACK_NS // 100 for wait, (low, high) in off), off


@pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))
@pytest.mark.parametrize("short_of_full", [0, 4, 8, 12, 16, 24])
def test_a_message_that_fills_its_datagram_waits_for_nothing_and_a_shorter_one_has_its_wait(
    bus: Bus, tmp_path: Path, short_of_full: int
) -> None:
    """Also in an explicit batch, that others could not join."""

    def send(source: Source) -> None:
        source.send(bytes(source.message_max - short_of_full), start_batch=True)
        begun = time.monotonic_ns()
        while time.monotonic_ns() < begun + 5_000_000:
            pass
        source.send(b"end", end_batch=True, flush=True)

    first, last = recorded(bus, tmp_path, send, 2)
    assert last == 0
    assert first >= 5_000_000 if short_of_full == 24 else first == 0


@pytest.mark.parametrize("kind", [LBTSMX], ids=lambda kind: str(kind.name))
def test_where_nothing_is_batched_the_recorded_wait_is_zero(bus: Bus, tmp_path: Path) -> None:
    assert recorded(bus, tmp_path, lambda source: source.send(b"at once"), 1) == [0]


@pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))
def test_the_wait_of_a_message_in_several_datagrams_is_not_known(bus: Bus, tmp_path: Path) -> None:
    assert recorded(bus, tmp_path, lambda source: source.send(bytes(30_000), flush=True), 1) == [-1]


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
