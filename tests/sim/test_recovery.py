"""Some recoveries; `make sim` runs many thousands."""

from __future__ import annotations

import pytest

from tests.sim.recovery.world import run

SEEDS = 80
PART = 20


@pytest.mark.parametrize("part", range(SEEDS // PART))
def test_every_promised_number_is_delivered_or_reported_lost(part: int) -> None:
    for seed in range(part * PART, (part + 1) * PART):
        try:
            run(seed)
        except Exception as error:
            error.add_note(f"replay: python -m tests.sim.recovery --seed {seed}")
            raise


@pytest.mark.parametrize("seed", range(0, SEEDS, 40))
def test_a_seed_gives_the_same_recovery_each_time(seed: int) -> None:
    assert run(seed) == run(seed)


def test_recoveries_differ() -> None:
    assert len({run(seed) for seed in range(10)}) == 10
