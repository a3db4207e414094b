"""Changed packets; `python -m tests.fuzz.packets` is the long form by hand."""

from __future__ import annotations

import pytest

from tests.fuzz.packets import fuzz


def test_changed_packets_do_no_harm() -> None:
    told = fuzz(11_000, seed=1)
    # They got past the parser, and the sessions went on meanwhile.
    assert told["delivered"] > 100
    assert told["malformed"] > 100
    assert told["unproven"] > 20
    assert told["ended"] > 0


@pytest.mark.long
def test_a_million_changed_packets_do_no_harm() -> None:
    assert fuzz(1_000_000, seed=2)["delivered"] > 10_000
