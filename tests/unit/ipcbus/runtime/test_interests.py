"""Topics, patterns, and what receivers of a topic have to agree on."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus.config import ReceiverOptions
from ipcbus.delivery.sink import Sink
from ipcbus.resolution.adverts import SessionAdvert
from ipcbus.runtime.interests import SHARED, Interest, Interests
from ipcbus.wire.layout import TRANSPORT_LBTIPC, TRANSPORT_LBTSMX

if TYPE_CHECKING:
    from ipcbus.config.values import Value

IPC, SMX = (SessionAdvert(1, 0, kind, 1, 1, 4096, False, 8) for kind in (TRANSPORT_LBTIPC, TRANSPORT_LBTSMX))


def exact(topic: str, **options: Value) -> Interest:
    return Interest(topic, Sink(None, 1), ReceiverOptions(options))


def wildcard(pattern: str, **options: Value) -> Interest:
    return Interest(pattern, Sink(None, 1), ReceiverOptions(options), pattern=re.compile(pattern))


@pytest.fixture
def interests() -> Interests:
    return Interests()


def test_a_topic_goes_to_who_wants_it_in_the_order_of_their_making(interests: Interests) -> None:
    made = [wildcard("a.*"), exact("ab"), exact("b"), wildcard(".*b"), exact("ab")]
    made.reverse()  # in memory they lie the other way round
    for interest in made:
        interests.add(interest)
    assert interests.of("ab") == [made[0], made[1], made[3], made[4]]
    assert interests.of("b") == [made[1], made[2]]
    assert interests.of("c") == []
    assert list(interests) == made
    assert len(interests) == 5


@pytest.mark.parametrize("topic", ["ab", "xa", "A", "a\n"])
def test_a_pattern_matches_whole_topics(interests: Interests, topic: str) -> None:
    interests.add(wildcard("a"))
    assert interests.of("a")
    assert interests.of(topic) == []


def test_what_was_found_out_follows_who_comes_and_goes(interests: Interests) -> None:
    assert interests.of("a") == []
    one, two = exact("a"), wildcard("a|b")
    interests.add(one)
    assert interests.of("a") == [one]
    interests.add(two)
    assert (interests.of("a"), interests.of("b")) == ([one, two], [two])
    interests.remove(one)
    assert interests.of("a") == [two]
    interests.remove(two)
    assert (interests.of("a"), interests.of("b")) == ([], [])
    assert one not in interests
    assert not interests


def test_topics_that_are_gone_are_not_kept_in_mind(interests: Interests) -> None:
    interests.add(wildcard(".*"))
    for number in range(100):
        interests.of(f"t{number}")
    interests.keep({"t5"})
    assert list(interests._known) == ["t5"]


@pytest.mark.parametrize("name", SHARED)
def test_receivers_of_a_topic_agree_on_what_they_share(interests: Interests, name: str) -> None:
    interests.add(exact("a"))
    interests.check(exact("a"))
    interests.check(exact("b", **{name: -1}))
    interests.check(wildcard("a", **{name: -1}))
    default = ReceiverOptions.rows[name].default
    with pytest.raises(ipcbus.ConfigError, match=rf"topic 'a': option {name} = -1\b.* {default}\b"):
        interests.check(exact("a", **{name: -1}))


def test_receivers_of_a_topic_need_not_agree_on_what_is_their_own(interests: Interests) -> None:
    interests.add(exact("a"))
    interests.check(exact("a", receive_queue_maximum=7, transport_lbtipc_activity_timeout=5))


def test_fragments_are_not_had_from_lbtsmx() -> None:
    for ordered in (1, -1):
        assert exact("a", ordered_delivery=ordered).refuses(SMX) == ""
    assert exact("a", ordered_delivery=0).refuses(IPC) == ""
    assert "ordered_delivery = 0" in exact("a", ordered_delivery=0).refuses(SMX)


def test_a_receiver_without_sources_is_told_once_after_so_many_looks() -> None:
    interest = exact("a", resolution_no_source_notification_threshold=3)
    looks = [False] * 5 + [True] + [False] * 5
    assert [interest.looked(found) for found in looks] == [
        *(False, False, True, False, False),
        False,
        *(False, False, True, False, False),
    ]
    never = exact("a")
    assert not any(never.looked(False) for _ in range(10))


def test_a_warning_comes_once_of_a_kind(caplog: pytest.LogCaptureFixture) -> None:
    interest = exact("a")
    with caplog.at_level(logging.WARNING, "ipcbus"):
        for text in ("one", "two"):
            interest.warn("kind", text)
        interest.warn("other", "three %s")
    assert [record.getMessage() for record in caplog.records] == ["one", "three %s"]
