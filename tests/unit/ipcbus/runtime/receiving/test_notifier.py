"""Events besides messages: each goes to the receivers concerned, once."""

from __future__ import annotations

import logging
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast
from unittest.mock import Mock

import pytest

from ipcbus import MessageType
from ipcbus.config import ReceiverOptions
from ipcbus.delivery.sink import Sink
from ipcbus.resolution.local.adverts import SourceAdvert
from ipcbus.runtime.receiving.notifier import Notifier
from ipcbus.runtime.receiving.subscriptions import Subscription, Subscriptions
from tests.kit.resolving import source

if TYPE_CHECKING:
    from ipcbus.transport.receiving_session import ReceivingSession

SESSION = source(2, "a").session


def receiving(topics: dict[str, tuple[int, list[Subscription]]]) -> ReceivingSession:
    """A joined session: numbers of its topics, and the receivers that get their messages."""
    controllers = [
        SimpleNamespace(origin=SimpleNamespace(topic=topic), topic_number=number)
        for topic, (number, _) in topics.items()
    ]
    sinks = {number: [user.sink for user in users] for number, users in topics.values()}
    delivery = SimpleNamespace(sinks=sinks.__getitem__)
    found = SimpleNamespace(advert=SESSION, owner_pid=5, topics=lambda: controllers, delivery=delivery)
    return cast("ReceivingSession", found)


@pytest.fixture
def subscriptions() -> Subscriptions:
    return Subscriptions()


@pytest.fixture
def notifier(subscriptions: Subscriptions) -> Notifier:
    return Notifier(subscriptions, lambda _: False)


def follow(subscriptions: Subscriptions, name: str, *, pattern: bool = False) -> tuple[Subscription, Mock]:
    """A receiver that gave callbacks for its sources."""
    told = Mock()
    made = Subscription(
        name, Sink(None, 1), ReceiverOptions(), notifications=told, pattern=re.compile(name) if pattern else None
    )
    subscriptions.add(made)
    return made, told


def test_each_receiver_of_a_source_is_told_of_it_and_no_other(subscriptions: Subscriptions, notifier: Notifier) -> None:
    a, told_a = follow(subscriptions, "a")
    either, told_either = follow(subscriptions, "a|b", pattern=True)
    _, told_late = follow(subscriptions, "a")  # gets no message of this session yet
    notifier.notify_all_sources(receiving({"a": (1, [a, either]), "b": (2, [either])}))
    told_a.begin.assert_called_once_with(SourceAdvert(SESSION, "a", 1), 5)
    assert [call.args[0].topic for call in told_either.begin.call_args_list] == ["a", "b"]
    told_late.begin.assert_not_called()


def test_a_receiver_keeps_the_sources_from_which_it_still_gets_messages(
    subscriptions: Subscriptions, notifier: Notifier
) -> None:
    a, told_a = follow(subscriptions, "a")
    _, told_b = follow(subscriptions, "b")
    subscriptions.add(Subscription("a", Sink(None, 1), ReceiverOptions()))  # gave no callback for sources
    notifier.notify_gone([receiving({"a": (1, [a]), "b": (2, [])})], 77)
    told_a.keep.assert_called_once_with({SourceAdvert(SESSION, "a", 1)}, 77)
    told_b.keep.assert_called_once_with(set(), 77)


def test_a_receiver_without_a_source_is_told_once_and_the_event_counts(
    subscriptions: Subscriptions, notifier: Notifier
) -> None:
    threshold = ReceiverOptions({"resolution_no_source_notification_threshold": 2})
    missing, found, silent = (
        Subscription(name, Sink(None, 1), options)
        for name, options in (("a", threshold), ("b", threshold), ("a", ReceiverOptions()))
    )
    for each in (missing, found, silent):
        subscriptions.add(each)
    assert [notifier.note_sources(["b"]) for _ in range(2)] == [False, True]
    notifier.notify_missing()
    assert [message.type for message in missing.sink.queue] == [MessageType.NO_SOURCE_NOTIFICATION]
    assert not found.sink.queue
    assert not silent.sink.queue
    assert (notifier.take_count(), notifier.take_count()) == (1, 0)
    assert not notifier.note_sources(["b"])
    notifier.notify_missing()
    assert len(missing.sink.queue) == 1


def test_a_kind_of_exception_is_logged_once_for_each_receiver(
    notifier: Notifier, caplog: pytest.LogCaptureFixture
) -> None:
    sinks = [Sink(None, 1), Sink(None, 1)]
    with caplog.at_level(logging.ERROR, "ipcbus"):
        for sink in (*sinks, *sinks):
            notifier.failed(sink, ValueError("one"))
            notifier.failed(sink, ValueError("other text"))
        notifier.failed(sinks[0], KeyError("k"))
    kinds = [type(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert kinds == [ValueError, ValueError, KeyError]


def test_an_exception_that_the_driving_call_raises_is_not_logged(
    subscriptions: Subscriptions, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "ipcbus"):
        Notifier(subscriptions, lambda _: True).failed(Sink(None, 1), KeyboardInterrupt())
    assert not caplog.records
