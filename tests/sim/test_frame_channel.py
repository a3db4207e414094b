"""Seeds of control channels over datagrams: each frame comes once and in order, or the channel breaks."""

from __future__ import annotations

import pytest

from tests.sim.frame_world import run


@pytest.mark.parametrize("part", [0, 1, *(pytest.param(part, marks=pytest.mark.long) for part in range(2, 5))])
def test_each_frame_comes_once_and_in_order_or_the_channel_breaks(part: int) -> None:
    faults, broken, taken = [], 0, 0
    for seed in range(part * 20, part * 20 + 20):
        world = run(seed)
        faults += [f"seed {seed}: {fault}" for fault in world.faults]
        broken += bool(world.openers[-1].window.broken)
        taken += sum(len(each.taken) for each in world.openers + world.accepted)
    assert faults == []
    assert taken > 1000
    assert broken < 15


def test_a_seed_replays_itself() -> None:
    one, other = run(5), run(5)
    assert one.sent
    assert one.sent == other.sent
