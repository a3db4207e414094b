"""A value a second of latency and lag, whatever the interval of the looks is."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ipcbus.stats import SPAN_S, History
from ipcbus_tools.top.panes import lag, latency
from ipcbus_tools.top.session_history import SessionHistory, SessionTrend
from tests.unit.tools.top.recorded import SLOW, TRADING, changed

if TYPE_CHECKING:
    from ipcbus.stats import DomainSnapshot, SessionStats

SESSION = TRADING.session(SLOW)
assert SESSION is not None
KEY = (SESSION.context_id, SLOW)


def at(seconds: float, behind: int) -> DomainSnapshot:
    """A look at a time, at which every receiver is so many bytes behind."""

    def moved(each: SessionStats) -> SessionStats:
        receivers = tuple(dataclasses.replace(slot, lag=behind) for slot in each.receivers)
        return dataclasses.replace(each, receivers=receivers, read_ns=round(1e9 * seconds))

    return changed(TRADING, session=moved)


def followed(*looks: tuple[float, int]) -> SessionTrend:
    trends, history, found = SessionHistory(), History(), SessionTrend()
    for seconds, behind in looks:
        found = trends.add(history.add(at(seconds, behind)), history)[KEY]
    return found


def test_a_second_has_the_highest_of_its_looks() -> None:
    found = followed((0, 1), (0.3, 70), (0.6, 2), (1.0, 3), (1.5, 9), (2.0, 4))
    assert found.lag[-2:] == (70, 9)
    assert found.lag[:-2] == (None,) * (SPAN_S - 2)
    assert len(found.p99) == len(found.rate) == SPAN_S


def test_looks_that_are_far_apart_fill_the_seconds_between() -> None:
    assert followed((0, 1), (3.0, 5)).lag[-3:] == (5, 5, 5)
    assert followed((0, 1), (1000.0, 5)).lag == (5,) * SPAN_S


def test_the_receiver_furthest_behind_and_the_latest_count() -> None:
    session = TRADING.session(SLOW)
    assert session is not None
    assert lag(session) == max(slot.lag for slot in session.receivers)
    percentiles = [slot.recent.percentiles() for slot in session.receivers if slot.recent]
    assert latency(session, "p99") == max(each.p99 for each in percentiles if each)
    alone = dataclasses.replace(session, receivers=())
    assert (lag(alone), latency(alone, "p99")) == (None, None)
