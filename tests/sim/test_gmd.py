"""Some guaranteed deliveries; `make sim` runs many thousands."""

from __future__ import annotations

import pytest

from tests.sim.gmd.guaranteed_world import run


@pytest.mark.parametrize("seeds", [2, pytest.param(10, marks=pytest.mark.long)])
def test_every_send_is_delivered_or_reported(seeds: int) -> None:
    found = set()
    for seed in range(seeds):
        try:
            found.add(run(seed))
        except Exception as error:
            error.add_note(f"replay: python -m tests.sim.gmd --seed {seed}")
            raise
    assert len(found) == seeds, "two seeds gave the same delivery"


def test_a_seed_gives_the_same_delivery_each_time() -> None:
    assert run(3) == run(3)


def test_a_name_that_was_forgotten_registers_again() -> None:
    run(9743)  # before the source has answered what the receiver asked under the forgotten name
