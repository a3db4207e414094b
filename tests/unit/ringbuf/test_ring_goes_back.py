"""A writer of long records that uses memory again soon: every record arrives, and what the ring promises holds."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ringbuf import layout
from ringbuf.layout import RECORD_ALIGN, RECORD_HEADER
from tests.rings.channels import PACINGS, header_of, join, joined, owned, read_all

if TYPE_CHECKING:
    from ringbuf.channel import JoinedChannel, OwnedChannel

WINDOW = 1 << 14
LONGEST, MESSAGES = 2000, 4
LONG_FROM = 500
RECORD_MAX = WINDOW // 2 - RECORD_HEADER - RECORD_ALIGN


def goes_back(channel: OwnedChannel, longest: int = LONGEST, messages: int = MESSAGES) -> None:
    channel.writer.go_back(longest, messages, LONG_FROM)


def place_of_next(channel: OwnedChannel, size: int = LONGEST) -> int:
    """Publishes a record and returns its place in the ring."""
    place = channel.writer.claim(size)
    assert place is not None
    begin = np.frombuffer(channel.ring.view(), np.uint8).ctypes.data + int(header_of(channel)["data_offset"])
    at = np.frombuffer(place, np.uint8).ctypes.data - begin
    place[:] = bytes(size)
    channel.writer.commit()
    return at % WINDOW


@pytest.mark.parametrize("behind", [0, 1, 2])
def test_few_places_are_used_by_turns(domain: str, behind: int) -> None:
    with owned(domain, window=WINDOW) as channel, joined(domain) as reader:
        goes_back(channel)
        places = []
        for number in range(100):
            places.append(place_of_next(channel))
            if number >= behind:
                assert reader.reader.read() is not None
                reader.reader.show()
        last = [(place - places[-1]) % WINDOW for place in places[-2 * (behind + 1) :]]
        spans = [max((place - at) % WINDOW for place in last) for at in last]
        assert min(spans) <= (behind + 1) * (LONGEST + 200)


def test_without_it_the_whole_ring_is_used(domain: str) -> None:
    with owned(domain, window=WINDOW) as channel, joined(domain) as reader:
        places = []
        for _ in range(100):
            places.append(place_of_next(channel))
            read_all(reader)
        assert max(places) - min(places) > WINDOW - 2 * LONGEST


@pytest.mark.parametrize("options", [PACINGS["source-paced"], PACINGS["evicting"], {"checksums": True}])
def test_other_rings_go_on_as_before(domain: str, options: dict[str, bool]) -> None:
    with owned(domain, window=WINDOW, **options) as channel, joined(domain) as reader:  # type: ignore[arg-type]
        goes_back(channel)
        for _ in range(100):
            assert channel.writer.write(bytes(LONGEST))
            assert len(read_all(reader)) == 1
        assert not header_of(channel)["skips_to"].any()


@pytest.mark.parametrize(("longest", "messages"), [(LONGEST, 8), (LONG_FROM - 100, 4)])
def test_ring_that_has_no_room_for_it_goes_on_as_before(domain: str, longest: int, messages: int) -> None:
    with owned(domain, window=WINDOW) as channel, joined(domain) as reader:
        goes_back(channel, longest, messages)
        for _ in range(100):
            assert channel.writer.write(bytes(longest))
            assert len(read_all(reader)) == 1
        assert not header_of(channel)["skips_to"].any()


def test_record_that_is_cancelled_leaves_no_skip(domain: str) -> None:
    with owned(domain, window=WINDOW) as channel, joined(domain) as reader:
        goes_back(channel)
        for _ in range(2):
            assert channel.writer.write(bytes(LONGEST))
        assert len(read_all(reader)) == 2
        head = channel.writer.head
        for _ in range(3):
            assert channel.writer.claim(LONGEST) is not None
            assert channel.writer.head == head
            channel.writer.cancel()
        assert not reader.reader.ready()
        assert reader.reader.read() is None
        # Longer than what was read at the beginning, and than what is left behind the head.
        assert channel.writer.write(bytes(WINDOW // 2 - RECORD_HEADER - 2 * RECORD_ALIGN))
        assert len(read_all(reader)) == 1


def test_observer_can_tell_that_bytes_are_being_written_over(domain: str) -> None:
    with owned(domain, window=WINDOW) as channel, joined(domain) as reader:
        goes_back(channel)
        for _ in range(2):
            assert channel.writer.write(bytes(LONGEST))
        read_all(reader)
        assert channel.writer.claim(LONGEST) is not None
        # The place of the first record, a ring further.
        assert int(header_of(channel)["intent"]) > WINDOW + LONGEST // 2
        channel.writer.cancel()


class Account:
    """A reader, and what it is still to read."""

    def __init__(self, channel: JoinedChannel) -> None:
        self.channel = channel
        self.due: deque[bytes] = deque()

    def read(self, most: int) -> None:
        """Reads some records, and compares them."""
        for _ in range(most):
            body = self.channel.reader.read()
            if body is None:
                assert not self.due
                break
            assert body == self.due.popleft()
        self.channel.reader.show()

    def bytes_due(self) -> int:
        """The bytes of the records that it has not read."""
        return sum(layout.round_up(RECORD_HEADER + len(body), RECORD_ALIGN) for body in self.due)


def size_of_next(chance: random.Random, longest: int) -> int:
    """Long records of the longest length, others, short ones, and rarely such that exceed the longest length."""
    if chance.random() < 0.02:
        return chance.randint(longest, RECORD_MAX)
    return chance.choice([longest, longest, chance.randint(LONG_FROM, longest), chance.randint(0, LONG_FROM)])


def send(channel: OwnedChannel, accounts: list[Account], body: bytes) -> bool:
    if not channel.writer.write(body):
        return False
    for each in accounts:
        each.due.append(body)
    return True


SEEDS = pytest.mark.parametrize("seeds", [range(60), pytest.param(range(60, 2000), marks=pytest.mark.long)])


@SEEDS
def test_random_records_and_readers(domain: str, seeds: range) -> None:
    skips = 0
    for seed in seeds:
        chance = random.Random(seed)
        longest, messages = chance.randint(LONG_FROM, 3000), chance.randint(2, 6)
        with owned(domain, window=WINDOW) as channel, joined(domain, 1) as one, joined(domain, 2) as two:
            goes_back(channel, longest, messages)
            accounts = [Account(one), Account(two)]
            for number in range(300):
                body = bytes([number & 0xFF]) * size_of_next(chance, longest)
                if chance.random() < 0.1 and channel.writer.claim(size_of_next(chance, longest)) is not None:
                    channel.writer.cancel()
                    if chance.random() < 0.5:
                        promise_holds(channel, accounts, longest, messages)
                if not send(channel, accounts, body):
                    needed = channel.writer.position_needed(len(body))
                    while channel.writer.want_event(len(body)):
                        slow = min(accounts, key=lambda each: each.channel.reader.position)
                        assert slow.channel.reader.position < needed
                        slow.read(1)
                    assert send(channel, accounts, body)
                header = header_of(channel)
                for each in accounts:
                    if chance.random() < 0.5:
                        each.read(chance.randint(1, 3))
                    position = each.channel.reader.position
                    assert layout.bytes_between(header, position, channel.writer.head) == each.bytes_due()
                    assert not each.channel.reader.out_of_sync
            skips += int((header_of(channel)["skips_to"] > 0).sum())
            assert header_of(channel)["position_errors"] == 0
            promise_holds(channel, accounts, longest, messages)
    assert skips > 2 * len(seeds)


def promise_holds(channel: OwnedChannel, accounts: list[Account], longest: int, messages: int) -> None:
    """No reader takes anything from now on: so many of the longest records fit beside what is read."""
    due = max(each.bytes_due() for each in accounts)
    number = 0
    while send(channel, accounts, bytes([number & 0xFF]) * longest):
        number += 1
    if (messages + 1) * (longest + 32) <= WINDOW:
        assert due + number * longest > (messages - 1) * longest
    for each in accounts:
        each.read(100)
        assert not each.due


@SEEDS
def test_readers_join_and_leave(domain: str, seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        with owned(domain, window=WINDOW) as channel, joined(domain, 1) as one:
            goes_back(channel)
            first, second = Account(one), None
            for number in range(200):
                accounts = [first, second] if second is not None else [first]
                if not send(channel, accounts, bytes([number & 0xFF]) * size_of_next(chance, LONGEST)):
                    for each in accounts:
                        each.read(100)
                first.read(chance.randint(0, 3))
                if second is not None and chance.random() < 0.3:
                    second.read(chance.randint(0, 3))
                if chance.random() < 0.1:
                    if second is not None:
                        second.channel.leave()
                        second = None
                    else:
                        second = Account(join(domain, 2))
            if second is not None:
                second.read(100)
                second.channel.leave()
            first.read(100)


def test_record_longer_than_all_that_were_announced_does_not_go_back(domain: str) -> None:
    with owned(domain, window=WINDOW) as channel, joined(domain) as reader:
        goes_back(channel, LONG_FROM, 2)
        for _ in range(60):
            for size in (*[100] * 138, *[WINDOW // 4] * 5):
                head = channel.writer.head
                assert channel.writer.write(bytes(size))
                assert channel.writer.head >= head + size
                assert [len(body) for body in read_all(reader)] == [size]


def test_shorter_record_behind_a_cancelled_one_leaves_what_is_promised(domain: str) -> None:
    with owned(domain, window=WINDOW) as channel, joined(domain) as reader:
        goes_back(channel, 1984, 6)
        for _ in range(3):
            assert channel.writer.write(bytes(1984))
        assert reader.reader.read() is not None
        reader.reader.show()
        assert channel.writer.claim(1984) is not None
        channel.writer.cancel()
        for size in (300, 1984):
            assert channel.writer.write(bytes(size))
        for _ in range(3):
            assert reader.reader.read() is not None
        reader.reader.show()
        assert sum(channel.writer.write(bytes(1984)) for _ in range(8)) >= 5


def test_open_record_without_a_reader_has_the_room_that_it_has_with_one(domain: str) -> None:
    with owned(domain, window=WINDOW) as channel:
        goes_back(channel)
        with joined(domain) as reader:
            for _ in range(3):
                assert channel.writer.write(bytes(1900))
                read_all(reader)
            head = channel.writer.head
            assert channel.writer.claim(1900) is not None
            assert channel.writer.head == head
        length = 1
        while channel.writer.has_room(length):
            length += 50
        with joined(domain):
            assert not channel.writer.has_room(length)
            assert channel.writer.has_room(length - 50)


@pytest.mark.parametrize("distance", [0, 8, 1, 12, (1 << 64) - 16, (1 << 64) - 32])
def test_chain_with_an_impossible_skip_ends(domain: str, distance: int) -> None:
    with owned(domain, window=WINDOW) as channel, joined(domain) as reader:
        for _ in range(3):
            channel.writer.write(b"")
        data = channel.ring.view(int(header_of(channel)["data_offset"]), WINDOW)
        record = np.frombuffer(data, layout.RECORD, 1, RECORD_HEADER)
        record["messages"], record["send_ticks"] = layout.SKIP, distance
        assert reader.reader.read() == b""
        assert reader.reader.read() is None
        assert reader.reader.broken
        assert reader.reader.out_of_sync
        assert reader.reader.resync() is True
        channel.writer.write(b"next")
        assert read_all(reader) == [b"next"]


@pytest.mark.parametrize("distance", [1, 12, WINDOW, 1 << 40, (1 << 64) - 8])
def test_skip_to_an_impossible_place_stops_the_reader(domain: str, distance: int) -> None:
    with owned(domain, window=WINDOW) as channel, joined(domain) as reader:
        channel.writer.write(b"good")
        channel.writer.write(b"")
        data = channel.ring.view(int(header_of(channel)["data_offset"]), WINDOW)
        record = np.frombuffer(data, layout.RECORD, 1, 24)
        record["messages"], record["send_ticks"] = layout.SKIP, distance
        assert reader.reader.read() == b"good"
        assert reader.reader.read() is None
        assert reader.reader.broken
        # The writer has not noticed, and the reader goes on at its end.
        assert reader.reader.resync()
        channel.writer.write(b"next")
        assert reader.reader.read() == b"next"


def test_skip_to_a_skip_stops_the_reader(domain: str) -> None:
    with owned(domain, window=WINDOW) as channel, joined(domain) as reader:
        for _ in range(2):
            channel.writer.write(b"")
        data = channel.ring.view(int(header_of(channel)["data_offset"]), WINDOW)
        records = np.frombuffer(data, layout.RECORD, 2)
        records["messages"], records["send_ticks"] = layout.SKIP, RECORD_HEADER
        assert reader.reader.read() is None
        assert reader.reader.broken
        assert reader.reader.resync() is False
        channel.writer.write(b"next")
        assert read_all(reader) == [b"next"]


def test_reader_out_of_step_finds_the_chain_through_skips(domain: str) -> None:
    with owned(domain, window=WINDOW) as channel, joined(domain) as reader:
        goes_back(channel)
        for _ in range(2):
            channel.writer.write(bytes(LONGEST))
        read_all(reader)
        for number in range(3):
            assert channel.writer.write(bytes([number]) * LONGEST)
        assert header_of(channel)["skips_to"].any()
        assert reader.reader.resync() is False
        assert [body[0] for body in read_all(reader)] == [0, 1, 2]
