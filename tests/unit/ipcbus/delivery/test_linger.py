"""How long a wait spins before it sleeps; times are ticks of no clock."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from ipcbus.delivery.linger import Linger, for_network, for_rings
from ringbuf import clock

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST, FREE = 100, 10


def experienced(sleeps: int = 1) -> Linger:
    linger = Linger(LONGEST, FREE)
    for _ in range(sleeps):
        linger.slept(LONGEST)
    return linger


def test_a_wait_spins_after_a_short_sleep_only() -> None:
    linger = Linger(LONGEST, FREE)
    assert linger.allowed(0) == 0
    linger.slept(2 * LONGEST + 1)
    assert linger.allowed(0) == 0
    linger.slept(2 * LONGEST)
    assert linger.allowed(0) == LONGEST


def test_without_a_longest_spin_each_wait_sleeps() -> None:
    linger = Linger(0, FREE)
    linger.slept(0)
    assert linger.allowed(0) == 0


def test_a_spin_keeps_the_next_one_away_for_eight_times_what_it_cost_more_than_the_sleep() -> None:
    linger = experienced()
    linger.spun(1000, 20, True)
    assert [linger.allowed(now) for now in (1000, 1079, 1080)] == [0, 0, LONGEST]


def test_a_spin_in_vain_saves_no_sleep() -> None:
    linger = experienced()
    linger.spun(1000, 20, False)
    linger.slept(LONGEST)
    linger.slept(LONGEST)
    assert [linger.allowed(now) for now in (1000, 1159, 1160)] == [0, 0, LONGEST]


def test_a_spin_that_costs_less_than_a_sleep_keeps_none_away() -> None:
    linger = experienced()
    linger.spun(1000, FREE, True)
    assert linger.allowed(1000) == LONGEST
    linger.spun(1000, FREE, False)
    assert linger.allowed(1000) == 0


def test_each_spin_in_vain_asks_for_twice_as_many_short_sleeps() -> None:
    linger, sleeps, now = experienced(), [], 0
    for _ in range(10):
        now += 10_000
        assert linger.allowed(now) == LONGEST
        linger.spun(now, LONGEST, False)
        now += 10_000
        count = 0
        while not linger.allowed(now):
            linger.slept(LONGEST)
            count += 1
        sleeps.append(count)
    assert sleeps == [2, 4, 8, 16, 32, 64, 128, 256, 256, 256]
    linger.spun(now, LONGEST, True)
    assert linger.allowed(now + 10_000) == LONGEST


def test_a_long_sleep_begins_the_count_anew() -> None:
    linger = experienced()
    linger.spun(0, LONGEST, False)
    linger.slept(LONGEST)
    linger.slept(2 * LONGEST + 1)
    linger.slept(LONGEST)
    assert linger.allowed(10_000) == 0


def test_what_spins_cost_more_than_the_sleeps_is_a_ninth_of_the_time_at_most() -> None:
    """Whatever comes when; a spin may also last longer than allowed, where another program gets the processor."""
    chance = random.Random(5)
    for _ in range(200):
        linger, now, costly = Linger(LONGEST, FREE), 0, 0
        gap = chance.choice([15, 60, 95, 150, 400])
        for _ in range(300):
            comes = now + chance.randint(1, gap)
            allowed = linger.allowed(now)
            if allowed:
                ticks = min(comes - now, allowed) + chance.choice([0, 0, 0, 50])
                found, now = comes - now <= ticks, now + ticks
                linger.spun(now, ticks, found)
                costly += max(0, ticks - FREE) if found else ticks
                if found:
                    continue
            linger.slept(max(0, comes - now) + 30)
            now = max(now, comes) + 30
        assert costly <= now / 9 + LONGEST + 50


@pytest.mark.parametrize(("made", "sleep_us"), [(for_rings, 20), (for_network, 50)])
def test_a_spin_is_free_up_to_the_cost_of_a_sleep_which_is_more_over_the_network(
    made: Callable[[int], Linger], sleep_us: int
) -> None:
    """Else two programs that call `receive()` in turn over the network sleep in each trip: 80 us instead of 20."""
    linger, us = made(100_000), 1000 / clock.tick_ns()
    linger.slept(0)
    now = int(1_000_000 * us)
    assert linger.allowed(now) == pytest.approx(100 * us, rel=0.01)
    linger.spun(now, int((sleep_us - 1) * us), True)
    assert linger.allowed(now) > 0
    linger.spun(now, int((sleep_us + 1) * us), True)
    assert linger.allowed(now) == 0
