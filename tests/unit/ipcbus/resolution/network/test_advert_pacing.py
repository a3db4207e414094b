from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from ipcbus.resolution.network import advert_phases
from ipcbus.resolution.network.advert_pacing import AdvertPacing, Phase, Schedule
from ipcbus.resolution.network.resolution_settings import ResolutionSettings

MS = 1_000_000
S = 1000 * MS
FREE = (AdvertPacing(0, 0), AdvertPacing(0, 0))


def run(schedule: Schedule[str], until_ns: int, now_ns: int = 0) -> list[tuple[int, str]]:
    """What is told until then, at its times in ms."""
    found = []
    while (due_ns := schedule.next_ns) is not None and due_ns <= until_ns:
        now_ns = max(now_ns, due_ns)
        for lane in advert_phases.LANES[: 2 if len(schedule._lanes) > 1 else 1]:
            while schedule.ready(lane, now_ns):
                key = schedule.first(lane, now_ns)
                assert key is not None
                found.append((now_ns // MS, key))
                schedule.sent(lane, now_ns)
                schedule.pace(lane).count(1, 100, now_ns)
    return found


def test_adverts_are_told_as_in_ultra_messaging_and_ever_after() -> None:
    schedule = advert_phases.queries(ResolutionSettings(), 0)
    adverts: Schedule[str] = advert_phases.adverts(ResolutionSettings(), 0)  # type: ignore[assignment]
    adverts.add("a", 0)
    times = [time for time, _ in run(adverts, 200 * S)]
    assert times[:8] == [0, 10, 30, 70, 150, 310, 630, 1130]
    assert len([time for time in times if time < 5000]) == 15
    assert times[15:17] == [5700, 6700]  # at ticks of 100 ms
    assert len([time for time in times if 5000 <= time < 65000]) == 60
    assert times[-1] - times[-2] == 10_000
    schedule.add("a", 0)
    times = [time for time, _ in run(schedule, 5 * S)]
    assert times[:6] == [0, 20, 60, 140, 300, 500]


def test_wildcards_end() -> None:
    schedule = advert_phases.wildcards(ResolutionSettings(), 0)
    schedule.add("a", 0)
    times = [time for time, _ in run(schedule, 10_000 * S)]
    assert times[:4] == [0, 50, 150, 350]
    assert 59_000 < times[-1] <= 60_000
    assert schedule.next_ns is None
    assert "a" in schedule
    schedule.restart("a", 0, 100 * S)
    assert schedule.next_ns == 100 * S


def test_ticks_begin_at_the_offset() -> None:
    schedule = Schedule[str]((Phase(S, S, 0, 0, S),), (AdvertPacing(0, 0),), 300 * MS)
    schedule.add("a", 0)
    schedule.add("b", 100 * MS)
    assert run(schedule, 4 * S) == [
        *[(0, "a"), (100, "b")],
        *[(1300, "a"), (1300, "b"), (2300, "a"), (2300, "b"), (3300, "a"), (3300, "b")],
    ]


def test_removed_is_told_no_more_and_added_twice_is_once() -> None:
    schedule = Schedule[str]((Phase(S, S, 0, 0),), FREE, 0)
    schedule.add("a", 0)
    schedule.add("a", 0)
    assert (len(schedule), list(schedule)) == (1, ["a"])
    assert schedule.remove("a")
    assert not schedule.remove("a")
    assert schedule.next_ns is None


def test_who_asks_hears_it_soon_unless_it_was_told_just_now() -> None:
    schedule = Schedule[str]((Phase(S, S, 3 * S, 0), Phase(10 * S, 10 * S, 0, 1)), FREE, 0)
    schedule.add("a", 0)
    assert run(schedule, 0) == [(0, "a")]
    schedule.ask("a", 50 * MS, 100 * MS)
    assert schedule.next_ns == S
    schedule.ask("a", 150 * MS, 100 * MS)
    schedule.ask("a", 160 * MS, 100 * MS)
    assert run(schedule, 500 * MS) == [(150, "a")]
    assert len(run(schedule, 20 * S)) > 2
    assert schedule.next_ns is not None
    assert schedule.next_ns > 20 * S
    schedule.ask("a", 20 * S + 1, 0)
    assert schedule.next_ns == 20 * S + 1
    assert run(schedule, 20 * S + 1) == [(20_000, "a")]
    schedule.ask("a", 21 * S, 0, phase=0)
    assert run(schedule, 23 * S) == [(21_000, "a"), (22_000, "a"), (23_000, "a")]


@given(st.integers(0, 50), st.sampled_from([0, 10, 1000]), st.sampled_from([0, 10_000, 1_000_000]))
def test_the_pace_is_never_over_and_nothing_is_lost(count: int, things: int, bits: int) -> None:
    pace = AdvertPacing(things, bits)
    schedule = Schedule[str]((Phase(S, S, 0, 0),), (pace,), 0)
    for number in range(count):
        schedule.add(str(number), 0)
    told = run(schedule, 10 * S)
    assert {key for _, key in told} == {str(number) for number in range(count)}
    cost = max(1000 / things if things else 0, 800_000 / bits if bits else 0)
    for (earlier, _), (later, _) in itertools.pairwise(told):
        assert later - earlier >= int(cost)


def test_a_pace_may_go_ahead() -> None:
    pace = AdvertPacing(0, 8000, ahead_ns=S)
    sent = 0
    while pace.free_ns <= 0:
        pace.count(1, 100, 0)
        sent += 100
    assert 1000 <= sent <= 1200
    pace.count(1, 10, 100 * S)
    assert pace.free_ns <= 100 * S
