from __future__ import annotations

import pytest

from ipcbus.stats import SPAN_S, DomainSnapshot, History
from tests.unit.ipcbus.stats.made import SECOND, context, session, snapshot, source


def looked(count: int, at_s: float, **fields: int) -> DomainSnapshot:
    """A domain of one session with one topic, that has sent so many messages."""
    at = round(at_s * SECOND)
    counts = {"lbm_msgs_sent": count, "msgs_sent": count}
    return snapshot(context(session(at=at, counts=counts, sources=(source(counts=counts),), **fields), at=at), at=at)


def shown(counts: list[int], interval_s: float = 1) -> list[float]:
    """The rates that are shown at each look, of the topic; those of the session are the same."""
    history, found = History(), []
    for look, count in enumerate(counts):
        (each,) = history.add(looked(count, look * interval_s)).sessions
        if look:
            assert each.per_second["lbm_msgs_sent"] == each.sources[0].per_second["lbm_msgs_sent"]
            found.append(each.per_second["lbm_msgs_sent"])
    return found


def test_one_message_in_ten_seconds() -> None:
    rates = shown([second // 10 for second in range(100)])
    assert all(0.04 < rate < 0.2 for rate in rates[20:])


def test_a_fast_one_that_stops_is_at_nothing_at_once() -> None:
    rates = shown([*range(0, 30_000, 1000), *[29_000] * 30])
    assert rates[:29] == [1000] * 29
    assert rates[29:] == [0] * 30


def test_a_slow_one_that_stops_comes_to_nothing() -> None:
    assert shown([*range(10), *[9] * 40])[-1] == 0


def test_a_burst_after_silence_is_seen_as_it_is() -> None:
    assert shown([0] * 30 + [50])[-1] == 50


def test_a_burst_that_is_over_is_over() -> None:
    rates = shown([0] * 60 + [60] * 60, interval_s=0.5)
    assert rates[59] == 120
    assert set(rates[60:]) == {0}


def test_another_context_that_claims_the_name_spoils_nothing() -> None:
    history = History()
    for second in range(5):
        other = session(context_id=7, at=second * SECOND, counts={"lbm_msgs_sent": 10**6 - second})
        mine = looked(second * 10, second).contexts[0]
        found = history.add(snapshot(context(other, at=second * SECOND, context_id=7), mine, at=second * SECOND))
    assert history.trail(next(each for each in found.sessions if each.context_id == 1))[-4:] == (10,) * 4


def test_often_looked_at() -> None:
    rates = shown([look // 20 for look in range(400)], interval_s=0.1)  # one in two seconds, ten looks a second
    assert all(0.35 < rate < 0.65 for rate in rates[150:])


def test_the_trail() -> None:
    history = History()
    for second in range(5):
        found = history.add(looked(second * second * 10, second))
    (only,) = found.sessions
    assert history.trail(only) == (None,) * (SPAN_S - 4) + (10, 30, 50, 70)


def test_the_trail_of_many_looks_a_second() -> None:
    history = History()
    for look in range(41):
        found = history.add(looked(look * 10, look * 0.1))
    (only,) = found.sessions
    assert history.trail(only)[-4:] == pytest.approx((100, 100, 100, 100))
    assert history.trail(only)[-5] is None


def test_a_pause_fills_the_trail() -> None:
    history = History()
    history.add(looked(0, 0))
    (only,) = history.add(looked(100, 10)).sessions
    assert history.trail(only)[-10:] == (10,) * 10
    assert history.trail(only)[-11] is None


def test_no_trail_of_what_is_not_known() -> None:
    history = History()
    assert history.trail(session()) == (None,) * SPAN_S
    hidden = snapshot(context(session(counters={}, reason="no permission")))
    (only,) = history.add(hidden).sessions
    assert history.trail(only) == (None,) * SPAN_S


def test_another_session_of_the_same_name_begins_a_trail_of_its_own() -> None:
    history = History()
    history.add(looked(0, 0))
    history.add(looked(100, 1))
    (only,) = history.add(looked(5, 2, start_ns=9)).sessions
    assert history.trail(only) == (None,) * SPAN_S
