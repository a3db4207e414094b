from __future__ import annotations

import dataclasses
import itertools
from random import Random

import pytest

from ipcbus.reliability.loss_detector import ASKS_MAX, TABLE, Cause, LossDetector, NakSettings, State
from ipcbus.reliability.receive_state import ReceiveSettings, ReceiveState
from ipcbus.reliability.round_trip import RoundTrip
from ipcbus.wire.udp_packets import NCF_IGNORED, NCF_RX_DELAY, NCF_SHED
from tests.kit.cases import each_of

MS = 1_000_000
TERMS = NakSettings(initial_backoff=50 * MS, backoff=200 * MS, suppress=1000 * MS, generation=10_000 * MS)


class Middle(Random):
    """Draws the middle, so that backoffs are as long as their options."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def lost(*numbers: int, terms: NakSettings = TERMS, random: Random | None = None) -> LossDetector:
    found = LossDetector(terms, Middle() if random is None else random)
    for number in numbers:
        assert found.add_missing(number, number + 1, 0) == ([], range(number, number))
    return found


def asked(found: LossDetector, until: int) -> list[tuple[int, list[int]]]:
    """When which numbers are asked for, in ms."""
    told = []
    while (now := found.next_ns) is not None and now <= until:
        asks, given_up = found.due(now)
        if asks:
            told.append((now // MS, asks))
        if not asks and not given_up:
            following = found.next_ns
            assert following is None or following > now
    return told


def test_every_state_knows_every_cause() -> None:
    assert set(TABLE) == {(state, cause) for state in State for cause in Cause}


def test_asked_for_again_and_again_until_it_is_given_up() -> None:
    found = lost(5)
    times = [time for time, _ in asked(found, 20_000 * MS)]
    assert times == list(range(50, 10_000, 200))
    assert len(found) == 0


def test_the_first_of_as_many_as_are_remembered() -> None:
    found, count = LossDetector(TERMS, Middle()), TERMS.entries_max
    found.add_missing(0, count, 0)
    for number in range(count):
        assert found.first == number
        assert found.drop_below(number) == []
        assert found.recover(number, MS) is not None
    assert found.first is None


def test_at_once_without_a_first_backoff() -> None:
    found = lost(5, terms=NakSettings(initial_backoff=0))
    assert found.due(0) == ([5], [])


def test_found_missing_together_asked_for_together() -> None:
    found = LossDetector(TERMS, Random(1))
    found.add_missing(3, 7, 0)
    assert found.next_ns is not None
    assert found.due(found.next_ns) == ([3, 4, 5, 6], [])


def test_what_comes_first_is_never_asked_for() -> None:
    found = lost(5)
    recovered = found.recover(5, 30 * MS)
    assert recovered == (30 * MS, 0, 0, 0)
    assert asked(found, 20_000 * MS) == []
    assert found.recover(5, 31 * MS) is None


def test_an_ncf_suppresses() -> None:
    found = lost(5, 6)
    assert found.due(50 * MS) == ([5, 6], [])
    assert found.ncf([5, 99], NCF_SHED, 60 * MS) == 1
    told = asked(found, 1500 * MS)
    assert [time for time, numbers in told if 6 in numbers] == [250, 450, 650, 850, 1050, 1250, 1450]
    # Not for the suppress interval, then after another backoff.
    assert [time for time, numbers in told if 5 in numbers] == [1260, 1460]


@pytest.mark.parametrize(("generation", "times"), [(500, []), (1500, [1210, 1410])])
def test_an_ncf_before_the_first_nak_gives_no_more_time(generation: int, times: list[int]) -> None:
    found = lost(5, terms=dataclasses.replace(TERMS, generation=generation * MS))
    found.ncf([5], NCF_SHED, 10 * MS)  # another receiver has asked
    assert [time for time, _ in asked(found, 5000 * MS)] == times
    assert len(found) == 0


def test_who_waits_for_its_turn_keeps_that_time_when_an_ncf_comes() -> None:
    found = lost(5, terms=dataclasses.replace(TERMS, generation=1500 * MS))
    found.asks_max = 0
    assert found.due(400 * MS) == ([], [])
    found.ncf([5], NCF_SHED, 400 * MS)  # it has waited for 350 ms
    found.asks_max = 1
    assert [time for time, _ in asked(found, 5000 * MS)] == [1600, 1800]
    assert len(found) == 0


def test_what_the_source_holds_no_more() -> None:
    found = lost(3, 4, 9)
    assert found.drop_below(5) == [3, 4]
    assert found.drop_below(5) == []
    assert 9 in found


def test_no_more_than_it_may_remember() -> None:
    terms = NakSettings(entries_max=3)
    found = LossDetector(terms, Middle())
    assert found.add_missing(0, 2, 0) == ([], range(0))
    assert found.add_missing(10, 12, 0) == ([0], range(10, 10))
    assert [number in found for number in (0, 1, 10, 11)] == [False, True, True, True]
    assert found.add_missing(100, 1_000_000_000_000, 0) == ([1, 10, 11], range(100, 999_999_999_997))
    assert len(found) == 3
    assert 999_999_999_999 in found


def test_who_is_refused_for_ever_takes_no_memory() -> None:
    found = lost(5)
    for now in range(10_000):
        found.ncf([5], NCF_SHED, now)
    assert len(found._timers) < 2000
    assert found.next_ns is not None


@each_of("seed", range(20))
def test_backoffs_are_drawn_from_half_to_one_and_a_half(seed: int) -> None:
    found = lost(5, random=Random(seed))
    assert found.next_ns is not None
    assert 25 * MS <= found.next_ns <= 75 * MS
    now = found.next_ns
    found.due(now)
    assert found.next_ns is not None
    assert 100 * MS <= found.next_ns - now <= 300 * MS


def test_a_timer_from_before_a_refusal_means_nothing() -> None:
    """The number was to be asked for again at 250 ms; the NCF puts that off, and no request breaks it."""
    found = lost(7)
    assert found.due(50 * MS) == ([7], [])
    assert found.ncf([7], NCF_SHED, 100 * MS) == 1
    assert found.due(300 * MS) == ([], [])
    assert asked(found, 2000 * MS) == [(1300, [7]), (1500, [7]), (1700, [7]), (1900, [7])]


def test_only_so_many_are_asked_for_at_a_time_the_oldest_first() -> None:
    found = LossDetector(NakSettings(initial_backoff=0, backoff=200 * MS), Middle())
    found.add_missing(0, 2 * ASKS_MAX, 0)
    assert found.due(0) == (list(range(ASKS_MAX)), [])
    assert found.due(1) == ([], [])
    for number in (3, 5):
        found.recover(number, 2)
    assert found.next_ns is not None
    assert found.next_ns <= 2
    assert found.due(2) == ([ASKS_MAX, ASKS_MAX + 1], [])
    # Those that do not come leave their places after twice the round trip, 20 ms before it is measured.
    asks, _ = found.due(40 * MS)
    assert asks == list(range(ASKS_MAX + 2, 2 * ASKS_MAX))


def test_what_the_source_will_send_later_keeps_its_place() -> None:
    found = LossDetector(NakSettings(initial_backoff=0), Middle())
    found.asks_max = 1
    found.add_missing(0, 2, 0)
    assert found.due(0) == ([0], [])
    assert found.ncf([0], NCF_RX_DELAY, 5 * MS) == 1
    assert found.due(500 * MS) == ([], [])
    found.recover(0, 501 * MS)
    assert found.due(501 * MS) == ([1], [])


def test_what_was_sent_just_before_is_asked_for_again_after_a_backoff() -> None:
    found = lost(5)
    assert found.due(50 * MS) == ([5], [])
    assert found.ncf([5], NCF_IGNORED, 60 * MS) == 1
    assert [time for time, _ in asked(found, 700 * MS)] == [260, 460, 660]


def test_a_pause_before_the_first_nak_gives_nothing_up() -> None:
    found = lost(5)
    assert found.due(11_000 * MS) == ([5], [])
    # Ten seconds after it might have been found missing without the pause.
    assert asked(found, 30_000 * MS)[-1][0] == 20_800
    assert len(found) == 0


def test_the_first_nak_waits_for_a_measured_time() -> None:
    round_trip = RoundTrip()
    round_trip.note_answer(40 * MS)
    found = LossDetector(NakSettings(initial_backoff=-1), Random(1), round_trip)
    found.add_missing(0, 1, 0)
    assert found.next_ns == 10 * MS


def test_the_next_naks_wait_for_the_measured_round_trip_and_then_longer() -> None:
    round_trip = RoundTrip()
    for _ in range(50):
        round_trip.note_answer(40 * MS)
    found = LossDetector(NakSettings(initial_backoff=-1), Middle(), round_trip)
    found.add_missing(0, 1, 0)
    times = [time for time, _ in asked(found, 1500 * MS)]
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert times[0] == 10
    assert waits[:6] == [56, 56, 56, 113, 200, 200]


def test_members_of_a_group_do_not_ask_again_at_one_moment() -> None:
    round_trip = RoundTrip()
    round_trip.note_answer(MS)
    again = set()
    for seed in range(20):
        found = LossDetector(NakSettings(initial_backoff=50 * MS), Random(seed), round_trip)
        found.add_missing(0, 1, 0)
        first, second, *_ = asked(found, 200 * MS)
        again.add(second[0] - first[0])
    assert min(again) >= 24
    assert max(again) <= 76
    assert len(again) > 10


def test_a_nak_that_came_too_early_makes_the_next_ones_wait_longer() -> None:
    """The way has become longer than what was measured: the second NAK is answered although the first one was."""
    state = ReceiveState(ReceiveSettings(NakSettings(initial_backoff=-1)), Random(1), 0, 0)
    for _ in range(50):
        state._round_trip.note_answer(10 * MS)
    before = state._round_trip.repeat_ns
    state.receive_data(1, 0, 10, 0)
    while (now := state.next_ns) < 100 * MS:
        state.turn(now)
    assert state.counts.naks_sent > 1
    assert state.receive_data(0, 0, 10, 100 * MS, again=True)
    assert not state.receive_data(0, 0, 10, 115 * MS, again=True)
    assert state._round_trip.repeat_ns > 2 * before


def test_what_is_overtaken_puts_off_the_first_nak_and_losses_bring_it_back() -> None:
    round_trip = RoundTrip()
    round_trip.note_answer(4 * MS)
    assert round_trip.first_backoff_ns == MS
    for late in range(100):
        round_trip.note_overtaken(late % 6 * MS)
    assert 5 * MS < round_trip.first_backoff_ns < 15 * MS
    for _ in range(200):
        round_trip.note_loss()
    assert round_trip.first_backoff_ns < 2 * MS
