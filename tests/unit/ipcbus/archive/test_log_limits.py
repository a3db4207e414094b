"""Limits of a log: what is out of range is refused with the range."""

from __future__ import annotations

from typing import Any

import pytest

from ipcbus.archive.log_limits import Limits
from ipcbus.errors import ConfigError
from tests.kit.cases import each_of


@each_of(
    "wrong",
    [
        {"segment_bytes": 4095},
        {"segment_seconds": 0},
        {"retain_bytes": -1},
        {"retain_seconds": -0.5},
        {"retain_bytes": 100, "hard_cap_bytes": 99},
        {"cursor_max_age_seconds": -1},
        {"sync_seconds": float("nan")},
        {"sync": "often"},
    ],
)
def test_a_limit_out_of_range_is_refused_by_its_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=list(wrong)[-1]):
        Limits(**wrong)


@each_of(
    ("given", "cap"),
    [
        ({}, None),
        ({"retain_bytes": 100}, 200),
        ({"retain_bytes": 100, "hard_cap_bytes": 100}, 100),
        ({"hard_cap_bytes": 7}, 7),
    ],
)
def test_the_hard_cap_is_twice_the_retention_unless_it_is_given(given: dict[str, Any], cap: int | None) -> None:
    assert Limits(**given).cap_bytes == cap
