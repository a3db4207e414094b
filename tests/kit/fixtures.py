"""Fixtures for tests with several processes; a conftest imports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.bus import MODES
from tests.kit.peers import Peers
from tests.kit.zygote import Zygote

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """What forks the peers; one a session, so no test that uses it leaves it behind."""
    with Zygote() as started:
        yield started


@pytest.fixture
def peers(zygote: Zygote, domain: str) -> Iterator[Peers]:
    """Processes in the domain of the test, ended with it."""
    started = Peers(zygote, domain)
    yield started
    started.clear()


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """Who drives the contexts."""
    return str(request.param)
