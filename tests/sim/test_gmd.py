"""Some guaranteed deliveries; `make sim` runs many thousands."""

from __future__ import annotations

import pytest

from tests.sim.gmd.guaranteed_world import run

SEEDS = 20
PART = 10


@pytest.mark.parametrize("part", range(SEEDS // PART))
def test_every_send_is_delivered_or_reported(part: int) -> None:
    for seed in range(part * PART, (part + 1) * PART):
        try:
            run(seed)
        except Exception as error:
            error.add_note(f"replay: python -m tests.sim.gmd --seed {seed}")
            raise


@pytest.mark.parametrize("seed", range(0, SEEDS, 10))
def test_a_seed_gives_the_same_delivery_each_time(seed: int) -> None:
    assert run(seed) == run(seed)


def test_deliveries_differ() -> None:
    assert len({run(seed) for seed in range(10)}) == 10
