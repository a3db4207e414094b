from __future__ import annotations

import functools
from random import Random

import pytest

from ipcbus.reliability.loss_detector import ASKS_MAX
from ipcbus.reliability.receiver_settings import ReceiverSettings
from ipcbus.reliability.registration import OVER, TABLE, State
from ipcbus.reliability.reliable_receiver import ReliableReceiver
from ipcbus.reliability.send_state import SendSettings
from ipcbus.wire import udp_packets
from tests.kit.cases import each_of
from tests.unit.ipcbus.reliability.ends import AT, HERE, MS, SECOND, SESSION, WHO, Pair, joined, receiver, source

OTHER_VERSION = bytes([udp_packets.VERSION + 1])


def data(number: int, datagram: bytes = b"x", trail: int = 0) -> bytes:
    return udp_packets.data(SESSION, number, trail, 1, 5, datagram, 0)


def test_the_end_waits_for_the_numbers_with_which_the_topics_begin() -> None:
    pair = Pair(source(), receiver())
    pair.here.topics([3], 0)
    for _ in range(3):  # CONNECT, its proof, the list of topics
        pair.here.turn(0)
        for packet in pair.here.take():
            pair.there.receive(packet, HERE, 0)
        answers = pair.there.take()
        for packet, to in answers:
            if not isinstance(udp_packets.parse(packet), udp_packets.Topics):  # these are lost
                pair.deliver(packet, to, 0)
    states = [pair.here.state]
    pair.send(b"0")
    for packet, to in pair.there.take():
        pair.deliver(packet, to, 0)
    pair.there.end(0)
    for packet, to in pair.there.take():
        pair.deliver(packet, to, 0)
    # Were it over, what has come would be delivered, and a message that came earlier than another could not be told
    # from one that was sent before the receiver joined.
    states.append(pair.here.state)
    assert pair.here.missing == 0
    pair.exchange(SECOND)
    assert [*states, pair.here.state] == [State.JOINED, State.ENDING, State.ENDED]
    assert pair.here.subscriptions.starts == {3: None}


def test_nothing_leads_out_of_the_end() -> None:
    assert not {state for state, _ in TABLE} & set(OVER)
    assert set(TABLE.values()) == set(State)


def test_joins_where_the_source_is() -> None:
    pair = Pair(source(), receiver())
    pair.send(b"before")
    assert (pair.here.state, pair.here.joined_at) == (State.CONNECTING, None)
    pair.exchange()
    assert (pair.here.state, pair.here.joined_at) == (State.JOINED, 1)
    pair.send(b"after")
    pair.exchange()
    assert pair.got == [b"after"]


@pytest.mark.parametrize("multicast", [False, True])
def test_resumes_where_the_source_still_holds(multicast: bool) -> None:
    pair = Pair(source(multicast), receiver(multicast, resume_at=0))
    pair.send(b"0", b"1")
    pair.lose()
    pair.exchange()
    pair.exchange()
    assert pair.here.joined_at == 0
    assert sorted(pair.got) == [b"0", b"1"]


@pytest.mark.parametrize("refused", [False, True])
def test_a_group_is_received_though_the_source_does_not_register_the_receiver(refused: bool) -> None:
    here, now = receiver(multicast=True), 10 * SECOND
    here.turn(0)
    if refused:
        now = 0
        (packet,) = here.take()
        question = udp_packets.parse(packet)
        assert isinstance(question, udp_packets.Connect)
        here.receive(udp_packets.reset(SESSION, question.nonce, 0), AT, 0)
    assert here.receive(data(3), AT, 0) == []
    assert (here.state, here.joined_at, here.is_unregistered) == (State.CONNECTING, None, False)
    here.turn(now)
    assert here.receive(data(5), AT, now) == [(b"x", 5)]
    assert (here.state, here.joined_at, here.is_unregistered) == (State.CONNECTING, 5, True)
    here.receive(data(7), AT, now)
    here.turn(now)
    assert not [packet for packet in here.take() if packet[1] == udp_packets.NAK]
    here.leave(now)
    assert here.over


def test_a_receiver_of_a_group_goes_on_after_the_last_request() -> None:
    here = receiver(multicast=True, maximum_connect_attempts=3)
    for now in range(0, SECOND, 100 * MS):
        here.turn(now)
    assert len(here.take()) == 4  # the last one in the next activity timeout
    assert here.receive(data(5), AT, SECOND) == [(b"x", 5)]
    assert (here.state, here.is_unregistered) == (State.CONNECTING, True)


def test_what_a_group_sends_before_the_registration_is_not_counted() -> None:
    pair = Pair(source(multicast=True), receiver(multicast=True))
    pair.send(b"0", b"1", b"2")
    before = [packet for packet, _ in pair.there.take()]
    end = udp_packets.session_message(SESSION, 3, 0, udp_packets.FINAL)
    for packet in (before[0], end):
        assert pair.here.receive(packet, AT, 0) == []
    assert pair.here.state is State.CONNECTING
    pair.exchange()
    assert (pair.here.state, pair.here.joined_at) == (State.JOINED, 3)
    for packet in before:
        assert pair.here.receive(packet, AT, 0) == []  # it waited in the group's socket
    counts = pair.here.counts
    assert (counts.msgs_rcved, counts.duplicate_data, counts.dgrams_dropped_other, counts.lost) == (0, 0, 0, 0)


def test_asks_again_and_again_and_then_gives_up() -> None:
    here = receiver(maximum_connect_attempts=3)
    sent = []
    while (now := here.next_ns) is not None:
        here.turn(now)
        sent += [now] * len(here.take())
    assert sent == [0, 100 * MS, 200 * MS]
    assert (here.state, here.next_ns) == (State.ENDED, None)
    assert here.reason == "the source has not answered maximum_connect_attempts times"


def test_the_topics_are_told_at_once_and_with_every_ack() -> None:
    pair = joined()
    pair.here.topics([3, 4], 1)
    (packet,) = pair.here.take()
    found = udp_packets.parse(packet)
    assert isinstance(found, udp_packets.Ack)
    assert found.topics == (3, 4)
    for turn in (1, 2):
        pair.here.turn(1 + turn * 500 * MS)
        (packet,) = pair.here.take()
        again = udp_packets.parse(packet)
        assert isinstance(again, udp_packets.Ack)
        assert (again.topics, again.revision) == (found.topics, found.revision)


def test_what_is_missing_is_asked_for() -> None:
    pair = joined()
    pair.send(b"0")
    pair.lose()
    pair.send(b"1")
    pair.exchange(1)
    assert pair.got == [b"1", b"0"]
    assert (pair.here.counts.naks_sent, pair.here.counts.nak_pckts_sent, pair.here.missing) == (1, 1, 0)


def test_who_misses_much_gets_new_data_at_once_and_asks_for_a_part_at_a_time() -> None:
    pair = joined()
    sent = [b"%d" % number for number in range(4 * ASKS_MAX)]
    pair.send(*sent)
    pair.lose()
    pair.send(b"last")
    pair.exchange(1)
    assert pair.got == [b"last", *sent]
    assert pair.here.counts.naks_sent == 4 * ASKS_MAX
    assert pair.here.counts.nak_pckts_sent >= 4
    assert not pair.here.catches_up


def test_reset_keeps_what_is_there() -> None:
    pair = joined()
    pair.send(b"0")
    pair.exchange()
    pair.there.turn(20 * SECOND)  # drops the client
    pair.send(b"1", now_ns=20 * SECOND)
    pair.lose()
    pair.exchange(20 * SECOND)
    pair.exchange(20 * SECOND)
    assert (pair.here.state, pair.here.counts.resets_rcved, pair.here.joined_at) == (State.JOINED, 1, 0)
    assert pair.got == [b"0", b"1"]


@each_of(
    ("packet", "address", "counter"),
    [
        (b"", AT, "size"),
        (OTHER_VERSION + data(0)[1:], AT, "version"),
        (OTHER_VERSION + bytes(40), AT, "version"),
        (bytes([udp_packets.VERSION, 0x63]) + bytes(40), AT, "type"),
        (udp_packets.data(SESSION, 0, 0, 1, 5, b"", 0), AT, "hdr"),
        (udp_packets.DATA_HEAD.pack(udp_packets.VERSION, udp_packets.DATA, 0, SESSION, 5, 6, 1, 0) + b"x", AT, "hdr"),
        (udp_packets.data(SESSION + 1, 0, 0, 1, 5, b"x", 0), AT, "sid"),
        (udp_packets.session_message(SESSION + 1, 0, 0), AT, "sid"),
        (data(0), HERE, "other"),
        # Only a source that filters may say that the datagrams before this one are not for the receiver.
        (udp_packets.data(SESSION, 9, 0, 1, 5, b"x", 9 << udp_packets.PASSED_SHIFT), AT, "other"),
        (udp_packets.session_message(SESSION, 0, 0), HERE, "other"),
        (udp_packets.session_message(SESSION, 5, 0, udp_packets.FINAL), AT, "other"),
        (udp_packets.session_message(SESSION, 5, 0, udp_packets.WELCOME, 1, 2), AT, "other"),
        (udp_packets.reset(SESSION, 99), AT, "other"),
        (udp_packets.leave(SESSION, 99), AT, "other"),
    ],
)
def test_what_is_not_from_the_source_is_counted_and_dropped(packet: bytes, address: object, counter: str) -> None:
    here = joined().here
    assert here.receive(packet, address, 1) == []
    counts = {name: getattr(here.counts, f"dgrams_dropped_{name}") for name in ("size", "type", "version", "hdr")}
    counts |= {"sid": here.counts.dgrams_dropped_sid, "other": here.counts.dgrams_dropped_other}
    assert counts == {name: int(name == counter) for name in counts}
    assert (here.state, here.lead, here.take()) == (State.JOINED, 0, [])


def test_a_number_far_ahead_takes_nothing_away_and_is_asked_about() -> None:
    pair = joined(jump_max=10)
    pair.send(b"0")
    pair.lose()
    pair.send(b"1")
    pair.deliver(*pair.there.take()[0], 0)
    assert pair.here.missing == 1
    assert pair.here.receive(data(1000, trail=1000), AT, 0) == []
    assert (pair.here.missing, pair.here.lead) == (1, 2)
    pair.exchange(100 * MS)
    pair.exchange(100 * MS)
    assert (pair.got, pair.here.lead, pair.here.counts.dgrams_dropped_other) == ([b"1", b"0"], 2, 1)


def test_a_forged_datagram_far_ahead_does_not_delay_the_true_ones() -> None:
    pair = joined()
    for number in range(200):
        pair.send(b"%d" % number)
        if number == 5:
            pair.here.receive(data(60_000), AT, 0)
        pair.exchange()
    assert pair.got == [b"%d" % number for number in range(200)]
    assert (pair.here.lead, pair.here.missing, pair.here.counts.lost) == (200, 0, 0)


def test_what_came_after_a_jump_is_not_sent_again_once_the_source_has_confirmed_it() -> None:
    pair = joined()
    sent = [b"%d" % number for number in range(300)]
    pair.send(*sent[:100])
    pair.lose()
    pair.send(*sent[100:])
    pair.exchange(1)
    assert sorted(pair.got) == sorted(sent)
    assert pair.there.counts.rx_bytes_sent <= 100 * len(b"100") < sum(map(len, sent))


def test_a_jump_that_the_source_confirms_is_believed() -> None:
    pair = joined(jump_max=10)
    pair.send(*(bytes([number]) for number in range(30)))
    pair.lose()
    pair.send(b"last", now_ns=100 * MS)
    pair.exchange(100 * MS)  # before any session message
    assert sorted(pair.got) == sorted([*(bytes([number]) for number in range(30)), b"last"])


def test_a_forged_session_message_to_the_group_takes_nothing_away() -> None:
    pair = joined(multicast=True)
    pair.send(b"0")
    pair.lose()
    pair.send(b"1")
    pair.deliver(*pair.there.take()[0], 0)
    assert pair.here.missing == 1
    for flags in (0, udp_packets.FINAL):
        pair.here.receive(udp_packets.session_message(SESSION, 2, 2, flags), AT, 0)
        pair.here.receive(udp_packets.session_message(SESSION, 2**40, 2**40, flags), AT, 0)
    assert (pair.here.missing, pair.here.lead, pair.here.state) == (1, 2, State.JOINED)
    pair.exchange(1)
    assert pair.got == [b"1", b"0"]


def test_a_beginning_that_was_forged_is_forgotten() -> None:
    pair = Pair(source(multicast=True), receiver(multicast=True))
    pair.here.turn(10 * SECOND)
    pair.here.receive(data(2**40), AT, 10 * SECOND)
    pair.exchange(10 * SECOND)
    assert (pair.here.joined_at, pair.here.lead) == (0, 0)
    pair.send(b"0")
    pair.exchange()
    assert pair.got == [b"0"]


def test_the_end_waits_for_what_is_missing() -> None:
    pair = joined()
    pair.send(b"0")
    pair.lose()
    pair.there.end(0)
    pair.deliver(*pair.there.take()[0], 0)
    assert (pair.here.state, pair.here.missing) == (State.ENDING, 1)
    pair.exchange(1)
    pair.exchange(1)
    assert (pair.got, pair.here.state, pair.here.reason) == (
        [b"0"],
        State.ENDED,
        "the source has announced the end of the session",
    )


def test_a_receiver_that_a_group_registers_only_at_its_end_still_repairs() -> None:
    pair, now = Pair(source(multicast=True), receiver(multicast=True)), 10 * SECOND
    pair.here.turn(now)
    pair.send(b"0")
    for packet, to in pair.there.take():
        pair.deliver(packet, to, now)
    pair.send(b"1")
    pair.lose()
    pair.there.end(now)
    for packet, to in pair.there.take():
        pair.deliver(packet, to, now)
    assert (pair.here.state, pair.here.missing) == (State.CONNECTING, 1)
    unregistered = [pair.here.is_unregistered]
    pair.exchange(now + SECOND)
    assert [*unregistered, pair.here.is_unregistered] == [True, False]
    pair.exchange(now + 2 * SECOND)
    assert (pair.got, pair.here.state) == ([b"0", b"1"], State.ENDED)


def test_silence() -> None:
    pair = joined()
    pair.exchange(SECOND)
    heard = SECOND
    pair.here.turn(heard + 60 * SECOND - 1)
    assert pair.here.state is State.JOINED
    pair.here.turn(heard + 60 * SECOND)
    assert (pair.here.state, pair.here.reason) == (State.SILENT, "no packet came for the activity timeout")
    # It comes back, and the source keeps datagrams for it meanwhile.
    assert not [packet for packet in pair.here.take() if packet[1] == udp_packets.LEAVE]


def test_one_that_catches_up_finds_its_source_silent_too() -> None:
    pair = Pair(source(), receiver(resume_at=0))
    pair.send(*[b"x"] * 1_000)
    pair.lose()
    while not pair.here.missing:  # until it is registered, and asks for the first of them
        pair.here.turn(0)
        for packet in pair.here.take():
            pair.there.receive(packet, HERE, 0)
        for packet, to in pair.there.take():
            pair.deliver(packet, to, 0)
    assert pair.here.catches_up
    last = 0
    while (now := pair.here.next_ns) is not None:
        last = now
        pair.here.turn(now)
        pair.here.ready(now)
    assert (pair.here.state, last) == (State.SILENT, 60 * SECOND)


@pytest.mark.parametrize("multicast", [False, True])
def test_a_later_stay_begins_where_an_earlier_one_stopped(multicast: bool) -> None:
    pair = joined(multicast)
    pair.send(b"0", b"1")
    pair.exchange()
    pair.exchange()
    assert (pair.got, pair.here.stopped_at) == ([b"0", b"1"], 2)
    pair.here.turn(60 * SECOND)
    assert pair.here.over
    pair.send(b"2", now_ns=60 * SECOND)
    pair.lose()
    pair.here = receiver(multicast, resume_at=pair.here.stopped_at)
    assert pair.here.stopped_at == 2  # also of a stay that the source never answers
    pair.exchange(60 * SECOND)
    pair.exchange(60 * SECOND)
    assert (pair.got, pair.here.joined_at) == ([b"0", b"1", b"2"], 2)


def test_a_group_that_was_only_heard_is_heard_again_from_the_next_datagram_on() -> None:
    here = receiver(multicast=True)
    here.turn(10 * SECOND)
    here.receive(data(5), AT, 0)
    assert here.stopped_at is None


def test_while_datagrams_are_missing_every_ack_asks_for_the_numbers_of_topics() -> None:
    pair = joined()
    pair.here.topics([3], 0)
    pair.exchange()
    pair.here.subscriptions.answered(udp_packets.Topics(udp_packets.TOPICS, 0, SESSION, 0, 0, ((3, 0, 5),)))
    assert not pair.here.asks
    pair.here.receive(data(1), AT, 0)
    pair.here.turn(SECOND)
    found = [udp_packets.parse(packet) for packet in pair.here.take()]
    assert [each.flags for each in found if isinstance(each, udp_packets.Ack)] == [udp_packets.ASKS]


@pytest.mark.parametrize("waits", [False, True])
def test_a_source_that_is_asked_says_where_its_last_datagram_is(waits: bool) -> None:
    """Else a receiver that has all datagrams it knows of would give up what is still on its way."""
    pair = Pair(source(), receiver())
    pair.there._topic_numbers = lambda topic: (2, 2) if topic == 3 else None
    pair.exchange()
    pair.here.topics([3], 0)
    pair.send(b"0", b"1")
    asked = pair.here.take()
    pair.lose()  # the datagrams
    pair.there.ring_positions = lambda: (100, 200 if waits else 100)
    for packet in asked:
        pair.there.receive(packet, HERE, 0)
    for packet, to in pair.there.take():
        pair.deliver(packet, to, 0)
    subscriptions = pair.here.subscriptions
    subscriptions.reached(pair.here.lead)
    assert (subscriptions.published, subscriptions.said, pair.here.missing) == ({}, {3: 2}, 0)
    pair.exchange(10 * SECOND)  # a session message says how far the source is
    pair.exchange(11 * SECOND)
    assert sorted(pair.got) == [b"0", b"1"]
    subscriptions.reached(pair.here.lead)
    assert subscriptions.published == ({} if waits else {3: 2})


def test_a_question_is_answered_when_all_is_sent_that_was_published_then() -> None:
    pair, found = joined(), []
    pair.there.ring_positions = lambda: (100, 200)
    question = pair.here.ask(0, anew=True)
    for positions in ((100, 200), (199, 300), (200, 400)):
        pair.there.ring_positions = functools.partial(tuple[int, int], positions)  # type: ignore[assignment]
        pair.exchange()
        found.append(question - pair.here.answers)
        pair.here.ask(0)
    assert found == [1, 1, 0]
    assert pair.here.ask(0, anew=True) - pair.here.answers == 1
    pair.exchange()
    assert pair.here.answers == question  # the answers to the earlier ones do not count


def test_questions_follow_one_another_and_each_is_answered() -> None:
    """One that replaced another before its answer would never be answered where the source is always behind."""
    pair, behind = joined(), 0
    questions, ended = [], []
    for number in range(20):
        pair.there.ring_positions = functools.partial(tuple[int, int], (100 * number, 100 * number + 250))  # type: ignore[assignment]
        questions.append(pair.here.ask(0, anew=True))
        pair.exchange()
        ended.append(pair.here.answers)
        behind = max(behind, sum(question > pair.here.answers for question in questions))
    assert questions == sorted(questions)
    assert behind <= 8
    assert ended[-1] >= 4


def test_what_waits_in_the_ring_is_told_when_it_has_numbers() -> None:
    pair = Pair(source(), receiver())
    pair.there._topic_numbers = lambda topic: (2, 2) if topic == 3 else None
    pair.exchange()
    pair.here.topics([3], 0)
    pair.there.ring_positions = lambda: (100, 200)
    pair.exchange()
    subscriptions, found = pair.here.subscriptions, []
    for positions, now_ns in (((150, 900), 1), ((200, 950), 2)):
        pair.there.ring_positions = functools.partial(tuple[int, int], positions)  # type: ignore[assignment]
        pair.exchange(now_ns * SECOND)  # an ACK, which asks for nothing
        found.append(subscriptions.published_below(3, lambda: pair.there.lead))
    assert (found, subscriptions.said) == ([0, 2], {3: 2})


@pytest.mark.parametrize("multicast", [False, True])
def test_datagrams_that_wait_for_the_data_rate_are_still_to_come(multicast: bool) -> None:
    limits = SendSettings(data_rate=80_000, retransmit_rate=0, rate_interval=SECOND)
    pair = Pair(source(multicast, sending=limits), receiver(multicast))
    pair.exchange(SECOND)
    pair.send(bytes(6000), bytes(6000), now_ns=SECOND)  # the second one waits
    assert pair.there.lead == 1
    question, found = pair.here.ask(SECOND, anew=True), []
    for now_ns in (SECOND, 4 * SECOND):
        pair.exchange(now_ns)
        found.append((len(pair.got), pair.here.answers == question))
        pair.here.ask(now_ns)
        pair.exchange(now_ns)
    assert [*found, pair.here.answers == question] == [(1, False), (2, False), True]


def test_a_later_stay_at_the_same_address_does_not_get_the_answer_of_an_earlier_one() -> None:
    there, numbers = source(), [5]
    there._topic_numbers = lambda topic: (numbers[0], numbers[0]) if topic == 3 else None
    there.ring_positions = lambda: (100, 200)
    starts = []
    for context_id in (11, 12):  # a process that was killed, and another one that gets its address
        here = ReliableReceiver(
            SESSION, AT, ReceiverSettings(), Random(context_id), 0, (context_id, 22, ""), False, None
        )
        pair = Pair(there, here)
        here.topics([3], 0)
        pair.exchange()
        starts.append(here.subscriptions.starts)
        numbers[0] += 100
        there.ring_positions = lambda: (200, 300)
    assert starts == [{3: 5}, {3: 105}]


def test_leaves() -> None:
    pair = joined()
    pair.here.leave(1)
    assert (pair.here.state, pair.here.receive(data(0), AT, 1)) == (State.ENDED, [])
    (packet,) = pair.here.take()
    assert packet[1] == udp_packets.LEAVE


def test_an_older_list_of_topics_is_not_taken() -> None:
    pair = joined()
    pair.here.topics([1], 1)
    older = pair.here.take()
    pair.here.topics([2], 1)
    pair.exchange(1)
    for packet in older:
        pair.there.receive(packet, HERE, 1)
    assert pair.there.clients[0].topics == {2}


def test_another_context_at_the_same_address_begins_anew() -> None:
    pair = joined()
    pair.here.topics([1], 5)
    pair.exchange(5)
    other = ReliableReceiver(SESSION, AT, ReceiverSettings(), Random(2), 1, (33, *WHO[1:]), False)
    follower = Pair(pair.there, other)
    follower.exchange(6)
    (client,) = pair.there.clients
    assert (client.context_id, client.topics) == (33, frozenset())
