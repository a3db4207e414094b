"""Which datagrams go to a client, and what it is told about the others; more in tests/sim/test_source_filter.py."""

from __future__ import annotations

from ipcbus.reliability.clients import ClientSettings
from ipcbus.reliability.send_state import SendSettings
from ipcbus.reliability.source_filter import LISTS_MAX, ClientFilter
from ipcbus.wire import udp_packets
from ipcbus.wire.udp_packets import DATA_BODY, PASSED_MAX, Passed
from tests.unit.ipcbus.reliability.ends import HERE, MS, SECOND, SESSION, Pair, receiver, source


def topics_of(body: bytes) -> set[int]:
    """The bytes of a datagram are its topics."""
    return set(body[DATA_BODY.size :])


def joined(*topics: int, **terms: object) -> Pair:
    """A client of these topics."""
    found = Pair(source(topics_of=topics_of, **terms), receiver())
    found.here.topics(topics, 0)
    found.exchange()
    return found


def test_a_client_gets_only_datagrams_with_a_topic_of_its_own() -> None:
    pair = joined(1, 2)
    pair.send(b"\x03", b"\x01\x03", b"\x03", b"\x03", b"\x02", b"\x03")
    pair.exchange()
    assert pair.got == [b"\x01\x03", b"\x02"]
    assert pair.here.missing == 0
    assert (pair.here.lead, pair.there.lead) == (5, 6)
    assert pair.there.next_ns(0) == 200 * MS
    pair.exchange(200 * MS)
    assert (pair.here.lead, pair.here.missing, pair.here.counts.dgrams_filtered) == (6, 0, 4)
    assert pair.there.snapshot()["dgrams_filtered"] == 4
    assert pair.here.counts.naks_sent == 0


def test_notices_come_at_doubling_intervals_and_after_many_datagrams_at_once() -> None:
    pair = joined(1)
    times = []
    for now_ns in range(0, 4 * SECOND, 50 * MS):
        pair.send(b"\x03", now_ns=now_ns)
        pair.there.turn(now_ns)
        found = [udp_packets.parse(packet) for packet, _ in pair.there.take()]
        times += [now_ns // MS for each in found if isinstance(each, Passed)]
    assert times == [200, 650, 1500, 3150]
    pair.send(*[b"\x03"] * (PASSED_MAX - 80), now_ns=4 * SECOND)
    assert [udp_packets.parse(packet) for packet, _ in pair.there.take()] == [
        Passed(udp_packets.PASSED, 0, 7, pair.there.clients[0].cookie, ((0, PASSED_MAX),))
    ]
    pair.send(b"\x03", b"\x01", now_ns=4 * SECOND)
    first, second = (udp_packets.parse(packet) for packet, _ in pair.there.take())
    assert isinstance(first, Passed)
    assert first.ranges == ((0, PASSED_MAX + 1),)
    assert isinstance(second, udp_packets.Data)
    assert (second.number, second.flags) == (PASSED_MAX + 1, 0)


def test_a_nak_for_a_datagram_that_was_passed_over_is_answered_with_its_number() -> None:
    pair = joined(1)
    pair.send(b"\x03", b"\x01", b"\x03", b"\x03")
    pair.lose()
    pair.send(b"\x01")
    pair.exchange()  # says that three were passed over, as it does not know that one was lost
    assert pair.got == [b"\x01", b"\x01"]
    assert (pair.here.missing, pair.here.counts.dgrams_filtered) == (0, 3)
    assert pair.there.counts.rxs_sent == 1


def test_a_list_that_is_too_long_opens_the_filter() -> None:
    pair = joined(1, clients=ClientSettings(topics_max=256))
    pair.here.topics(range(1, 400), 1)
    pair.exchange(1)
    pair.send(b"\xc8", now_ns=1)
    pair.exchange(1)
    assert pair.got == [b"\xc8"]


def test_what_nobody_wants_takes_nothing_from_the_data_rate() -> None:
    pair = joined(1, sending=SendSettings(data_rate=8_000, retransmit_rate=0))
    for _ in range(200):
        pair.send(b"\x03" * 100)
    assert not pair.there.blocked
    for _ in range(3):
        pair.send(b"\x01" * 100)
    assert pair.there.blocked


def test_earlier_lists_are_known_for_a_while() -> None:
    client = ClientFilter()
    assert client.wants({1})
    client.set_topics({1}, 10)
    client.set_topics({2}, 20)
    assert [client.had(number, {1}) for number in (5, 10, 19, 20)] == [True, True, True, False]
    assert [client.had(number, {2}) for number in (5, 10, 19, 20)] == [True, False, False, True]
    assert client.had(10, None)
    assert (client.wants({1}), client.wants({2}), client.wants(None)) == (False, True, True)
    for number in range(LISTS_MAX):
        client.set_topics({number}, 100 + number)
    assert client.had(10, {2})  # before all lists that are known
    client.open()
    assert client.wants({1})


def test_a_notice_without_the_cookie_and_a_number_below_all_change_nothing() -> None:
    pair = joined(1)
    cookie, dropped = pair.there.clients[0].cookie, pair.here.counts.dgrams_dropped_other
    for packet in udp_packets.passed(SESSION, cookie ^ 1, [(0, 5)]):
        pair.deliver(packet, HERE, 0)
    assert (pair.here.lead, pair.here.counts.dgrams_dropped_other) == (0, dropped + 1)
    flags = PASSED_MAX << udp_packets.PASSED_SHIFT
    pair.deliver(udp_packets.data(SESSION, 2, 0, 1, 5, b"\x01", flags), HERE, 0)
    assert (pair.got, pair.here.lead, pair.here.missing) == ([b"\x01"], 3, 0)
    assert pair.here.counts.dgrams_filtered == 2
