"""The Concepts Guide on batching, in virtual time: what goes into which datagram, and when it is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus.wire.wire_layout import MESSAGE_HEADER_BYTES, STAMP_BYTES
from tests.kit.datagrams import parse
from tests.sim.world import MS, Receiver, Sender, Terms, World

if TYPE_CHECKING:
    from ipcbus.topic.topic_source import TopicSource

AROUND = MESSAGE_HEADER_BYTES + STAMP_BYTES


class Desk:
    """A session, its first source, and what became of what was sent."""

    def __init__(self, **terms: int) -> None:
        self.world = World()
        self.sender = Sender(self.world, Terms(tsni_interval=0, **terms))
        self.source = self.sender.topic("a")

    def send(self, payload_bytes: int, source: TopicSource | None = None, **flags: bool) -> None:
        """Sends a message of so many bytes with its header, and its stamp or padding in the place of one."""
        self.sender.send(source or self.source, bytes(payload_bytes - AROUND), **flags)

    @property
    def sizes(self) -> list[int]:
        """Bytes of each datagram sent."""
        return [len(datagram) for datagram in self.sender.sent]

    @property
    def counts(self) -> list[int]:
        """Messages in each datagram sent."""
        return [len(parse(datagram)) for datagram in self.sender.sent]


# Implicit batching: three conditions.


def test_the_minimum_length_is_a_floor_not_a_ceiling() -> None:
    desk = Desk(minimum_length=2000, datagram_max=8192)
    for _ in range(3):
        desk.send(600)
    assert desk.sizes == []
    # The message that reaches the minimum goes into the datagram too, which therefore is larger than the minimum.
    desk.send(600)
    assert desk.sizes == [2400]


def test_a_message_that_would_exceed_the_datagram_maximum_flushes_before_it() -> None:
    desk = Desk(minimum_length=2000, datagram_max=2200)
    for _ in range(3):
        desk.send(600)
    desk.send(600)
    # 2400 would reach the minimum and exceed the maximum: the maximum has priority.
    assert desk.sizes == [1800]
    desk.send(600, flush=True)
    assert desk.sizes == [1800, 1200]


def test_a_datagram_is_never_larger_than_the_maximum_whatever_the_minimum() -> None:
    desk = Desk(minimum_length=100_000, datagram_max=1000)
    for _ in range(50):
        desk.send(304)
    assert set(desk.sizes) == {912}
    assert set(desk.counts) == {3}


def test_the_interval_is_the_last_resort() -> None:
    desk = Desk(minimum_length=2000)
    desk.send(104)
    desk.world.run(150 * MS)
    desk.send(104)
    desk.world.run(199 * MS)
    assert desk.sizes == []
    # Counted from the oldest message of the datagram.
    desk.world.run(200 * MS)
    assert desk.sizes == [208]
    assert desk.sender.journal[0][0] == 200 * MS
    desk.world.run(1000 * MS)
    desk.send(104)
    desk.world.run(1199 * MS)
    assert desk.sizes == [208]
    desk.world.run(1200 * MS)
    assert desk.sizes == [208, 104]


def test_the_interval_counts_anew_for_each_datagram() -> None:
    desk = Desk(minimum_length=1000)
    desk.send(504)
    desk.world.run(150 * MS)
    desk.send(504)  # sent by its length
    desk.send(504)  # opens the next one at 150 ms
    desk.world.run(349 * MS)
    assert desk.sizes == [1008]
    desk.world.run(350 * MS)
    assert desk.sizes == [1008, 504]


def test_many_low_rate_topics_of_a_session_make_one_full_datagram() -> None:
    desk = Desk(minimum_length=2000, datagram_max=8192)
    sources = [desk.source, *(desk.sender.topic(name) for name in "bcd")]
    for source in sources:
        desk.send(504, source)
    assert desk.counts == [4]
    assert {item.topic for item in parse(desk.sender.sent[0])} == {0, 1, 2, 3}
    assert {item.sequence for item in parse(desk.sender.sent[0])} == {0}


def test_a_minimum_of_one_sends_each_message() -> None:
    desk = Desk(minimum_length=1)
    for _ in range(5):
        desk.send(104)
    assert desk.sizes == [104] * 5


# Intelligent batching: the last message of a burst carries the flush.


def test_flush_on_the_last_message_of_a_burst_leaves_nothing_waiting() -> None:
    desk = Desk(minimum_length=8000, datagram_max=8192)
    for burst in (1, 7, 3):
        for number in range(burst):
            desk.send(104, flush=number == burst - 1)
    assert desk.counts == [1, 7, 3]
    assert {at for at, _ in desk.sender.journal} == {0}


def test_a_burst_longer_than_the_minimum_is_cut_there_and_flushed_at_its_end() -> None:
    desk = Desk(minimum_length=1000, datagram_max=8192)
    for number in range(25):
        desk.send(104, flush=number == 24)
    assert desk.counts == [10, 10, 5]


# Explicit batching: held until complete.


def test_an_explicit_batch_is_held_beyond_the_minimum_and_the_interval_until_it_is_complete() -> None:
    desk = Desk(minimum_length=500, datagram_max=8192, explicit_interval=0)
    receiver = Receiver(desk.sender)
    receiver.receive(desk.source, 0)
    desk.send(400, start_batch=True)
    desk.send(400)
    desk.send(400)
    desk.world.run(5000 * MS)
    assert desk.sizes == []
    # Its end hands it to implicit batching, which finds the minimum reached.
    desk.send(400, end_batch=True)
    assert desk.sizes == [1600]
    desk.world.run(5001 * MS)
    assert [event.flags for event in receiver.events if event.kind == "DATA"] == [0x1, 0, 0, 0x2]


def test_a_complete_explicit_batch_below_the_minimum_still_waits_for_implicit_batching() -> None:
    desk = Desk(minimum_length=2000)
    desk.send(104, start_batch=True)
    desk.send(104, end_batch=True)
    assert desk.sizes == []
    desk.world.run(200 * MS)
    assert desk.sizes == [208]


def test_an_explicit_batch_that_took_longer_than_the_interval_is_sent_with_its_end() -> None:
    desk = Desk(minimum_length=2000)
    desk.send(104, start_batch=True)
    desk.world.run(450 * MS)
    desk.send(104, end_batch=True)
    assert desk.sizes == [208]
    # And the interval of what follows is watched from its first message on.
    desk.send(104)
    desk.world.run(649 * MS)
    assert desk.sizes == [208]
    desk.world.run(650 * MS)
    assert desk.sizes == [208, 104]


def test_an_explicit_batch_holds_up_its_session_for_its_own_interval_at_most() -> None:
    desk = Desk(minimum_length=2000)
    other = desk.sender.topic("b")
    desk.send(104, start_batch=True)
    desk.world.run(300 * MS)
    desk.send(104, other)
    desk.world.run(999 * MS)
    assert desk.sizes == []
    desk.world.run(1000 * MS)
    assert (desk.sizes, desk.sender.timed_out) == ([208], 1)
    # The batch goes on, and so does its limit.
    desk.world.run(1500 * MS)
    desk.send(104)
    desk.world.run(2499 * MS)
    assert desk.sizes == [208]
    desk.world.run(2500 * MS)
    assert (desk.sizes, desk.sender.timed_out) == ([208, 104], 2)
    # After its end everything is as before.
    desk.send(104, end_batch=True)
    desk.world.run(2699 * MS)
    assert desk.counts == [2, 1]
    desk.world.run(2700 * MS)
    assert (desk.counts, desk.sender.timed_out) == ([2, 1, 1], 2)


def test_an_explicit_batch_may_span_datagrams() -> None:
    desk = Desk(minimum_length=2000, datagram_max=1000)
    for number in range(5):
        desk.send(400, start_batch=number == 0, end_batch=number == 4)
    desk.send(400, flush=True)
    assert desk.counts == [2, 2, 2]


# Application batching: one message of many parts, or many messages in one call.


@pytest.mark.parametrize("datagram_max", [1500, 8192])
def test_send_many_fills_datagrams(datagram_max: int) -> None:
    desk = Desk(minimum_length=datagram_max, datagram_max=datagram_max)
    desk.source.send_many([bytes(104 - AROUND)] * 100, flush=True)
    desk.sender.pump()
    per_datagram = datagram_max // 104
    full, rest = divmod(100, per_datagram)
    assert desk.counts == [per_datagram] * full + [rest] * (rest > 0)
