"""The common grid of timers: one turn serves all of them, also one that comes early."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ipcbus.delivery import timer_grid

MS_NS = 1_000_000


def test_a_timer_may_run_an_eighth_of_its_interval_early_and_30_ms_at_most() -> None:
    assert [timer_grid.lead_ns(interval * MS_NS) for interval in (8, 100, 250, 1000)] == [
        1 * MS_NS,
        12_500_000,
        30 * MS_NS,
        30 * MS_NS,
    ]


@given(st.integers(0, 1 << 62), st.integers(1, 10_000_000_000))
def test_each_timer_is_due_once_in_an_interval_however_early_it_runs(now_ns: int, interval_ns: int) -> None:
    due_ns = timer_grid.next_ns(now_ns, interval_ns)
    lead_ns = timer_grid.lead_ns(interval_ns)
    assert due_ns % interval_ns == 0
    assert 0 < due_ns - lead_ns - now_ns <= interval_ns  # not again at once
