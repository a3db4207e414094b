"""What incomplete streams may take, to the entry and to the byte."""

from __future__ import annotations

import pytest

from ipcbus.delivery.reassembly_budget import ReassemblyBudget


@pytest.mark.parametrize(("entries", "exceeded"), [(0, False), (3, False), (4, True)])
def test_entries_may_reach_their_bound(entries: int, exceeded: bool) -> None:
    budget = ReassemblyBudget(entries_max=3)
    budget.entries = entries
    assert budget.exceeded == exceeded


def test_a_bound_of_0_is_none() -> None:
    budget = ReassemblyBudget(entries_max=0)
    budget.entries = 10**9
    assert not budget.exceeded


def test_one_message_as_long_as_the_bound_fits_and_no_other_beside_it() -> None:
    budget = ReassemblyBudget(bytes_max=1000)
    assert not budget.reserve(1001)
    assert budget.bytes == 0
    assert budget.reserve(1000)
    assert not budget.reserve(2)
    budget.release(1000)
    assert budget.bytes == 0


def test_small_messages_count_what_they_take_besides_their_bytes() -> None:
    budget = ReassemblyBudget(bytes_max=10_000)
    held = 0
    while budget.reserve(2):
        held += 1
    assert held == 20
    for _ in range(held):
        budget.release(2)
    assert budget.bytes == 0
