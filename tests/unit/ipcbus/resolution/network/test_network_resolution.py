from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipcbus.resolution.local.adverts import Endpoint, SessionAdvert, SourceAdvert
from ipcbus.resolution.network.network_resolution import FRESH_NS, JITTER_NS, NetworkResolution, Who
from ipcbus.resolution.network.resolution_settings import ResolutionSettings
from ipcbus.wire import resolution_packets, wire_layout
from tests.kit.cases import each_of

if TYPE_CHECKING:
    from ipcbus.wire.resolution_packets import Packet

MS = 1_000_000
S = 1000 * MS
TERMS = ResolutionSettings()
HERE = ("10.0.0.1", 12965)
THERE = ("10.0.0.2", 12965)


def session(context: int = 1, session_id: int = 9, host: str = "10.0.0.1") -> SessionAdvert:
    return SessionAdvert(
        context, 2, wire_layout.TRANSPORT_LBTRU, session_id, 3, 1 << 20, True, 64, Endpoint(host, 14380)
    )


def source(topic: str, number: int = 5, context: int = 1, session_id: int = 9, host: str = "10.0.0.1") -> SourceAdvert:
    return SourceAdvert(session(context, session_id, host), topic, number)


def resolution(
    context: int = 1, terms: ResolutionSettings = TERMS, domain: str = "d", now_ns: int = 0
) -> NetworkResolution:
    return NetworkResolution(terms, Who(context, 40 + context, "feed"), domain, Random(context), now_ns)


def said(one: NetworkResolution) -> list[Packet]:
    found = [resolution_packets.parse(packet) for packet in one.take()]
    assert None not in found
    return [packet for packet in found if packet is not None]


def until(one: NetworkResolution, end_ns: int, now_ns: int = 0) -> list[tuple[int, bytes]]:
    """Everything it sends until then, with the times."""
    found: list[tuple[int, bytes]] = []
    while (next_ns := one.next_ns) is not None and next_ns <= end_ns:
        now_ns = max(now_ns, next_ns)
        one.turn(now_ns)
        found += [(now_ns, packet) for packet in one.take()]
        following = one.next_ns
        assert following is None or following > now_ns
    return found


@pytest.fixture
def feed() -> NetworkResolution:
    """One that publishes `a` and is in its quiet phase at 100 s."""
    feed = resolution()
    feed.offer(source("a"), 0)
    until(feed, 100 * S)
    return feed


def question(*topics: str, number: int = 1) -> bytes:
    return resolution_packets.query(resolution_packets.Head(2, 1, "", "d", number), topics)


def test_a_source_is_found_with_everything_that_is_needed() -> None:
    feed, other = resolution(1), resolution(2)
    feed.offer(source("a"), 0)
    feed.turn(0)
    changes = other.changes
    for packet in feed.take():
        other.receive(packet, HERE, 0)
    assert other.sources() == {session(): {5: source("a")}}
    assert other.contexts() == {1: 41}
    assert other.changes > changes
    assert other.counts.tr_src_topics == 1


def test_a_topic_is_offered_until_its_last_source_is_withdrawn() -> None:
    feed = resolution()
    sources = [SourceAdvert(session(), "a", number) for number in (1, 2)]
    for each in sources:
        assert feed.offers("a") is (each is not sources[0])
        feed.offer(each, 0)
    for each in sources:
        assert feed.offers("a")
        feed.withdraw(each, 0)
    assert not feed.offers("a")


def test_a_session_without_an_endpoint_is_not_told() -> None:
    feed = resolution()
    inside = replace(session(), endpoint=None)
    feed.offer(SourceAdvert(inside, "a", 1), 0)
    assert feed.next_ns is None
    assert not feed.offers("a")
    feed.withdraw(SourceAdvert(inside, "a", 1), 0)
    assert feed.close(0) == []


def test_a_ring_with_a_twin_is_told_as_the_ring() -> None:
    feed, other = resolution(1), resolution(2)
    ring = replace(session(), transport=wire_layout.TRANSPORT_LBTIPC)
    feed.offer(SourceAdvert(ring, "a", 1), 0)
    feed.turn(0)
    other.receive(feed.take()[0], HERE, 0)
    assert list(other.sources()) == [ring]


def test_many_topics_fill_datagrams_and_none_is_longer_than_allowed() -> None:
    terms = replace(TERMS, datagram_max_size=600, initial_advertisements_per_second=0, initial_advertisement_bps=0)
    feed, other = resolution(1, terms), resolution(2)
    offered = [source(f"topic.{number}", number, session_id=1 + number % 3) for number in range(200)]
    for each in offered:
        feed.offer(each, 0)
    feed.turn(0)
    packets = feed.take()
    assert all(len(packet) <= 600 for packet in packets)
    assert len(packets) < 200 * 20 // 400
    for packet in packets:
        other.receive(packet, HERE, 0)
    assert {each for topics in other.sources().values() for each in topics.values()} == set(offered)


def test_a_query_is_answered_once_and_soon(feed: NetworkResolution) -> None:
    for number in range(1000):
        feed.receive(question("a", "b", number=number), THERE, 100 * S)
    sent = until(feed, 100 * S + JITTER_NS)
    assert len(sent) == 1
    (answer,) = [resolution_packets.parse(packet) for _, packet in sent]
    assert isinstance(answer, resolution_packets.Advert)
    # What was just told is not told again; what was told some time ago is.
    now_ns = sent[0][0]
    feed.receive(question("a"), THERE, now_ns + FRESH_NS // 2)
    assert not until(feed, now_ns + FRESH_NS - 1)
    feed.receive(question("a"), THERE, now_ns + FRESH_NS + MS)
    assert len(until(feed, now_ns + FRESH_NS + MS + JITTER_NS)) == 1


def test_a_query_begins_the_sustain_phase_anew(feed: NetworkResolution) -> None:
    assert len(until(feed, 130 * S)) == 3
    feed.receive(question("a"), THERE, 130 * S)
    times = [time for time, _ in until(feed, 230 * S)]
    assert len([time for time in times if time < 190 * S]) in (60, 61)
    assert len([time for time in times if time > 191 * S]) in (3, 4)


def test_no_immediate_answer_where_it_is_switched_off() -> None:
    feed = resolution(1, replace(TERMS, advertisement_send_immediate_response=False))
    feed.offer(source("a"), 0)
    until(feed, 100 * S)
    feed.receive(question("a"), THERE, 100 * S)
    assert not until(feed, 101 * S - 1)
    assert len(until(feed, 102 * S)) == 1


def test_patterns_are_answered_by_what_begins_like_them() -> None:
    feed, other = resolution(1), resolution(2)
    for number, topic in enumerate(("quotes.A", "quotes.B", "orders")):
        feed.offer(source(topic, number), 0)
    until(feed, 100 * S)
    other.want_pattern(r"quotes\.[AB]", 100 * S)
    other.want_pattern(r"quotes\.C?", 100 * S)
    other.turn(100 * S)
    (packet,) = other.take()
    assert resolution_packets.parse(packet) == resolution_packets.WildcardQuery(
        resolution_packets.Head(2, 42, "feed", "d", 1), ("quotes.",)
    )
    for _ in range(50):
        feed.receive(packet, THERE, 100 * S)
    (answer,) = [resolution_packets.parse(packet) for _, packet in until(feed, 100 * S + JITTER_NS, 100 * S)]
    assert isinstance(answer, resolution_packets.Advert)
    assert sorted(answer.groups[0][1].values()) == ["quotes.A", "quotes.B"]
    other.unwant_pattern(r"quotes\.[AB]")
    other.unwant_pattern(r"quotes\.C?")
    assert other.next_ns is None


def test_many_patterns_are_all_topics_and_take_one_look(feed: NetworkResolution) -> None:
    until(feed, 150 * S)
    for number in range(100):
        head = resolution_packets.Head(2, 1, "", "d", number)
        feed.receive(
            resolution_packets.wildcard_query(head, [f"{number}.{other}" for other in range(100)]), THERE, 150 * S
        )
    assert len(feed._prefixes) == 1
    assert len(until(feed, 150 * S + JITTER_NS, 150 * S)) == 1


def test_asking_ends_with_an_answer_and_begins_when_it_holds_no_more() -> None:
    other = resolution(2)
    other.want("a", 0)
    other.want("a", 0)
    assert other.counts.tr_rcv_unresolved_topics == 1
    other.turn(0)
    (query,) = said(other)
    assert isinstance(query, resolution_packets.Query)
    assert query.topics == ("a",)
    other.receive(
        resolution_packets.advert(resolution_packets.Head(1, 1, "", "d", 1), 35, [(_told(), {5: "a"})]), HERE, 5 * MS
    )
    assert (other.counts.tr_rcv_topics, other.counts.tr_rcv_unresolved_topics) == (1, 0)
    assert not until(other, 23 * S)
    # It is asked for again before it is forgotten, and after that too.
    assert until(other, 34 * S)[0][0] == 5 * MS + 35 * S * 2 // 3
    assert other.sources()
    assert until(other, 200 * S)[-1][0] > 190 * S
    assert not other.sources()
    assert other.counts.tr_rcv_unresolved_topics == 1
    other.unwant("a")
    assert other.next_ns is None


def test_what_a_pattern_wants_is_asked_for_while_it_fades() -> None:
    other = resolution(2)
    other.want_pattern("a.*", 0)
    until(other, 100 * S)
    other.receive(
        resolution_packets.advert(resolution_packets.Head(1, 1, "", "d", 1), 30, [(_told(), {5: "a", 6: "b"})]),
        HERE,
        100 * S,
    )
    asked = [(time, resolution_packets.parse(packet)) for time, packet in until(other, 200 * S, 100 * S)]
    assert {packet.topics for _, packet in asked if isinstance(packet, resolution_packets.Query)} == {("a",)}
    assert 120 * S <= asked[0][0] <= asked[-1][0] <= 130 * S
    assert other.next_ns is None


def _told(host: str = "10.0.0.1") -> resolution_packets.Session:
    return resolution_packets.Session(wire_layout.TRANSPORT_LBTRU, True, 64, 9, 2, 3, 1 << 20, host, 14380)


def test_what_is_known_is_not_asked_for() -> None:
    other = resolution(2)
    other.receive(
        resolution_packets.advert(resolution_packets.Head(1, 1, "", "d", 1), 35, [(_told(), {5: "a"})]), HERE, 0
    )
    other.want("a", 0)
    other.turn(0)
    assert other.take() == []


def test_withdrawn_topics_are_told_and_forgotten() -> None:
    feed, other = resolution(1), resolution(2)
    for number in range(300):
        feed.offer(source(f"t{number}", number, session_id=1 + number % 2), 0)
    for _, packet in until(feed, S):
        other.receive(packet, HERE, 0)
    assert other.counts.tr_src_topics == 300
    for number in range(1, 300):
        feed.withdraw(source(f"t{number}", number, session_id=1 + number % 2), S)
    feed.withdraw(source("t1", 1, session_id=2), S)
    for _, packet in until(feed, 2 * S):
        other.receive(packet, HERE, 2 * S)
    assert [each.topic for topics in other.sources().values() for each in topics.values()] == ["t0"]
    for packet in feed.close(2 * S):
        other.receive(packet, HERE, 2 * S)
    assert (other.sources(), other.contexts()) == ({}, {})


def test_offered_again_before_the_withdrawal_was_told() -> None:
    feed, other = resolution(1), resolution(2)
    feed.offer(source("a"), 0)
    feed.withdraw(source("a"), 0)
    feed.offer(source("a"), 0)
    for _, packet in until(feed, S):
        other.receive(packet, HERE, 0)
    assert other.counts.tr_src_topics == 1


def test_final_adverts_can_be_switched_off() -> None:
    feed = resolution(1, replace(TERMS, send_final_advertisements=False))
    feed.offer(source("a"), 0)
    feed.offer(source("b", 6), 0)
    until(feed, S)
    feed.withdraw(source("a"), S)
    assert all(
        isinstance(resolution_packets.parse(packet), resolution_packets.Advert) for _, packet in until(feed, 2 * S)
    )
    assert feed.close(2 * S) == []


@each_of(
    ("address", "seen"),
    [
        (("10.0.0.1", 1), True),
        (("::ffff:10.0.0.1", 1, 0, 0), True),
        (("10.0.0.2", 1), False),
        (("", 1), False),
        (("host", 1), False),
        ("10.0.0.1", False),
        ((), False),
        (None, False),
        ((b"10.0.0.1", 1), False),
    ],
)
def test_adverts_come_from_the_host_of_their_sessions(address: object, seen: bool) -> None:
    other = resolution(2)
    packet = resolution_packets.advert(resolution_packets.Head(1, 1, "", "d", 1), 35, [(_told(), {5: "a"})])
    other.receive(packet, address, 0)
    assert (bool(other.sources()), other.counts.dgrams_dropped_address) == (seen, int(not seen))
    through = resolution(2, replace(TERMS, check_address=False))
    through.receive(packet, address, 0)
    assert through.sources()


def test_an_address_of_ipv6_may_have_a_scope() -> None:
    other = resolution(2)
    packet = resolution_packets.advert(resolution_packets.Head(1, 1, "", "d", 1), 35, [(_told("fe80::1"), {5: "a"})])
    other.receive(packet, ("fe80::1%eth0", 1, 0, 2), 0)
    assert other.sources()


def test_own_and_other_domains_are_not_seen() -> None:
    one, same, other = resolution(1), resolution(1), resolution(2, domain="e")
    one.offer(source("a"), 0)
    one.turn(0)
    (packet,) = one.take()
    same.receive(packet, HERE, 0)
    other.receive(packet, HERE, 0)
    assert not same.sources()
    assert not other.sources()
    assert (same.counts.tr_dgrams_rcved, other.counts.tr_dgrams_rcved) == (0, 1)
    assert other.counts.dgrams_other_domain == 1


def test_what_is_wrong_is_counted() -> None:
    one = resolution(1)
    for packet in (b"", b"\1rest", b"\2\0rest", b"\2\1rest", b"\2\2"):
        one.receive(packet, HERE, 0)
    counts = one.counts
    assert counts.tr_dgrams_dropped_ver == counts.tr_dgrams_dropped_type == 1
    assert counts.tr_dgrams_dropped_malformed == 3
    assert (counts.tr_dgrams_rcved, counts.tr_bytes_rcved) == (5, 19)


def test_what_came_twice_is_dropped() -> None:
    one = resolution(2)
    packet = resolution_packets.advert(resolution_packets.Head(1, 1, "", "d", 1), 35, [(_told(), {5: "a"})])
    one.receive(packet, HERE, 0)
    one.receive(packet, HERE, 20 * S)
    assert one.counts.dgrams_dropped_old == 1
    one.turn(35 * S)
    assert not one.sources()


def test_one_that_is_made_anew_is_believed() -> None:
    other = resolution(2)
    for start_ns in (0, 5 * S):
        feed = resolution(1, now_ns=start_ns)
        feed.offer(source("a"), start_ns)
        feed.turn(start_ns)
        for packet in (*feed.take(), *feed.close(start_ns)):
            other.receive(packet, HERE, start_ns)
            if start_ns == 0 or isinstance(resolution_packets.parse(packet), resolution_packets.FinalAdvert):
                continue
            assert other.sources()


def test_refresh_tells_and_asks_at_once(feed: NetworkResolution) -> None:
    feed.want("x", 0)
    feed.want_pattern("y.*", 0)
    until(feed, 200 * S)
    feed.refresh(200 * S + 1)
    feed.turn(200 * S + 1)
    assert {type(packet) for packet in said(feed)} == {
        resolution_packets.Advert,
        resolution_packets.Query,
        resolution_packets.WildcardQuery,
    }


def test_who_has_heard_nobody_for_long_asks_more_often_when_he_hears_somebody() -> None:
    one = resolution(1)
    one.want("x", 0)
    until(one, 200 * S)
    sent = []
    for heard in range(200, 300, 20):
        one.receive(question("y"), THERE, heard * S)
        sent += until(one, (heard + 20) * S, heard * S)
    assert len([time for time, _ in sent if time < 260 * S]) in (60, 61)
    assert len([time for time, _ in sent if time > 261 * S]) in (3, 4)


def test_a_name_that_is_too_long_is_cut_between_letters() -> None:
    one = NetworkResolution(TERMS, Who(1, 2, "x" + "é" * 20), "a long domain", Random(1), 0)
    one.want("a", 0)
    one.turn(0)
    (packet,) = said(one)
    assert packet.head.name == "x" + "é" * 15


@settings(max_examples=30)
@given(st.lists(st.tuples(st.binary(max_size=100), st.integers(0, 3)), max_size=30))
def test_any_bytes_do_nothing(packets: list[tuple[bytes, int]]) -> None:
    one = resolution(1)
    for packet, kind in packets:
        one.receive(packet if kind == 0 else bytes((resolution_packets.VERSION, kind)) + packet, HERE, 0)
    assert not one.sources()
