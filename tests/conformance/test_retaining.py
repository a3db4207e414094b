"""What a source retains is what it sent: on every transport, whichever way the message was sent."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

import ipcbus
from ipcbus import MessageType
from ipcbus.topic.message_retention import Retention
from ipcbus.wire.properties import pack
from ipcbus.wire.wire_layout import (
    FLAG_END_BATCH,
    FLAG_FRAGMENT,
    FLAG_PROPERTIES,
    FLAG_REQUEST,
    FLAG_START_BATCH,
    FRAGMENT_HEADER_BYTES,
)
from ringbuf import clock
from tests.kit.bus import LBTIPC, LBTSMX, RECEIVER_PACED
from tests.kit.retaining import Kept, kept

if TYPE_CHECKING:
    from ipcbus import Message, Source
    from tests.kit.bus import Bus

pytestmark = pytest.mark.parametrize("mode", ["sequential"])

SLACK_NS = 2_000_000
"""The clock is compared with the real-time clock once a second, and stamps have a unit."""

EVERYTHING = (0, 2**62, 2**30)
NEVER: dict[str, object] = {"implicit_batching_interval": 3_600_000, "implicit_batching_minimum_length": 2**20}
HEADERS = {"key": b"some value", "other": b""}


def retaining(source: Source, size_limit: int = 24 << 20) -> Retention:
    """A retention that the source puts everything into."""
    retention = Retention(0, 0, size_limit)
    source._retain(retention)
    return retention


def send_in_every_way(source: Source, *, fragments: bool) -> list[bytes]:
    """Sends messages in all ways; returns them, with their header blocks."""
    sent = [b"", b"bytes", bytes(range(256)), b"flushed"]
    for each in sent:
        source.send(each, flush=each == b"flushed")
    sent += [b"array", b"in", b"a", b"batch"]
    source.send(bytearray(b"array"))
    source.send(b"in", start_batch=True)
    source.send(b"a")
    source.send(b"batch", end_batch=True)
    sent += [pack(HEADERS) + b"with headers", pack(HEADERS)]
    source.send(b"with headers", headers=HEADERS)
    source.send(b"", headers=HEADERS)
    sent.append(b"written in place")
    with source.acquire(16) as place:
        place[:] = b"written in place"
    with pytest.raises(LookupError), source.acquire(500) as place:
        place[:5] = b"never"
        raise LookupError
    for width in (1, 24, 1000):
        rows = np.arange(60 * width, dtype=np.uint32).astype(np.uint8).reshape(60, width)
        source.send_many(rows)
        sent += [row.tobytes() for row in rows]
    items = [b"item", b"", b"x" * 333]
    source.send_many(items)
    source.send_many(item for item in items)
    sent += items * 2
    if fragments:
        sent += send_fragments(source)
    source.flush()
    return sent


def send_fragments(source: Source) -> list[bytes]:
    """Sends messages longer than a datagram in all ways."""
    long = bytes(i * 7 & 0xFF for i in range(30_001))
    source.send(long)
    source.send(long, headers=HEADERS, flush=True)
    source.send_many([long])
    source.send_many(np.frombuffer(long[:20_000], np.uint8).reshape(2, 10_000))
    source.send(b"after fragments")
    return [long, pack(HEADERS) + long, long, long[:10_000], long[10_000:20_000], b"after fragments"]


def put_together(entries: list[Kept]) -> list[tuple[int, int, bytes, int, int]]:
    """First and last number, payload, flags and send time of each retained message."""
    found: list[tuple[int, int, bytes, int, int]] = []
    for each in entries:
        if each.begins:
            found.append((each.sequence, each.sequence, b"", each.flags & ~FLAG_FRAGMENT, each.send_ticks))
        first, _, data, flags, ticks = found[-1]
        data += each.payload[FRAGMENT_HEADER_BYTES if each.flags & FLAG_FRAGMENT else 0 :]
        found[-1] = (first, each.sequence, data, flags, ticks)
    return found


def test_it_is_what_was_sent_and_what_receivers_get(bus: Bus) -> None:
    source = bus.source(implicit_batching_minimum_length=4000)
    retention = retaining(source)
    got: list[Message] = []
    bus.receiver("t", lambda message: got.append(message) if message.type is MessageType.DATA else None)
    bus.joined(source)
    sent = send_in_every_way(source, fragments=bus.kind is not LBTSMX)
    bus.until(lambda: len(got) == len(sent), "all messages")
    low, following, entries = retention.read(*EVERYTHING)
    assert (low, following) == (0, source.sequence_number + 1) == (retention.low, retention.next)
    assert [each.sequence for each in kept(entries)] == list(range(following))
    assert {each.topic for each in kept(entries)} == {source._number}
    messages = put_together(kept(entries))
    assert [data for _, _, data, _, _ in messages] == sent
    for (first, last, data, flags, ticks), message in zip(messages, got, strict=True):
        assert (message.first_sequence_number, message.sequence_number) == (first, last)
        assert flags & ~FLAG_PROPERTIES == message.flags & (FLAG_START_BATCH | FLAG_END_BATCH)
        assert bool(flags & FLAG_PROPERTIES) == bool(message.headers)
        assert data == (pack(HEADERS) if message.headers else b"") + message.data
        assert abs(clock.ticks_to_epoch_ns(ticks) - message.send_time_ns) < SLACK_NS


def test_requests_are_retained_as_they_are_sent(bus: Bus) -> None:
    source = bus.source()
    retention = retaining(source)
    questions = [b"", b"short", *([bytes(range(256)) * 100] if bus.kind is not LBTSMX else [])]
    for number, question in enumerate(questions):
        source._send_request(question, number)
        source._send_request(question, number, headers=HEADERS)
    source.send(b"data", flush=True)
    messages = put_together(kept(retention.read(*EVERYTHING)[2]))
    assert [(data, flags) for _, _, data, flags, _ in messages] == [
        (number.to_bytes(8, "little") + block + question, FLAG_REQUEST | (FLAG_PROPERTIES if block else 0))
        for number, question in enumerate(questions)
        for block in (b"", pack(HEADERS))
    ] + [(b"data", 0)]


def test_a_reservation_that_a_close_has_cancelled_is_not_retained(bus: Bus) -> None:
    source = bus.source()
    retention = retaining(source)
    source.send(b"before", flush=True)
    closing = threading.Thread(target=source._batch.finish_reservation, args=(0,))
    with pytest.raises(ipcbus.ClosedError), source.acquire(5) as place:
        place[:] = b"never"
        closing.start()
        closing.join()
    assert (retention.info(), retention.next) == ((0, 1), 1)


def test_send_times_for_another_host_are_since_the_epoch(bus: Bus) -> None:
    source = bus.source()
    retention = retaining(source)
    for _ in range(3):
        source.send(b"x", flush=True)
    here, there = (kept(retention.read(*EVERYTHING, epoch=epoch)[2]) for epoch in (False, True))
    for one, other in zip(here, there, strict=True):
        assert abs(clock.ticks_to_epoch_ns(one.send_ticks) - other.send_ticks) < SLACK_NS


def test_only_what_is_published_is_served(bus: Bus) -> None:
    if not bus.kind.batches:
        pytest.skip("publishes each message at once")
    source = bus.source(**NEVER)
    retention = retaining(source)
    for number in range(3):
        source.send(bytes([number]))
    assert (retention.low, retention.next) == (0, 3)
    assert retention.info() == (0, 0)
    assert retention.read(*EVERYTHING) == (0, 0, b"")
    source.flush()
    assert retention.info() == (0, 3)
    source.send(b"\3")
    low, following, entries = retention.read(1, 7, 2**30)
    assert (low, following, [each.payload for each in kept(entries)]) == (1, 3, [b"\1", b"\2"])


@pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))
def test_what_was_refused_is_not_retained(bus: Bus) -> None:
    source = bus.source(**bus.kind.small())
    retention = retaining(source)
    receiver = bus.receiver()
    bus.joined(source)
    sent = []
    with pytest.raises(ipcbus.WouldBlock):
        for number in range(10_000):
            source.send(number.to_bytes(4, "little") * 50, block=False)
            sent.append(number.to_bytes(4, "little") * 50)
    with pytest.raises(ipcbus.WouldBlock):
        source.send_many([b"y" * 300] * 300, block=False)
    with pytest.raises(ipcbus.IpcBusError):
        source.send(b"z" * 60_000, block=False)
    sent += [b"y" * 300] * (source.sequence_number + 1 - len(sent))
    source.flush()
    assert [each.payload for each in kept(retention.read(*EVERYTHING)[2])] == sent
    receiver.close()


@pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))
def test_a_retention_begins_and_ends_when_the_source_is_told(bus: Bus) -> None:
    source = bus.source()
    source.send(b"x", flush=True)
    retention = retaining(source)
    assert retention.info() == (1, 1)
    source.send(b"y", flush=True)
    assert retention.info() == (1, 2)
    source._retain(None)
    source.send(b"z", flush=True)
    assert (retention.info(), retention.published) == ((1, 2), 3)


@pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))
def test_the_thresholds_are_in_the_ticks_of_the_clock(bus: Bus) -> None:
    source = bus.source()
    day = Retention(0, 86_400_000_000_000, 1 << 20)
    source._retain(day)
    source.send(b"x", flush=True)
    ticks_of_a_day = round(86_400e9 / clock.tick_ns())
    day.expire(clock.ticks() + ticks_of_a_day * 99 // 100)
    assert day.info() == (0, 1)
    day.expire(clock.ticks() + ticks_of_a_day * 101 // 100)
    assert day.info() == (1, 1)
