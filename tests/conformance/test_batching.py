"""When messages are published: batches by length, age, flush and the datagram maximum; LBT-SMX at once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from ipcbus import stats
from tests.kit.bus import LBTIPC, LBTIPC_SOURCE_PACED, LBTRU, LBTSMX, LBTTCP, on_rings
from tests.kit.forms import CallbackTaker
from tests.kit.look import datagrams, published
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.bus import Bus

HEADER = 16
NEVER_MS = 1_000_000
batching = pytest.mark.parametrize(
    "kind", [LBTIPC, LBTIPC_SOURCE_PACED, LBTRU, LBTTCP], ids=lambda kind: str(kind.name)
)


@batching
def test_a_short_message_waits_for_others(bus: Bus) -> None:
    source = bus.source(implicit_batching_interval=NEVER_MS, implicit_batching_minimum_length=1000)
    taker = CallbackTaker(bus)
    bus.joined(source)
    message = bytes(100 - HEADER)  # with its header and padding 104 bytes
    for _ in range(9):
        source.send(message)
    assert published(source) == 0
    source.send(message)  # 1040 bytes
    assert published(source) == 1
    assert len(taker.data(10)) == 10
    assert datagrams(taker.receiver) == 1


@batching
def test_minimum_length_one_publishes_each_message(bus: Bus) -> None:
    source = bus.source(implicit_batching_interval=NEVER_MS, implicit_batching_minimum_length=1)
    for number in range(1, 6):
        source.send(b"")
        assert published(source) == number


@pytest.mark.parametrize("kind", [LBTIPC, LBTRU, LBTTCP], ids=lambda kind: str(kind.name))
@pytest.mark.parametrize("mode", ["embedded"])
@pytest.mark.parametrize("length", [3000, 20_000])
def test_a_message_of_the_minimum_length_does_not_wait_for_others(bus: Bus, length: int) -> None:
    source = bus.source(implicit_batching_interval=NEVER_MS, transport_topic_sequence_number_info_interval=0)
    taker = CallbackTaker(bus)
    bus.joined(source)
    sent = 0
    # Also where the datagrams of a burst are filled, and those of a fast one go to the system together.
    for count in (1, 2, 3, 5, 9, 40, 200, 2000):
        for _ in range(count):
            source.send(bytes(length))
        sent += count
        assert len(taker.data(sent)) == sent


@batching
def test_a_batch_is_published_when_it_is_old(bus: Bus) -> None:
    source = bus.source(implicit_batching_interval=3, implicit_batching_minimum_length=2**20)
    taker = CallbackTaker(bus)
    bus.joined(source)
    for number in range(5):
        source.send(body(number))
        assert taker.data(number + 1)[-1] == body(number)


@batching
def test_no_datagram_exceeds_its_maximum(bus: Bus) -> None:
    source = bus.source(implicit_batching_interval=NEVER_MS, implicit_batching_minimum_length=2**20)
    taker = CallbackTaker(bus)
    bus.joined(source)
    # Eight of them are 8192 bytes with their headers, and the stamps of all but the first.
    message = bytes(1004)
    for number in range(24):
        source.send(message)
        assert published(source) == number // 8
    source.flush()
    assert len(taker.data(24)) == 24
    bus.until(lambda: datagrams(taker.receiver) >= 3, "the count of datagrams, which is shown after the callback")
    assert datagrams(taker.receiver) == 3


@batching
def test_flush_publishes_what_all_sources_of_the_session_batched(bus: Bus) -> None:
    context = bus.context("sending")
    one, other = (bus.source(topic, context, implicit_batching_interval=NEVER_MS, **bus.kind.id(100)) for topic in "ab")
    first, second = CallbackTaker(bus, "a"), CallbackTaker(bus, "b")
    bus.joined(one)
    bus.joined(other)
    one.send(b"of a")
    other.send(b"of b")
    assert published(one) == 0
    other.flush()
    assert published(one) == 1
    assert first.data(1) == [b"of a"]
    assert second.data(1) == [b"of b"]


@batching
def test_a_send_with_flush_takes_the_batch_along(bus: Bus) -> None:
    source = bus.source(implicit_batching_interval=NEVER_MS)
    taker = CallbackTaker(bus)
    bus.joined(source)
    source.send(b"one")
    source.send(b"two", flush=True)
    assert taker.data(2) == [b"one", b"two"]
    assert datagrams(taker.receiver) == 1


@batching
def test_an_explicit_batch_waits_for_its_end_whatever_its_size_and_age(bus: Bus) -> None:
    context = bus.context("sending")
    options = {
        "implicit_batching_interval": 3,
        "implicit_batching_minimum_length": 500,
        "explicit_batching_interval": 0,
    }
    source = bus.source("held", context, **options)
    clock = bus.source("clock", context, **options)  # another session: tells when the interval is over
    taker, ticks = CallbackTaker(bus, "held"), CallbackTaker(bus, "clock")
    bus.joined(source)
    bus.joined(clock)
    source.send(body(0, 600), start_batch=True)
    source.send(body(1, 600))
    clock.send(b"over")
    assert ticks.data(1) == [b"over"]
    assert published(source) == 0
    source.send(body(2, 600), end_batch=True)
    assert taker.data(3) == [body(number, 600) for number in range(3)]
    assert datagrams(taker.receiver) == 1


@batching
def test_an_explicit_batch_without_an_end_is_published_after_its_interval(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    context = bus.context("sending")
    options = {"explicit_batching_interval": 5, **bus.kind.id(100)}
    one, other = (bus.source(topic, context, **options) for topic in "ab")
    first, second = CallbackTaker(bus, "a"), CallbackTaker(bus, "b")
    bus.joined(one)
    bus.joined(other)
    with caplog.at_level(logging.WARNING, "ipcbus"):
        for number in range(1, 4):
            one.send(body(number), start_batch=True)
            other.send(body(number))
            bus.until(lambda number=number: (first.count(), second.count()) == (number, number), "both")  # type: ignore[misc]

    # The batch is counted after it is published: the receivers may be quicker.
    def timed_out() -> int:
        (session,) = stats.take_snapshot(bus.domain).sessions
        return session.counters["batches_timed_out"]

    # If 5 ms pass between the two sends of a batch, both are published by the timer, and both publications count.
    bus.until(lambda: 3 <= timed_out() <= 6, "counted")
    (record,) = [record for record in caplog.records if "explicit_batching_interval" in record.getMessage()]
    assert one.source in record.getMessage()


@batching
def test_a_source_that_closes_inside_its_explicit_batch_holds_up_nobody(bus: Bus) -> None:
    context = bus.context("sending")
    one, other = (bus.source(topic, context, **bus.kind.id(100)) for topic in "ab")
    taker = CallbackTaker(bus, "b")
    bus.joined(other)
    one.send(b"", start_batch=True)
    one.close()
    before = published(other)
    other.send(bytes(4000))
    assert published(other) == before + 1
    assert taker.data(1) == [bytes(4000)]


@batching
def test_an_explicit_batch_whose_start_cannot_be_sent_holds_nothing(bus: Bus) -> None:
    source = bus.source(implicit_batching_minimum_length=1)
    with pytest.raises(BufferError):
        source.send(memoryview(bytes(8))[::2], start_batch=True)
    source.send(b"at once")
    assert published(source) == 1


@on_rings
def test_the_receiver_sees_the_flags_of_explicit_batches(bus: Bus) -> None:
    source = bus.source()
    taker = CallbackTaker(bus)
    bus.joined(source)
    source.send(b"a", start_batch=True)
    source.send(b"b")
    source.send(b"c", end_batch=True)
    source.send(b"d", start_batch=True, end_batch=True)
    source.send(b"e", flush=True)
    assert taker.data(5) == [b"a", b"b", b"c", b"d", b"e"]
    assert [got.flags for got in taker.got[1:]] == [0x1, 0, 0x2, 0x3, 0]


@pytest.mark.parametrize("kind", [LBTSMX], ids=lambda kind: str(kind.name))
def test_lbtsmx_publishes_each_message_at_once(bus: Bus) -> None:
    source = bus.source()
    taker = CallbackTaker(bus)
    bus.joined(source)
    for number in range(10):
        source.send(body(number), start_batch=number == 3)
        assert published(source) == number + 1
    source.flush()
    assert published(source) == 10
    assert taker.data(10) == [body(number) for number in range(10)]


@pytest.mark.parametrize("kind", [LBTSMX], ids=lambda kind: str(kind.name))
def test_lbtsmx_publishes_for_one_source_while_another_sends_many(bus: Bus) -> None:
    context = bus.context("sending")
    one, other = (bus.source(topic, context, **bus.kind.id(100)) for topic in "ab")
    taker = CallbackTaker(bus, "b")
    bus.joined(other)
    seen: list[bytes] = []

    def slowly() -> Iterator[bytes]:
        yield b"first"
        other.send(b"at once")
        seen.extend(taker.data(1))
        yield b"second"

    assert one.send_many(slowly()) == 2
    assert seen == [b"at once"]
