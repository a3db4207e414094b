"""Seeds of archives on a disk that fails; `python -m tests.sim.archive` runs ten thousand."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.archive import run
from tests.sim.seeds import attempt


def test_archives_keep_their_word_and_come_to_everything_that_can_happen() -> None:
    found: Counter[str] = Counter()

    def count(seed: int) -> None:
        found.update(word for line in run(seed).lives for word in line.replace(",", " ").split())

    assert attempt(count, range(60)) == []
    assert min(found[word] for word in ("order", "operation", "killed", "lost", "mending", "readable", "sync")) > 0


@pytest.mark.long
def test_many_archives_keep_their_word() -> None:
    assert attempt(run, range(60, 6000)) == []


def test_a_seed_replays_itself() -> None:
    for seed in (3, 14):
        one, other = run(seed), run(seed)
        assert (one.lives, one.shown, one.disk.operations) == (other.lives, other.shown, other.disk.operations)
