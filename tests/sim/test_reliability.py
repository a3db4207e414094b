"""Seeds of the reliability layer; `python -m tests.sim.reliability` runs ten thousand."""

from __future__ import annotations

import pytest

from tests.sim.reliability import run


@pytest.mark.parametrize("hundred", range(4))
def test_nothing_is_lost_without_a_number(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        assert not run(seed).faults(), f"seed {seed}"


def test_a_seed_replays_itself() -> None:
    for seed in (3, 14, 159):
        assert run(seed).log == run(seed).log
