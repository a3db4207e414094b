"""A few hundred storms; `make sim` runs many thousands."""

from __future__ import annotations

import pytest

from tests.sim.storm import run

STORMS = 150
PART = 50


@pytest.mark.parametrize("part", range(STORMS // PART))
def test_every_number_is_delivered_or_reported_lost(part: int) -> None:
    for seed in range(part * PART, (part + 1) * PART):
        try:
            run(seed)
        except Exception as error:
            error.add_note(f"replay: python -m tests.sim --seed {seed}")
            raise


@pytest.mark.parametrize("seed", range(0, STORMS, 30))
def test_a_seed_gives_the_same_storm_each_time(seed: int) -> None:
    assert run(seed) == run(seed)


def test_storms_differ() -> None:
    assert len({run(seed) for seed in range(10)}) == 10
