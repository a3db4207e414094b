"""Some recoveries; `make sim` runs many thousands."""

from __future__ import annotations

import pytest

from tests.sim.recovery.world import run


@pytest.mark.parametrize("seeds", [8, pytest.param(40, marks=pytest.mark.long)])
def test_every_promised_number_is_delivered_or_reported_lost(seeds: int) -> None:
    found = set()
    for seed in range(seeds):
        try:
            found.add(run(seed))
        except Exception as error:
            error.add_note(f"replay: python -m tests.sim.recovery --seed {seed}")
            raise
    assert len(found) == seeds, "two seeds gave the same recovery"


@pytest.mark.parametrize("seed", [457, 760, 1006, 1201, 2597])
def test_an_eviction_before_the_source_has_promised_anything(seed: int) -> None:
    run(seed)


def test_a_seed_gives_the_same_recovery_each_time() -> None:
    assert run(3) == run(3)
