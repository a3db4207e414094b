"""The open datagram of a session, without anything around it: what is put where, and when it is published."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np
import pytest

import ipcbus
from ipcbus.topic.batch import BatchWriter
from ipcbus.topic.topic_source import TopicSource
from ipcbus.wire.wire_layout import TOPIC_LINE
from ringbuf import clock
from ringbuf.layout import RECORD_HEADER, RING_HEADER
from tests.kit.datagrams import Item, parse
from tests.rings import channels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ringbuf.channel import JoinedChannel, OwnedChannel

DATAGRAM_MAX = 1024
LONGEST = DATAGRAM_MAX - 16


class Answers:
    """A policy that notes what it is asked and answers as the test says."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.when_parked: list[Callable[[], object]] = []
        self.when_full: list[Callable[[], object]] = []

    def ring_full(self, need: int, block: bool, source: TopicSource) -> bool:
        """Does what the test wants, then lets the sender try again."""
        self.asked.append(f"full {source.topic}")
        if not block or not self.when_full:
            raise ipcbus.WouldBlock("as in the test")
        self.when_full.pop(0)()
        return True

    def wait_for_release(self, block: bool, is_shut: object) -> None:
        """Nobody waits in these tests."""
        raise ipcbus.WouldBlock("reserved")

    def released(self) -> None:
        """Noted."""
        self.asked.append("released")

    def parked(self, mask: int) -> None:
        """Lets something happen in the middle of a send."""
        self.asked.append(f"parked {mask}")
        if self.when_parked:
            self.when_parked.pop(0)()

    def batch_opened(self) -> None:
        """Noted."""
        self.asked.append("opened")


class Stand:
    """A ring with a reader, a batch writer and two sources."""

    def __init__(self, channel: OwnedChannel, reading: JoinedChannel, minimum: int, burst: int = 0) -> None:
        self.channel, self.reading = channel, reading
        self.policy = Answers()
        self.batch = BatchWriter(
            channel.writer,
            self.policy,
            self.policy.parked,
            minimum_length=minimum,
            datagram_max=DATAGRAM_MAX,
            topics_max=2,
            topics_offset=RING_HEADER.itemsize,
            burst_length=burst,
        )
        self.one, self.two = TopicSource(self.batch, "one", 0), TopicSource(self.batch, "two", 1)

    def datagrams(self) -> list[list[Item]]:
        """What was published since the last call."""
        found = []
        while (body := self.reading.reader.read()) is not None:
            assert len(body) <= DATAGRAM_MAX
            found.append(parse(body))
        self.reading.reader.show()
        return found

    def line(self, number: int) -> np.void:
        """A topic's line in the ring."""
        view = self.channel.ring.view(RING_HEADER.itemsize, 2 * TOPIC_LINE.itemsize)
        line: np.void = np.frombuffer(view, TOPIC_LINE, 2)[number]
        return line

    def park(self) -> None:
        """Lets the reader seem asleep."""
        self.reading.reader.arm(True)


@pytest.fixture
def minimum() -> int:
    return 200


@pytest.fixture
def stand(domain: str, minimum: int) -> Iterator[Stand]:
    with channels.owned(domain) as channel:
        reading = channels.join(domain)
        yield Stand(channel, reading, minimum)
        reading.leave()


def test_messages_of_all_sources_share_a_datagram_in_the_order_of_sending(stand: Stand) -> None:
    stand.one.send(b"a")
    stand.two.send(b"bb", flush=False)
    stand.one.send(b"", flush=True)
    assert stand.datagrams() == [[Item(0, 0, b"a"), Item(1, 0, b"bb"), Item(0, 1, b"")]]
    assert (stand.one.sequence_number, stand.two.sequence_number) == (1, 0)


def test_the_minimum_length_counts_headers_and_padding(stand: Stand) -> None:
    for _ in range(7):
        stand.one.send(b"123456789")  # 16 + 16 bytes
        assert bool(stand.datagrams()) == (stand.one.sequence_number == 6)


def test_datagrams_of_a_burst_are_filled(domain: str) -> None:
    with channels.owned(domain) as channel:
        reading = channels.join(domain)
        stand = Stand(channel, reading, 200, 900)
        now_ns, found = 10**9, []
        for number in range(9 * 5 + 23 + 5 + 5 + 5):
            now_ns += 1_000 if number < 9 * 5 + 23 + 5 else 1_000_000
            now_ns += 200_000 * (number == 9 * 5 + 23)
            channel.writer.set_time(now_ns)
            stand.one.send(bytes(16))  # 40 bytes with header and stamp
            found += [len(datagram) for datagram in stand.datagrams()]
        # Nine datagrams show that it is a burst. One that begins later than 200 us after it is no part of it.
        assert found == [*[5] * 9, 23, 5, 5, 5]
        reading.leave()


def send_burst(stand: Stand) -> None:
    """Sends nine datagrams of five messages; the next one is to be filled, and no timer looks at it yet."""
    for _ in range(9 * 5):
        stand.one.send(bytes(16))
    stand.batch.timer_runs = True
    assert stand.batch.watch_burst(False) is None


def test_the_rest_of_a_burst_waits_for_a_short_time(domain: str) -> None:
    with channels.owned(domain) as channel:
        reading = channels.join(domain)
        stand = Stand(channel, reading, 200, 900)
        now_ns, rests = 10**9, []
        channel.writer.set_time(now_ns)
        send_burst(stand)
        assert stand.batch.watch_burst(True) == 10_000_000
        assert stand.batch.watch_burst(False) is None
        stand.policy.asked.clear()
        for number in range(1, 7):
            stand.one.send(bytes(16))
            rests.append(stand.batch.flush_older(now_ns, 10**12))
            assert stand.policy.asked == ["opened"] * (number >= 5)  # from there on it is watched
        assert rests == [*[10**12] * 4, 10_000_000, 10_000_000]
        assert stand.batch.watch_burst(False) == 10_000_000
        found = stand.datagrams()
        assert stand.batch.flush_older(now_ns + 10_000_000, 10**12) == -1
        assert [len(each) for each in found + stand.datagrams()] == [*[5] * 9, 6]
        reading.leave()


def fast_burst(stand: Stand, datagrams: int) -> list[int]:
    """Sends datagrams at one moment; returns how many were published at each call of `published`."""
    told: list[int] = []
    stand.park()
    stand.batch.watch_burst(True)
    for number in range(1, datagrams + 1):
        while not (found := len(stand.datagrams())):
            stand.policy.asked.clear()
            stand.one.send(bytes(16))
        assert found == 1
        if "parked 1" in stand.policy.asked:
            told.append(number)
    return told


def test_the_datagrams_of_a_fast_burst_go_to_the_transport_together(domain: str) -> None:
    with channels.owned(domain) as channel:
        reading = channels.join(domain)
        stand = Stand(channel, reading, 200, 900)
        channel.writer.set_time(10**9)
        told = fast_burst(stand, 700)
        # The first 127 go alone; then a sixty-fourth of those so far goes together, eight at most.
        assert told[:127] == list(range(1, 128))
        gaps = np.diff(told)
        assert (gaps[:126].max(), gaps[-10:].tolist()) == (1, [8] * 10)
        assert np.all(np.diff(gaps) >= 0)
        reading.leave()


@pytest.mark.parametrize("how", ["flush", "a message with flush", "the timer", "a pause", "a full ring"])
def test_what_a_fast_burst_keeps_back_is_told_of(domain: str, how: str) -> None:
    with channels.owned(domain) as channel:
        reading = channels.join(domain)
        stand = Stand(channel, reading, 200, 900)
        channel.writer.set_time(10**9)
        fast_burst(stand, 600)
        while fast_burst(stand, 1):
            pass  # until one is kept back
        stand.policy.asked.clear()
        if how == "flush":
            assert stand.batch.flush()
        elif how == "a message with flush":
            stand.one.send(b"", flush=True)
        elif how == "the timer":
            assert stand.batch.watch_burst(False) == 10_000_000
            assert not stand.batch.end_timer()
            stand.batch.flush_older(10**9, 10**12)
        elif how == "a pause":
            channel.writer.set_time(10**9 + 60_000)
            while "parked 1" not in stand.policy.asked:
                assert not stand.datagrams()
                stand.one.send(bytes(16))
        else:
            while "full one" not in stand.policy.asked:
                with contextlib.suppress(ipcbus.WouldBlock):
                    stand.one.send(bytes(16), block=False)
        assert "parked 1" in stand.policy.asked
        assert not stand.batch.flush()  # nothing is kept back any more
        assert stand.batch.end_timer()
        reading.leave()


def test_the_timer_is_asked_to_look_at_what_a_fast_burst_keeps_back(domain: str) -> None:
    with channels.owned(domain) as channel:
        reading = channels.join(domain)
        stand = Stand(channel, reading, 200, 900)
        channel.writer.set_time(10**9)
        fast_burst(stand, 600)
        stand.batch.flush()
        assert stand.batch.end_timer()
        assert stand.batch.watch_burst(False) is None
        stand.policy.asked.clear()
        stand.one.send(bytes(16))
        assert stand.policy.asked == ["opened"]
        # A look finds nothing that waits to be filled; then one message completes the datagram.
        assert stand.batch.watch_burst(False) is None
        stand.policy.asked.clear()
        stand.one.send(bytes(890))
        assert len(stand.datagrams()) == 1
        assert stand.policy.asked == ["opened"]
        assert stand.batch.timer_runs
        assert stand.batch.watch_burst(False) == 10_000_000  # for the datagram that is kept back
        reading.leave()


def test_a_message_that_takes_a_datagram_of_its_own_is_never_kept_back(domain: str) -> None:
    with channels.owned(domain) as channel:
        reading = channels.join(domain)
        stand = Stand(channel, reading, 200, 900)
        channel.writer.set_time(10**9)
        fast_burst(stand, 600)
        for _ in range(20):
            stand.policy.asked.clear()
            stand.one.send(bytes(910))
            assert "parked 1" in stand.policy.asked
            assert not stand.batch.flush()
            stand.datagrams()
        reading.leave()


def test_nothing_is_kept_back_while_nobody_runs_the_timer(domain: str) -> None:
    with channels.owned(domain) as channel:
        reading = channels.join(domain)
        stand = Stand(channel, reading, 200, 900)
        channel.writer.set_time(10**9)
        fast_burst(stand, 600)
        told = 0
        for at in range(10**9, 10**9 + 40_000_000, 1000):
            channel.writer.set_time(at)
            stand.policy.asked.clear()
            stand.one.send(bytes(16))
            published = len(stand.datagrams())
            told = told + 1 if "parked 1" in stand.policy.asked else 0 if published else told
        assert told > 300  # each datagram of the last 10 ms
        reading.leave()


def test_an_explicit_batch_after_a_burst_does_not_wait_to_be_filled(domain: str) -> None:
    with channels.owned(domain) as channel:
        reading = channels.join(domain)
        stand = Stand(channel, reading, 200, 900)
        channel.writer.set_time(10**9)
        send_burst(stand)
        stand.policy.asked.clear()
        for number in range(6):
            stand.one.send(bytes(16), start_batch=number == 0)
        assert (stand.policy.asked, stand.batch.watch_burst(False)) == ([], None)
        assert stand.batch.flush_older(10**9, 10**12) == 10**12
        stand.one.send(bytes(16), end_batch=True)
        assert (stand.policy.asked, stand.batch.watch_burst(False)) == (["opened"], 10_000_000)
        stand.batch.flush()
        reading.leave()


def test_a_message_that_does_not_fit_goes_into_the_next_datagram(domain: str) -> None:
    with channels.owned(domain) as channel:
        reading = channels.join(domain)
        stand = Stand(channel, reading, 2**20)
        lengths = [LONGEST - 32, 1, 1, LONGEST - 16, LONGEST]
        for length in lengths:
            stand.one.send(bytes(length))
        stand.batch.flush()
        found = [[len(item.payload) for item in datagram] for datagram in stand.datagrams()]
        assert found == [lengths[:2], lengths[2:3], lengths[3:4], lengths[4:]]
        reading.leave()


def test_the_line_tells_what_was_begun_and_what_is_published(stand: Stand) -> None:
    stand.one.send(b"12345")
    assert (stand.line(0)["sequence_next"], stand.line(0)["published"], stand.line(0)["bytes_sent"]) == (1, 0, 5)
    stand.two.send(b"")
    stand.batch.flush()
    assert [int(stand.line(number)["published"]) for number in (0, 1)] == [1, 1]
    stand.one.send(b"", flush=True)
    assert [int(stand.line(number)["published"]) for number in (0, 1)] == [2, 1]


def test_flushing_nothing_publishes_nothing(stand: Stand) -> None:
    assert not stand.batch.flush()
    stand.one.flush()
    assert stand.datagrams() == []


def test_the_age_of_a_batch_is_that_of_its_first_message(stand: Stand) -> None:
    assert stand.batch.flush_older(clock.ticks(), 0) == -1
    stand.one.send(b"a")
    rest = stand.batch.flush_older(clock.ticks(), 10**12)
    assert 0 < rest <= 10**12
    assert stand.datagrams() == []
    assert stand.batch.flush_older(clock.ticks(), 0) == -1
    assert len(stand.datagrams()) == 1


def test_the_interval_is_watched_from_the_first_message_on(stand: Stand) -> None:
    stand.one.send(b"a")
    stand.two.send(b"b")
    assert stand.policy.asked == ["opened"]
    stand.batch.flush()
    stand.one.send(b"c")
    assert stand.policy.asked == ["opened"]  # whoever watches still does
    stand.batch.timer_runs = False
    stand.one.send(b"d")
    assert stand.policy.asked == ["opened", "opened"]


def test_held_batches_wait_for_all_who_hold_them(stand: Stand) -> None:
    stand.one.send(bytes(300), start_batch=True)
    stand.two.send(bytes(300), start_batch=True)
    stand.one.send(b"", end_batch=True)
    assert stand.batch.flush_older(clock.ticks(), 0) > 0
    assert stand.batch.flush_older(clock.ticks(), 0, 10**12) > 0
    assert stand.datagrams() == []
    stand.two.send(b"", end_batch=True)
    (datagram,) = stand.datagrams()
    assert [(item.topic, item.flags) for item in datagram] == [(0, 1), (1, 1), (0, 2), (1, 2)]


@pytest.mark.parametrize("sleeper", [True, False], ids=["reader parked", "reader awake"])
def test_parked_readers_are_told_after_each_datagram(stand: Stand, sleeper: bool) -> None:
    if sleeper:
        stand.park()
    stand.one.send(b"a", flush=True)
    stand.one.send(b"b", flush=True)
    assert stand.policy.asked.count("parked 1") == (2 if sleeper else 0)


# While a send publishes or waits, others may use the session.


def fill(stand: Stand) -> int:
    """Fills the ring; returns how many messages went in."""
    sent = 0
    with pytest.raises(ipcbus.WouldBlock):
        while True:
            stand.one.send(bytes(100), flush=True, block=False)
            sent += 1
    return sent


def test_a_full_ring_takes_no_number_and_says_so(stand: Stand) -> None:
    sent = fill(stand)
    assert stand.one.sequence_number == sent - 1
    assert stand.line(0)["send_would_block"] == 1
    stand.datagrams()
    stand.one.send(b"again", flush=True)
    assert stand.datagrams() == [[Item(0, sent, b"again")]]


def test_a_batch_is_published_before_its_sender_waits_for_room(stand: Stand) -> None:
    sent = fill(stand)
    first = stand.datagrams()
    got: list[list[Item]] = []
    stand.policy.when_full = [lambda: got.extend(stand.datagrams())] * 100
    batched = 0
    while not got:
        stand.two.send(bytes(20))
        batched += 1
    assert sum(map(len, first)) == sent
    stand.batch.flush()
    items = [item for datagram in got + stand.datagrams() for item in datagram]
    assert items == [Item(1, number, bytes(20)) for number in range(batched)]


def test_what_others_send_while_one_waits_comes_first_and_nothing_is_mixed_up(stand: Stand) -> None:
    sent = fill(stand)
    before: list[list[Item]] = []

    def another_thread() -> None:
        before.extend(stand.datagrams())
        stand.two.send(b"quicker")

    stand.policy.when_full = [another_thread]
    stand.one.send(bytes(LONGEST))
    stand.batch.flush()
    assert sum(map(len, before)) == sent
    assert stand.datagrams() == [[Item(1, 0, b"quicker")], [Item(0, sent, bytes(LONGEST))]]


@pytest.mark.parametrize("minimum", [2**20])
def test_what_others_send_while_one_publishes_does_not_burst_the_datagram(stand: Stand) -> None:
    stand.one.send(bytes(600))
    stand.park()
    stand.policy.when_parked = [lambda: stand.two.send(bytes(900))]
    stand.one.send(bytes(600))  # publishes the first; meanwhile the other one opens a batch
    stand.batch.flush()
    assert stand.datagrams() == [[Item(0, 0, bytes(600))], [Item(1, 0, bytes(900))], [Item(0, 1, bytes(600))]]


@pytest.mark.parametrize("minimum", [2**20])
def test_a_source_closed_while_it_publishes_sends_no_more(stand: Stand) -> None:
    stand.one.send(bytes(600))
    stand.park()
    stand.policy.when_parked = [stand.one._refuse_sends]
    with pytest.raises(ipcbus.ClosedError):
        stand.one.send(bytes(600))
    assert stand.one.sequence_number == 0


# Writing in place.


def test_a_place_in_the_ring_is_published_at_its_end(stand: Stand) -> None:
    stand.two.send(b"before")
    with stand.one.acquire(3) as place:
        place[:] = b"abc"
        assert not stand.batch.flush()
        assert stand.batch.flush_older(clock.ticks(), 0) == -1
    assert stand.datagrams() == [[Item(1, 0, b"before"), Item(0, 0, b"abc")]]
    assert stand.policy.asked[-1] == "released"


def test_a_cancelled_place_is_used_again(stand: Stand) -> None:
    with pytest.raises(RuntimeError), stand.one.acquire(300) as place:
        place[:] = b"x" * 300
        raise RuntimeError
    stand.two.send(b"next", flush=True)
    assert stand.datagrams() == [[Item(1, 0, b"next")]]
    assert stand.one.sequence_number == -1


def test_sources_of_a_closed_or_forked_batch_refuse(stand: Stand) -> None:
    stand.batch.close()
    with pytest.raises(ipcbus.ClosedError):
        stand.one.send(b"")
    stand.batch.fork_child()
    with pytest.raises(ipcbus.WrongProcess):
        stand.one.send(b"")
    assert not stand.batch.flush()


def test_sequence_numbers_have_64_bits(stand: Stand) -> None:
    assert stand.one.sequence_number == -1
    for _ in range(3):
        stand.one.send(b"", flush=True)
    assert stand.line(0)["sequence_next"].dtype == np.uint64
    assert [item.sequence for datagram in stand.datagrams() for item in datagram] == [0, 1, 2]


def test_what_does_not_fit_the_ring_is_refused_at_once(domain: str) -> None:
    with channels.owned(domain) as channel:
        for datagram_max, topics_max in ((2048 - RECORD_HEADER + 1, 2), (1024, 3)):
            with pytest.raises(ValueError, match="do not fit"):
                BatchWriter(
                    channel.writer,
                    Answers(),
                    lambda mask: None,
                    minimum_length=0,
                    datagram_max=datagram_max,
                    topics_max=topics_max,
                    topics_offset=RING_HEADER.itemsize,
                )


@pytest.mark.parametrize("minimum", [1 << 20])
def test_many_sources_in_turn_on_one_line_of_one_datagram(stand: Stand) -> None:
    stand.two.send(b"")
    numbers = [2 * turn for turn in range(1, 41)]
    for number in numbers:
        TopicSource(stand.batch, "in turn", number).send(b"")
    assert stand.batch.flush()
    assert stand.datagrams() == [[Item(1, 0, b""), *(Item(number, 0, b"") for number in numbers)]]
    assert [int(stand.line(at)["published"]) for at in (0, 1)] == [1, 1]


@pytest.mark.parametrize("minimum", [1 << 20])
def test_who_writes_in_place_while_sequence_numbers_are_told_is_not_disturbed(stand: Stand) -> None:
    stand.park()
    stand.two.send(bytes(LONGEST))
    place = stand.one.acquire(8)
    views: list[memoryview] = []
    stand.policy.when_parked = [lambda: views.append(place.__enter__())]
    assert stand.batch.send_infos([stand.two, stand.two]) == 0
    views[0][:] = b"in place"
    place.__exit__(None, None, None)
    assert stand.datagrams() == [[Item(1, 0, bytes(LONGEST))], [Item(0, 0, b"in place")]]


@pytest.mark.parametrize("minimum", [1 << 20])
def test_a_batch_begun_while_sequence_numbers_are_told_stays_whole(stand: Stand) -> None:
    stand.park()
    stand.two.send(bytes(LONGEST))
    stand.policy.when_parked = [lambda: stand.one.send(b"first", start_batch=True)]
    assert stand.batch.send_infos([stand.two]) == 0
    stand.one.send(b"last", end_batch=True, flush=True)
    assert [len(datagram) for datagram in stand.datagrams()] == [1, 2]


@pytest.mark.parametrize("minimum", [0, 1, 200, 2**20])
@pytest.mark.parametrize("size", [1, 16, 200, LONGEST])
@pytest.mark.parametrize("first", [False, True])
def test_rows_of_one_call_fill_datagrams_and_share_a_send_time(
    domain: str, minimum: int, size: int, first: bool
) -> None:
    rows = np.arange(20, dtype=np.uint8).repeat(size).reshape(20, size)
    with channels.owned(domain, window=65536) as channel:
        reading = channels.join(domain)
        stand = Stand(channel, reading, minimum)
        if first:
            stand.two.send(b"before")
        assert stand.one.send_many(rows) == 20
        stand.batch.flush()
        datagrams, line = stand.datagrams(), stand.line(0).copy()
        reading.leave()
    items = [item for datagram in datagrams for item in datagram if item.topic == 0]
    assert items == [Item(0, number, bytes([number]) * size) for number in range(20)]
    assert (line["sequence_next"], line["published"], line["bytes_sent"]) == (20, 20, 20 * size)
    # In the datagrams that the call itself began only the first message may bear a stamp, and take more for it.
    need = 16 + (size + 7) // 8 * 8
    stamped = 16 + (size + 4 + 7) // 8 * 8
    begun = stamped if need < minimum and stamped <= DATAGRAM_MAX else need
    each = 1 + (DATAGRAM_MAX - begun) // need
    if minimum:
        each = min(each, 1 + -(-max(0, minimum - begun) // need))
    own = [len(datagram) for datagram in datagrams if datagram[0].topic == 0]
    assert own == [each] * (sum(own) // each) + [sum(own) % each] * (sum(own) % each > 0)


def test_rows_that_find_no_room_are_those_that_a_single_send_finds_none_for(stand: Stand) -> None:
    with pytest.raises(ipcbus.WouldBlock):
        stand.one.send_many(np.arange(60_000, dtype="<u8"), block=False)
    sent = stand.one.sequence_number + 1
    assert stand.line(0)["send_would_block"] == 1
    assert sent == sum(map(len, stand.datagrams())) > 100
    stand.policy.when_full = [lambda: got.extend(stand.datagrams())] * 100
    got: list[list[Item]] = []
    stand.one.send_many(np.arange(sent, 3 * sent, dtype="<u8"))
    stand.batch.flush()
    items = [item for datagram in got + stand.datagrams() for item in datagram]
    assert items == [Item(0, n, n.to_bytes(8, "little")) for n in range(sent, 3 * sent)]
