from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipcbus.resolution.network.advert_cache import CONTEXT_BYTES, SESSION_BYTES, TOPIC_BYTES, TTL_MAX, AdvertCache
from ipcbus.wire import wire_layout
from ipcbus.wire.resolution_packets import Advert, FinalAdvert, Head, Session

S = 1_000_000_000
SESSION = Session(wire_layout.TRANSPORT_LBTRU, True, 64, 9, 2, 3, 1 << 20, "10.0.0.1", 14380)
ONE = CONTEXT_BYTES + SESSION_BYTES + TOPIC_BYTES + 1


def advert(number: int, topics: dict[int, str], context: int = 1, ttl: int = 35, **session: str | int) -> Advert:
    return Advert(Head(context, 4, "", "d", number), ttl, ((replace(SESSION, **session), topics),))


def final(number: int, *groups: tuple[int, tuple[int, ...]], context: int = 1) -> FinalAdvert:
    return FinalAdvert(Head(context, 4, "", "d", number), groups)


def topics(cache: AdvertCache) -> dict[str, int]:
    """Topics by name, with how often they are offered."""
    found: dict[str, int] = {}
    for session, offered in cache.sources().items():
        for number, source in offered.items():
            assert (source.session, source.topic_number) == (session, number)
            found[source.topic] = found.get(source.topic, 0) + 1
    return found


@pytest.fixture
def cache() -> AdvertCache:
    return AdvertCache(1 << 20, 4)


def test_what_was_told_is_known_until_it_is_too_old(cache: AdvertCache) -> None:
    cache.advert("h", advert(1, {5: "a", 6: "b"}), 0)
    (session,) = cache.sources()
    assert (session.context_id, session.session_id, session.local, session.transport_id) == (1, 9, 2, 3)
    assert session.source_string == "LBT-RU:10.0.0.1:14380:00000009"
    assert topics(cache) == {"a": 1, "b": 1}
    assert cache.contexts() == {1: 4}
    assert cache.take_changed() == {"a", "b"}
    assert cache.take_changed() == set()
    changes = cache.changes
    cache.advert("h", advert(2, {5: "a"}), 20 * S)
    assert cache.changes == changes
    cache.turn(35 * S)
    assert topics(cache) == {"a": 1}
    assert cache.changes > changes
    assert cache.take_changed() == {"b"}
    cache.turn(55 * S)
    assert not cache.sources()
    assert cache.bytes == 0
    assert cache.next_ns is None


def test_a_source_that_keeps_what_it_sent_is_known_as_such(cache: AdvertCache) -> None:
    told = advert(1, {5: "a", 6: "b"})
    cache.advert("h", replace(told, retaining=frozenset({(SESSION.session_id, 6)})), 0)
    (offered,) = cache.sources().values()
    assert {source.topic: source.retains for source in offered.values()} == {"a": False, "b": True}


def test_a_shorter_time_holds_too_and_none_is_too_long(cache: AdvertCache) -> None:
    cache.advert("h", advert(1, {5: "a"}, ttl=65535), 0)
    assert cache.next_ns == TTL_MAX * S * 2 // 3
    cache.advert("h", advert(2, {5: "a"}, ttl=10), S)
    cache.turn(11 * S - 1)
    assert cache.sources()
    assert cache.next_ns == 11 * S
    cache.turn(11 * S)
    assert not cache.sources()


def test_what_is_not_told_again_fades_before_it_is_forgotten(cache: AdvertCache) -> None:
    cache.advert("h", advert(1, {5: "a", 6: "b"}, ttl=30), 0)
    cache.advert("h", advert(2, {5: "a"}, ttl=30), 10 * S)
    cache.take_changed()
    cache.turn(20 * S)
    assert (cache.is_fresh("a"), cache.is_fresh("b"), "b" in cache) == (True, False, True)
    assert cache.take_changed() == {"b"}
    cache.advert("h", advert(3, {6: "b"}, ttl=30), 25 * S)
    assert cache.is_fresh("b")
    assert cache.take_changed() == {"b"}
    cache.turn(30 * S)
    assert (cache.is_fresh("a"), cache.take_changed()) == (False, {"a"})
    cache.turn(40 * S)
    assert (topics(cache), cache.take_changed()) == ({"b": 1}, {"a"})
    assert not cache.is_fresh("a")


@pytest.mark.parametrize(
    ("groups", "left"),
    [
        ([(9, (5,))], {"b": 1, "c": 1}),
        ([(9, (5, 6, 7, 8))], {"c": 1}),
        ([(9, ())], {"c": 1}),
        ([(9, (5,)), (10, (5,))], {"b": 1}),
        ([(11, ())], {"a": 1, "b": 1, "c": 1}),
        ([], {}),
    ],
)
def test_withdrawn(cache: AdvertCache, groups: list[tuple[int, tuple[int, ...]]], left: dict[str, int]) -> None:
    cache.advert("h", advert(1, {5: "a", 6: "b"}), 0)
    cache.advert("h", advert(2, {5: "c"}, session_id=10), 0)
    cache.final("h", final(3, *groups))
    assert topics(cache) == left
    assert bool(cache.contexts()) == bool(left)
    # An advert that was on a slower way brings nothing back.
    cache.advert("h", advert(2, {5: "a"}), 0)
    assert topics(cache) == left
    assert cache.old == 1
    cache.turn(35 * S)
    assert (cache.bytes, len(cache)) == (0, 0)


def test_what_nobody_has_told_is_not_withdrawn(cache: AdvertCache) -> None:
    cache.final("h", final(5))
    cache.advert("h", advert(1, {5: "a"}), 0)
    cache.final("elsewhere", final(6))
    assert topics(cache) == {"a": 1}


def test_contexts_of_two_hosts_may_have_one_id(cache: AdvertCache) -> None:
    cache.advert("h", advert(100, {5: "a"}), 0)
    cache.advert("i", advert(1, {5: "a"}, host="10.0.0.2"), 0)
    assert topics(cache) == {"a": 2}
    cache.final("i", final(2))
    assert topics(cache) == {"a": 1}
    assert "a" in cache


def test_a_session_that_has_moved(cache: AdvertCache) -> None:
    cache.advert("h", advert(1, {5: "a", 6: "b"}), 0)
    cache.advert("h", advert(2, {5: "a"}, port=5), 0)
    (session,) = cache.sources()
    assert session.endpoint is not None
    assert session.endpoint.port == 5
    assert topics(cache) == {"a": 1}


def test_a_number_that_is_another_topic_now(cache: AdvertCache) -> None:
    cache.advert("h", advert(1, {5: "a"}), 0)
    cache.advert("h", advert(2, {5: "b"}), 0)
    assert topics(cache) == {"b": 1}
    assert ("a" in cache, "b" in cache) == (False, True)


def test_one_host_has_a_share_only_and_pushes_nobody_out() -> None:
    cache = AdvertCache(4 * (3 * ONE), 4)
    cache.advert("g", advert(1, {1: "x"}, context=2, host="10.0.0.9"), 0)
    for number in range(1, 100):
        cache.advert("h", advert(number, {number: "a"}), 0)
    assert topics(cache)["x"] == 1
    assert topics(cache)["a"] > 1
    assert cache.bytes <= 3 * ONE + ONE
    assert cache.refused > 50
    for host in range(50):
        cache.advert(str(host), advert(1, {1: "y"}, context=host + 5, host=f"10.1.0.{host}"), 0)
    assert cache.bytes <= 12 * ONE
    assert topics(cache)["x"] == 1
    # Who was refused is known as soon as there is room again.
    cache.final("h", final(200))
    cache.turn(40 * S)
    cache.advert("49", advert(2, {1: "y"}, context=54, host="10.1.0.49"), 40 * S)
    assert topics(cache) == {"y": 1}


EVENTS = st.one_of(
    st.tuples(st.just("advert"), st.integers(1, 3), st.integers(1, 2), st.integers(0, 4), st.sampled_from("abc")),
    st.tuples(st.just("final"), st.integers(1, 3), st.integers(1, 2), st.integers(0, 4), st.sampled_from("abc")),
    st.tuples(st.just("end"), st.integers(1, 3), st.integers(1, 2), st.integers(0, 4), st.sampled_from("abc")),
    st.tuples(st.just("time"), st.integers(1, 30), st.just(0), st.just(0), st.just("")),
)


@given(st.lists(EVENTS, max_size=60), st.sampled_from([1 << 20, 8 * ONE]))
def test_what_is_paid_is_what_is_known(events: list[tuple[str, int, int, int, str]], bytes_max: int) -> None:
    cache, now_ns = AdvertCache(bytes_max, 2), 0
    for order, (kind, context, session, number, topic) in enumerate(events, 1):
        if kind == "advert":
            cache.advert("h", advert(order, {number: topic}, context=context, session_id=session), now_ns)
        elif kind == "final":
            cache.final("h", final(order, (session, (number,)), context=context))
        elif kind == "end":
            cache.final("h", final(order, context=context))
        else:
            now_ns += context * S
            cache.turn(now_ns)
        known = topics(cache)
        assert len(cache) == len(known)
        assert all(name in cache for name in known)
        assert all(cache.sources().values())
        assert all(name in cache for name in cache._fading)
        cost = sum((TOPIC_BYTES + 1) * count for count in known.values()) + SESSION_BYTES * len(cache.sources())
        assert cost <= cache.bytes <= min(bytes_max // 2, cost + 3 * CONTEXT_BYTES)
    cache.turn(now_ns + TTL_MAX * S)
    assert (cache.bytes, len(cache), cache.sources(), cache.next_ns) == (0, 0, {}, None)


def test_a_session_of_which_no_topic_has_room_costs_nothing() -> None:
    cache = AdvertCache(4 * (CONTEXT_BYTES + SESSION_BYTES + TOPIC_BYTES), 4)
    cache.advert("h", advert(1, {5: "x" * 200}), 0)
    assert (cache.refused, cache.contexts(), dict(cache.sources())) == (1, {}, {})
    assert cache.bytes == CONTEXT_BYTES
    cache.turn(1000 * S)
    assert cache.bytes == 0
