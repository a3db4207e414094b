"""Events that wait until the driver may call receivers back: each comes once, and nothing overtakes it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from ipcbus.runtime.loop.deferred_events import DeferredEvents


class Calls:
    """An event loop, a notifier and a session that note what is called."""

    def __init__(self) -> None:
        self.quiet = True
        self.pump = SimpleNamespace(attention=False)
        self.got: list[str] = []

    def notify_all_sources(self, session: object) -> None:
        assert session is self
        self.got.append("sources")

    def begin_topics(self) -> None:
        self.got.append("BOS")

    def notify_missing(self) -> None:
        self.got.append("missing")


def test_while_the_driver_is_quiet_events_wait_and_then_come_once_sources_first() -> None:
    calls = Calls()
    deferred = DeferredEvents(cast("Any", calls), cast("Any", calls))
    assert deferred.defer()
    assert deferred.pending
    assert calls.pump.attention
    assert calls.got == []
    deferred.deliver([cast("Any", calls)])
    assert calls.got == ["sources", "BOS", "missing"]
    deferred.deliver([cast("Any", calls)])
    assert len(calls.got) == 3


def test_a_driver_that_may_call_back_defers_nothing() -> None:
    calls = Calls()
    calls.quiet = False
    deferred = DeferredEvents(cast("Any", calls), cast("Any", calls))
    assert not deferred.defer()
    deferred.deliver([cast("Any", calls)])
    assert calls.got == []
    assert not calls.pump.attention


def test_an_event_that_comes_while_others_are_told_is_told_later() -> None:
    calls = Calls()
    deferred = DeferredEvents(cast("Any", calls), cast("Any", calls))
    deferred.defer()
    calls.begin_topics = deferred.defer  # type: ignore[method-assign, assignment]
    deferred.deliver([cast("Any", calls)])
    assert deferred.pending
