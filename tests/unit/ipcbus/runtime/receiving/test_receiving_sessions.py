"""What a context receives: sessions are joined for its receivers, and left with the last of them."""

from __future__ import annotations

import os
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest

from ipcbus import ConfigError
from ipcbus.config import ContextOptions, ReceiverOptions
from ipcbus.resolution.local.registry import Registry
from ipcbus.runtime.discovery.peers import Peers
from ipcbus.runtime.receiving.receiving_sessions import ReceivingSessions
from ipcbus.runtime.receiving.session_info import sources_of
from ipcbus.runtime.receiving.subscriptions import Subscription
from ringbuf.slots import Identity
from tests.kit.sessions import SMALL, Pair

if TYPE_CHECKING:
    from collections.abc import Iterator


class Context:
    """The receiving side of a context, and a source whose registry it finds."""

    def __init__(self, domain: str) -> None:
        self.pair = Pair(domain, **SMALL)
        self.source, self.advert = self.pair.topic("a")
        self.theirs = Registry(domain, 7, "", "1.2", hidden=False, group="")
        self.theirs.add_session(self.pair.sending.advert)
        self.entry = self.theirs.add_source(0, "a", self.advert.topic_number)
        self.mine = Registry(domain, 9, "", "1.2", hidden=False, group="")
        self.event_loop = Mock(quiet=False)
        self.event_loop.pass_on.return_value = False
        self.resolution = Mock(changes=0)
        self.resolution.sources.return_value = self.resolution.contexts.return_value = {}
        network = cast("Any", SimpleNamespace(resolution=self.resolution, peers=Peers(domain, self.resolution)))
        who = Identity(os.getpid(), os.geteuid(), 9, "mine")
        self.receiving = ReceivingSessions(domain, who, ContextOptions(), self.mine, self.event_loop, network)

    def open(self, topic: str = "a", **options: Any) -> Subscription:  # noqa: ANN401
        made = Subscription(topic, self.pair.sink(), ReceiverOptions(options))
        self.receiving.open(made)
        return made

    @property
    def readers(self) -> int:
        return self.pair.sending.channel.slots.active_mask().bit_count()

    def close(self) -> None:
        self.receiving.close()
        self.mine.close()
        self.theirs.close()
        self.pair.close()


@pytest.fixture
def context(domain: str) -> Iterator[Context]:
    made = Context(domain)
    yield made
    made.close()


def test_a_receiver_that_comes_or_goes_takes_no_look_at_all_topics(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = context.open()
    context.receiving.scan()
    look = Mock(wraps=context.receiving._reconcile_once)
    monkeypatch.setattr(context.receiving, "_reconcile_once", look)
    other, stranger = context.open(), context.open("b")
    context.receiving.scan()
    assert [sources_of(each, context.receiving.sessions()) for each in (one, other, stranger)] == [1, 1, 0]
    for each in (other, stranger, one):
        context.receiving.remove(each)
    assert context.receiving.sessions() == []
    assert context.readers == look.call_count == 0


def test_a_receiver_that_goes_takes_the_look_at_all_topics_that_is_due(context: Context) -> None:
    one, pattern = context.open(), Subscription("b", context.pair.sink(), ReceiverOptions(), pattern=re.compile("b"))
    context.receiving.scan()
    context.receiving.open(pattern)
    assert context.receiving.needs_reconcile
    context.theirs.remove(context.entry)
    context.receiving._peers.refresh()
    stranger = context.open("c")
    context.receiving.remove(stranger)
    assert context.receiving.sessions() == []  # the source is gone, and its topic is read to the end
    context.receiving.remove(one)


def test_a_session_is_joined_for_its_first_receiver_and_left_with_its_last(context: Context) -> None:
    context.receiving.scan()
    assert context.receiving.sessions() == []
    one, other, stranger = context.open(), context.open(), context.open("b")
    context.receiving.scan()
    assert len(context.receiving.sessions()) == context.readers == 1
    assert [sources_of(each, context.receiving.sessions()) for each in (one, other, stranger)] == [1, 1, 0]
    context.receiving.remove(one)
    assert context.readers == 1
    context.resolution.unwant.assert_not_called()
    context.receiving.remove(other)
    assert context.receiving.sessions() == []
    assert context.readers == 0
    context.resolution.unwant.assert_called_once_with("a", wildcard=False)


def test_a_topic_that_is_not_offered_any_more_is_read_to_its_end(context: Context) -> None:
    subscription = context.open()
    context.receiving.scan()
    context.source.send(b"last", flush=True)
    context.theirs.remove(context.entry)
    context.receiving.refresh()
    context.receiving.drain()
    assert context.pair.got == ["BOS", "last", "EOS"]
    assert sources_of(subscription, context.receiving.sessions()) == 0
    assert context.readers == 0


def test_a_quiet_driver_leaves_callbacks_to_the_next_one(context: Context) -> None:
    context.source.send(b"before", flush=True)
    context.event_loop.quiet = True
    context.open()
    context.receiving.scan()
    assert context.readers == 1  # it is joined, and its source counts on it
    assert context.pair.got == []
    context.event_loop.quiet = False
    context.receiving.attend()
    assert context.pair.got == ["BOS"]


def test_a_session_that_its_source_closes_is_read_to_its_end_and_not_joined_again(context: Context) -> None:
    context.open()
    context.receiving.scan()
    context.source.send(b"last", flush=True)
    context.pair.sending.close()
    context.receiving.drain()
    assert context.pair.got == ["BOS", "last", "EOS"]
    later = context.open()
    context.receiving.scan()  # the source's registry offers the session still
    assert context.receiving.sessions() == []
    assert context.receiving.info(later) == []  # it was not even tried


def test_a_receiver_that_contradicts_another_one_of_its_topic_leaves_no_entry(context: Context) -> None:
    context.open()
    version = context.mine._words.load64(192)
    with pytest.raises(ConfigError, match="ordered_delivery"):
        context.open(ordered_delivery=0)
    assert context.mine._words.load64(192) == version
