"""When a receiver asks about topics of which nothing has come."""

from __future__ import annotations

from ipcbus.reliability.info_requests import InfoRequests


def test_a_topic_is_asked_about_in_each_interval_until_something_comes() -> None:
    requests = InfoRequests(100, 60)
    assert not requests.due([1], 1000)
    assert requests.next_ns == 1100
    assert not requests.due([1], 1099)
    assert requests.due([1], 1100)
    assert not requests.due([1], 1199)
    assert requests.due([1], 1250)
    assert requests.next_ns == 1350
    assert not requests.due([], 1350)
    assert requests.next_ns is None


def test_each_topic_has_its_own_requests_and_no_more_than_the_maximum() -> None:
    requests = InfoRequests(100, 2)
    requests.due([1], 0)
    assert requests.due([1, 2], 100)
    assert [requests.due([1, 2], now) for now in (200, 300, 400, 500)] == [True, True, False, False]
    assert requests.next_ns is None


def test_without_an_interval_there_are_none() -> None:
    requests = InfoRequests(0, 60)
    assert not requests.due([1], 0)
    assert not requests.due([1], 10**12)
    assert requests.next_ns is None
