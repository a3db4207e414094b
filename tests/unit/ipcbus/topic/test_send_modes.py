"""Delivery modes and timeouts, as callers give them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ipcbus.errors import ConfigError
from ipcbus.topic import send_modes
from tests.kit.cases import each_of


@each_of(("name", "number"), [("best_effort", 0), ("ordered", 0), ("some", 1), ("all", 2)])
def test_each_mode_has_a_number(name: str, number: int) -> None:
    assert send_modes.checked_mode("t", name, guarantees=True) == number


@each_of("name", ["", "ALL", "every", 2, None])
def test_other_names_are_refused(name: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(ConfigError, match="topic 't': delivery_mode = .*give one of best_effort"):
        send_modes.checked_mode("t", name, guarantees=True)


def test_a_guarantee_needs_an_area() -> None:
    with pytest.raises(ConfigError, match="gmd_name"):
        send_modes.checked_mode("t", "some", guarantees=False)
    assert send_modes.checked_mode("t", "ordered", guarantees=False) == 0


@each_of(("seconds", "ns"), [(0, 0), (5, 5_000_000_000), (0.25, 250_000_000), (1e-12, 1)])
def test_a_timeout_is_kept_in_ns(seconds: float, ns: int) -> None:
    assert send_modes.checked_timeout_ns("t", seconds, guaranteed=True) == ns


@each_of("seconds", [-1, math.nan, math.inf, 2**40])
def test_a_timeout_has_limits(seconds: float) -> None:
    with pytest.raises(ValueError, match="delivery_timeout"):
        send_modes.checked_timeout_ns("t", seconds, guaranteed=True)


@pytest.mark.parametrize("seconds", ["5", True, None])
def test_a_timeout_is_a_number(seconds: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(TypeError, match="delivery_timeout"):
        send_modes.checked_timeout_ns("t", seconds, guaranteed=True)


def test_a_timeout_is_for_guaranteed_messages() -> None:
    with pytest.raises(ConfigError, match="guaranteed messages"):
        send_modes.checked_timeout_ns("t", 1, guaranteed=False)
