"""Seeds of sessions over UDP; `python -m tests.sim.reliability` runs ten thousand."""

from __future__ import annotations

from tests.sim.reliability import attempt, table
from tests.sim.udp_world import run


def test_nothing_is_lost_without_a_number() -> None:
    rows, failed = attempt(range(100))
    assert failed == []
    assert sum(row["sessions"] for row in rows.values()) >= 100
    clear = [row for name, row in rows.items() if "nothing hinders" in name]
    assert sum(row["delivered"] for row in clear) > 500
    assert "| 10% | nothing hinders |" in table(rows)


def test_a_seed_replays_itself() -> None:
    for seed in (3, 14, 159):
        one, other = run(seed), run(seed)
        assert one.log
        assert one.log == other.log
