"""Receivers of one context, made and closed at any moment, get exactly what each one's own options say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.histories import Course

if TYPE_CHECKING:
    from tests.kit.bus import Bus

pytestmark = pytest.mark.parametrize("mode", ["sequential"])


@pytest.mark.parametrize("seed", range(3))
def test_each_receiver_gets_what_it_wants(bus: Bus, seed: int) -> None:
    Course(bus, seed).run()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3, 60))
def test_each_receiver_gets_what_it_wants_in_many_courses(bus: Bus, seed: int) -> None:
    Course(bus, seed).run()
