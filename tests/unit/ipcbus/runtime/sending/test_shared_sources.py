"""Sources with shares, as two threads see them: one sends, one takes what members send."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

from ipcbus.config import ContextOptions, SourceOptions
from ipcbus.runtime.sending.retentions import Retentions
from ipcbus.runtime.sending.shared_sources import SharedSources
from ipcbus.wire import share_messages
from tests.kit.retaining import message

if TYPE_CHECKING:
    import pytest

    from ipcbus.topic.message_retention import Retention

TOPIC, INSTANCE, PEER = 1, 5, "the member"


class Source:
    """A source whose sends wait for a member as soon as one message is not acknowledged."""

    topic = "t"

    def __init__(self) -> None:
        self.hurried = 0
        self.session = Mock(held=set())
        self.shares = SharedSources("d", self._hurry, ContextOptions({}), Retentions(), Mock())
        self.shares.serve(self.session, lambda peer, message: False)
        self.shares.add(self, self.session, TOPIC, SourceOptions({"umq_ulb_flight_size": 1}))
        self.shares.take(self.session, PEER, share_messages.join(TOPIC, INSTANCE, 7, 64, "s"))
        self.driver()

    def send(self) -> None:
        self.retention.put(0, message(0, b"x"))
        self.shares.published(self.session)

    def driver(self) -> None:
        """A turn of the thread that drives the context."""
        self.shares.turn(self.session, time.monotonic_ns(), lambda peer, message, soon: True)

    def acknowledge(self) -> None:
        self.shares.take(self.session, PEER, share_messages.ack(TOPIC, INSTANCE, [(1, 1)]))

    def _hurry(self) -> None:
        self.hurried += 1

    def _retain(self, retention: Retention | None) -> None:
        assert retention is not None
        self.retention = retention

    def _feed_shares(self) -> None: ...

    def _hold(self, holds: bool) -> None: ...

    def _notify(self, event: object, *, last: bool = False) -> None: ...


def test_a_send_waits_until_the_member_has_acknowledged() -> None:
    source = Source()
    source.send()
    assert source.session.held == {TOPIC}
    source.driver()
    assert source.session.held == {TOPIC}
    source.acknowledge()
    source.driver()
    assert source.session.held == set()


def test_an_acknowledgement_that_comes_while_a_send_begins_to_wait_ends_the_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Source()
    begins_to_wait: Any = source.shares._hold

    def while_it_begins(*arguments: object) -> None:
        source.driver()
        source.acknowledge()
        source.driver()  # no send waits yet, so this lets none go on
        hurried = source.hurried
        begins_to_wait(*arguments)
        assert source.hurried > hurried

    monkeypatch.setattr(source.shares, "_hold", while_it_begins)
    source.send()
    assert source.session.held == {TOPIC}
    assert source.shares.has_work
    source.driver()
    assert source.session.held == set()
