"""A source-paced writer at full speed against readers that it laps again and again: nothing torn, nothing silent."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import pytest

from ringbuf.channel import OwnedChannel
from tests.rings.channels import control_name, join, ring_name, shape
from tests.rings.children import Children, Flag


@dataclass(frozen=True)
class Load:
    """A ring and its records: the number of each as its checksum, repeated `number % spread + 1` times."""

    window: int
    spread: int
    unit: int

    def body(self, number: int) -> bytes:
        """A record in which every eight bytes tell whether they belong to it, and whose length does too."""
        return number.to_bytes(8, "little") * (self.unit * (number % self.spread + 1))


BURSTS = (1, 2, 32, 3, 100, 4) * 4
"""Records that the writer writes in one go; the smallest ring holds about five."""

SMALL = Load(window=4096, spread=200, unit=1)
LARGE = Load(window=1 << 16, spread=60, unit=64)


def write_until(domain: str, load: Load, ready: Flag, done: Flag) -> int:
    """Writes as fast as it can; returns how many records it wrote."""
    channel = OwnedChannel(ring_name(domain), control_name(domain), shape(source_paced=True, window=load.window))
    write, body = channel.writer.write, load.body
    ready.raise_it()
    number = 0
    try:
        while not done.is_up():
            for burst in BURSTS:
                # Processes on one core have to take turns for one to lap the other, or to be read at all.
                os.sched_yield()
                for each in range(number, number + burst):
                    write(body(each))
                number += burst
    finally:
        channel.close()
    return number


def read_lapped(
    domain: str, load: Load, laps: int, seconds: float, work: int, joined: Flag, done: Flag
) -> tuple[int, int, int, bool]:
    """Reads and checks until it was lapped so often, or as often as it comes to in that time, then to the end.

    Args:
        domain: names the ring.
        load: what is in the records.
        laps: how often, and at least how many records.
        seconds: the time.
        work: what makes the reader slow: turns of an empty loop after each record.
        joined: raised when this reader has joined.
        done: raised when it was lapped often enough.

    Returns:
        Number of the last record, records read, times lapped, whether it knows of a gap after the last one.
    """
    channel = join(domain)
    joined.raise_it()
    until = time.monotonic() + seconds
    reader = channel.reader

    def enough() -> bool:
        return reader.overruns >= (laps if time.monotonic() < until else 1) <= count

    read, spread, unit = reader.read, load.spread, load.unit
    last = first = -1
    missed = count = seen_laps = 0
    told = False
    while True:
        body = read()
        if body is None:
            if not told and enough():
                told = True
                done.raise_it()
            if reader.ended:
                break
            os.sched_yield()
            continue
        mark = body[:8]
        number = int.from_bytes(mark, "little")
        words = unit * (number % spread + 1)
        if len(body) != 8 * words or body != mark * words:
            raise AssertionError(f"torn: record {number} after {last} has {len(body)} bytes, lapped {reader.overruns}")
        if number != last + 1 and last >= 0:
            # A gap has to be known to the reader before it gets what follows.
            if number <= last or reader.overruns <= seen_laps:
                raise AssertionError(f"record {number} after {last}, lapped {reader.overruns}, known {seen_laps}")
            seen_laps = reader.overruns
            missed += number - last - 1
        elif last < 0:
            first = number
        last = number
        count += 1
        for _ in range(work):
            pass
        if not told and not count & 1023 and enough():
            told = True
            done.raise_it()
    assert not reader.broken
    assert first + count + missed == last + 1
    overruns = reader.overruns
    channel.leave()
    return last, count, overruns, overruns > seen_laps


def lap(domain: str, load: Load, laps: int, seconds: float) -> None:
    """So many laps of two readers together, or as many as a busy machine comes to in that time."""
    with Children() as children, Flag() as ready, Flag() as joined, Flag() as done, Flag() as stop:
        writer = children.run(write_until, domain, load, ready, stop)
        children.until(ready)
        readers = [children.run(read_lapped, domain, load, laps // 2, seconds, work, joined, done) for work in (0, 20)]
        for _ in readers:
            children.until(joined)
        for _ in readers:
            children.until(done)
        stop.raise_it()
        written = writer.result()
        for reader in readers:
            last, count, overruns, knows = reader.result()
            print(f"{written} written, {count} read, lapped {overruns} times")
            assert last == written - 1 or (knows and last < written)
            assert min(overruns, count) > 0


@pytest.mark.stress
def test_lapped_reader_never_returns_a_torn_record_and_knows_of_every_gap(domain: str) -> None:
    lap(domain, SMALL, 100_000, 10)


@pytest.mark.stress
def test_lapped_reader_of_long_records_never_returns_a_torn_one(domain: str) -> None:
    lap(domain, LARGE, 25_000, 10)


@pytest.mark.long
def test_nothing_is_torn_in_a_hundred_million_lapped_reads(domain: str) -> None:
    lap(domain, SMALL, 100_000_000, 1500)


@pytest.mark.long
def test_nothing_long_is_torn_in_ten_million_lapped_reads(domain: str) -> None:
    lap(domain, LARGE, 10_000_000, 1200)
