"""Seeds of topic resolution; `python -m tests.sim.resolution` runs a thousand."""

from __future__ import annotations

import pytest

from tests.sim.resolution import run


@pytest.mark.parametrize("four", range(2))
def test_everybody_finds_and_forgets_in_time(four: int) -> None:
    for seed in range(4 * four, 4 * four + 4):
        assert not run(seed).faults(), f"seed {seed}"


@pytest.mark.long
def test_many_storms() -> None:
    for seed in range(16, 1000):
        assert not run(seed).faults(), f"seed {seed}"


def test_a_seed_replays_itself() -> None:
    log = run(3).log
    assert len(log) > 100
    assert run(3).log == log
