"""The topics that a receiver wants, and what its source has answered."""

from __future__ import annotations

import pytest

from ipcbus.reliability.topic_subscriptions import TopicSubscriptions
from ipcbus.wire import udp_packets
from ipcbus.wire.udp_packets import NUMBER_MAX, Topics


def asks(subscriptions: TopicSubscriptions) -> bool:
    return subscriptions.asks


def answer(*topics: tuple[int, int, int], lead: int = 0) -> Topics:
    return Topics(udp_packets.TOPICS, 0, 1, 0, lead, topics)


def test_the_source_is_asked_until_it_has_answered_for_each_topic() -> None:
    subscriptions = TopicSubscriptions(100)
    assert not asks(subscriptions)
    subscriptions.subscribe([1, 2], 100)
    assert asks(subscriptions)
    subscriptions.answered(answer((1, 5, 3)))
    assert asks(subscriptions)
    subscriptions.answered(answer((2, 0, 0), (9, 1, 1)))
    assert not asks(subscriptions)
    assert subscriptions.starts == {1: 5, 2: 0}
    assert subscriptions.published == {1: 3, 2: 0}


def test_the_first_start_stays_and_published_numbers_only_rise() -> None:
    subscriptions = TopicSubscriptions(0)
    subscriptions.subscribe([1], 0)
    for start, published in ((5, 3), (9, 8), (2, 1)):
        subscriptions.answered(answer((1, start, published)))
    assert (subscriptions.starts, subscriptions.published) == ({1: 5}, {1: 8})


def test_a_topic_that_the_source_does_not_have_has_no_start() -> None:
    subscriptions = TopicSubscriptions(0)
    subscriptions.subscribe([1], 0)
    subscriptions.answered(answer((1, NUMBER_MAX + 1, NUMBER_MAX + 1)))
    assert (subscriptions.starts, subscriptions.published) == ({1: None}, {})
    assert not asks(subscriptions)


def test_a_new_list_forgets_other_topics_and_has_a_higher_revision() -> None:
    subscriptions = TopicSubscriptions(100)
    subscriptions.subscribe([1, 2], 50)
    assert subscriptions.revision == 101
    subscriptions.answered(answer((1, 5, 3), (2, 6, 4)))
    subscriptions.subscribe([2], 500)
    assert subscriptions.revision == 500
    assert (subscriptions.starts, subscriptions.published) == ({2: 6}, {2: 4})


def test_asking_again_ends_with_the_next_answer() -> None:
    subscriptions = TopicSubscriptions(0)
    subscriptions.ask()
    assert not asks(subscriptions)  # without a topic there is nothing to ask for
    subscriptions.subscribe([1], 0)
    subscriptions.answered(answer((1, 5, 3)))
    subscriptions.ask()
    assert asks(subscriptions)
    subscriptions.answered(answer())
    assert not asks(subscriptions)


def test_what_is_published_counts_when_the_datagrams_are_known() -> None:
    subscriptions = TopicSubscriptions(0)
    subscriptions.subscribe([1, 2], 0)
    subscriptions.answered(answer((1, 5, 13), (2, 5, 23), lead=100))
    found = [dict(subscriptions.published)]
    subscriptions.reached(99)
    found.append(dict(subscriptions.published))
    subscriptions.answered(answer((1, 5, 14), lead=110))
    subscriptions.reached(100)
    assert [*found, subscriptions.published] == [{}, {}, {1: 13, 2: 23}]
    assert subscriptions.said == {1: 14, 2: 23}
    assert subscriptions.published_below(2, lambda: pytest.fail("nothing is awaited")) == 23
    subscriptions.answered(answer((1, 5, 14), lead=110))
    assert [subscriptions.published_below(1, lambda lead=lead: lead) for lead in (109, 110)] == [13, 14]  # type: ignore[misc]


def test_what_waits_with_the_source_is_only_said() -> None:
    subscriptions = TopicSubscriptions(0)
    subscriptions.subscribe([1], 0)
    subscriptions.answered(answer((1, 5, 13), lead=udp_packets.NO_TOPIC))
    subscriptions.reached(NUMBER_MAX)
    assert (subscriptions.published, subscriptions.said) == ({}, {1: 13})


def test_a_new_list_forgets_what_is_awaited_for_other_topics() -> None:
    subscriptions = TopicSubscriptions(0)
    subscriptions.subscribe([1, 2], 0)
    subscriptions.answered(answer((1, 5, 13), (2, 5, 23), lead=100))
    subscriptions.subscribe([2], 0)
    subscriptions.reached(100)
    assert (subscriptions.published, subscriptions.said) == ({2: 23}, {2: 23})


def test_an_answer_that_names_an_earlier_datagram_counts_first() -> None:
    """Else a wrong number of a peer would be waited for until the end."""
    subscriptions = TopicSubscriptions(0)
    subscriptions.subscribe([1], 0)
    subscriptions.answered(answer((1, 0, 9), lead=1 << 61))
    subscriptions.answered(answer((1, 0, 20), lead=5))
    assert subscriptions.published_below(1, lambda: 5) == 20
