from __future__ import annotations

import gc
import struct
import sysconfig

import psutil
import pytest

from ipcbus.topic.message_retention import Retention
from tests.kit.cases import each_of
from tests.kit.retaining import fragments, kept, message

MIB = 1 << 20
ENTRY = 24
"""Bytes of an entry without payload."""


def filled(retention: Retention, count: int, size: int = 40, *, begin: int = 0) -> Retention:
    """A retention with messages, each sent one tick after the one before."""
    for number in range(begin, begin + count):
        retention.put(1000 + number, message(number, number.to_bytes(4, "little") * (size // 4)))
    return retention


def numbers(retention: Retention) -> list[int]:
    """What it holds."""
    return [each.sequence for each in kept(retention.read(0, 2**62, 2**62)[2])]


def test_an_empty_one_has_nothing() -> None:
    empty = Retention(0, 0, MIB)
    assert (empty.low, empty.next, empty.retained_bytes, empty.memory) == (0, 0, 0, 0)
    assert empty.info() == (0, 0)
    assert empty.read(0, 5, 100) == (0, 0, b"")
    empty.expire(5)
    empty.clear()


def test_without_thresholds_it_retains_what_fits_and_the_oldest_leaves() -> None:
    retention = filled(Retention(0, 0, 10 * (ENTRY + 40)), 25)
    assert numbers(retention) == list(range(15, 25))
    retention.expire(10**15)
    assert (retention.low, retention.next) == (15, 25)


def test_with_a_size_threshold_that_much_stays() -> None:
    retention = filled(Retention(3 * (ENTRY + 40), 0, MIB), 25)
    assert numbers(retention) == [22, 23, 24]
    assert numbers(filled(Retention(3 * (ENTRY + 40) + 1, 0, MIB), 25)) == [21, 22, 23, 24]
    assert numbers(filled(Retention(1, 0, MIB), 25)) == [24]


def test_with_an_age_threshold_what_is_not_older_stays() -> None:
    retention = filled(Retention(0, 5, MIB), 25)
    assert numbers(retention) == [19, 20, 21, 22, 23, 24]
    retention.expire(1024 + 3)
    assert numbers(retention) == [22, 23, 24]
    retention.expire(10**15)
    assert (retention.low, retention.next, retention.retained_bytes) == (25, 25, 0)


def test_with_both_a_message_stays_that_one_of_them_holds() -> None:
    size = ENTRY + 40
    assert numbers(filled(Retention(3 * size, 5, MIB), 25)) == [19, 20, 21, 22, 23, 24]
    retention = filled(Retention(10 * size, 5, MIB), 25)
    assert numbers(retention) == list(range(15, 25))
    retention.expire(10**15)
    assert numbers(retention) == list(range(15, 25))


def test_the_limit_counts_whatever_the_thresholds_say() -> None:
    assert numbers(filled(Retention(MIB, 10**15, 4 * (ENTRY + 40)), 25)) == [21, 22, 23, 24]


def test_a_time_before_that_of_the_message_is_not_an_age() -> None:
    retention = filled(Retention(0, 5, MIB), 3)
    retention.expire(1)
    assert numbers(retention) == [0, 1, 2]


def test_fragments_of_a_message_leave_together() -> None:
    retention = Retention(0, 0, 60_000)
    for part in fragments(0, bytes(30_000), 1000):
        retention.put(1, part)
    for part in fragments(30, bytes(20_000), 1000):
        retention.put(1, part)
    assert (retention.low, retention.next) == (0, 50)
    retention.put(1, message(50, bytes(20_000)))
    assert (retention.low, retention.next) == (30, 51)


def test_a_message_in_fragments_that_does_not_fit_is_not_retained_nor_what_was_before_it() -> None:
    retention = filled(Retention(0, 0, 20_000), 5)
    for part in fragments(5, bytes(30_000), 1000):
        retention.put(1, part)
    assert (retention.low, retention.next, retention.retained_bytes) == (35, 35, 0)
    assert numbers(filled(retention, 2, begin=35)) == [35, 36]


def test_a_message_longer_than_the_limit_is_not_retained_nor_what_was_before_it() -> None:
    retention = filled(Retention(0, 0, 20_000), 5)
    retention.put(1, message(5, bytes(20_000)))
    assert (retention.low, retention.next, retention.retained_bytes) == (6, 6, 0)
    assert numbers(filled(retention, 2, begin=6)) == [6, 7]


def test_with_a_size_threshold_a_message_in_fragments_counts_as_one() -> None:
    retention = Retention(4000, 0, MIB)
    for part in fragments(0, bytes(10_000), 1000):
        retention.put(1, part)
    filled(retention, 62, begin=10)
    assert retention.low == 0
    filled(retention, 1, begin=72)
    assert retention.low == 10


def test_only_what_is_published_is_told_and_given() -> None:
    retention = filled(Retention(0, 0, MIB), 10)
    assert retention.info() == (0, 10)
    retention.published = 4
    assert retention.info() == (0, 4)
    assert retention.read(2, 9, MIB)[:2] == (2, 4)
    assert retention.read(4, 9, MIB) == (4, 4, b"")
    few = filled(Retention(1, 0, MIB), 10)
    few.published = 4
    assert few.info() == (4, 4)


def test_a_read_is_bounded_but_gives_one_message() -> None:
    retention = filled(Retention(0, 0, MIB), 10)
    assert retention.read(0, 9, 3 * (ENTRY + 40))[:2] == (0, 3)
    assert retention.read(3, 9, 4 * (ENTRY + 40) - 1)[:2] == (3, 6)
    assert retention.read(3, 9, 0)[:2] == (3, 4)


def test_reads_cross_blocks() -> None:
    retention = filled(Retention(0, 0, 4 * MIB), 30_000)
    assert retention.memory > 10 * (4 * MIB // 32)
    low, following, entries = retention.read(100, 29_900, 4 * MIB)
    assert (low, following) == (100, 29_901)
    assert [each.sequence for each in kept(entries)] == list(range(100, 29_901))
    at, parts = 0, 0
    while at < 30_000:
        low, at, entries = retention.read(at, 2**62, 5000)
        assert len(entries) == (at - low) * (ENTRY + 40) <= 5000
        parts += 1
    assert parts == -(-30_000 // (5000 // (ENTRY + 40)))


def test_memory_is_taken_in_steps_and_bounded() -> None:
    retention = Retention(0, 0, 24 * MIB)
    filled(retention, 10)
    assert retention.memory < MIB
    filled(retention, 500_000, begin=10)
    assert retention.retained_bytes > 24 * MIB - 100
    assert retention.memory < 1.2 * 24 * MIB
    retention.clear()
    assert (retention.low, retention.next, retention.retained_bytes) == (500_010, 500_010, 0)
    assert retention.memory < MIB


def test_long_messages_have_blocks_of_their_own_size() -> None:
    retention = Retention(0, 0, MIB)
    for number in range(50):
        retention.put(1, message(number, bytes([number]) * 100_000))
    assert numbers(retention) == list(range(40, 50))
    assert retention.memory < 1.2 * MIB
    assert retention.read(0, 2**62, 0)[:2] == (40, 41)
    assert retention.read(0, 2**62, 250_000)[:2] == (40, 42)


def test_a_hole_ends_what_was_before_it() -> None:
    retention = filled(Retention(0, 0, MIB), 5)
    assert numbers(filled(retention, 3, begin=9)) == [9, 10, 11]


@each_of(
    "raw",
    [
        b"",
        message(0, b"abc")[:-1],
        message(0, b"abc") + b"\0",
        struct.pack("<IIQ", 2**32 - 1, 1, 0),
        message(0, b"short", 0x4),
    ],
)
def test_what_is_not_a_message_is_refused(raw: bytes) -> None:
    retention = Retention(0, 0, MIB)
    with pytest.raises(ValueError, match="bytes"):
        retention.put(1, raw)
    assert retention.next == 0


def test_an_age_below_0_is_refused() -> None:
    with pytest.raises(ValueError, match="age_threshold_ns = -1"):
        Retention(0, -1, MIB)


def test_its_memory_goes_with_it() -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    for _ in range(300):
        retention = Retention(0, 0, MIB)
        for number in range(12):
            retention.put(1, message(number, bytes([number]) * 100_000))
    assert process.memory_info().rss - before < 100 * MIB


def test_sends_while_the_garbage_collector_runs_harm_no_read() -> None:
    retention = filled(Retention(0, 0, 40_000), 600)

    def send(phase: str, info: dict[str, int]) -> None:
        filled(retention, 500, begin=retention.next)

    # The interpreter keeps freed tuples for later ones, which the collector does not count: use all of those up.
    drained = [(number, number, number) for number in range(3000)]
    thresholds = gc.get_threshold()
    gc.callbacks.append(send)
    reads = []
    try:
        for _ in range(50):
            gc.set_threshold(1)
            reads.append(retention.read(0, 2**62, 2**62))
            gc.set_threshold(*thresholds)
    finally:
        gc.callbacks.remove(send)
        gc.set_threshold(*thresholds)
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):  # there the collector does not run so often
        assert retention.next > 1000, f"the collector did not run, although {len(drained)} tuples are held"
    for low, following, entries in reads:
        assert [each.sequence for each in kept(entries)] == list(range(low, following))


def test_the_last_messages_are_counted_whole() -> None:
    retention = filled(Retention(0, 0, MIB), 5)
    for part in fragments(5, bytes(3000), 1000):
        retention.put(1, part)
    filled(retention, 2, begin=8)
    assert [retention.info(count)[0] for count in (0, 1, 2, 3, 4, 8, 9)] == [10, 9, 8, 5, 4, 0, 0]
    assert [retention.info(2, before)[0] for before in (10, 9, 6, 5, 1, 0, 99)] == [8, 5, 4, 3, 0, 0, 8]
    assert retention.info(0, 4) == (4, 10)
    retention.published = 6
    assert [retention.info(count) for count in (0, 1, 2)] == [(6, 6), (5, 6), (4, 6)]
    assert filled(Retention(0, 0, 40 * (ENTRY + 40)), 3000).info(7) == (2993, 3000)
    some = filled(Retention(0, 0, 40 * (ENTRY + 40)), 3000)
    assert some.info(7, 10) == (some.low, 3000)


def test_messages_from_a_number_on_are_counted_whole() -> None:
    retention = filled(Retention(0, 0, MIB), 5)
    for part in fragments(5, bytes(3000), 1000):
        retention.put(1, part)
    retention.published = 2  # it does not matter
    filled(retention, 2, begin=8)
    assert [retention.count_from(first) for first in (0, 4, 5, 6, 8, 9, 10, 99)] == [8, 4, 3, 2, 2, 1, 0, 0]
    some = filled(Retention(0, 0, 40 * (ENTRY + 40)), 3000)
    assert some.count_from(0) == 3000 - some.low
