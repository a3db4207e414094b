from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ipcbus.reliability.credit import ASK_NS, FIRST_ROOM
from ipcbus.reliability.send_state import SendSettings
from ipcbus.wire import udp_packets
from ipcbus.wire.udp_packets import CHARGE, ROOM_MAX, Ack
from tests.unit.ipcbus.reliability import ends
from tests.unit.ipcbus.reliability.ends import HERE, MS, SECOND, SESSION, WHO, Pair

SIZE = 1000


def paced(multicast: bool = False, topics_of: Any = None, **terms: Any) -> Pair:  # noqa: ANN401
    """A source that waits for room, and a receiver that has joined."""
    sending = SendSettings(data_rate=0, retransmit_rate=0, **terms)
    pair = Pair(ends.source(multicast, topics_of, sending=sending), ends.receiver(multicast))
    pair.here.topics([1], 0)
    pair.exchange()
    return pair


def fill(pair: Pair, most: int = 1000) -> int:
    """Sends until the source waits; returns how many datagrams that took."""
    for number in range(most):
        if pair.there.blocked:
            return number
        pair.send(bytes([1]) * SIZE)
    return most


@pytest.mark.parametrize("multicast", [False, True])
def test_a_source_sends_as_much_as_its_client_has_room_for(multicast: bool) -> None:
    pair = paced(multicast)
    pair.here.take_room(10 * (SIZE + CHARGE), 10 * (SIZE + CHARGE), 0)
    pair.here.ask(0)
    # Room that was promised stays promised: the first ACK set no limit.
    assert fill(pair) == 1000
    pair = paced(multicast)
    client = pair.there.clients[0]
    client.limit = -1
    client.begins = True
    pair.there._send_state.credit.admit(client, again=True)  # type: ignore[union-attr]
    pair.here.take_room(10 * (SIZE + CHARGE), 10 * (SIZE + CHARGE), 0)
    assert fill(pair) == FIRST_ROOM // (SIZE + CHARGE) + 1
    assert pair.there.slowest is client


def test_what_a_client_needs_stays_in_the_window() -> None:
    pair = paced(window_size=20 * SIZE)
    sent = fill(pair)
    pair.lose()
    assert pair.there.trail == 0
    pair.exchange(SECOND)  # what was lost comes again, and then the one that waited
    pair.exchange(2 * SECOND)
    assert len(pair.got) == sent
    assert not pair.there.blocked


def test_a_source_whose_own_window_is_full_asks_at_once() -> None:
    pair = paced(window_size=20 * SIZE)
    sent = fill(pair)
    for _ in range(2):
        pair.exchange()  # no time passes: the client does not know that the source waits
    assert len(pair.got) == sent
    assert not pair.there.blocked


def test_a_source_paced_source_overtakes_its_clients() -> None:
    pair = paced(window_size=20 * SIZE, receiver_paced=False)
    assert fill(pair, 100) == 100
    assert pair.there.trail > 0


def test_a_datagram_longer_than_the_window_goes_alone() -> None:
    pair = paced(window_size=10)
    for now_ns in range(0, 3 * SECOND, SECOND):
        pair.send(bytes(SIZE), now_ns=now_ns)
        pair.exchange(now_ns + 100 * MS)
    assert len(pair.got) == 3


def test_a_source_without_clients_does_not_wait() -> None:
    sending = SendSettings(data_rate=0, retransmit_rate=0, window_size=SIZE)
    assert fill(Pair(ends.source(sending=sending), ends.receiver())) == 1000


def test_a_silent_client_is_let_go() -> None:
    pair = paced(window_size=20 * SIZE)
    fill(pair)
    pair.lose()
    pair.there.turn(10 * SECOND)
    assert not pair.there.blocked
    assert pair.there.counts.clients_silent == 1


def test_a_source_that_waits_asks_its_slowest_client() -> None:
    pair = paced()
    pair.there.clients[0].limit = 10 * (SIZE + CHARGE)
    fill(pair)
    for packet, to in pair.there.take():
        pair.deliver(packet, to, 0)
    pair.here._ack(0, listed=False)
    pair.lose()  # the ACK
    assert pair.there.next_ns(0) == ASK_NS
    pair.there.turn(ASK_NS)
    ((packet, to),) = pair.there.take()
    assert to == HERE
    asked = udp_packets.parse(packet)
    assert isinstance(asked, udp_packets.SessionMessage)
    assert asked.flags == udp_packets.WAITS
    assert pair.there.next_ns(ASK_NS) == 3 * ASK_NS
    pair.deliver(packet, to, ASK_NS)
    pair.exchange(ASK_NS)
    assert not pair.there.blocked


def test_a_client_that_is_too_slow_is_overtaken_until_it_has_caught_up() -> None:
    pair = paced(window_size=20 * SIZE, evict_after=SECOND)
    sent = fill(pair)
    pair.lose()
    pair.there.turn(SECOND - 1)
    assert pair.there.take_evicted() == []
    pair.there.turn(SECOND)
    assert [client.name for client in pair.there.take_evicted()] == [WHO[2]]
    assert pair.there.take_evicted() == []
    assert not pair.there.blocked
    assert fill(pair) == 1000
    for now_ns in range(SECOND, 3 * SECOND, 100 * MS):
        pair.exchange(now_ns)
    counts = pair.here.counts
    assert len(pair.got) + counts.unrecovered_txw == pair.there.lead > sent
    assert counts.unrecovered_txw > 0
    assert not pair.there.clients[0].evicted
    assert pair.there.counts.clients_evicted == 1


def test_a_client_that_gets_few_datagrams_learns_what_went_past_it() -> None:
    pair = paced(topics_of=lambda body: {body[-1]}, window_size=20 * SIZE)
    pair.there.send(bytes([1]) * SIZE, 1, 5, 0)
    while not pair.there.blocked:
        pair.there.send(bytes([2]) * SIZE, 1, 5, 0)
    pair.exchange(1)
    assert pair.there.slowest is None
    # What it has got is all that was sent to it: the rest holds nobody up.
    for _ in range(1000):
        pair.there.send(bytes([2]) * SIZE, 1, 5, 1)
    assert not pair.there.blocked


def test_room_grows_by_a_quarter_before_the_source_is_told() -> None:
    pair = paced()
    here, window = pair.here, 4000
    here.take_room(0, window, 0)
    here._ack(0)
    here.take()
    here.take_room(999, window, 0)
    assert here.take() == []
    here.take_room(1000, window, 0)
    (packet,) = here.take()
    told = udp_packets.parse(packet)
    assert isinstance(told, Ack)
    assert (told.room, told.pages, told.topics) == (1000, 0, ())
    assert here.told_room == 1000


@pytest.mark.parametrize(("room", "granted"), [(20, 15), (3, 0)])
def test_room_that_was_taken_is_not_granted_again(room: int, granted: int) -> None:
    pair = paced()
    here, unit = pair.here, SIZE + CHARGE
    here.take_room(room * unit, 100 * unit, 0)
    pair.send(*[bytes(SIZE)] * 5)
    for packet, to in pair.there.take():
        pair.deliver(packet, to, 0)
    here.take()
    waits = udp_packets.session_message(SESSION, 5, 0, udp_packets.WAITS, pair.there.clients[0].cookie)
    pair.deliver(waits, HERE, 0)
    (packet,) = here.take()
    told = udp_packets.parse(packet)
    assert isinstance(told, Ack)
    assert (told.next, told.room) == (5, granted * unit)
    assert here.told_room == granted * unit


def test_a_gap_that_was_filled_is_told_at_once() -> None:
    pair = paced()
    pair.send(bytes(SIZE), bytes(SIZE))
    (first, _), (second, _) = pair.there.take()
    pair.deliver(second, HERE, 0)
    pair.here._ack(0, listed=False)
    (packet,) = pair.here.take()
    told = udp_packets.parse(packet)
    assert isinstance(told, Ack)
    assert (told.next, told.lead) == (0, 2)
    pair.deliver(first, HERE, 0)
    pair.here.take_room(ROOM_MAX, ROOM_MAX, 0)
    told = udp_packets.parse(pair.here.take()[-1])
    assert isinstance(told, Ack)
    assert told.next == 2


def test_an_ack_that_claims_more_than_was_sent_counts_as_all() -> None:
    pair = paced(window_size=20 * SIZE)
    client = pair.there.clients[0]
    for packet in udp_packets.acks(SESSION, client.cookie, 1 << 40, WHO, 0, None, 0, (1 << 40, 5)):
        pair.there.receive(packet, HERE, 0)
    assert dataclasses.replace(client).next == pair.there.lead


@pytest.mark.parametrize("multicast", [False, True])
def test_what_all_clients_have_got_leaves_the_window(multicast: bool) -> None:
    pair = paced(multicast, drop_bytes=5 * SIZE)
    for _ in range(100):
        pair.send(bytes([1]) * SIZE)
        pair.exchange()
        pair.here.take_room(1 << 20, 1 << 20, 0)
        pair.here.ask(0)
        pair.exchange()
    assert len(pair.got) == 100
    assert pair.there.window.bytes < 10 * SIZE
    pair.lose()  # what is lost now is held
    first = pair.there.lead
    for _ in range(50):
        pair.send(bytes([1]) * SIZE)
    pair.lose()
    assert pair.there.trail <= first
    pair.exchange(SECOND)
    pair.exchange(2 * SECOND)
    assert len(pair.got) == 150


@pytest.mark.parametrize("goes", ["silent", "leaves"])
def test_a_client_that_goes_may_come_back_and_go_on_where_it_has_stopped(goes: str) -> None:
    pair = paced(drop_bytes=5 * SIZE)
    state = pair.there._send_state
    assert state.drops_received
    pair.send(bytes([1]) * SIZE)
    pair.lose()
    if goes == "silent":
        pair.there.turn(3600 * SECOND)
        assert pair.there.counts.clients_silent == 1
    else:
        pair.here.leave(0)
        pair.exchange()
    assert not pair.there.clients
    assert not state.drops_received
