"""Evicting, and joining again, step by step: nothing between the two joins is left out, and nothing is told twice."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from ipcbus.resolution.local import object_names
from ringbuf.doorbell import CALL, Doorbell
from ringbuf.layout import RECORD_HEADER
from tests.kit.look import ROOT
from tests.kit.sessions import SMALL, Pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.transport.ring.eviction import Evictor

MILLISECOND = 1_000_000
SECOND_NS = 1_000_000_000
PATIENCE_MS = 100


@pytest.fixture
def pair(domain: str) -> Iterator[Pair]:
    """A session that evicts after a tenth of a second."""
    made = Pair(domain, **SMALL, slow_receiver_behavior="evict", slow_receiver_timeout=PATIENCE_MS)
    yield made
    made.close()


def evictor_of(pair: Pair) -> Evictor:
    assert pair.sending.evictor is not None
    return pair.sending.evictor


def evict(pair: Pair) -> None:
    """Evicts the only receiver."""
    slots = pair.sending.channel.slots
    assert slots.evict(0, slots.generation(0))


def test_who_is_in_the_way_for_too_long_is_evicted_and_counted_and_called(pair: Pair) -> None:
    session, evictor = pair.join(), evictor_of(pair)
    bell = Doorbell(object_names.bell(pair.domain, 9), group="")
    writer = pair.sending.channel.writer
    while writer.write(bytes(1000)):
        pass
    assert not evictor.evict_slow(0, 1000)
    for turn in range(1, 10):
        assert not evictor.evict_slow(turn * 10 * MILLISECOND)
    assert evictor.evict_slow(PATIENCE_MS * MILLISECOND)
    assert writer.has_room(1000)
    assert session.demux.ring.evicted
    count, (who,) = evictor.evicted_since(0)
    assert (count, who.pid, who.context_name) == (1, os.getpid(), "joining")
    assert evictor.evicted_since(1) == (1, [])
    assert CALL in bell.drain()
    bell.close()


def test_a_receiver_that_reads_what_is_needed_stays(pair: Pair) -> None:
    session, evictor = pair.join(), evictor_of(pair)
    writer, reader = pair.sending.channel.writer, session.datagram_source.reader
    now = 0
    for _ in range(50):
        while writer.write(bytes(1000)):
            pass
        for _ in range(9):
            now += 10 * MILLISECOND
            assert not evictor.evict_slow(now, 1000)
        reader.read()
        reader.show()
    assert not reader.evicted


def test_an_impossible_position_is_nobody_in_the_way(pair: Pair) -> None:
    """The writer does not wait for it, so nobody has to go."""
    session, evictor = pair.join(), evictor_of(pair)
    writer = pair.sending.channel.writer
    for _ in range(3 * writer.capacity // (1000 + RECORD_HEADER)):
        assert writer.write(bytes(1000))
        session.datagram_source.reader.read()
        session.datagram_source.reader.show()
    pair.sending.channel.slots._slots["position"][0] = 0
    for turn in range(30):
        assert not evictor.evict_slow(turn * 10 * MILLISECOND, writer.capacity // 4)


def test_what_was_published_and_not_read_is_lost_at_once(pair: Pair) -> None:
    source, advert = pair.topic("a")
    session = pair.join()
    pair.receive(session, advert, pair.sink(), delivery_control_maximum_burst_loss=2)
    source.send(b"seen", flush=True)
    session.demux.poll_once(10)
    for _ in range(5):
        source.send(b"missed", flush=True)
    evict(pair)
    session.demux.poll_once(10)
    assert session.demux.attention
    session.leave()
    session.note_eviction()
    assert pair.got == ["BOS", "seen", "UNRECOVERABLE_LOSS_BURST 1..5"]
    source.send(b"missed", flush=True)
    session.report_losses()
    session.report_losses()
    assert pair.got[3:] == ["UNRECOVERABLE_LOSS 6..6"]


@pytest.mark.parametrize("ordered", [1, -1])
def test_a_message_of_which_only_a_part_was_read_is_lost_as_a_whole(pair: Pair, ordered: int) -> None:
    source, advert = pair.topic("a")
    session = pair.join()
    pair.receive(session, advert, pair.sink(), ordered_delivery=ordered)
    source.send(b"seen", flush=True)
    source.send(bytes(20_000), flush=True)
    assert source.sequence_number == 3
    session.demux.poll_once(2)
    evict(pair)
    session.demux.poll_once(10)
    session.leave()
    session.note_eviction()
    assert pair.got == ["BOS", "seen"] + [f"UNRECOVERABLE_LOSS {number}..{number}" for number in (1, 2, 3)]


@pytest.mark.parametrize("begun", [False, True], ids=["before any message", "later"])
@pytest.mark.parametrize("found_by", ["message", "check", "end"])
def test_what_was_sent_between_the_joins_is_lost_exactly_once(pair: Pair, found_by: str, begun: bool) -> None:
    source, advert = pair.topic("a")
    first = pair.join()
    sink = pair.sink()
    pair.receive(first, advert, sink, delivery_control_maximum_burst_loss=2)
    if begun:
        source.send(b"seen", flush=True)
        first.demux.poll_once(10)
        pair.got.clear()
    evict(pair)
    first.leave()
    first.note_eviction()
    at = source.sequence_number + 1
    for _ in range(5):
        source.send(b"missed", flush=True)
    second = pair.join()
    second.continue_from(first, {advert.topic_number})
    pair.receive(second, advert, sink, delivery_control_maximum_burst_loss=2)
    assert pair.got == (["EOS", "BOS"] if begun else ["BOS"])
    pair.got.clear()
    first.report_losses()  # by a timer that came too late
    assert pair.got == []
    loss = f"UNRECOVERABLE_LOSS_BURST {at}..{at + 4}"
    if found_by == "message":
        source.send(b"next", flush=True)
        second.demux.poll_once(10)
        assert pair.got == [loss, "next"]
    elif found_by == "check":
        second.check(1 * SECOND_NS)
        assert pair.got == [loss]
    second.check(2 * SECOND_NS)
    second.finish()
    assert pair.got[:1] == [loss]
    assert pair.got[-1] == "EOS"
    assert len(pair.got) == (3 if found_by == "message" else 2)
    assert second.counters()["evictions"] == 1


def test_a_topic_that_is_gone_by_then_is_told_of_its_last_losses_and_its_end(pair: Pair) -> None:
    source, advert = pair.topic("a")
    first = pair.join()
    pair.receive(first, advert, pair.sink(), delivery_control_maximum_burst_loss=2)
    source.send(b"seen", flush=True)
    first.demux.poll_once(10)
    evict(pair)
    first.leave()
    first.note_eviction()
    for _ in range(5):
        source.send(b"missed", flush=True)
    pair.sending.remove_topic(advert.topic_number)
    second = pair.join()
    second.continue_from(first, set())
    assert pair.got == ["BOS", "seen", "UNRECOVERABLE_LOSS_BURST 1..5", "EOS"]
    first.report_losses()
    assert len(pair.got) == 4


def test_the_next_stay_reads_the_lines_of_the_ring_where_it_cannot_map_it(pair: Pair) -> None:
    first = pair.join()
    first.leave()
    second = pair.join()
    with patch.object(second.datagram_source, "take_lines") as take_lines:
        second.continue_from(first, ())
    take_lines.assert_called_once_with(first.datagram_source.lines)


def test_a_session_says_when_it_is_closed(domain: str) -> None:
    pair = Pair(domain, **SMALL)
    session = pair.join()
    before = session.closed
    pair.sending.close()
    assert (before, session.closed) == (False, True)
    session.leave()
    assert not [name for name in os.listdir(ROOT) if name.startswith(object_names.domain_prefix(domain))]
