"""Rates from two snapshots: slow and fast, around the end of a word, across restarts, of what cannot be read."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipcbus.stats import DomainSnapshot, rates
from ipcbus.stats.rates import growth, per_second
from tests.unit.ipcbus.stats.made import (
    SECOND,
    START,
    context,
    histogram,
    receiver,
    session,
    slot,
    snapshot,
    source,
)

if TYPE_CHECKING:
    from ipcbus.stats import SessionStats

END = 1 << 64


def taken(*sessions: SessionStats, at: int = 0, **fields: object) -> DomainSnapshot:
    return snapshot(context(*sessions, at=at, **fields), at=at)


def only(found: DomainSnapshot) -> SessionStats:
    (session,) = found.sessions
    return session


def rate(before: int, after: int, seconds: float = 1.0) -> float | None:
    """Messages a second of a session between two looks."""
    later = round(seconds * SECOND)
    found = rates(
        taken(session(counts={"lbm_msgs_sent": before})),
        taken(session(at=later, counts={"lbm_msgs_sent": after}), at=later),
    )
    return only(found).per_second.get("lbm_msgs_sent")


def test_slow_and_fast() -> None:
    assert rate(7, 8, 10) == pytest.approx(0.1)
    assert rate(0, 20_000_000) == 20_000_000
    assert rate(5, 2_000_005, 0.1) == pytest.approx(20_000_000)
    assert rate(9, 9) == 0


def test_around_the_end_of_the_word() -> None:
    assert rate(END - 10, 90) == 100
    assert per_second("session", {"activity": (1 << 32) - 1}, {"activity": 4}, 1) == {"activity": 5}


def test_a_counter_that_fell_has_no_rate() -> None:
    assert rate(1000, 10) is None


@given(st.integers(0, END - 1), st.integers(0, END // 2 - 1))
def test_whatever_it_grew(before: int, grew: int) -> None:
    assert growth("session", {"msgs_sent": before}, {"msgs_sent": (before + grew) % END}) == {"msgs_sent": grew}


def test_values_of_the_moment_have_no_rate() -> None:
    found = rates(taken(session()), taken(session(at=SECOND), at=SECOND))
    assert "num_clients" not in only(found).per_second
    assert "msgs_sent" in only(found).per_second


def test_without_an_earlier_one_nothing_is_added() -> None:
    later = taken(session(at=SECOND), at=SECOND)
    assert rates(None, later) is later
    assert rates(later, later) is later
    assert rates(taken(session(at=9 * SECOND), at=9 * SECOND), later) is later


def test_each_session_has_its_own_time() -> None:
    # It was read a quarter of a second later than the snapshot began, as in one of many sessions.
    late = session(at=SECOND + SECOND // 4, counts={"msgs_sent": 125})
    found = rates(taken(session()), taken(late, at=SECOND))
    assert only(found).per_second["msgs_sent"] == 100
    assert found.seconds == 1


def test_a_session_that_began_in_between_counts_from_nothing() -> None:
    new = session("LBT-IPC:2:20002", at=2 * SECOND, counts={"lbm_msgs_sent": 50}, slots=(slot(counts={"lost": 4}),))
    found = rates(taken(), taken(new, at=2 * SECOND))
    assert only(found).per_second["lbm_msgs_sent"] == 25
    assert only(found).receivers[0].per_second["lost"] == 2


def test_a_process_that_started_anew_counts_from_nothing() -> None:
    before = taken(session(counts={"lbm_msgs_sent": 1000}))
    after = session(at=SECOND, counts={"lbm_msgs_sent": 30}, start_ns=START + 5)
    assert only(rates(before, taken(after, at=SECOND))).per_second["lbm_msgs_sent"] == 30
    again = taken(after, at=SECOND, start_ns=START + 4)  # as another context of the same number
    assert only(rates(before, again)).per_second["lbm_msgs_sent"] == 30


def test_a_reader_that_took_anothers_slot_counts_from_nothing() -> None:
    before = taken(session(slots=(slot(counts={"lbm_msgs_rcved": 1000}, latency=histogram(3, 3)),)))
    new = slot(counts={"lbm_msgs_rcved": 10}, latency=histogram(5), generation=2)
    (found,) = only(rates(before, taken(session(at=SECOND, slots=(new,)), at=SECOND))).receivers
    assert found.per_second["lbm_msgs_rcved"] == 10
    assert found.recent == histogram(5)


def test_a_topic_that_took_anothers_line_counts_from_nothing() -> None:
    before = taken(session(sources=(source(1, counts={"lbm_msgs_sent": 1000}),)))
    new = source(9, counts={"lbm_msgs_sent": 10})
    (found,) = only(rates(before, taken(session(at=SECOND, sources=(new,)), at=SECOND))).sources
    assert found.per_second["lbm_msgs_sent"] == 10


def test_what_could_not_be_read_before_has_no_rate() -> None:
    hidden = session(counters={}, reason="no permission", sources=(dataclasses.replace(source(), counters={}),))
    known = session(at=SECOND, counts={"msgs_sent": 10}, sources=(source(counts={"lbm_msgs_sent": 3}),))
    found = only(rates(taken(hidden), taken(known, at=SECOND)))
    assert (found.per_second, found.blocked, found.sources[0].per_second) == ({}, None, {})
    assert only(rates(taken(known), taken(dataclasses.replace(hidden, read_ns=SECOND), at=SECOND))).per_second == {}


def test_a_context_that_could_not_be_read_before_has_no_rate() -> None:
    before = snapshot(context(pid=0, start_ns=0, reason="it is changed just now"))
    after = taken(session(at=SECOND, counts={"msgs_sent": 10}), at=SECOND)
    assert only(rates(before, after)).per_second == {}
    young = taken(session(at=SECOND, counts={"msgs_sent": 10}), at=SECOND, start_ns=START + 3600 * SECOND + 5)
    assert only(rates(before, young)).per_second["msgs_sent"] == 10


def test_receivers_of_a_context() -> None:
    before = snapshot(context(receivers=(receiver({"lost": 1}),)))
    after = snapshot(context(at=SECOND, receivers=(receiver({"lost": 4}), receiver({"lost": 9}, START + 7))), at=SECOND)
    old, new = rates(before, after).contexts[0].receivers
    assert (old.per_second["lost"], new.per_second["lost"]) == (3, 9)


def test_latency_of_the_time_in_between() -> None:
    before = taken(session(slots=(slot(latency=histogram(2, 2, 9)),)))
    after = taken(session(at=SECOND, slots=(slot(latency=histogram(2, 2, 9, 4, 4, 5)),)), at=SECOND)
    (found,) = only(rates(before, after)).receivers
    assert found.recent is not None
    percentiles = found.recent.percentiles()
    assert percentiles is not None
    assert (percentiles.count, percentiles.p50, percentiles.max) == (3, 4, 5)


def test_blocked() -> None:
    def share(before: dict[str, int], before_for: int, after: dict[str, int], after_for: int) -> float | None:
        first = taken(session(counts=before, blocked_for_ns=before_for))
        return only(rates(first, taken(session(at=SECOND, counts=after, blocked_for_ns=after_for), at=SECOND))).blocked

    half, quarter = SECOND // 2, SECOND // 4
    assert share({}, 0, {}, 0) == 0
    assert share({"blocked_ns": 7}, 0, {"blocked_ns": 7 + half}, 0) == 0.5
    assert share({}, 0, {}, quarter) == 0.25  # a send that still waits
    assert share({}, SECOND, {}, 2 * SECOND) == 1  # one that waits all the time
    assert share({}, quarter, {"blocked_ns": half}, 0) == 0.25  # one that waited before already
    assert share({"blocked_ns": 9 * SECOND}, 0, {}, 0) == 0


def test_who_holds_up_whom() -> None:
    readers = (slot(0, lag=10), slot(1, lag=990), slot(2, lag=5000, state="evicted"))
    waiting = session(wait="blocked", blocked_for_ns=5, slots=readers)
    assert waiting.held_up_by == readers[1]
    assert session(slots=readers).held_up_by is None
    assert session(slots=readers, blocked=0.4).held_up_by == readers[1]
    assert session(slots=readers, wait="refused").held_up_by == readers[1]
    assert session(slots=readers, wait="blocked", pacing="source_paced").held_up_by is None
    assert session(wait="blocked").held_up_by is None


def test_for_how_long_the_same_one_holds_it_up() -> None:
    def looked(second: int, share: float, lag: int = 500) -> DomainSnapshot:
        counts = {"blocked_ns": round(second * share * SECOND)}
        return taken(
            session(at=second * SECOND, counts=counts, slots=(slot(0, lag=lag), slot(1, lag=400))), at=second * SECOND
        )

    found = looked(0, 0.9)
    for second in range(1, 5):
        found = rates(found, looked(second, 0.9))
    assert only(found).held_up_for_ns == pytest.approx(3.9 * SECOND)
    other = rates(found, looked(5, 0.9, lag=10))
    assert only(other).held_up_for_ns == pytest.approx(0.9 * SECOND)
    assert only(rates(looked(0, 0), looked(1, 0))).held_up_for_ns == 0
    # A source that goes on for most of the time is held up again and again, not all the time.
    found = looked(0, 0.4)
    for second in range(1, 5):
        found = rates(found, looked(second, 0.4))
    assert only(found).held_up_for_ns == pytest.approx(0.4 * SECOND)


def test_a_counter_that_fell_back_leaves_no_ratio() -> None:
    before = taken(session(counts={"msgs_sent": 1, "lbm_msgs_sent": 9}))
    found = only(rates(before, taken(session(at=SECOND, counts={"msgs_sent": 2, "lbm_msgs_sent": 3}), at=SECOND)))
    assert found.messages_per_datagram is None


def test_fill_and_messages_per_datagram() -> None:
    assert session(slots=(slot(lag=250), slot(1, lag=10))).fill == 0.25
    assert session(slots=(slot(lag=99999),)).fill == 1
    assert session().fill is None
    assert session(counts={"msgs_sent": 4, "lbm_msgs_sent": 10}).messages_per_datagram == 2.5
    assert session(per_second={"msgs_sent": 2, "lbm_msgs_sent": 10}).messages_per_datagram == 5
    assert session().messages_per_datagram is None


def test_lag_in_messages_is_of_the_size_of_late() -> None:
    before = taken(session(counts={"lbm_msgs_sent": 1000, "bytes_sent": 1000}))
    counts = {"lbm_msgs_sent": 1010, "bytes_sent": 2000}
    after = session(at=SECOND, counts=counts, slots=(slot(lag=250, lag_messages=77),))
    assert only(rates(before, taken(after, at=SECOND))).receivers[0].lag_messages == 2
    quiet = dataclasses.replace(after, counters=before.contexts[0].sessions[0].counters)
    assert only(rates(before, taken(quiet, at=SECOND))).receivers[0].lag_messages == 77
