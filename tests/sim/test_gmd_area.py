"""Seeds of senders' areas on a disk that fails; `python -m tests.sim.gmd_area` runs ten thousand."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.gmd_area import run
from tests.sim.seeds import attempt


def test_areas_keep_their_word_and_come_to_everything_that_can_happen() -> None:
    found: Counter[str] = Counter()

    def count(seed: int) -> None:
        found.update(word for line in run(seed).lives for word in line.split())

    assert attempt(count, range(100)) == []
    assert min(found[word] for word in ("order", "killed", "power", "full", "error:")) > 0


@pytest.mark.long
def test_many_areas_keep_their_word() -> None:
    assert attempt(run, range(100, 6000)) == []
