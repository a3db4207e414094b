"""A writer at full speed that evicts whoever it catches up with while it reads: nothing torn, nothing silent."""

from __future__ import annotations

import os
import time

import pytest

from ringbuf.channel import OwnedChannel
from tests.rings.channels import control_name, join, ring_name, shape
from tests.rings.children import Children, Flag

WINDOW = 1 << 16
WORDS = 3000
"""Longest record in words: so long that the writer often overwrites one while it is copied."""


def body(number: int) -> bytes:
    """A record in which every eight bytes tell whether they belong to it, and whose length does too."""
    return number.to_bytes(8, "little") * (number * 7919 % WORDS + 1)


def write_and_evict(domain: str, ready: Flag, done: Flag) -> tuple[int, int]:
    """Evicts who is in its way at once or soon; returns how many records it wrote and how many readers it evicted."""
    channel = OwnedChannel(ring_name(domain), control_name(domain), shape(evicts=True, window=WINDOW))
    writer, slots = channel.writer, channel.slots
    ready.raise_it()
    number = evictions = 0
    try:
        while not done.is_up():
            record = body(number)
            patience = number % 20
            while not writer.write(record):
                if patience:
                    patience -= 1
                    os.sched_yield()
                    continue
                needed = writer.position_needed(len(record))
                for index, position in slots.positions().items():
                    if position < needed and slots.evict(index, slots.generation(index)):
                        evictions += 1
            number += 1
            if number % 16 == 0:
                os.sched_yield()
    finally:
        channel.close()
    return number, evictions


def read_evicted(domain: str, evictions: int, seconds: float) -> tuple[int, int]:
    """Reads and checks, and joins again whenever it is evicted.

    Returns:
        How many records it read and how often it was evicted, each at least `evictions` unless the time was over.
    """
    until = time.monotonic() + seconds
    count = times = 0
    # On a busy machine it may be evicted before it read anything.
    while min(count, times) < (evictions if time.monotonic() < until else 1):
        channel = join(domain)
        reader = channel.reader
        last = -1
        while not reader.evicted:
            found = reader.read()
            if found is None:
                os.sched_yield()
                continue
            number = int.from_bytes(found[:8], "little")
            assert found == body(number), f"torn: record {number} after {last} has {len(found)} bytes"
            assert last in (-1, number - 1), f"record {number} after {last}"
            last = number
            count += 1
        assert not reader.broken
        channel.leave()
        times += 1
    return count, times


def evict_often(domain: str, evictions: int, seconds: float) -> None:
    """So many evictions of each of two readers, or as many as a busy machine comes to in that time."""
    with Children() as children, Flag() as ready, Flag() as done:
        writer = children.run(write_and_evict, domain, ready, done)
        children.until(ready)
        readers = [children.run(read_evicted, domain, evictions, seconds) for _ in range(2)]
        results = children.results(readers)
        done.raise_it()
        written, evicted = writer.result()
        print(f"{written} written, {results} read and evicted")
        assert evicted == sum(times for _, times in results)
        assert max(read for read, _ in results) <= written


@pytest.mark.stress
def test_evicted_reader_never_returns_a_torn_record_nor_leaves_one_out(domain: str) -> None:
    evict_often(domain, 1_000, 10)


@pytest.mark.long
def test_nothing_is_torn_in_a_million_evictions(domain: str) -> None:
    evict_often(domain, 500_000, 1200)
