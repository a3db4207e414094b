from __future__ import annotations

import pytest

from ipcbus.reliability.clients import ClientSettings
from ipcbus.reliability.registration import State
from ipcbus.reliability.reliable_sender import ALL, FINAL_INTERVAL, FINAL_TIMES
from ipcbus.reliability.send_state import SendSettings
from ipcbus.wire import udp_packets
from tests.unit.ipcbus.reliability.ends import AT, HERE, MS, NO_ROOM, SECOND, SESSION, Pair, joined, receiver, source


def test_a_stranger_is_answered_with_no_more_than_he_sent_and_not_remembered() -> None:
    end = source()
    for packet in (
        udp_packets.connect(SESSION, 0, 3),
        udp_packets.connect(SESSION, 99, 3),
        udp_packets.connect(SESSION + 1, 0, 3),
        *udp_packets.naks(SESSION, 99, [0]),
        *udp_packets.acks(SESSION, 99, 0, (1, 2, ""), 0, ()),
        udp_packets.leave(SESSION, 99),
        b"",
        b"rubbish",
    ):
        end.receive(packet, HERE, 0)
        assert sum(len(answer) for answer, _ in end.take()) <= len(packet)
    assert list(end.addresses) == []
    counts = end.counts
    assert (counts.dgrams_dropped_malformed, counts.dgrams_dropped_sid, counts.dgrams_dropped_unproven) == (2, 1, 3)
    assert counts.naks_rcved == 0


def test_a_cookie_is_good_for_its_address_and_for_some_time() -> None:
    end = source()
    end.receive(udp_packets.connect(SESSION, 0, 3), HERE, 0)
    ((packet, to),) = end.take()
    found = udp_packets.parse(packet)
    assert isinstance(found, udp_packets.SessionMessage)
    assert (to, found.nonce, found.flags) == (HERE, 3, udp_packets.WELCOME)
    end.receive(udp_packets.connect(SESSION, found.cookie, 4), ("127.0.0.1", 5001), 0)
    assert list(end.addresses) == []
    end.receive(udp_packets.connect(SESSION, found.cookie, 4), HERE, 61 * SECOND)
    assert list(end.addresses) == []
    end.receive(udp_packets.connect(SESSION, found.cookie, 4), HERE, 59 * SECOND)
    assert list(end.addresses) == [HERE]


def test_who_receives_what() -> None:
    pair = Pair(source(), receiver())
    pair.here.topics(range(600), 0)
    before = pair.there.changes
    pair.exchange()
    (client,) = pair.there.clients
    assert (client.address, client.context_id, client.pid, client.name) == (HERE, 11, 22, "there")
    assert client.topics == frozenset(range(600))
    assert pair.there.changes > before
    pair.here.topics([3], 1)
    pair.exchange(1)
    assert pair.there.clients[0].topics == {3}
    before = pair.there.changes
    pair.exchange(SECOND)  # an ACK that says nothing new
    assert pair.there.changes == before
    pair.here.leave(2 * SECOND)
    pair.exchange(2 * SECOND)
    assert (pair.there.clients, pair.there.addresses) == ((), ())
    assert pair.there.changes > before


def test_the_silent_are_dropped() -> None:
    pair = joined()
    pair.there.turn(10 * SECOND - 1)
    assert list(pair.there.addresses) == [HERE]
    pair.there.turn(10 * SECOND)
    assert (list(pair.there.addresses), pair.there.counts.clients_silent) == ([], 1)


def test_there_is_room_for_so_many() -> None:
    end = source(clients=ClientSettings(clients_max=1))
    pairs = [Pair(end, receiver(maximum_connect_attempts=3)) for _ in range(2)]
    for place, pair in enumerate(pairs):
        for now in range(0, SECOND, 100 * MS):
            pair.here.turn(now)
            for packet in pair.here.take():
                end.receive(packet, ("127.0.0.1", 5000 + place), now)
            for packet, to in end.take():
                if to == ("127.0.0.1", 5000 + place):
                    pair.here.receive(packet, AT, now)
    assert [pair.here.over for pair in pairs] == [False, True]
    assert pairs[1].here.reason == NO_ROOM
    assert end.counts.clients_refused > 0
    assert len(end.addresses) == 1


def test_nobody_listens() -> None:
    end = source(sending=SendSettings(data_rate=8000))
    for _ in range(10):
        end.send(bytes(1000), 1, 0, 0)
    assert (end.take(), end.blocked, end.lead, end.next_ns(0)) == ([], False, 10, None)


def test_the_data_rate_blocks() -> None:
    pair = Pair(source(sending=SendSettings(data_rate=80_000)), receiver())
    pair.exchange()
    pair.send(bytes(1000), b"y" * 1000)
    assert pair.there.blocked
    assert pair.there.next_ns(0) == 100 * MS
    pair.exchange(99 * MS)
    assert len(pair.got) == 1
    pair.exchange(100 * MS)
    assert pair.got == [bytes(1000), b"y" * 1000]
    assert not pair.there.blocked


def test_what_goes_to_the_group() -> None:
    pair = joined(multicast=True)
    pair.there.send(b"x", 1, 5, 0)
    pair.there.turn(200 * MS)
    assert [to for _, to in pair.there.take()] == [ALL, ALL]


def test_session_messages_carry_the_cookie_where_there_is_no_group() -> None:
    pair = joined()
    pair.there.turn(200 * MS)
    ((packet, to),) = pair.there.take()
    found = udp_packets.parse(packet)
    assert isinstance(found, udp_packets.SessionMessage)
    assert (to, found.cookie != 0, found.flags) == (HERE, True, 0)


def test_a_request_for_what_is_gone_is_answered_with_the_trail() -> None:
    pair = Pair(source(sending=SendSettings(window_size=10, data_rate=0, receiver_paced=False)), receiver())
    pair.exchange()
    pair.send(b"a" * 10, b"b" * 10, b"c" * 10)
    lost = pair.lose()
    assert [type(packet) for packet in lost] == [udp_packets.Data] * 3
    pair.exchange(200 * MS)  # the session message tells lead and trail
    assert pair.got == [b"c" * 10]
    assert pair.here.counts.unrecovered_txw == 2


@pytest.mark.parametrize("multicast", [False, True])
def test_the_end_is_told_often_enough(multicast: bool) -> None:
    pair = joined(multicast)
    pair.there.end(SECOND)
    now, told = SECOND, 0
    while not pair.there.over:
        finals = [packet for packet in pair.lose() if isinstance(packet, udp_packets.SessionMessage)]
        assert all(packet.flags & udp_packets.FINAL for packet in finals)
        told += len(finals)
        following = pair.there.next_ns(now)
        assert following is not None
        assert following <= now + FINAL_INTERVAL
        now = following
        pair.there.turn(now)
    told += len(pair.there.take())
    assert told == FINAL_TIMES * (2 if multicast else 1)
    assert pair.there.next_ns(now) is None
    pair.there.receive(udp_packets.connect(SESSION, 0, 3), HERE, now)
    ((packet, _),) = pair.there.take()
    assert udp_packets.parse(packet) == udp_packets.Client(udp_packets.RESET, udp_packets.GONE, SESSION, 3)


def test_the_end_is_over_when_all_have_left() -> None:
    pair = joined()
    pair.there.end(SECOND)
    pair.exchange(SECOND)
    assert pair.here.over
    assert pair.there.over


def test_the_end_waits_for_what_the_data_rate_holds_back() -> None:
    pair = Pair(source(sending=SendSettings(data_rate=80_000)), receiver())
    pair.exchange()
    pair.send(bytes(1000), b"y" * 1000)
    pair.there.end(0)
    pair.exchange(0)
    assert pair.here.state is State.JOINED
    pair.exchange(100 * MS)
    assert pair.here.reason == "the source has announced the end of the session"
    assert len(pair.got) == 2


def test_a_client_of_the_session_before_learns_that_it_is_gone() -> None:
    pair = joined()
    pair.there = source()
    pair.there.session_id = SESSION + 1
    pair.exchange(SECOND)
    assert pair.here.over
    assert pair.here.reason == "the source does not know the session"


@pytest.mark.parametrize("multicast", [False, True])
def test_a_repair_goes_to_who_asked_and_to_the_whole_group(multicast: bool) -> None:
    there = source(multicast)
    lossy, healthy = (Pair(there, receiver(multicast)) for _ in range(2))
    addresses = (HERE, ("127.0.0.1", 5001))

    def exchange() -> list[tuple[int, object]]:
        """All that the source has is delivered; returns its types and addresses."""
        sent = []
        for _ in range(20):
            for pair, address in zip((lossy, healthy), addresses, strict=True):
                pair.here.turn(0)
                for packet in pair.here.take():
                    there.receive(packet, address, 0)
            for packet, to in there.take():
                sent.append((packet[1], to))
                for pair, address in zip((lossy, healthy), addresses, strict=True):
                    if to in (ALL, address):
                        pair.here.receive(packet, AT, 0)
        return sent

    exchange()
    there.send(b"0", 1, 5, 0)
    ((packet, _),) = there.take()
    healthy.here.receive(packet, AT, 0)
    there.send(b"1", 1, 5, 0)
    sent = exchange()
    assert lossy.here.counts.msgs_rcved == 2
    assert sent == [(udp_packets.DATA, ALL), (udp_packets.DATA, ALL if multicast else HERE)]
    assert healthy.here.counts.duplicate_data == multicast


def test_what_one_client_got_again_does_not_keep_another_from_asking() -> None:
    there = source()
    pairs = [Pair(there, receiver()) for _ in range(2)]
    addresses = (HERE, ("127.0.0.1", 5001))
    for _ in range(6):
        for pair, address in zip(pairs, addresses, strict=True):
            pair.here.turn(0)
            for packet in pair.here.take():
                there.receive(packet, address, 0)
            for packet, to in there.take():
                if to == address:
                    pair.here.receive(packet, AT, 0)
    there.send(b"0", 1, 5, 0)
    there.take()
    for address in addresses:
        (packet,) = udp_packets.naks(SESSION, next(c.cookie for c in there.clients if c.address == address), [0])
        there.receive(packet, address, 0)
        assert [(packet[1], to) for packet, to in there.take()] == [(udp_packets.DATA, address)]
    assert (there.counts.rxs_sent, there.counts.naks_ignored) == (2, 0)


def test_who_is_too_slow_is_told_and_counted_at_both_ends() -> None:
    pair = Pair(source(sending=SendSettings(data_rate=0, retransmit_rate=0, evict_after=SECOND)), receiver())
    pair.here.take_room(1000, 4000, 0)
    pair.exchange()
    pair.send(*[b"x" * 100] * 200)
    pair.exchange()
    assert pair.there.slowest is not None
    pair.there.turn(SECOND)
    told = pair.lose()  # the first word of it is lost; each ACK is answered by another one
    assert any(isinstance(each, udp_packets.SessionMessage) and each.flags & udp_packets.EVICTED for each in told)
    pair.exchange(2 * SECOND)
    assert pair.there.lead == 200
    assert (pair.there.counts.clients_evicted, pair.here.counts.evictions_rcved, pair.here.is_evicted) == (1, 1, True)
    pair.exchange(3 * SECOND)
    assert pair.here.counts.evictions_rcved == 1
    # It has room again: the source waits for it as before.
    pair.here.take_room(1 << 20, 1 << 20, 3 * SECOND)
    pair.exchange(3 * SECOND)
    pair.exchange(10 * SECOND)
    assert (pair.here.missing, pair.here.is_evicted, pair.here.counts.evictions_rcved) == (0, False, 1)
