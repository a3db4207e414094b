"""Topics, patterns, and what receivers of a topic have to agree on."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus.config import ReceiverOptions
from ipcbus.delivery.sink import Sink
from ipcbus.resolution.local.adverts import SessionAdvert
from ipcbus.runtime.receiving.subscriptions import SHARED, Subscription, Subscriptions
from ipcbus.wire.wire_layout import TRANSPORT_LBTIPC, TRANSPORT_LBTSMX

if TYPE_CHECKING:
    from ipcbus.config.option_values import Value

IPC, SMX = (SessionAdvert(1, 0, kind, 1, 1, 4096, False, 8) for kind in (TRANSPORT_LBTIPC, TRANSPORT_LBTSMX))


def exact(topic: str, **options: Value) -> Subscription:
    return Subscription(topic, Sink(None, 1), ReceiverOptions(options))


def wildcard(pattern: str, **options: Value) -> Subscription:
    return Subscription(pattern, Sink(None, 1), ReceiverOptions(options), pattern=re.compile(pattern))


@pytest.fixture
def subscriptions() -> Subscriptions:
    return Subscriptions()


def test_a_topic_goes_to_who_wants_it_in_the_order_of_their_making(subscriptions: Subscriptions) -> None:
    made = [wildcard("a.*"), exact("ab"), exact("b"), wildcard(".*b"), exact("ab")]
    made.reverse()  # in memory they lie the other way round
    for subscription in made:
        subscriptions.add(subscription)
    assert subscriptions.of("ab") == [made[0], made[1], made[3], made[4]]
    assert subscriptions.of("b") == [made[1], made[2]]
    assert subscriptions.of("c") == []
    assert list(subscriptions) == made
    assert len(subscriptions) == 5


@pytest.mark.parametrize("topic", ["ab", "xa", "A", "a\n"])
def test_a_pattern_matches_whole_topics(subscriptions: Subscriptions, topic: str) -> None:
    subscriptions.add(wildcard("a"))
    assert subscriptions.of("a")
    assert subscriptions.of(topic) == []


def test_what_was_found_out_follows_who_comes_and_goes(subscriptions: Subscriptions) -> None:
    assert subscriptions.of("a") == []
    one, two = exact("a"), wildcard("a|b")
    subscriptions.add(one)
    assert subscriptions.of("a") == [one]
    subscriptions.add(two)
    assert (subscriptions.of("a"), subscriptions.of("b")) == ([one, two], [two])
    subscriptions.remove(one)
    assert subscriptions.of("a") == [two]
    subscriptions.remove(two)
    assert (subscriptions.of("a"), subscriptions.of("b")) == ([], [])
    assert one not in subscriptions
    assert not subscriptions


def test_topics_that_are_gone_are_not_kept_in_mind(subscriptions: Subscriptions) -> None:
    subscriptions.add(wildcard(".*"))
    for number in range(100):
        subscriptions.of(f"t{number}")
    subscriptions.keep({"t5"})
    assert list(subscriptions._known) == ["t5"]


@pytest.mark.parametrize("name", SHARED)
def test_receivers_of_a_topic_agree_on_what_they_share(subscriptions: Subscriptions, name: str) -> None:
    subscriptions.add(exact("a"))
    subscriptions.check(exact("a"))
    subscriptions.check(exact("b", **{name: -1}))
    subscriptions.check(wildcard("a", **{name: -1}))
    default = ReceiverOptions.rows[name].default
    with pytest.raises(ipcbus.ConfigError, match=rf"topic 'a': option {name} = -1\b.* {default}\b"):
        subscriptions.check(exact("a", **{name: -1}))


def test_receivers_of_a_topic_need_not_agree_on_what_is_their_own(subscriptions: Subscriptions) -> None:
    subscriptions.add(exact("a"))
    subscriptions.check(exact("a", receive_queue_maximum=7, transport_lbtipc_activity_timeout=5))


def test_fragments_are_not_had_from_lbtsmx() -> None:
    for ordered in (1, -1):
        assert exact("a", ordered_delivery=ordered).refuses(SMX) == ""
    assert exact("a", ordered_delivery=0).refuses(IPC) == ""
    assert "ordered_delivery = 0" in exact("a", ordered_delivery=0).refuses(SMX)


def test_a_receiver_without_sources_is_told_once_after_so_many_looks() -> None:
    subscription = exact("a", resolution_no_source_notification_threshold=3)
    looks = [False] * 5 + [True] + [False] * 5
    assert [subscription.note_scan(found) for found in looks] == [
        *(False, False, True, False, False),
        False,
        *(False, False, True, False, False),
    ]
    never = exact("a")
    assert not any(never.note_scan(False) for _ in range(10))


def test_a_warning_comes_once_of_a_kind(caplog: pytest.LogCaptureFixture) -> None:
    subscription = exact("a")
    with caplog.at_level(logging.WARNING, "ipcbus"):
        for text in ("one", "two"):
            subscription.warn("kind", text)
        subscription.warn("other", "three %s")
    assert [record.getMessage() for record in caplog.records] == ["one", "three %s"]
