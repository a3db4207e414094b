"""One suite over every pacing: what a writer and its readers promise when nobody is in a hurry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ringbuf import clock, layout
from ringbuf.slots import SlotTable
from tests.rings.channels import PACINGS, WINDOW, control_of, header_of, joined, owned, read_all, slots_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringbuf.channel import OwnedChannel

LONGEST = WINDOW // 2 - layout.RECORD_HEADER
SIZES = [0, 1, 7, 8, 9, 100, LONGEST - 1, LONGEST]


@pytest.fixture(params=PACINGS)
def channel(request: pytest.FixtureRequest, domain: str) -> Iterator[OwnedChannel]:
    """The writing side of the smallest ring."""
    with owned(domain, **PACINGS[request.param]) as made:
        yield made


def numbers(record: np.ndarray[Any, Any], *names: str) -> list[int]:
    """Some fields of a structured array's element."""
    return [int(record[name]) for name in names]


def body(number: int, size: int) -> bytes:
    return bytes((number + at) & 0xFF for at in range(size))


@pytest.mark.parametrize("size", SIZES)
def test_record_arrives_as_it_was_written_at_every_place(channel: OwnedChannel, domain: str, size: int) -> None:
    with joined(domain) as reader:
        for number in range(40):
            assert channel.writer.write(body(number, size))
            assert channel.writer.write(body(number, number % 32))
            assert read_all(reader) == [body(number, size), body(number, number % 32)]
        assert channel.writer.head == reader.reader.position == reader.reader.tail
        assert reader.reader.overruns == 0


def test_every_reader_gets_every_record(channel: OwnedChannel, domain: str) -> None:
    with joined(domain, 1) as first, joined(domain, 2) as second:
        sent = [body(number, number) for number in range(50)]
        for each in sent:
            assert channel.writer.write(each)
        assert read_all(first) == read_all(second) == sent


def test_reader_begins_at_the_end(channel: OwnedChannel, domain: str) -> None:
    channel.writer.write(b"before")
    with joined(domain) as reader:
        assert reader.joined_at == channel.writer.head
        assert not reader.reader.ready()
        assert reader.reader.read() is None
        channel.writer.write(b"after")
        assert reader.reader.ready()
        assert read_all(reader) == [b"after"]


def test_too_long_a_record_is_refused_with_the_maximum(channel: OwnedChannel) -> None:
    for use in (lambda: channel.writer.write(bytes(LONGEST + 1)), lambda: channel.writer.claim(LONGEST + 1)):
        with pytest.raises(ValueError, match=f"{LONGEST + 1} bytes exceeds the ring's maximum of {LONGEST}"):
            use()
    with pytest.raises(ValueError, match="exceeds"):
        channel.writer.claim(-1)
    assert channel.writer.open_bytes == 0


def test_claimed_record_is_invisible_until_it_is_committed(channel: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        place = channel.writer.claim(5)
        assert place is not None
        place[:] = b"hello"
        assert channel.writer.open_bytes == layout.RECORD_HEADER + 5
        assert not reader.reader.ready()
        assert reader.reader.read() is None
        assert channel.writer.commit() == 0
        assert channel.writer.open_bytes == 0
        assert read_all(reader) == [b"hello"]


def test_cancelled_record_was_never_there(channel: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        for size in SIZES:
            head = channel.writer.head
            place = channel.writer.claim(size)
            assert place is not None
            place[:] = b"\xff" * size
            channel.writer.cancel()
            assert channel.writer.head == head
            assert reader.reader.read() is None
            channel.writer.write(b"kept")
            assert read_all(reader) == [b"kept"]


def test_only_one_record_can_be_open(channel: OwnedChannel) -> None:
    with pytest.raises(ValueError, match="no record is open"):
        channel.writer.commit()
    channel.writer.claim(8)
    for use in (lambda: channel.writer.claim(8), lambda: channel.writer.write(b"x")):
        with pytest.raises(ValueError, match="open already"):
            use()
    channel.writer.cancel()
    channel.writer.cancel()
    assert channel.writer.write(b"x")


def test_place_that_outlives_the_ring_is_harmless(domain: str) -> None:
    with owned(domain) as channel:
        place = channel.writer.claim(8)
        assert place is not None
        channel.writer.commit()
    del channel
    place[:] = b"too late"
    assert bytes(place) == b"too late"


def test_end_comes_after_the_last_record(channel: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        channel.writer.write(b"last")
        channel.writer.close()
        ended = [reader.reader.ended]
        assert reader.reader.ready()
        assert reader.reader.read() == b"last"
        ended.append(reader.reader.ended)
        assert ended == [False, True]
        assert reader.reader.ready()
        assert reader.reader.read() is None


def test_activity_is_seen_by_readers(channel: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        before = reader.reader.activity
        channel.writer.touch()
        assert reader.reader.activity == before + 1


def test_commit_names_the_readers_that_sleep(channel: OwnedChannel, domain: str) -> None:
    with joined(domain, 1) as first, joined(domain, 2) as second:
        assert (first.index, second.index) == (0, 1)
        second.reader.arm(True)
        channel.writer.claim(8)
        assert channel.writer.commit() == 0b10
        first.reader.arm(True)
        second.reader.arm(False)
        channel.writer.claim(8)
        assert channel.writer.commit() == 0b01
        first.reader.arm(False)
        first.reader.arm(False)
        assert int(control_of(channel)["parked"]) == 0
        assert int(slots_of(channel)[1]["parks"]) == 1


def test_numpy_sees_what_the_writer_wrote(channel: OwnedChannel, domain: str) -> None:
    before = clock.ticks()
    with joined(domain):
        channel.writer.write(b"abc", 2)
        channel.writer.write(b"")
    after = clock.ticks()
    header = header_of(channel)
    assert numbers(header, "msgs_sent", "lbm_msgs_sent", "tail") == [2, 3, 40]
    assert header["bytes_sent"] == 2 * layout.RECORD_HEADER + 3
    assert numbers(header, "closed", "capacity", "record_max") == [0, WINDOW, WINDOW // 2]
    data = channel.ring.view(int(header["data_offset"]))
    first, second, end = (np.frombuffer(data, layout.RECORD, 1, at)[0].tolist() for at in (0, 24, 40))
    assert (first[:2], bytes(data[16:19])) == ((19, 2), b"abc")
    assert second[:2] == (16, 1)
    assert before <= first[2] <= second[2] <= after
    assert end[0] == 0


def test_numpy_sees_what_the_reader_counted(channel: OwnedChannel, domain: str) -> None:
    with joined(domain, 7) as reader:
        for number in range(5):
            channel.writer.write(body(number, number))
        assert len(read_all(reader)) == 5
        slot = slots_of(channel)[reader.index]
        assert (slot["state"], slot["context_id"], slot["context_name"]) == (layout.SLOT_ACTIVE, 7, b"context 7")
        assert slot["position"] == reader.reader.position == channel.writer.head
        assert (slot["msgs_rcved"], slot["bytes_rcved"]) == (5, 5 * layout.RECORD_HEADER + 10)
        assert slot["overruns"] == slot["clock_faults"] == 0
        assert slot["latency"].sum() == slot["latency_samples"] == 5
        highest = int(np.flatnonzero(slot["latency"])[-1])
        assert layout.bucket_edges()[highest] <= slot["latency_max"]


def test_record_from_the_future_is_counted_as_a_fault_of_the_clock(channel: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        channel.writer.write(b"x")
        header = header_of(channel)
        record = np.frombuffer(channel.ring.view(int(header["data_offset"])), layout.RECORD, 1)[0]
        record["send_ticks"] += 1 << 50
        assert read_all(reader) == [b"x"]
        slot = slots_of(channel)[reader.index]
        assert (slot["clock_faults"], slot["latency"][0], slot["latency_max"]) == (1, 1, 0)


def test_what_the_writer_counts_off_the_hot_path_is_in_the_header(channel: OwnedChannel) -> None:
    channel.writer.count_blocked(500)
    channel.writer.count_blocked(700)
    channel.writer.count_would_block()
    channel.writer.count_wakes(3)
    channel.writer.count_reclaimed()
    channel.writer.count_evicted()
    names = ("send_blocked", "blocked_ns", "send_would_block", "wakes_sent", "slots_reclaimed", "receivers_evicted")
    assert numbers(header_of(channel), *names) == [2, 1200, 1, 3, 1, 1]


def test_writer_sees_who_reads_and_how_far(channel: OwnedChannel, domain: str) -> None:
    table = SlotTable(channel.control, channel.fd)
    with joined(domain, 1), joined(domain, 2) as second:
        channel.writer.write(b"x")
        read_all(second)
        assert table.active_mask() == 0b11
        assert table.positions() == {0: 0, 1: channel.writer.head}
        assert table.identity(1).context_name == "context 2"
    assert table.active_mask() == 0
    assert table.positions() == {}
