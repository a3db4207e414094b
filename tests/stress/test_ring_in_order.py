"""A receiver-paced ring between processes that sleep: every record once and in order, whoever starts or stops when."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest

from ringbuf import layout, segment
from ringbuf.channel import OwnedChannel
from ringbuf.shared_words import SharedWords
from ringbuf.slots import SlotTable
from tests.rings.channels import WRITER_WAITS, control_name, join, ring_name, shape
from tests.rings.children import Child, Children, Flag
from tests.rings.parking import Sleeper, Waker, bell_name

READERS = 3
WINDOW = 1 << 14
LONGEST = 160
TAIL = layout.RING_HEADER.fields["tail"][1]  # type: ignore[index]


def body(number: int) -> bytes:
    return number.to_bytes(8, "little") * (number % (LONGEST // 8) + 1)


def write(domain: str, count: int, slice_ns: int, ready: Flag, go: Flag, all_joined: Flag) -> int:
    """Publishes at least `count` records, and more until every reader has joined."""
    channel = OwnedChannel(ring_name(domain), control_name(domain), shape(window=WINDOW))
    waker = Waker(channel, domain, slice_ns)
    ready.raise_it()
    go.wait()
    number = 0
    joined = False
    while number < count or not joined:
        joined = joined or all_joined.is_up()
        for _ in range(100):
            waker.publish(body(number))
            number += 1
    waker.close()
    return number


def read(domain: str, context_id: int, joined: Flag) -> tuple[int, int, int]:
    """Reads to the end; numbers of the first and the last record, and how often it slept."""
    sleeper = Sleeper(bell_name(domain, context_id))
    channel = join(domain, context_id)
    joined.raise_it()
    reader = channel.reader
    first, next_number, slept = -1, -1, 0
    while True:
        found = reader.read()
        if found is None:
            reader.show()
            if reader.ended:
                break
            slept += sleeper.sleep(channel)
            continue
        if next_number < 0:
            first = next_number = int.from_bytes(found[:8], "little")
        if found != body(next_number):
            raise AssertionError(f"record {next_number} is {len(found)} bytes {found[:8].hex()}...")
        next_number += 1
    assert reader.overruns == 0
    assert not reader.broken
    channel.leave()
    sleeper.close()
    return first, next_number - 1, slept


def stop_and_go_on(domain: str, writer: Child[int], stopped: Child[tuple[int, int, int]]) -> None:
    """Stops the reader in slot 0 until the writer cannot go on, and lets it go on."""
    with ExitStack() as opened:
        ring_fd = segment.open_fd(ring_name(domain), write=False)
        opened.callback(os.close, ring_fd)
        control_fd = segment.open_fd(control_name(domain), write=True)
        opened.callback(os.close, control_fd)
        tail = SharedWords(segment.map_fd(ring_fd, write=False))
        control = segment.map_fd(control_fd, write=True)
        waits, table = SharedWords(control), SlotTable(control, control_fd)
        stopped.stop()
        # A writer that found the ring full sleeps until a quarter of it is free.
        held = WINDOW - WINDOW // 4 - LONGEST - layout.RECORD_HEADER - layout.RECORD_ALIGN
        while not (waits.load32(WRITER_WAITS) and tail.load64(TAIL) - table.positions()[0] >= held):
            assert not writer.ended()
            os.sched_yield()
        at = tail.load64(TAIL)
        assert table.reclaim() == []
        stopped.go_on()
        while tail.load64(TAIL) == at:
            assert not writer.ended()
            os.sched_yield()


def run(domain: str, count: int, before: int, stops: int) -> None:
    """Lets so many readers join before the first record, the others behind it; stops one now and then."""
    with (
        Children() as children,
        Flag() as ready,
        Flag() as go,
        Flag() as joined,
        Flag() as all_joined,
    ):
        writer = children.run(write, domain, count, 20_000_000 if stops else -1, ready, go, all_joined)
        children.until(ready)
        readers = []
        for number in range(READERS):
            if number == before:
                go.raise_it()
            readers.append(children.run(read, domain, number, joined))
            if number < before:
                children.until(joined)
        if before == READERS:
            go.raise_it()
        for _ in range(READERS - before):
            children.until(joined)
        for _ in range(stops):
            stop_and_go_on(domain, writer, readers[0])
        all_joined.raise_it()
        found = children.results(readers)
        written = writer.result()
        assert written >= count
        for number, (first, last, slept) in enumerate(found):
            print(f"reader {number}: {first} to {last} of {written}, slept {slept} times")
            assert last == written - 1
            assert first == 0 or number >= before


@pytest.mark.stress
@pytest.mark.parametrize("before", range(READERS + 1))
def test_every_reader_gets_every_record_in_every_start_order(domain: str, before: int) -> None:
    run(domain, 50_000, before, 0)


@pytest.mark.stress
def test_writer_waits_for_a_stopped_reader_and_nothing_is_lost(domain: str) -> None:
    run(domain, 50_000, READERS, 50)


@pytest.mark.long
@pytest.mark.parametrize("before", range(READERS + 1))
def test_every_reader_gets_ten_million_records_in_every_start_order(domain: str, before: int) -> None:
    run(domain, 10_000_000, before, 0)


@pytest.mark.long
def test_writer_waits_for_a_reader_that_is_stopped_thousands_of_times(domain: str) -> None:
    run(domain, 10_000_000, READERS, 5000)
