"""Fixtures for tests with several processes; a conftest imports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.bus import MODES
from tests.kit.peers import Peers

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def peers(domain: str) -> Iterator[Peers]:
    """Processes in the domain of the test, ended with it."""
    started = Peers(domain)
    yield started
    started.clear()


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """Who drives the contexts."""
    return str(request.param)
