"""When a silent source tells its last number, in virtual time."""

from __future__ import annotations

from tests.kit.datagrams import parse
from tests.sim.world import MS, SECOND, Sender, Terms, World

FLAG_TSNI = 0x8


class Desk:
    """A session whose time is moved by hand."""

    def __init__(self, interval: int = 5 * SECOND, active: int = 60 * SECOND) -> None:
        self.sender = Sender(World(), Terms(tsni_interval=interval, tsni_active=active, minimum_length=1))
        self.infos = self.sender.infos

    def tell(self, at_ns: int) -> tuple[list[tuple[int, int]], int | None]:
        """Lets the session tell what is due; returns topic and number of each info, and the ns until the next look."""
        self.sender.channel.writer.set_time(at_ns)
        before = len(self.sender.sent)
        rest = self.infos.send_due(at_ns)
        self.sender.pump()
        told = [item for datagram in self.sender.sent[before:] for item in parse(datagram)]
        assert {(item.flags, item.payload) for item in told} <= {(FLAG_TSNI, b"")}
        return [(item.topic, item.sequence) for item in told], rest


def test_a_source_that_never_sent_tells_nothing() -> None:
    desk = Desk()
    desk.sender.topic("a")
    assert desk.tell(0) == ([], 5 * SECOND)
    assert desk.tell(100 * SECOND) == ([], 5 * SECOND)


def test_a_silent_source_tells_the_number_of_its_next_message_at_each_interval() -> None:
    desk = Desk()
    source = desk.sender.topic("a")
    for _ in range(3):
        desk.sender.send(source, b"x")
    assert desk.tell(5 * SECOND - 1) == ([], 1)
    assert desk.tell(5 * SECOND) == ([(0, 3)], 5 * SECOND)
    assert desk.tell(7 * SECOND) == ([], 3 * SECOND)
    assert desk.tell(10 * SECOND) == ([(0, 3)], 5 * SECOND)
    assert source.sequence_number == 2
    assert desk.sender.batch.infos_sent == 2


def test_data_puts_it_off() -> None:
    desk = Desk()
    source = desk.sender.topic("a")
    desk.sender.send(source, b"x")
    desk.sender.channel.writer.set_time(4 * SECOND)
    source.send(b"y")
    desk.sender.pump()
    assert desk.tell(5 * SECOND) == ([], 4 * SECOND)
    assert desk.tell(9 * SECOND)[0] == [(0, 2)]


def test_it_ends_when_the_source_has_been_silent_for_longer_than_the_threshold() -> None:
    desk = Desk(interval=SECOND, active=3 * SECOND)
    source = desk.sender.topic("a")
    desk.sender.send(source, b"x")
    assert [bool(desk.tell(at * SECOND)[0]) for at in range(1, 7)] == [True, True, True, False, False, False]
    # A new message begins it anew.
    source.send(b"y")
    desk.sender.pump()
    assert [bool(desk.tell(at * SECOND)[0]) for at in range(7, 11)] == [True, True, True, False]


def test_a_threshold_of_zero_never_ends() -> None:
    desk = Desk(interval=SECOND, active=0)
    desk.sender.send(desk.sender.topic("a"), b"x")
    assert all(desk.tell(at * 1000 * SECOND)[0] for at in range(1, 5))


def test_an_interval_of_zero_is_off() -> None:
    desk = Desk(interval=0)
    desk.sender.send(desk.sender.topic("a"), b"x")
    assert desk.tell(1000 * SECOND) == ([], None)


def test_many_topics_travel_in_one_datagram() -> None:
    desk = Desk()
    sources = [desk.sender.topic(name) for name in "abcdef"]
    for source in sources:
        desk.sender.send(source, b"x")
    before = len(desk.sender.sent)
    assert desk.tell(5 * SECOND)[0] == [(number, 1) for number in range(6)]
    assert len(desk.sender.sent) == before + 1


def test_a_deleted_source_tells_nothing() -> None:
    desk = Desk()
    source = desk.sender.topic("a")
    desk.sender.send(source, b"x")
    desk.sender.delete(source)
    assert desk.tell(5 * SECOND) == ([], None)


def test_an_open_explicit_batch_is_not_sent_for_it() -> None:
    desk = Desk()
    silent, batching = desk.sender.topic("a"), desk.sender.topic("b")
    desk.sender.send(silent, b"x")
    batching.send(b"first", start_batch=True)
    assert desk.tell(5 * SECOND)[0] == []
    batching.send(b"last", end_batch=True)
    desk.sender.pump()
    assert desk.tell(6 * SECOND)[0] == [(0, 1)]
    # The other one has been silent since its last message, not since the batch was begun.
    assert desk.tell(10 * SECOND)[0] == [(1, 2)]


def test_what_was_left_out_while_somebody_wrote_in_place_is_told_at_the_next_look() -> None:
    desk = Desk(interval=100 * MS)
    source, other = desk.sender.topic("a"), desk.sender.topic("b")
    desk.sender.send(source, b"x")
    desk.sender.channel.writer.set_time(90 * MS)
    with other.acquire(8):
        assert desk.tell(100 * MS) == ([], 100 * MS)
    desk.sender.pump()
    assert desk.tell(150 * MS)[0] == [(0, 1)]


def test_the_next_look_is_for_the_source_that_is_due_first() -> None:
    desk = Desk()
    first, second = desk.sender.topic("a"), desk.sender.topic("b")
    desk.sender.send(first, b"x")
    desk.sender.channel.writer.set_time(2 * SECOND)
    second.send(b"y")
    desk.sender.pump()
    assert desk.tell(3 * SECOND) == ([], 2 * SECOND)
    assert desk.tell(5 * SECOND) == ([(0, 1)], 2 * SECOND)
    assert desk.tell(7 * SECOND) == ([(1, 1)], 3 * SECOND)
