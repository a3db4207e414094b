"""A sending and a receiving session face to face, without contexts: topics, joining, losses, beginnings and ends."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageType
from ipcbus.config import ContextOptions, SourceOptions
from ipcbus.delivery.sink import Sink
from ipcbus.resolution.local.adverts import SourceAdvert
from ipcbus.transport.ring.lbtipc import LBTIPC
from ipcbus.transport.ring.lbtsmx import LBTSMX
from ipcbus.wire import wire_layout
from ringbuf.layout import control_view
from ringbuf.ring_errors import SegmentGone, SegmentMismatch, SlotsFull
from tests.kit.sessions import SMALL, SOURCE_PACED, Pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus import Message
    from ipcbus.topic.topic_source import TopicSource

BOS, EOS = MessageType.BOS, MessageType.EOS


@pytest.fixture
def options() -> dict[str, object]:
    return dict(SMALL)


@pytest.fixture
def pair(domain: str, options: dict[str, object]) -> Iterator[Pair]:
    made = Pair(domain, **options)
    yield made
    made.close()


source_paced = pytest.mark.parametrize("options", [SOURCE_PACED])


def test_plans_come_from_the_options_of_their_transport() -> None:
    context, source = ContextOptions(), SourceOptions()
    ipc, smx = LBTIPC.plan(context, source), LBTSMX.plan(context, source)
    assert (ipc.window, ipc.datagram_max, ipc.receivers_max) == (4 * 2**20, 65400, 20)
    assert (ipc.batch_minimum, ipc.batch_interval_ms, ipc.source_paced) == (2048, 200, False)
    assert (smx.window, smx.datagram_max, smx.receivers_max) == (2**20, 8192, 64)
    assert (smx.batch_minimum, smx.batch_interval_ms, smx.source_paced) == (0, 0, False)
    assert list(LBTIPC.pool(context)) == [20001, 20002, 20003, 20004, 20005]
    assert list(LBTSMX.pool(context)) == [30001, 30002, 30003, 30004, 30005]
    assert LBTIPC.explicit_id(source) == LBTSMX.explicit_id(source) == 0


# Publishing.


def test_the_session_wakes_its_readers_without_the_policy(pair: Pair) -> None:
    """The policy of the tests does not know of readers that sleep."""
    source, advert = pair.topic("a")
    session = pair.join()
    pair.receive(session, advert, pair.sink())
    header = control_view(pair.sending.channel.control.view())[0]
    session.datagram_source.reader.arm(True)
    assert header["parked"] == 1 << session.datagram_source.index
    source.send(b"x", flush=True)
    assert header["parked"] == 0


# Topics.


class Moving:
    """A receiver that moves on right after each look at the place where it is not; the ring, awaited, UDP, the ring."""

    def __init__(self, pair: Pair, place: int) -> None:
        self.pair, self.place, self.moves = pair, place, 1
        self.show()

    def show(self) -> None:
        """Shows in the ring whether it is there."""
        words, at = self.pair.sending._control_words, self.pair.sending._topic_mask_offset(0)
        words.store64(at, self.place % 3 == 0)

    def look(self, place: int) -> bool:
        """Returns whether it is at a place."""
        is_here = self.place % 3 == place
        if not is_here and self.moves:
            self.place, self.moves = self.place + 1, self.moves - 1
            self.show()
        return is_here

    @property
    def awaits_evicted(self) -> bool:
        return self.look(1)

    def joined(self, _: int) -> list[None]:
        return [None] * self.look(2)


@pytest.mark.parametrize("place", [1, 2])
def test_a_receiver_that_moves_meanwhile_is_joined(pair: Pair, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.topic("a")
    monkeypatch.setattr(pair.sending, "udp_sender", Moving(pair, place))
    assert pair.sending.is_joined(0)


def test_a_topic_number_is_never_given_twice_and_lines_are(pair: Pair) -> None:
    assert pair.sending.topics_max == 8  # the next power of two
    seen = set()
    for _ in range(5):
        numbers = [pair.sending.add_topic() for _ in range(8)]
        assert not pair.sending.has_line()
        assert sorted(number % 8 for number in numbers) == list(range(8))
        seen |= set(numbers)
        for number in numbers:
            pair.sending.remove_topic(number)
    assert len(seen) == 40


def test_a_line_whose_numbers_are_used_up_is_retired(pair: Pair) -> None:
    pair.sending._numbers = [wire_layout.TOPIC_MASK // 8 - 1] * 8
    numbers = []
    while pair.sending.has_line():
        numbers.append(pair.sending.add_topic())
        pair.sending.remove_topic(numbers[-1])
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) <= wire_layout.TOPIC_MASK


def test_a_new_topic_begins_with_a_clean_line_and_nobody_joined(pair: Pair) -> None:
    source, advert = pair.topic("a")
    session = pair.join()
    pair.receive(session, advert, pair.sink())
    source.send(b"x", flush=True)
    number = advert.topic_number
    assert pair.sending.joined_slots(number) == 1
    assert pair.sending.line(number)["published"] == 1
    pair.sending.remove_topic(number)
    again = number
    while again % 8 != number % 8 or again == number:
        again = pair.sending.add_topic()
    assert pair.sending.joined_slots(again) == 0
    assert pair.sending.line(again)["published"] == 0
    assert pair.sending.line(again)["topic"] == again


def test_an_old_advert_of_a_line_that_another_topic_has_now_joins_nothing(pair: Pair) -> None:
    _, old = pair.topic("old")
    pair.sending.remove_topic(old.topic_number)
    while pair.topic("new")[1].topic_number % 8 != old.topic_number % 8:
        pass
    session = pair.join()
    pair.receive(session, old, pair.sink())
    assert session.topics() == []
    assert pair.sending.joined_slots(old.topic_number) == 0


# Beginnings and ends.


def test_the_beginning_comes_with_the_first_record_or_at_once_when_there_was_one(pair: Pair) -> None:
    source, advert = pair.topic("a")
    session = pair.join()
    pair.receive(session, advert, pair.sink())
    assert pair.got == []
    source.send(b"first", flush=True)
    session.demux.poll_once(10)
    assert pair.got == ["BOS", "first"]
    later = pair.join()
    pair.receive(later, advert, pair.sink())
    assert pair.got == ["BOS", "first", "BOS"]
    assert pair.told == 2


def test_a_sink_that_comes_later_gets_its_own_beginning_once(pair: Pair) -> None:
    source, advert = pair.topic("a")
    session = pair.join()
    first = pair.sink()
    pair.receive(session, advert, first)
    source.send(b"x", flush=True)
    session.demux.poll_once(10)
    for _ in range(50):  # places in memory are used again
        sink = pair.sink()
        pair.receive(session, advert, first, sink)
        pair.receive(session, advert, first, sink)
        assert pair.got.pop() == "BOS"
        sink.closed = True
        pair.receive(session, advert, first)
        del sink
    assert pair.got == ["BOS", "x"]


def test_a_topic_ends_when_what_was_published_is_read(pair: Pair) -> None:
    source, advert = pair.topic("a")
    other, beside = pair.topic("b")
    session = pair.join()
    for each in (advert, beside):
        pair.receive(session, each, pair.sink())
    source.send(b"last of a")
    other.send(b"one of b", flush=True)
    pair.sending.remove_topic(advert.topic_number)
    session.stop_topic(advert.topic_number, drain=True)
    assert not session.end_drained_topics()
    session.demux.poll_once(10)
    assert session.end_drained_topics()
    assert pair.got == ["BOS", "BOS", "last of a", "one of b", "EOS"]
    assert [controller.origin.topic for controller in session.topics()] == ["b"]
    assert pair.sending.joined_slots(advert.topic_number) == 0


@pytest.mark.parametrize("more", [1, 2])
def test_a_stay_ends_after_all_receivers_have_got_its_beginning(pair: Pair, more: int) -> None:
    """A callback of that beginning finds that the stay is over, and the ones that follow, too."""
    other, _ = pair.topic("b")
    other.send(b"the session begins", flush=True)
    session = pair.join()
    stays = [pair.topic("a")[1] for _ in range(2 + more)]
    first_got: list[MessageType] = []
    second_got: list[MessageType] = []

    def first(message: Message) -> None:
        first_got.append(message.type)
        if first_got == [BOS, EOS, BOS]:
            for stay, following in itertools.pairwise(stays[1:]):
                session.stop_topic(stay.topic_number, drain=True)
                pair.receive(session, following, *sinks)
            session.end_drained_topics()

    sinks = [Sink(first, 1), Sink(lambda message: second_got.append(message.type), 1)]
    pair.receive(session, stays[0], *sinks)
    session.stop_topic(stays[0].topic_number, drain=True)
    pair.receive(session, stays[1], *sinks)
    while session.end_drained_topics():
        pass
    assert first_got == second_got == [BOS, *[EOS, BOS] * (1 + more)]


def test_a_line_is_taken_until_its_topic_is_read_to_the_end(pair: Pair) -> None:
    source, advert = pair.topic("a")
    session = pair.join()
    pair.receive(session, advert, pair.sink())
    source.send(b"x", flush=True)
    following = SourceAdvert(pair.sending.advert, "b", advert.topic_number + 8)
    session.stop_topic(advert.topic_number, drain=True)
    assert not session.can_receive(following)
    session.demux.poll_once(10)
    session.end_drained_topics()
    assert session.can_receive(following)
    assert not session.can_receive(SourceAdvert(pair.sending.advert, "c", 1 << wire_layout.TOPIC_BITS))


def test_the_end_of_the_session_tells_the_end_to_who_had_a_beginning(pair: Pair) -> None:
    source, advert = pair.topic("a")
    session, idle = pair.join(), pair.join()
    pair.receive(session, advert, pair.sink())
    source.send(b"x", flush=True)
    session.demux.poll_once(10)
    idle.finish()
    session.finish()
    session.finish()
    assert pair.got == ["BOS", "x", "EOS"]


# Losses.


def lap(pair: Pair, source: TopicSource) -> int:
    """Sends until every reader that stands still is lapped; returns how many messages."""
    before = source.sequence_number
    for _ in range(400):
        source.send(bytes(500), flush=True)
    return source.sequence_number - before


SECOND_NS = 1_000_000_000


@source_paced
def test_losses_are_told_singly_up_to_a_burst_and_then_as_one(pair: Pair) -> None:
    source, advert = pair.topic("a")
    session = pair.join()
    pair.receive(session, advert, pair.sink(), delivery_control_maximum_burst_loss=3)
    source.send(b"seen", flush=True)
    session.demux.poll_once(10)
    controller = session.topics()[0]
    controller.note_next_sequence(4, 0)
    controller.note_next_sequence(8, 0)
    assert pair.got == [
        "BOS",
        "seen",
        "UNRECOVERABLE_LOSS 1..1",
        "UNRECOVERABLE_LOSS 2..2",
        "UNRECOVERABLE_LOSS 3..3",
        "UNRECOVERABLE_LOSS_BURST 4..7",
    ]
    assert session.counters()["lost"] == 7


@source_paced
def test_what_a_lapped_reader_missed_is_found_by_the_check_when_nothing_follows(pair: Pair) -> None:
    source, advert = pair.topic("a")
    session = pair.join()
    pair.receive(session, advert, pair.sink(), delivery_control_maximum_burst_loss=2)
    source.send(b"seen", flush=True)
    session.demux.poll_once(10)
    missed = lap(pair, source)
    session.check(1 * SECOND_NS)
    assert pair.got == ["BOS", "seen", f"UNRECOVERABLE_LOSS_BURST 1..{missed}"]
    session.check(2 * SECOND_NS)
    assert len(pair.got) == 3
    assert session.counters()["lost"] == missed
    assert session.counters()["overruns"] >= 1


@source_paced
def test_the_check_delivers_what_is_there_and_reports_nothing(pair: Pair) -> None:
    source, advert = pair.topic("a")
    session = pair.join()
    pair.receive(session, advert, pair.sink())
    source.send(b"x", flush=True)
    session.demux.poll_once(10)
    told = pair.told
    for _ in range(3):
        source.send(b"x", flush=True)
    session.check(3 * SECOND_NS)
    assert pair.got == ["BOS", "x", "x", "x", "x"]
    assert pair.told == told + 3  # messages that were not polled: somebody may wait for them
    assert session.counters()["lost"] == 0


@source_paced
def test_losses_at_the_end_of_a_topic_are_told_before_its_end(pair: Pair) -> None:
    source, advert = pair.topic("a")
    session = pair.join()
    pair.receive(session, advert, pair.sink(), delivery_control_maximum_burst_loss=2)
    missed = lap(pair, source)
    pair.sending.remove_topic(advert.topic_number)
    session.stop_topic(advert.topic_number, drain=True)
    session.drain()
    session.end_drained_topics()
    assert pair.got == ["BOS", f"UNRECOVERABLE_LOSS_BURST 0..{missed - 1}", "EOS"]


@source_paced
def test_a_line_that_another_topic_has_now_tells_nothing_of_losses(pair: Pair) -> None:
    source, advert = pair.topic("a")
    session = pair.join()
    pair.receive(session, advert, pair.sink())
    source.send(b"x", flush=True)
    session.demux.poll_once(10)
    pair.sending.remove_topic(advert.topic_number)
    while (made := pair.topic("next"))[1].topic_number % 8 != advert.topic_number % 8:
        pass
    for _ in range(5):
        made[0].send(b"of another topic", flush=True)
    session.check(SECOND_NS)
    session.finish()
    assert pair.got == ["BOS", "x", "EOS"]


# What cannot be joined.


def test_a_session_without_a_free_place_is_told(domain: str) -> None:
    pair = Pair(domain, **SMALL, transport_lbtipc_maximum_receivers_per_transport=1)
    pair.join()
    with pytest.raises(SlotsFull, match="transport_"):
        pair.join()
    pair.close()


def test_a_session_that_has_ended_is_gone(domain: str) -> None:
    pair = Pair(domain, **SMALL)
    pair.sending.close()
    with pytest.raises(SegmentGone):
        pair.join()


def test_a_ring_that_its_registry_describes_otherwise_is_refused_and_its_place_freed(pair: Pair) -> None:
    real = pair.sending.advert
    for wrong in ({"session_id": 5}, {"topics_max": 1024}, {"topics_max": 3}, {"topics_max": 0}):
        pair.sending.advert = dataclasses.replace(real, **wrong)  # type: ignore[arg-type]
        with pytest.raises(SegmentMismatch):
            pair.join()
    pair.sending.advert = real
    assert pair.sending.channel.slots.active_mask() == 0


def test_leaving_twice_is_fine_and_stops_all_reading(pair: Pair) -> None:
    source, advert = pair.topic("a")
    session = pair.join()
    pair.receive(session, advert, pair.sink())
    source.send(b"x", flush=True)
    session.leave()
    session.leave()
    assert session.demux.poll_once(10) == 0
    assert session.drain() in (True, False)
    assert pair.got == []
    assert pair.sending.channel.slots.active_mask() == 0
