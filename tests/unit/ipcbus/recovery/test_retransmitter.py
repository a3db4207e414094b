from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipcbus.recovery.control_channel import ControlChannel
from ipcbus.recovery.retransmitter import Retransmitter, RetransmitterSettings
from ipcbus.topic.message_retention import Retention
from ipcbus.wire import control_messages
from ipcbus.wire.control_messages import NUMBER_MAX, Info, InfoRequest, RangeRequest, Retransmission, TsniRequest
from tests.kit.frame_links import memory_links
from tests.kit.retaining import kept, message

if TYPE_CHECKING:
    from ipcbus.wire.control_messages import ControlMessage

MS = 1_000_000
ENTRY = 24 + 8
"""Bytes of an entry of these tests."""
MANY = 10**9


class Topic:
    """A source that retains messages of 8 bytes: their numbers."""

    def __init__(self, count: int = 0, size_limit: int = 1 << 20) -> None:
        self.retention = Retention(0, 0, size_limit)
        self.reads: list[bool] = []
        self.send(count)

    def send(self, count: int) -> None:
        """Sends and publishes more messages."""
        number = self.retention.next
        for each in range(number, number + count):
            self.retention.put(each, message(each, each.to_bytes(8, "little")))
        self.retention.published = number + count

    def info(self, history: int | None = None, before: int | None = None) -> tuple[int, int]:
        """Answers what it retains."""
        return self.retention.info(history, before)

    def read(self, first: int, last: int, bytes_max: int, *, epoch: bool = False) -> tuple[int, int, bytes]:
        """Answers with messages."""
        self.reads.append(epoch)
        return self.retention.read(first, last, bytes_max)


class Channel:
    """A channel that takes some messages and then no more until it is emptied."""

    def __init__(self, room: int = MANY) -> None:
        self.room = room
        self.taken: list[tuple[bool, ControlMessage]] = []
        self.refused = 0

    def send(self, message: bytes, *, bulk: bool = False) -> bool:
        """Takes a message if there is room."""
        if not self.room:
            self.refused += 1
            return False
        self.room -= 1
        decoded = control_messages.decode(message)
        assert decoded is not None
        self.taken.append((bulk, decoded))
        return True

    def take(self) -> list[ControlMessage]:
        """What came since the last call."""
        found = [each for _, each in self.taken]
        self.taken = []
        return found


def answered(messages: list[ControlMessage]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Topic and number of each message that came, and of those that are gone."""
    came, gone = [], []
    for each in messages:
        if isinstance(each, Retransmission):
            entries = kept(each.entries)
            assert all(entry.payload == entry.sequence.to_bytes(8, "little") for entry in entries)
            numbers = [entry.sequence for entry in entries]
            came += [(each.topic, number) for number in numbers]
            gone += [(each.topic, number) for number in range(each.first, each.last + 1) if number not in numbers]
    return came, gone


def desk(topic: Topic, channel: Channel, **options: int) -> Retransmitter:
    """A retransmitter with topic 7 and receiver "a"."""
    found = Retransmitter(RetransmitterSettings(**options))
    found.add_topic(7, topic)
    found.add_peer("a", channel)
    return found


def test_an_info_request_is_answered_at_once() -> None:
    channel, topic = Channel(), Topic(10)
    sender = desk(topic, channel)
    sender.receive("a", InfoRequest(7), 0)
    assert channel.taken == [(False, Info(7, 0, 10))]
    topic.retention.published = 4
    sender.receive("a", InfoRequest(7), 0)
    assert channel.take()[1:] == [Info(7, 0, 4)]
    assert sender.counts.info_requests == 2


def test_a_receiver_that_wants_the_last_messages_is_told_of_them_only() -> None:
    channel, topic = Channel(), Topic(10)
    sender = desk(topic, channel)
    for history, low in ((3, 7), (0, 10), (10, 0), (99, 0), (None, 0)):
        sender.receive("a", InfoRequest(7, history), 0)
        assert channel.take() == [Info(7, low, 10)]
    sender.receive("a", InfoRequest(7, 3, 8), 0)
    assert channel.take() == [Info(7, 5, 10)]


def test_each_question_gets_its_own_answer_also_later() -> None:
    channel, topic = Channel(room=0), Topic(10)
    sender = desk(topic, channel, ranges_max=2)
    for request in (InfoRequest(7, 3, request=1), InfoRequest(7, 5, request=2), InfoRequest(7, request=3)):
        sender.receive("a", request, 0)
    channel.room = MANY
    assert not sender.turn(0)
    assert channel.take() == [Info(7, 7, 10, 1), Info(7, 5, 10, 2)]  # the third one asks again


def test_a_receiver_with_a_new_channel_begins_again() -> None:
    old, topic = Channel(room=0), Topic(10)
    sender = desk(topic, old)
    sender.receive("a", RangeRequest(7, 0, 9), 0)
    new = Channel()
    sender.add_peer("a", new)
    sender.receive("a", RangeRequest(7, 5, 6), 0)
    assert sender.recovering == 1
    sender.remove_peer("a")
    assert not sender.turn(0)
    assert new.take() == []
    assert sender.due_ns(0) is None


def test_an_info_request_waits_for_room() -> None:
    channel, topic = Channel(room=0), Topic(10)
    sender = desk(topic, channel)
    for _ in range(100):
        sender.receive("a", InfoRequest(7), 0)
    assert sender.busy(10**12)
    assert sender.turn(0) is False
    topic.send(2)
    channel.room = MANY
    sender.turn(0)
    assert channel.take() == [Info(7, 0, 12)]
    assert sender.due_ns(0) is None


def test_a_range_comes_in_order_in_pieces_on_the_bulk_lane() -> None:
    channel = Channel()
    sender = desk(Topic(100), channel, piece_bytes=10 * ENTRY)
    sender.receive("a", RangeRequest(7, 5, 42), 0)
    assert not channel.taken
    assert sender.due_ns(3) == 3
    assert sender.turn(0) is False
    assert all(bulk for bulk, _ in channel.taken)
    messages = channel.take()
    assert [(each.first, each.last) for each in messages if isinstance(each, Retransmission)] == [
        *((5, 14), (15, 24), (25, 34)),
        (35, 42),
    ]
    assert answered(messages) == ([(7, number) for number in range(5, 43)], [])
    assert (sender.counts.messages, sender.counts.bytes, sender.counts.gone) == (38, 38 * ENTRY, 0)


def test_what_is_gone_is_said_at_once_in_the_order_of_the_messages() -> None:
    channel = Channel()
    sender = desk(Topic(100, 20 * ENTRY), channel)
    sender.receive("a", RangeRequest(7, 70, 99), 0)
    assert [(bulk, answered([each])) for bulk, each in channel.taken] == [
        (True, ([], [(7, number) for number in range(70, 80)]))
    ]
    sender.receive("a", RangeRequest(7, 3, 4), 0)
    assert answered(channel.take())[1][10:] == [(7, number) for number in range(3, 80)]
    sender.turn(0)
    assert answered(channel.take()) == ([(7, number) for number in range(80, 100)], [])
    assert sender.counts.gone == 12


def test_what_is_gone_waits_for_room_with_the_rest() -> None:
    channel = Channel(room=0)
    sender = desk(Topic(100, 20 * ENTRY), channel)
    sender.receive("a", RangeRequest(7, 70, 85), 0)
    channel.room = MANY
    sender.turn(0)
    assert answered(channel.take()) == (
        [(7, number) for number in range(80, 86)],
        [(7, number) for number in range(70, 80)],
    )


def test_what_leaves_while_it_waits_is_gone() -> None:
    channel, topic = Channel(room=0), Topic(100, 20 * ENTRY)
    sender = desk(topic, channel, piece_bytes=5 * ENTRY)
    sender.receive("a", RangeRequest(7, 80, 99), 0)
    sender.turn(0)  # reads the first piece, which the channel does not take
    topic.send(12)
    channel.room = MANY
    sender.turn(0)
    came, gone = answered(channel.take())
    assert [number for _, number in came] == [*range(80, 85), *range(92, 100)]
    assert [number for _, number in gone] == list(range(85, 92))
    assert sender.counts.gone == 7


def test_all_that_is_gone_is_said_in_one_answer() -> None:
    channel, topic = Channel(), Topic(100, 20 * ENTRY)
    sender = desk(topic, channel)
    sender.receive("a", RangeRequest(7, 3, 9), 0)
    assert channel.taken == [(True, Retransmission(7, 3, 79, memoryview(b"")))]
    assert sender.counts.gone == 7
    assert sender.recovering == 0


def test_what_has_left_is_gone_only_behind_the_messages_that_were_read_before() -> None:
    channel, topic = Channel(room=0), Topic(100, 20 * ENTRY)
    sender = desk(topic, channel, piece_bytes=5 * ENTRY)
    sender.receive("a", RangeRequest(7, 85, 89), 0)
    sender.turn(0)  # reads them, but the channel does not take them
    topic.send(50)
    channel.room = MANY
    sender.receive("a", RangeRequest(7, 81, 83), 0)
    sender.turn(0)
    numbers = [
        (each.first, each.last, bool(each.entries)) for each in channel.take() if isinstance(each, Retransmission)
    ]
    assert numbers == [(85, 89, True), (81, 129, False)]


def test_requests_that_overlap_are_answered_once() -> None:
    channel = Channel()
    sender = desk(Topic(100), channel)
    for first, last in ((10, 20), (15, 30), (31, 35), (5, 9), (12, 13)):
        sender.receive("a", RangeRequest(7, first, last), 0)
    sender.turn(0)
    assert answered(channel.take())[0] == [(7, number) for number in range(5, 36)]


def test_what_is_not_published_is_not_an_answer() -> None:
    channel, topic = Channel(), Topic(10)
    sender = desk(topic, channel)
    sender.receive("a", RangeRequest(7, 10, 20), 0)
    assert sender.counts.ignored == 1
    assert sender.due_ns(0) is None
    sender.receive("a", RangeRequest(7, 8, NUMBER_MAX), 0)
    sender.turn(0)
    assert answered(channel.take()) == ([(7, 8), (7, 9)], [])


def test_a_topic_without_a_source_has_nothing() -> None:
    channel = Channel()
    sender = desk(Topic(10), channel)
    sender.receive("a", InfoRequest(8), 0)
    sender.receive("a", RangeRequest(8, 3, 4), 0)
    sender.receive("a", TsniRequest(8), 0)
    assert channel.take() == [Info(8, 0, 0), Retransmission(8, 3, 4, memoryview(b""))]
    assert sender.counts.unknown == 3
    assert sender.infos_due(0) == []
    assert not sender.busy(0)


def test_a_topic_that_ends_is_gone() -> None:
    channel = Channel()
    sender = desk(Topic(10), channel, piece_bytes=ENTRY)
    sender.receive("a", RangeRequest(7, 3, 6), 0)
    sender.remove_topic(7)
    sender.turn(0)
    assert answered(channel.take()) == ([], [(7, number) for number in range(3, 7)])
    assert not sender.busy(0)


def test_a_source_that_retains_nothing_says_that_all_is_gone() -> None:
    class Nothing(Topic):
        def info(self, history: int | None = None, before: int | None = None) -> tuple[int, int]:
            return 5, 5

    channel = Channel()
    sender = desk(Nothing(), channel)
    sender.receive("a", InfoRequest(7), 0)
    sender.receive("a", RangeRequest(7, 0, 9), 0)
    assert channel.take() == [Info(7, 5, 5), Retransmission(7, 0, 4, memoryview(b""))]


def test_receivers_and_topics_take_turns() -> None:
    topics = {number: Topic(1000) for number in (1, 2, 3)}
    sender = Retransmitter(RetransmitterSettings(piece_bytes=10 * ENTRY, turn_bytes=10**7))
    order: list[tuple[str, int]] = []

    class Noting(Channel):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def send(self, message: bytes, *, bulk: bool = False) -> bool:
            decoded = control_messages.decode(message)
            assert isinstance(decoded, Retransmission)
            order.append((self.name, decoded.topic))
            return True

    for number, topic in topics.items():
        sender.add_topic(number, topic)
    for name in "ab":
        sender.add_peer(name, Noting(name))
    for number in topics:
        sender.receive("a", RangeRequest(number, 0, 999), 0)
    sender.receive("b", RangeRequest(1, 0, 29), 0)
    sender.turn(0)
    assert order[:8] == [("a", 1), ("b", 1), ("a", 2), ("b", 1), ("a", 3), ("b", 1), ("a", 1), ("a", 2)]
    assert len(order) == 303


def test_a_receiver_whose_channel_is_full_holds_up_no_other() -> None:
    full, free = Channel(room=2), Channel()
    sender = desk(Topic(1000), full, piece_bytes=10 * ENTRY)
    sender.add_peer("b", free)
    for name in "ab":
        sender.receive(name, RangeRequest(7, 0, 499), 0)
    assert sender.turn(0) is False
    assert len(answered(free.take())[0]) == 500
    assert len(answered(full.take())[0]) == 20
    assert sender.due_ns(0) == 0
    full.room = MANY
    sender.turn(0)
    assert [number for _, number in answered(full.take())[0]] == list(range(20, 500))


def test_a_turn_is_bounded() -> None:
    channel = Channel()
    sender = desk(Topic(1000), channel, piece_bytes=10 * ENTRY, turn_bytes=50 * ENTRY)
    sender.receive("a", RangeRequest(7, 0, 999), 0)
    turns = 1
    while sender.turn(0):
        assert len(answered(channel.take())[0]) <= 60
        turns += 1
    assert turns > 15
    assert sender.counts.messages == 1000


def test_turns_take_their_share_of_the_time() -> None:
    channel = Channel()
    sender = Retransmitter(RetransmitterSettings(piece_bytes=ENTRY, turn_bytes=1, time_share=0.25))
    sender.add_topic(7, Topic(100))
    sender.add_peer("a", channel)
    sender.receive("a", RangeRequest(7, 0, 99), 0)
    assert sender.turn(1000) is True
    sender.spent(1000, 1100, 1)
    assert sender.due_ns(1100) == 1400
    assert sender.turn(1399) is True
    assert len(channel.take()) == 1
    sender.turn(1400)
    assert len(channel.take()) == 1


def test_turns_take_all_of_the_time_while_there_is_nothing_live() -> None:
    channel = Channel()
    sender = Retransmitter(RetransmitterSettings(piece_bytes=ENTRY, turn_bytes=1, time_share=0.25, live=1000))
    sender.add_topic(7, Topic(100))
    sender.add_peer("a", channel)
    sender.receive("a", RangeRequest(7, 0, 99), 0)
    due = []
    for begun_ns, live in ((0, 5), (1000, 5), (2000, 5), (3000, 6), (3500, 6), (9000, 6)):
        assert sender.turn(begun_ns) is True
        sender.spent(begun_ns, begun_ns + 100, live)
        due.append(sender.due_ns(begun_ns + 100))
    # A context is taken for a busy one at first, and again for 1000 ns after each change.
    assert due == [400, 1100, 2100, 3400, 3900, 9100]


@pytest.mark.parametrize("share", [0, -1, 1.01])
def test_a_share_is_a_share(share: float) -> None:
    with pytest.raises(ValueError, match="time_share"):
        Retransmitter(RetransmitterSettings(time_share=share))


def test_a_receiver_that_asks_for_everything_all_the_time_is_bounded_and_others_are_served() -> None:
    greedy, honest = Channel(room=3), Channel()
    topic = Topic(20_000, 1 << 20)
    sender = desk(topic, greedy, ranges_max=50, piece_bytes=10 * ENTRY, turn_bytes=100 * ENTRY)
    sender.add_peer("b", honest)
    sender.receive("b", RangeRequest(7, 15_000, 15_999), 0)
    turns = 0
    while len(honest.taken) < 100:
        for number in range(0, 4000, 2):
            sender.receive("a", RangeRequest(7, number, number), 0)
            sender.receive("a", RangeRequest(7, 15_000 + number % 99, NUMBER_MAX), 0)
            sender.receive("a", RangeRequest(number, 0, NUMBER_MAX), 0)
            sender.receive("a", InfoRequest(7), 0)
        greedy.room = 3
        sender.turn(0)
        turns += 1
    assert turns < 40
    assert sender.recovering <= 2


def test_too_many_ranges_are_shed() -> None:
    channel = Channel()
    sender = desk(Topic(1000), channel, ranges_max=10)
    for number in range(0, 100, 2):
        sender.receive("a", RangeRequest(7, number, number), 0)
    assert sender.counts.shed == 40
    sender.receive("a", RangeRequest(7, 1, 30), 0)  # joins those that wait
    assert sender.counts.shed == 40
    sender.turn(0)
    assert answered(channel.take())[0] == [(7, number) for number in range(31)]


def test_a_receiver_that_leaves_is_forgotten() -> None:
    channel = Channel()
    sender = desk(Topic(100), channel)
    sender.receive("a", RangeRequest(7, 0, 9), 0)
    sender.remove_peer("a")
    sender.remove_peer("a")
    sender.turn(0)
    sender.receive("a", RangeRequest(7, 0, 9), 0)
    assert not channel.taken
    assert not sender.busy(0)


def test_infos_that_are_asked_for_are_due_and_not_too_often() -> None:
    sender = desk(Topic(10), Channel(), info_interval=100 * MS)
    for _ in range(5):
        sender.receive("a", TsniRequest(7), 0)
    assert sender.infos_due(0) == [7]
    sender.receive("a", TsniRequest(7), 1)
    assert sender.infos_due(50 * MS) == []
    assert sender.infos_due(100 * MS) == [7]
    assert sender.infos_due(500 * MS) == []
    assert sender.counts.tsni_requests == 6


def test_it_is_busy_until_a_receiver_has_what_it_was_promised() -> None:
    channel, topic = Channel(), Topic(100)
    sender = desk(topic, channel, quiet=1000 * MS)
    assert not sender.busy(0)
    sender.receive("a", InfoRequest(7), 0)
    assert sender.busy(10)
    assert sender.busy(10, 7)
    assert not sender.busy(10, 8)
    topic.send(5)
    sender.receive("a", RangeRequest(7, 0, 50), 20)
    sender.turn(30)
    assert sender.busy(40)
    sender.receive("a", RangeRequest(7, 51, 99), 50)
    assert sender.recovering == 1
    sender.turn(60)
    assert sender.busy(60), "the receiver may have skipped the five messages that were sent meanwhile"
    sender.receive("a", InfoRequest(7), 70)
    sender.receive("a", RangeRequest(7, 100, 104), 80)
    sender.turn(90)
    assert not sender.busy(90)


def test_it_is_not_busy_for_a_receiver_that_asks_no_more() -> None:
    sender = desk(Topic(100), Channel(), quiet=1000 * MS, slow=3000 * MS)
    sender.receive("a", RangeRequest(7, 0, 50), 0)
    sender.turn(0)
    assert sender.busy(999 * MS)
    assert not sender.busy(1000 * MS), "it repairs a loss, and was promised nothing"
    sender.receive("a", InfoRequest(7), 2000 * MS)
    sender.turn(2000 * MS)
    assert sender.busy(2999 * MS)
    assert not sender.busy(3000 * MS), "it may want nothing of what there is"
    sender.receive("a", RangeRequest(7, 0, 50), 4000 * MS)
    assert sender.busy(9000 * MS)
    sender.turn(9000 * MS)
    assert sender.busy(11_999 * MS), "it may be busy with what it has got"
    assert not sender.busy(12_000 * MS)


def test_a_message_that_waits_for_room_keeps_it_busy() -> None:
    channel = Channel(room=1)
    sender = desk(Topic(100), channel)
    sender.receive("a", InfoRequest(7), 0)
    sender.receive("a", RangeRequest(7, 0, 99), 0)
    sender.turn(0)
    assert sender.busy(10**12)
    assert sender.busy(10**12, 7)
    channel.room = 1
    sender.turn(0)
    assert not sender.busy(0)


def test_a_receiver_on_another_host_gets_times_since_the_epoch() -> None:
    topic = Topic(100)
    sender = desk(topic, Channel())
    sender.add_peer("b", Channel(), epoch=True)
    for name in "ab":
        sender.receive(name, RangeRequest(7, 0, 9), 0)
    sender.turn(0)
    assert topic.reads == [False, True]


def test_over_control_channels_that_are_full_most_of_the_time_everything_comes_once() -> None:
    topic = Topic(5000)
    sender = Retransmitter(RetransmitterSettings(piece_bytes=20 * ENTRY, turn_bytes=100 * ENTRY))
    sender.add_topic(7, topic)
    ends = []
    for key in range(3):
        here, there = (ControlChannel(link, queue_max=1000, message_max=4096) for link in memory_links(128, 512))
        sender.add_peer(key, here)
        there.send(control_messages.range_request(7, 1000 * key, 4999))
        ends.append((key, here, there))
    came: list[list[ControlMessage]] = [[], [], []]
    while any(there.queued for _, _, there in ends) or sender.busy(10**12) or any(here.queued for _, here, _ in ends):
        for key, here, there in ends:
            there.flush()
            while (request := here.receive()) is not None:
                decoded = control_messages.decode(request)
                assert isinstance(decoded, RangeRequest)
                sender.receive(key, decoded, 0)
        sender.turn(0)
        for key, here, there in ends:
            here.flush()
            while (message := there.receive()) is not None:
                answer = control_messages.decode(message)
                assert answer is not None
                came[key].append(answer)
    for key in range(3):
        assert answered(came[key]) == ([(7, number) for number in range(1000 * key, 5000)], [])


STEP = st.tuples(
    st.sampled_from(["ask", "ask", "ask", "info", "send", "turn", "room", "leave"]),
    st.integers(0, 1),
    st.integers(1, 2),
    st.integers(0, 120),
    st.integers(0, 60),
)


@given(st.lists(STEP, max_size=60), st.integers(1, 40), st.integers(0, 300))
def test_whatever_is_asked_for_comes_or_is_gone(
    steps: list[tuple[str, int, int, int, int]], pieces: int, limit: int
) -> None:
    topics = {number: Topic(40, limit * ENTRY) for number in (1, 2)}
    sender = Retransmitter(RetransmitterSettings(piece_bytes=pieces * ENTRY, turn_bytes=20 * ENTRY))
    for number, topic in topics.items():
        sender.add_topic(number, topic)
    channels = [Channel(2), Channel(2)]
    asked: list[set[tuple[int, int]]] = [set(), set()]
    told: list[set[tuple[int, int]]] = [set(), set()]

    def collect() -> None:
        for told_to, channel in zip(told, channels, strict=True):
            came, gone = answered(channel.take())
            told_to.update(came, gone)

    for who, channel in enumerate(channels):
        sender.add_peer(who, channel)
    for what, who, number, first, count in steps:
        topic = topics[number]
        if what == "ask":
            sender.receive(who, RangeRequest(number, first, first + count), 0)
            asked[who].update(
                (number, each) for each in range(first, min(first + count + 1, topic.retention.published))
            )
        elif what == "info":
            sender.receive(who, InfoRequest(number), 0)
        elif what == "send":
            topic.send(count)
        elif what == "turn":
            sender.turn(0)
        elif what == "room":
            channels[who].room = first % 4
        else:
            collect()
            sender.remove_peer(who)
            sender.add_peer(who, channels[who])
            asked[who] = set(told[who])
    for channel in channels:
        channel.room = MANY
    while sender.due_ns(0) is not None:
        sender.turn(0)
    collect()
    assert all(wanted <= found for wanted, found in zip(asked, told, strict=True))
    unasked = [(number, each) for wanted, found in zip(asked, told, strict=True) for number, each in found - wanted]
    assert all(each < topics[number].retention.low for number, each in unasked)
    assert sender.recovering == 0
