"""Seeds of topic resolution; `python -m tests.sim.resolution` runs a thousand."""

from __future__ import annotations

import pytest

from tests.sim.resolution import run


def test_everybody_finds_and_forgets_in_time_and_a_seed_replays_itself() -> None:
    for seed in range(2):
        world = run(seed)
        assert not world.faults(), f"seed {seed}"
    assert len(world.log) > 100
    assert run(seed).log == world.log


@pytest.mark.long
def test_many_storms() -> None:
    for seed in range(2, 1000):
        assert not run(seed).faults(), f"seed {seed}"
