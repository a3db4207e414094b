"""The protocol of a session over TCP, both ends, in virtual time: what a connection takes comes, in order."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from ipcbus.reliability.clients import ClientSettings
from ipcbus.reliability.receive_state import ReceiveSettings
from ipcbus.reliability.receiver_settings import ReceiverSettings
from ipcbus.reliability.registration import State
from ipcbus.reliability.send_state import SendSettings
from ipcbus.reliability.stream_receiver import StreamReceiver
from ipcbus.reliability.stream_sender import CLOSE, UNSENT_MAX, StreamSender, StreamSettings
from ipcbus.wire import udp_packets
from tests.kit.cases import each_of

if TYPE_CHECKING:
    from collections.abc import Hashable

SESSION = 7
MS = 1_000_000
SETTINGS = StreamSettings(
    SendSettings(data_rate=0, retransmit_rate=0, window_size=1 << 20),
    ClientSettings(clients_max=2, activity_timeout=1000 * MS),
    buffer_max=10_000,
)
TOPIC = 3


class Link:
    """A source, its receivers, and the connections between them; a connection may be blocked."""

    def __init__(self, settings: StreamSettings = SETTINGS, *, filters: bool = False) -> None:
        self.now = 0
        self.published = 0
        self.unsent: dict[Hashable, int] = {}
        self.sender = StreamSender(
            SESSION,
            settings,
            bytes(32),
            0,
            lambda address: self.unsent.get(address, 0),
            lambda topic: (self.published or self.sender.lead,) * 2 if topic == TOPIC else None,
            (lambda packet: {packet[-1]}) if filters else None,
        )
        self.receivers: dict[Hashable, StreamReceiver] = {}
        self.got: dict[Hashable, list[bytes]] = {}
        self.closed: list[Hashable] = []

    def connect(self, address: str, resume_at: int | None = None) -> StreamReceiver:
        """One more receiver, joined."""
        timeouts = ReceiverSettings(ReceiveSettings(activity_timeout=60_000 * MS))
        receiver = StreamReceiver(
            SESSION, "source", timeouts, Random(1), self.now, (len(self.receivers) + 1, 1, address), resume_at=resume_at
        )
        self.receivers[address], self.got[address] = receiver, []
        receiver.topics([TOPIC], self.now)
        self.turn()
        self.turn(200)
        return receiver

    def send(self, *datagrams: bytes) -> None:
        """Sends datagrams, whether the source would wait or not."""
        for datagram in datagrams:
            self.sender.send(datagram, 1, 5, self.now)
            self.carry()

    def carry(self) -> None:
        """Brings all packets to the other side."""
        moved = True
        while moved:
            moved = False
            for packet, address in self.sender.take():
                moved = True
                if packet == CLOSE:
                    self.closed.append(address)
                if (receiver := self.receivers.get(address)) is not None:
                    found = receiver.receive(packet, "source", self.now)
                    self.got[address] += [datagram for datagram, _ in found]
            for address, receiver in list(self.receivers.items()):
                for packet in receiver.take():
                    moved = True
                    self.sender.receive(packet, address, self.now)

    def turn(self, ms: int = 0) -> None:
        """Lets time go by."""
        self.now += ms * MS
        for receiver in self.receivers.values():
            receiver.turn(self.now)
        self.sender.turn(self.now)
        self.carry()


def is_blocked(link: Link) -> bool:
    """Whether the source waits."""
    return link.sender.blocked


def test_what_is_sent_comes_in_order_to_each_from_where_it_joined() -> None:
    link = Link()
    link.connect("a")
    link.send(b"0", b"1")
    link.connect("b")
    link.send(b"2")
    assert (link.got["a"], link.got["b"]) == ([b"0", b"1", b"2"], [b"2"])
    assert [client.name for client in link.sender.clients] == ["a", "b"]
    assert link.receivers["b"].subscriptions.starts == {TOPIC: 2}
    assert link.sender.snapshot()["bytes_buffered"] == 0


def test_a_client_that_takes_nothing_holds_the_source_up_and_nothing_is_lost() -> None:
    link = Link()
    receiver = link.connect("a")
    link.unsent["a"] = UNSENT_MAX
    count = 0
    while not is_blocked(link):
        link.send(bytes(1000))
        count += 1
    assert 10 <= count <= 12
    assert link.got["a"] == []
    assert link.sender.snapshot()["bytes_buffered"] > SETTINGS.buffer_max
    link.unsent["a"] = 0
    link.carry()
    assert not is_blocked(link)
    assert (len(link.got["a"]), receiver.counts.lost) == (count, 0)


@pytest.mark.parametrize("count", [300, 3000])
@pytest.mark.parametrize("behavior", ["source_paced", "bounded_latency"])
def test_a_source_that_does_not_wait_leaves_out_what_the_behavior_says(behavior: str, count: int) -> None:
    link = Link(replace(SETTINGS, behavior=behavior))  # type: ignore[arg-type]
    receiver = link.connect("a")
    link.connect("b")
    link.unsent["a"] = UNSENT_MAX
    sent = [number.to_bytes(2, "big") * 500 for number in range(count)]
    link.send(*sent)
    assert not link.sender.blocked
    link.unsent["a"] = 0
    link.carry()
    link.send(b"last")
    assert link.got["b"] == [*sent, b"last"]
    got = link.got["a"]
    assert len(got) + receiver.counts.lost == len(sent) + 1
    assert receiver.counts.unrecovered_txw == receiver.counts.lost > 0
    assert got == [*sorted(got[:-1]), b"last"]
    assert got[-2] == sent[-1]
    assert len(got) < 20
    # What was buffered comes first, as far as the window still holds it.
    assert (got[0] == sent[0]) is (behavior == "source_paced" and count == 300)


def test_a_receiver_that_was_cut_off_goes_on_where_it_stopped() -> None:
    link = Link()
    receiver = link.connect("a")
    link.send(b"0", b"1")
    receiver.receive(CLOSE, "source", link.now)
    link.sender.receive(CLOSE, "a", link.now)
    receiver.ask(link.now)
    assert (receiver.over, receiver.take()) == (False, [])  # the source may have been killed, which shows soon
    link.turn(200)
    assert (receiver.state, receiver.for_good, receiver.stopped_at) == (State.SILENT, False, 2)
    assert link.sender.addresses == ()
    link.send(b"2", b"3")
    again = link.connect("a again", receiver.stopped_at)
    link.send(b"4")
    assert link.got["a again"] == [b"2", b"3", b"4"]
    assert again.counts.lost == 0


def test_a_receiver_that_goes_on_learns_where_its_topic_begins_before_what_it_missed() -> None:
    # It holds back what comes until it knows that, and may have no room for all that it missed.
    link = Link()
    receiver = link.connect("a")
    link.sender.receive(CLOSE, "a", link.now)
    link.send(*[bytes(60_000)] * 12)
    again = StreamReceiver(
        SESSION, "source", receiver._settings, Random(1), link.now, (1, 1, "a again"), resume_at=receiver.stopped_at
    )
    again.topics([TOPIC], link.now)
    came: list[udp_packets.Packet | None] = []
    while len([each for each in came if isinstance(each, udp_packets.Data)]) < 12:
        again.turn(link.now)
        for packet in again.take():
            link.sender.receive(packet, "a again", link.now)
        for packet, _ in link.sender.take():
            came.append(udp_packets.parse(packet))
            again.receive(packet, "source", link.now)
        link.now += MS
    kinds = [type(each) for each in came]
    topics = [each for each in came if isinstance(each, udp_packets.Topics)]
    assert kinds.index(udp_packets.Topics) < kinds.index(udp_packets.Data)
    assert [each.topics for each in topics] == [((TOPIC, 12, udp_packets.NO_TOPIC),), ((TOPIC, 12, 12),)]
    # How much was published is said behind it.
    assert kinds[-1] is udp_packets.Topics or again.subscriptions.published == {TOPIC: 12}
    assert again.subscriptions.starts == {TOPIC: 12}


def test_what_the_source_does_not_hold_any_more_is_counted_at_once() -> None:
    link = Link()
    link.send(*[bytes(60_000) for _ in range(100)])
    receiver = link.connect("late", 0)
    assert receiver.counts.lost == link.sender.trail > 0
    assert len(link.got["late"]) == 100 - link.sender.trail
    assert not receiver.catches_up


def test_datagrams_for_nobody_are_not_lost() -> None:
    link = Link(filters=True)
    receiver = link.connect("a")
    other, own = bytes([9]), bytes([TOPIC])
    link.send(other, own, *[other] * 5000, own, other)
    assert link.got["a"] == [own, own]
    link.turn(300)
    assert (receiver.counts.lost, receiver.counts.dgrams_filtered) == (0, 5002)
    assert not receiver.catches_up


def test_a_source_that_is_asked_says_how_far_it_has_sent_behind_what_was_published() -> None:
    link = Link()
    ring = [0, 0]
    link.sender.ring_positions = lambda: (ring[0], ring[1])
    receiver = link.connect("a")
    other = link.connect("b")
    link.unsent["b"] = UNSENT_MAX
    while not is_blocked(link):
        link.send(bytes(1000))
    ring[1] = 10  # a datagram is published which the source does not read, as it waits for "b"
    link.published = link.sender.lead + 1
    answers = receiver.answers
    receiver.ask(link.now)
    other.ask(link.now)
    link.now += 1
    link.carry()
    assert receiver.heard_ns == link.now  # the answer has to wait; that the source lives has not
    assert (receiver.answers, receiver.asks, receiver.subscriptions.published) == (answers, True, {TOPIC: 0})
    link.unsent["b"] = 0
    link.carry()
    ring[0] = 10
    link.send(b"last")
    for name, each in link.receivers.items():
        assert (each.answers, each.asks, each.catches_up) == (answers + 1, False, False)
        assert each.subscriptions.published == {TOPIC: link.sender.lead}
        assert link.got[name][-1] == b"last"


def test_what_was_published_before_a_question_has_come_when_that_is_answered() -> None:
    """However long the source waits meanwhile, and however many questions came before."""
    for seed in range(60):
        chance = Random(seed)
        link = Link()
        receiver = link.connect("a")
        ring: deque[int] = deque()  # published, and not read by a source that waits
        asked: list[tuple[int, int]] = []  # questions, each with the number of datagrams published before
        read = published = 0
        link.sender.ring_positions = lambda: (read, published)  # noqa: B023 - runs here only
        for step in range(120):
            what = (
                "take" if step >= 100 else chance.choice(["publish", "publish", "ask", "stall", "sip", "sip", "take"])
            )
            if what == "publish":
                ring.append(published)
                published += 1
                link.published = published
            elif what == "ask":
                asked.append((receiver.ask(link.now), published))
            elif what == "sip":
                link.unsent["a"] = UNSENT_MAX - 1  # room for one datagram
                for packet, _ in link.sender.take():
                    link.got["a"] += [datagram for datagram, _ in receiver.receive(packet, "source", link.now)]
                link.unsent["a"] = UNSENT_MAX
            else:
                link.unsent["a"] = UNSENT_MAX if what == "stall" else 0
            link.carry()
            while ring and not link.sender.blocked:
                read = ring.popleft() + 1
                link.send(bytes(4000))
            for question, before in asked:
                if receiver.answers >= question and not receiver.asks:
                    assert receiver.stopped_at is not None
                    assert receiver.stopped_at >= before
                    assert receiver.subscriptions.published[TOPIC] >= before
        assert receiver.answers == max((question for question, _ in asked), default=1)
        assert len(link.got["a"]) == published


def test_a_client_that_asks_again_and_again_gets_a_bounded_number_of_answers() -> None:
    link = Link()
    receiver = link.connect("a")
    link.sender.ring_positions = lambda: (0, 10)
    for _ in range(1000):
        receiver.ask(link.now)
        link.carry()
    link.sender.ring_positions = lambda: (10, 10)
    assert 0 < len(link.sender.take()) <= 64


@pytest.mark.parametrize("is_behind", [False, True])
def test_a_client_that_asks_and_does_not_read_gets_no_more_than_where_its_topics_begin(is_behind: bool) -> None:
    """What its connection keeps then has no limit but that above which the connection ends."""
    link = Link()
    receiver = link.connect("a")
    link.unsent["a"] = UNSENT_MAX
    if is_behind:
        link.send(bytes(1000))
    link.sender.ring_positions = lambda: (0, 10)
    for asks in range(100):
        if asks == 50:
            receiver.topics([TOPIC, 4], link.now)
        receiver.ask(link.now)
        for packet in receiver.take():
            link.sender.receive(packet, "a", link.now)
    packets = [udp_packets.parse(each) for each, _ in link.sender.take()]
    begun = [topic for each in packets if isinstance(each, udp_packets.Topics) for topic, _, _ in each.topics]
    assert (begun, len(packets)) == (([TOPIC, 4], 2) if is_behind else ([], 0))
    link.unsent["a"] = 0
    link.sender.ring_positions = lambda: (10, 10)
    link.carry()
    receiver.ask(link.now)
    link.carry()
    assert not receiver.asks


def test_a_client_that_has_read_nothing_does_not_hold_the_source_up() -> None:
    link = Link()
    link.connect("a")
    link.sender.receive(udp_packets.connect(SESSION, 0, 1), "stranger", link.now)
    answer = link.sender.take()
    for number in range(100):
        assert not is_blocked(link)
        link.send(number.to_bytes(2, "big") * 500)
    assert len(link.got["a"]) == 100
    assert link.sender.snapshot()["bytes_buffered"] == 0
    # It may still prove that it reads, and gets what comes from then on.
    late = link.connect("late")
    cookie = udp_packets.parse(answer[0][0]).cookie  # type: ignore[union-attr]
    link.sender.receive(udp_packets.acks(SESSION, cookie, 0, (9, 1, ""), 1, [])[0], "stranger", link.now)
    link.unsent["stranger"] = UNSENT_MAX
    while not is_blocked(link):
        link.send(bytes(1000))
    assert late.counts.lost == 0


def test_what_is_sent_before_a_receiver_has_said_what_it_receives_is_not_lost() -> None:
    link = Link()
    receiver = link.receivers["a"] = StreamReceiver(SESSION, "source", ReceiverSettings(), Random(1), 0, (1, 1, "a"))
    link.got["a"] = []
    receiver.topics([TOPIC], 0)
    receiver.turn(0)
    (asked,) = receiver.take()
    link.sender.receive(asked, "a", 0)
    link.sender.send(b"before", 1, 5, 0)
    link.carry()
    link.send(b"after")
    assert (link.got["a"], receiver.counts.lost, receiver.counts.dgrams_filtered) == ([b"after"], 0, 1)


def test_the_end_comes_after_the_last_datagram() -> None:
    link = Link()
    receiver = link.connect("a")
    link.unsent["a"] = UNSENT_MAX
    link.send(b"0")
    link.sender.end(link.now)
    link.carry()
    assert receiver.state is State.JOINED
    link.unsent["a"] = 0
    link.carry()
    link.turn()
    assert (receiver.state, receiver.for_good, link.got["a"]) == (State.ENDED, True, [b"0"])
    assert link.sender.over


def test_a_client_that_takes_nothing_does_not_keep_an_ended_session() -> None:
    link = Link()
    link.connect("a")
    link.unsent["a"] = UNSENT_MAX
    link.send(b"0")
    link.sender.end(link.now)
    for _ in range(25):
        link.turn(500)
    assert link.sender.over


@pytest.mark.parametrize("acks", [False, True])
def test_an_ended_session_waits_for_a_client_as_long_as_that_takes_something(acks: bool) -> None:
    """It shows in what its connection sends, or in what it acknowledges of what the system has sent already."""
    link = Link()
    receiver = link.connect("a")
    if acks:
        link.send(*[bytes(1)] * 100)
        receiver.ready(link.now)
    else:
        link.unsent["a"] = UNSENT_MAX
    link.receivers.clear()
    link.send(b"0")
    link.unsent["a"] = UNSENT_MAX
    link.sender.end(link.now)
    (client,) = link.sender.clients
    for number in range(60):
        if acks:
            proof = udp_packets.acks(SESSION, client.cookie, number, (1, 1, "a"), 1, [TOPIC])[0]
            link.sender.receive(proof, "a", link.now)
        else:
            link.unsent["a"] -= 1
            client.heard_ns = link.now
        link.turn(500)
        assert not link.sender.over
    for _ in range(25):
        client.heard_ns = link.now
        link.turn(500)
    assert link.sender.over


EVICTING = replace(
    SETTINGS,
    sending=replace(SETTINGS.sending, evict_after=300 * MS, window_size=1 << 17, sm_minimum=10_000 * MS),
)


def test_a_client_that_takes_nothing_for_too_long_is_overtaken_until_it_has_caught_up() -> None:
    link = Link(EVICTING)
    receiver = link.connect("a")
    other = link.connect("b")
    for _ in range(4):
        link.turn(500)  # idle time does not count
    link.unsent["a"] = UNSENT_MAX + 1
    count = 0
    while not is_blocked(link):
        link.send(bytes(1000))
        count += 1
    (slow, _) = link.sender.clients
    link.turn()
    assert link.sender.slowest is slow
    assert link.sender.next_ns(link.now) == link.now + 300 * MS
    link.turn(200)
    link.unsent["a"] -= 1  # it takes something: it is slow, and alive
    link.turn(200)
    link.turn(200)
    assert (is_blocked(link), link.sender.take_evicted()) == (True, [])
    link.turn(200)
    assert (is_blocked(link), link.sender.take_evicted()) == (False, [slow])
    assert link.sender.counts.clients_evicted == 1
    link.send(*[bytes(1000)] * 1000)
    assert not is_blocked(link)
    link.unsent["a"] = 0
    link.carry()
    link.turn()
    assert len(link.got["a"]) + receiver.counts.lost == count + 1000 == len(link.got["b"])
    assert receiver.counts.unrecovered_txw == receiver.counts.lost > 500
    assert other.counts.lost == 0
    link.unsent["a"] = UNSENT_MAX
    while not is_blocked(link):  # it has caught up: the source waits for it again
        link.send(bytes(1000))
    link.turn(200)
    assert is_blocked(link)


def test_a_client_that_only_acknowledges_what_it_does_not_read_is_overtaken() -> None:
    link = Link(EVICTING)
    link.connect("a")
    link.unsent["a"] = UNSENT_MAX
    while not is_blocked(link):
        link.send(bytes(1000))
    (client,) = link.sender.clients
    for _ in range(3):
        ack = udp_packets.acks(SESSION, client.cookie, 1 << 40, (1, 1, "a"), 1, [TOPIC])[0]
        link.sender.receive(ack, "a", link.now)
        link.turn(200)
    assert not is_blocked(link)


def test_who_does_not_prove_that_it_reads_is_let_go_and_gives_way() -> None:
    link = Link(replace(SETTINGS, clients=ClientSettings(clients_max=2, activity_timeout=3000 * MS)))

    def ask(address: str) -> None:
        link.sender.receive(udp_packets.connect(SESSION, 0, 1), address, link.now)
        link.carry()

    ask("x")
    ask("y")
    link.turn(500)
    assert link.connect("early").state is State.CONNECTING  # both may be about to prove themselves
    assert link.sender.counts.clients_refused > 0
    link.receivers.clear()
    link.closed.clear()
    link.turn(500)
    receiver = link.connect("late")
    assert (receiver.state, link.closed) == (State.JOINED, ["x"])
    for _ in range(4):
        ask("y")
        link.turn(500)
    assert link.closed == ["x", "y"]
    assert (link.sender.addresses, link.sender.counts.clients_silent) == (("late",), 2)


def test_a_silent_client_is_let_go() -> None:
    link = Link()
    link.connect("a")
    link.receivers.clear()
    link.turn(1000)
    assert (link.sender.addresses, link.closed, link.sender.counts.clients_silent) == ((), ["a"], 1)


def test_there_is_no_room_for_a_third_client() -> None:
    link = Link()
    link.connect("a")
    link.connect("b")
    receiver = link.connect("c")
    assert (receiver.state, link.sender.counts.clients_refused) == (State.CONNECTING, 2)
    assert set(link.closed) == {"c"}


def test_a_session_that_is_gone_is_not_joined_again() -> None:
    link = Link()
    link.sender.end(0)
    receiver = link.connect("a")
    assert (receiver.state, receiver.for_good) == (State.ENDED, True)


@each_of(
    "packet",
    [
        b"",
        b"x",
        bytes(300),
        udp_packets.naks(SESSION, 1, [1])[0],
        udp_packets.leave(SESSION, 1),
        udp_packets.session_message(SESSION, 1, 0),
        udp_packets.connect(SESSION + 1, 0, 1),
        udp_packets.acks(SESSION, 99, 0, (1, 1, ""), 1, [])[0],
    ],
)
def test_what_no_client_sends_ends_its_connection_only(packet: bytes) -> None:
    link = Link()
    link.connect("a")
    link.sender.receive(packet, "stranger", link.now)
    link.send(b"0")
    assert link.got["a"] == [b"0"]
    assert link.sender.addresses == ("a",)


def test_changed_packets_do_no_harm() -> None:
    chance = Random(5)
    for _ in range(300):
        link = Link()
        receiver = link.connect("a")
        genuine = udp_packets.data(SESSION, 0, 0, 1, 5, b"datagram", 0)
        changed = bytearray(chance.choice([genuine, udp_packets.session_message(SESSION, 5, 0, 4, 1)]))
        for _ in range(3):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        receiver.receive(bytes(changed), "source", link.now)
        link.sender.receive(bytes(changed), "a", link.now)
        assert link.sender.lead == 0
        assert receiver.stopped_at is not None


def test_a_twin_that_begins_again_offers_nothing_from_before() -> None:
    link = Link()
    link.connect("a")
    link.send(b"0", b"1")
    link.receivers.pop("a").leave(0)
    link.sender.receive(CLOSE, "a", 0)
    link.sender.clear_window()
    link.send(b"2")
    link.connect("b", resume_at=0)
    assert link.got["b"] == [b"2"]
    assert (link.sender.trail, link.sender.snapshot()["txw_msgs"]) == (2, 1)
